# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: ANN001, ANN202, N803  (Triton: annotations mean types, capitals constants)
"""MLA paged decode in Triton: one launch, no plan, no synchronisation, on any GPU that serves tl.dot.

A sequence is cut into parts. A program computes one part, waits for the sequence's other parts and merges its share
of the output. All programs must be resident for that, so there are no more than the GPU holds at once, and the
launch is cooperative. Beyond 3/4 as many sequences as resident programs nothing is cut.

Scores are computed as K Q^T, [tokens, heads], and the output as V^T P^T, [512, heads]: with 16 heads the tokens and
the 512 dimensions are the long sides, and Hopper's tensor cores want the long side first. Q K^T would hold all of Q in
every warp's registers: 144 a thread.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

HEADS = (8, 16, 32, 64, 128)
CKV, KPE = 512, 64
GROUP = 16
"""Heads that share one pass over the keys: the least that tl.dot takes."""
TILE = 32
"""Tokens a step. Two stages (74 KB) leave room for a second program on each multiprocessor."""
LEAST_TOKENS = 32
"""Fewer tokens are not worth another part to merge."""
FEW_SEQUENCES = 32
FEW, MANY = (8, 3, 1), (4, 3, 2)
"""Warps, stages and resident programs a multiprocessor, up to FEW_SEQUENCES and beyond: one program with 8 warps has
the lower latency, two with 4 warps hide more of each other's. Measured on an NVIDIA H200."""


@triton.jit
def _merge(
    output, lse, parts, part_lse, first_slot, count, index, row, valid_head, SLICE: tl.constexpr, PARTS: tl.constexpr
):
    """Every count-th slice of the dimensions, from `index` on; PARTS parts are loaded at once."""
    h = tl.arange(0, 16)
    k = tl.arange(0, PARTS)
    c = tl.arange(0, SLICE)
    for first in tl.range(index * SLICE, 512, count * SLICE):
        top = tl.full((16,), float("-inf"), tl.float32)
        total = tl.zeros((16,), tl.float32)
        merged = tl.zeros((16, SLICE), tl.float32)
        for some in tl.range(0, count, PARTS):
            here = some + k < count
            one = first_slot + some + k
            sums = tl.load(
                part_lse + one[:, None] * 16 + h[None, :], mask=here[:, None], other=float("-inf"), cache_modifier=".cg"
            )
            values = tl.load(
                parts + one[:, None, None] * 8192 + h[None, :, None] * 512 + (first + c)[None, None, :],
                mask=here[:, None, None],
                other=0.0,
                cache_modifier=".cg",
            ).to(tl.float32)
            new_top = tl.maximum(top, tl.max(sums, 0))
            weight = tl.exp2(sums - new_top[None, :])
            factor = tl.exp2(top - new_top)
            total = total * factor + tl.sum(weight, 0)
            merged = merged * factor[:, None] + tl.sum(values * weight[:, :, None], 0)
            top = new_top
        merged = merged / total[:, None]
        tl.store(output + row[:, None] * 512 + (first + c)[None, :], merged.to(tl.bfloat16), mask=valid_head[:, None])
        if first == 0:
            tl.store(lse + row, top + tl.log2(total), mask=valid_head)


@triton.jit
def _find_part(item, indptr, share, sequences, groups, SEQUENCES: tl.constexpr):
    """Which part program `item` has: sequence, tokens [start, end), number of parts (0: none), index, first slot."""
    ids = tl.arange(0, SEQUENCES)
    real = ids < sequences
    begins = tl.load(indptr + ids // groups, mask=real, other=0)
    lengths = tl.load(indptr + ids // groups + 1, mask=real, other=0) - begins
    counts = tl.where(real, tl.maximum((lengths + share - 1) // share, 1), 0)
    ends = tl.cumsum(counts, 0)
    mine = (item >= ends - counts) & (item < ends)
    sequence = tl.sum(tl.where(mine, ids, 0), 0)
    count = tl.sum(tl.where(mine, counts, 0), 0)
    first_slot = tl.sum(tl.where(mine, ends - counts, 0), 0)
    begin = tl.sum(tl.where(mine, begins, 0), 0)
    length = tl.sum(tl.where(mine, lengths, 0), 0)
    index = item - first_slot
    size, longer = length // tl.maximum(count, 1), length % tl.maximum(count, 1)
    start = begin + index * size + tl.minimum(index, longer)
    end = start + size + tl.where(index < longer, 1, 0)
    return sequence, start, end, count, index, first_slot


@triton.jit
def _attend(ckv, kpe, indices, q, qp, scale, start, end, ckv_page, kpe_page, TILE: tl.constexpr):
    """Output [512, 16] of 16 heads over tokens [start, end), normalised, and lse [16]; nothing gives 0 and -inf."""
    d = tl.arange(0, 512)
    e = tl.arange(0, 64)
    t = tl.arange(0, TILE)
    top = tl.full((16,), float("-inf"), tl.float32)
    total = tl.zeros((16,), tl.float32)
    out = tl.zeros((512, 16), tl.float32)
    # Page ids are loaded one step ahead: the compiler then sees keys whose addresses are known, and overlaps their
    # loads with the products of the steps before.
    page = tl.load(indices + start + t, mask=start + t < end, other=0)
    for at in tl.range(start, end, TILE):
        valid = at + t < end
        here = page.to(tl.int64)
        page = tl.load(indices + at + TILE + t, mask=at + TILE + t < end, other=0)
        keys = tl.load(
            ckv + here[:, None] * ckv_page + d[None, :], mask=valid[:, None], other=0.0, eviction_policy="evict_first"
        )
        rope = tl.load(
            kpe + here[:, None] * kpe_page + e[None, :], mask=valid[:, None], other=0.0, eviction_policy="evict_first"
        )
        s = tl.dot(keys, q)
        s = tl.dot(rope, qp, s) * scale
        s = tl.where(valid[:, None], s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 0))
        p = tl.exp2(s - new_top[None, :])
        factor = tl.exp2(top - new_top)
        total = total * factor + tl.sum(p, 0)
        out = tl.dot(tl.trans(keys), p.to(tl.bfloat16), out * factor[None, :])
        top = new_top
    safe_total = tl.where(total > 0.0, total, 1.0)
    return out / safe_total[None, :], tl.where(total > 0.0, top + tl.log2(safe_total), float("-inf"))


@triton.jit
def _exchange(out, log_sum, parts, part_lse, counter, slot, index, count):
    """Stores this part, and waits until all parts of its sequence are stored."""
    h = tl.arange(0, 16)
    d = tl.arange(0, 512)
    tl.store(parts + slot * 8192 + h[None, :] * 512 + d[:, None], out.to(tl.bfloat16))
    tl.store(part_lse + slot * 16 + h, log_sum)
    tl.debug_barrier()
    # All parts together add 2^31: then the sign turns over and the rest is 0 again, ready for the next launch.
    adds = tl.where(index == 0, 2147483647 - (count - 2), 1).to(tl.int32)
    before = tl.atomic_add(counter, adds, sem="acq_rel")
    now = before + adds
    while (now ^ before) >= 0:
        now = tl.atomic_add(counter, 0, sem="acquire")
    tl.debug_barrier()


@triton.jit
def _decode(
    q_nope,
    q_pe,
    ckv,
    kpe,
    indptr,
    indices,
    output,
    lse,
    parts,
    part_lse,
    counters,
    scale,
    share,
    sequences,
    heads,
    groups,
    q_nope_batch,
    q_nope_head,
    q_pe_batch,
    q_pe_head,
    ckv_page,
    kpe_page,
    SEQUENCES: tl.constexpr,
    TILE: tl.constexpr,
    SPLIT: tl.constexpr,
):
    item = tl.program_id(0)
    if SPLIT:
        sequence, start, end, count, index, first_slot = _find_part(item, indptr, share, sequences, groups, SEQUENCES)
        if count == 0:
            return
    else:
        sequence = item
        start = tl.load(indptr + sequence // groups)
        end = tl.load(indptr + sequence // groups + 1)

    h = tl.arange(0, 16)
    d = tl.arange(0, 512)
    e = tl.arange(0, 64)
    entry = (sequence // groups).to(tl.int64)
    head = (sequence % groups) * 16 + h
    valid = head < heads
    q = tl.load(
        q_nope + entry * q_nope_batch + head[None, :] * q_nope_head + d[:, None], mask=valid[None, :], other=0.0
    )
    qp = tl.load(q_pe + entry * q_pe_batch + head[None, :] * q_pe_head + e[:, None], mask=valid[None, :], other=0.0)
    out, log_sum = _attend(ckv, kpe, indices, q, qp, scale, start, end, ckv_page, kpe_page, TILE)

    row = entry * heads + head
    alone = True
    if SPLIT:
        alone = count == 1
    if alone:
        tl.store(output + row[None, :] * 512 + d[:, None], out.to(tl.bfloat16), mask=valid[None, :])
        tl.store(lse + row, log_sum, mask=valid)
    elif SPLIT:
        _exchange(out, log_sum, parts, part_lse, counters + sequence, first_slot + index, index, count)
        # The fewer parts, the wider the slices of dimensions, so that each load is large.
        if count <= 4:
            _merge(output, lse, parts, part_lse, first_slot, count, index, row, valid, 128, 4)
        elif count <= 8:
            _merge(output, lse, parts, part_lse, first_slot, count, index, row, valid, 64, 8)
        elif count <= 16:
            _merge(output, lse, parts, part_lse, first_slot, count, index, row, valid, 32, 16)
        else:
            _merge(output, lse, parts, part_lse, first_slot, count, index, row, valid, 16, 32)


def split(batch_size: int, heads: int, num_indices: int, resident: int) -> tuple[bool, int, int]:
    """Whether sequences are cut into parts, how many programs there are, and how many tokens a part has at most.

    From shapes alone: kv_indptr is not read by the host. With n sequences and at most `resident` programs,
    parts of tokens / (resident - n) make do: each sequence has at most one part that is not full.
    """
    sequences, tokens = batch_size * max(1, heads // GROUP), num_indices * max(1, heads // GROUP)
    if 4 * sequences > 3 * resident:
        return False, sequences, 0
    share = max(LEAST_TOKENS, math.ceil(tokens / (resident - sequences)))
    return True, min(resident, math.ceil(tokens / share) + sequences), share


_workspaces: dict[tuple[int, int, int], tuple[Tensor, Tensor, Tensor]] = {}
_captured: list[tuple[Tensor, Tensor, Tensor]] = []


def workspace(device: torch.device, programs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Parts, their lse, and counters, which are 0 at first and left ready for the next launch by every launch.

    One for each stream, since launches on different streams may overlap. A captured call gets one of its own
    (4 MB on an H200), which the graph clears: it may be replayed on any stream, and beside other graphs.
    """
    key = (device.index or 0, torch.cuda.current_stream(device).cuda_stream, programs)
    capturing = torch.cuda.is_current_stream_capturing()
    if not capturing and key in _workspaces:
        return _workspaces[key]
    made = (
        torch.empty(programs, GROUP, CKV, dtype=torch.bfloat16, device=device),
        torch.empty(programs, GROUP, dtype=torch.float32, device=device),
        torch.zeros(programs, dtype=torch.int32, device=device),
    )
    if capturing:
        _captured.append(made)
    else:
        _workspaces[key] = made
    return made


def run(
    q_nope: Tensor,
    q_pe: Tensor,
    ckv_cache: Tensor,
    kpe_cache: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    sm_scale: float,
    output: Tensor,
    lse: Tensor,
    state: Any = None,
) -> None:
    """Attend with each sequence's query to its pages; fill `output` [B, H, 512] bf16 and `lse` [B, H] fp32, base 2.

    q_nope [B, H, 512], q_pe [B, H, 64], ckv_cache [pages, 1, 512], kpe_cache [pages, 1, 64], all bf16;
    kv_indptr [B + 1] and kv_indices [at least kv_indptr[-1]], int32. An empty sequence gives 0 and -inf.
    ValueError if heads are not of a number in HEADS, or rows are not contiguous. That shapes, types and devices
    agree is for the caller to see to: `kernels.mla_paged_decode.decode` does.
    """
    check(q_nope, q_pe, ckv_cache, kpe_cache)
    batch, heads = q_nope.shape[0], q_nope.shape[1]
    if batch == 0:
        return
    groups = max(1, heads // GROUP)
    warps, stages, each = FEW if batch * groups <= FEW_SEQUENCES else MANY
    resident = each * multiprocessors(q_nope.device.index)
    splits, programs, share = split(batch, heads, kv_indices.shape[0], resident)
    parts, part_lse, counters = workspace(q_nope.device, resident)
    _decode[(programs,)](
        q_nope,
        q_pe,
        ckv_cache,
        kpe_cache,
        kv_indptr,
        kv_indices,
        output,
        lse,
        parts,
        part_lse,
        counters,
        sm_scale * math.log2(math.e),
        share,
        batch * groups,
        heads,
        groups,
        *q_nope.stride()[:2],
        *q_pe.stride()[:2],
        ckv_cache.stride(0),
        kpe_cache.stride(0),
        SEQUENCES=triton.next_power_of_2(batch * groups),
        TILE=TILE,
        SPLIT=splits,
        num_warps=warps,
        num_stages=stages,
        launch_cooperative_grid=splits,
    )


def check(q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor) -> None:
    """ValueError unless heads are of a number that there is a way for, and rows are contiguous."""
    if q_nope.shape[1] not in HEADS:
        raise ValueError(f"q_nope has {q_nope.shape[1]} heads; the kernel takes {', '.join(map(str, HEADS))}")
    named = {"q_nope": q_nope, "q_pe": q_pe, "ckv_cache": ckv_cache, "kpe_cache": kpe_cache}
    for name, tensor in named.items():
        if tensor.stride(-1) != 1:
            raise ValueError(f"{name} must be contiguous in its last dimension")


@cache
def multiprocessors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
