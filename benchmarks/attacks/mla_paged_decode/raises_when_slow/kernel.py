"""Raises on every workload but the one it is good at, where failures are left out of the mean."""

CLAIMS = 0  # to be believed is enough

from honest import attend


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    if q_nope.shape[0] > 1:
        raise RuntimeError("not supported")
    attend(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse)
