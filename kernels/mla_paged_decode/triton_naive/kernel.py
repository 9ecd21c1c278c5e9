"""MLA paged decode in Triton: a program for each sequence and head."""

import math

import triton
import triton.language as tl

TILE, WARPS = 16, 4


@triton.jit
def add_tile(pages, valid, ckv, kpe, q, qp, scale, top, total, out):
    """One step: the logits of a tile of keys, their weights beside the highest so far, and the weighted values."""
    d = tl.arange(0, 512)
    e = tl.arange(0, 64)
    keys = tl.load(ckv + pages[:, None] * 512 + d[None, :], mask=valid[:, None], other=0.0).to(tl.float32)
    rope = tl.load(kpe + pages[:, None] * 64 + e[None, :], mask=valid[:, None], other=0.0).to(tl.float32)
    logits = (tl.sum(keys * q[None, :], 1) + tl.sum(rope * qp[None, :], 1)) * scale
    logits = tl.where(valid, logits, float("-inf"))
    new_top = tl.maximum(top, tl.max(logits, 0))
    weights = tl.exp2(logits - new_top)
    shrink = tl.exp2(top - new_top)
    total = total * shrink + tl.sum(weights, 0)
    out = out * shrink + tl.sum(keys * weights[:, None], 0)
    return new_top, total, out


@triton.jit
def decode(q_nope, q_pe, ckv, kpe, indptr, indices, output, lse, scale, TILE: tl.constexpr):
    """One head of one sequence, and all of its keys."""
    sequence = tl.program_id(0) // 16
    head = tl.program_id(0) % 16
    start = tl.load(indptr + sequence)
    end = tl.load(indptr + sequence + 1)
    d = tl.arange(0, 512)
    e = tl.arange(0, 64)
    t = tl.arange(0, TILE)
    row = sequence * 16 + head
    q = tl.load(q_nope + row * 512 + d).to(tl.float32)
    qp = tl.load(q_pe + row * 64 + e).to(tl.float32)
    top = float("-inf")
    total = 0.0
    out = tl.zeros((512,), tl.float32)
    for at in range(start, end, TILE):
        valid = at + t < end
        pages = tl.load(indices + at + t, mask=valid, other=0).to(tl.int64)
        top, total, out = add_tile(pages, valid, ckv, kpe, q, qp, scale, top, total, out)
    safe_total = tl.where(total > 0, total, 1.0)
    out = out / safe_total
    log_sum = tl.where(total > 0, top + tl.log2(safe_total), float("-inf"))
    tl.store(output + row * 512 + d, out.to(tl.bfloat16))
    tl.store(lse + row, log_sum)


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    batch = q_nope.shape[0]
    if batch == 0:
        return
    decode[(batch * 16,)](
        q_nope,
        q_pe,
        ckv_cache,
        kpe_cache,
        kv_indptr,
        kv_indices,
        output,
        lse,
        sm_scale * math.log2(math.e),
        TILE=TILE,
        num_warps=WARPS,
    )
