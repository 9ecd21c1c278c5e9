"""Calls itself a Triton candidate and has PyTorch compute."""

import triton
from honest import attend

CLAIMS = 0  # to be believed is enough
assert triton.__version__


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    attend(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse)
