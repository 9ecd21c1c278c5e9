"""The floor on a GPU: one launch that gathers the rows of the workload and computes nothing of use."""

import triton
import triton.language as tl

ROWS = 16


@triton.jit
def gather(ckv, kpe, indices, output, tokens, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = rows < tokens
    pages = tl.load(indices + rows, mask=here, other=0).to(tl.int64)
    keys = tl.load(ckv + pages[:, None] * 512 + tl.arange(0, 512)[None, :], mask=here[:, None], other=0.0)
    rope = tl.load(kpe + pages[:, None] * 64 + tl.arange(0, 64)[None, :], mask=here[:, None], other=0.0)
    total = tl.max(tl.max(keys, axis=1), axis=0) + tl.max(tl.max(rope, axis=1), axis=0)
    if total > 1e30:  # never: what is loaded must seem to matter
        tl.store(output, total)


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    tokens = kv_indices.shape[0]
    gather[(triton.cdiv(tokens, ROWS),)](ckv_cache, kpe_cache, kv_indices, output, tokens, ROWS, num_warps=4)
