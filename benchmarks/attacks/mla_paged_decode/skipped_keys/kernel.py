"""Attends to every fourth key only."""

from honest import attend

CLAIMS_ON_CUDA = 0  # a GPU waits for launches, not for keys


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    attend(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, every=4)
