"""MLA paged decode for Hopper (compute capability 9.0): one launch, no plan, no synchronisation.

`run` follows flashinfer-bench's `mla_paged_decode_h16_ckv512_kpe64_ps1`, widened to 8, 16, 32, 64 and 128 heads.
mla_decode.cu tells how it works.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

HERE = Path(__file__).parent
LIBRARY = HERE / "kernel.so"
"""mla_decode.cu, compiled: the judge builds it here; `kernels.mla_paged_decode.decode` names another place."""
NVCC_FLAGS = ("-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a")

HEADS = (8, 16, 32, 64, 128)
CKV = 512
GROUP = 16
"""Heads that share one pass over the keys."""
LEAST_TOKENS, SEGMENT_COST = 32, 56
"""kLeastTokens and kSegmentCost of schedule.cuh."""
CLUSTER_SEQUENCES, CLUSTER_SLICES, CLUSTER_INDICES = 16, 4, 18432
"""kMostSequences, kSlices and kMostIndices of cluster_plan.cuh and cluster.cuh."""
CLUSTER_TOKENS = 2816
"""More tokens than this for each cluster take longer than they do when all multiprocessors share them."""
FEW_SEQUENCES = 32
"""Up to so many sequences schedule.cuh's SequenceSplit serves, beyond that its CostSplit."""
LOG2_E = math.log2(math.e)
SLOT_BYTES = GROUP * CKV * 2 + 256 * 4
MOST_CTAS = 256
"""A sequence can be merged from at most so many parts (exchange.cuh)."""


POINTERS = (
    *("q_nope", "q_pe", "ckv_cache", "kpe_cache", "kv_indptr", "kv_indices", "output", "lse"),
    *("slot_values", "slot_sums", "counters"),
)


class Parameters(ctypes.Structure):
    """`Params` of mla_decode.cu, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in POINTERS),
        *(
            (name, ctypes.c_uint32)
            for name in (
                "q_nope_batch_stride",
                "q_nope_head_stride",
                "q_pe_batch_stride",
                "q_pe_head_stride",
                "ckv_page_stride",
                "kpe_page_stride",
            )
        ),
        *((name, ctypes.c_int) for name in ("sequences", "group_shift", "heads")),
        ("logit_scale", ctypes.c_float),
        *((name, ctypes.c_int) for name in ("num_indices", "warm_count")),
        *((name, ctypes.c_float) for name in ("warm_from", "warm_step")),
        ("indices_fit", ctypes.c_int),
    )


def split(batch_size: int, heads: int, num_indices: int, multiprocessors: int) -> tuple[bool, int, int]:
    """Which of the two ways to divide the work, how many CTAs, how many slots for parts.

    `num_indices` is the length of kv_indices, which may exceed the number of tokens: the host never reads
    kv_indptr. Each CTA works out its own share from it on the device.
    """
    groups = max(1, heads // GROUP)
    sequences, tokens = batch_size * groups, num_indices * groups
    ctas = min(multiprocessors, MOST_CTAS)
    if sequences <= min(FEW_SEQUENCES, ctas // 2):
        needed = math.ceil(tokens / LEAST_TOKENS) + (sequences if sequences > 1 else 0)
        grid = max(1, min(ctas, needed))
        return True, grid, grid
    cost = tokens + sequences * SEGMENT_COST
    grid = max(1, min(ctas, math.ceil(cost / (LEAST_TOKENS + SEGMENT_COST))))
    return False, grid, grid + sequences


def clusters_for(batch_size: int, heads: int, num_indices: int, resident: int) -> int:
    """How many clusters of cluster.cuh serve the call, of `resident` that the device has room for; 0: it cannot.

    A cluster takes whole sequences. The host knows no lengths, so that this goes by the sum.
    """
    groups = max(1, heads // GROUP)
    sequences, tokens = batch_size * groups, num_indices * groups
    least = min(resident, sequences)
    if sequences > CLUSTER_SEQUENCES or tokens > CLUSTER_TOKENS * least:
        return 0
    if sequences > 1:
        return least
    return CLUSTER_SLICES if resident >= CLUSTER_SLICES else 0


def probable_indices(
    by_sequence: bool, grid: int, batch_size: int, heads: int, num_indices: int
) -> tuple[int, float, float]:
    """Which of kv_indices a CTA will probably read first: (count, from, step); CTA i's begin at from + i * step.

    A guess from shapes, which lets them be fetched while kv_indptr is still on its way; nothing depends on it.
    """
    groups = max(1, heads // GROUP)
    sequences, tokens = batch_size * groups, num_indices * groups
    if not by_sequence:
        share = max(LEAST_TOKENS + SEGMENT_COST, (tokens + sequences * SEGMENT_COST) // grid + 2)
        slack = sequences * SEGMENT_COST // groups
        return slack + 160, -slack, share / groups
    share = max(LEAST_TOKENS, math.ceil(tokens / grid))
    if sequences == 1:
        return share + 32, 0, num_indices / max(1, math.ceil(num_indices / share))
    items = min(grid, tokens // LEAST_TOKENS + sequences // 2 + 1)
    return 9 * share + 32, -4 * share / groups, num_indices / items


_workspaces: dict[tuple[int, int, int, bool], list[tuple[Tensor, Tensor]]] = {}


def workspace(device: torch.device, stream: int, capture: int, by_sequence: bool, slots: int) -> tuple[Tensor, Tensor]:
    """Slots for parts, all 0xff, and counters, all 0; every launch leaves them as the next one needs them.

    One pair for each stream, since launches on different streams may overlap, one for each graph capture, since
    a graph may be replayed on any stream, and one for each way to divide the work, since they use slots
    differently. A pair that has become too small is kept: a graph may hold it.
    """
    held = _workspaces.setdefault((device.index or 0, stream, capture, by_sequence), [])
    if not held or held[-1][0].shape[0] < slots:
        held.append(
            (
                torch.full((slots, SLOT_BYTES), 0xFF, dtype=torch.uint8, device=device),
                torch.zeros(FEW_SEQUENCES, dtype=torch.int32, device=device),
            )
        )
    return held[-1]


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
    ValueError if rows are not where the kernel can read them (`check`). That shapes, types and devices agree is
    for the caller to see to: `kernels.mla_paged_decode.decode` does.
    """
    if q_nope.shape[0] == 0:
        return
    device = q_nope.get_device()
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse)
        return
    launch = prepare(layout(q_nope, q_pe, ckv_cache, kpe_cache), kv_indices.shape[0], device)
    queries, queries_pe, keys, keys_pe = (
        q_nope.data_ptr(),
        q_pe.data_ptr(),
        ckv_cache.data_ptr(),
        kpe_cache.data_ptr(),
    )
    if (queries | queries_pe | keys | keys_pe) % 16:
        raise ValueError("q_nope, q_pe, ckv_cache and kpe_cache must begin at multiples of 16 bytes")
    library, stream = load(), raw_stream(device)
    slots = sums = counted = None
    if not launch.clusters:
        capture = library.mla_decode_capture(stream)
        held, counters = workspace(q_nope.device, stream, capture, launch.by_sequence, launch.slots)
        slots, counted = held.data_ptr(), counters.data_ptr()
        sums = slots + held.shape[0] * GROUP * CKV * 2
    error = library.mla_decode_launch(
        launch.parameters,
        queries,
        queries_pe,
        keys,
        keys_pe,
        kv_indptr.data_ptr(),
        kv_indices.data_ptr(),
        output.data_ptr(),
        lse.data_ptr(),
        sm_scale * LOG2_E,
        slots,
        sums,
        counted,
        launch.clusters,
        launch.by_sequence,
        launch.grid,
        stream,
    )
    if error:
        raise RuntimeError(f"mla_decode: {library.mla_decode_error(error).decode()}")


def raw_stream(device: int) -> int:
    """The handle of the current stream, by the short way that Triton takes too where torch has it."""
    short = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return int(short(device) if short else torch.cuda.current_stream(device).cuda_stream)


Strides = tuple[int, ...]
Layout = tuple[torch.Size, Strides, Strides, Strides, Strides]


def layout(q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor) -> Layout:
    """The queries' shape and everybody's strides: all that a launch depends on but kv_indices and pointers."""
    return q_nope.shape, q_nope.stride(), q_pe.stride(), ckv_cache.stride(), kpe_cache.stride()


def check(rows: Layout) -> None:
    """ValueError unless heads are of a number that there is a way for, and rows begin at multiples of 16 bytes."""
    (batch, heads, _), *strides = rows
    if heads not in HEADS:
        raise ValueError(f"q_nope has {heads} heads; the kernel takes {', '.join(map(str, HEADS))}")
    for name, stride in zip(("q_nope", "q_pe", "ckv_cache", "kpe_cache"), strides, strict=True):
        outer = stride[: 1 if "cache" in name else 2]  # the caches' second dimension is 1
        steps = [s for s, n in zip(outer, (batch if "q" in name else 2, heads), strict=False) if n > 1]
        if stride[-1] != 1 or any(s % 8 for s in steps):
            raise ValueError(f"{name}: rows must be contiguous and begin at multiples of 16 bytes")


class Launch(NamedTuple):
    """What one layout of arguments takes: a serving loop repeats it for every layer, and Python is slow."""

    parameters: Any  # a pointer to Parameters
    by_sequence: bool
    grid: int
    slots: int
    clusters: int


@lru_cache(maxsize=256)
def prepare(rows: Layout, indices: int, device: int) -> Launch:
    """Everything of a launch that does not change with the pointers; ValueError as `check` says."""
    check(rows)
    (batch, heads, _), q_nope, q_pe, ckv, kpe = rows
    by_sequence, grid, slots = split(batch, heads, indices, multiprocessors(device))
    parameters = Parameters(
        *(None for _ in POINTERS),
        *(2 * s for s in (*q_nope[:2], *q_pe[:2], ckv[0], kpe[0])),
        batch * max(1, heads // GROUP),
        (heads // GROUP).bit_length() - 1 if heads > GROUP else 0,
        heads,
        0.0,
        indices,
        *probable_indices(by_sequence, grid, batch, heads, indices),
        indices <= CLUSTER_INDICES,
    )
    clusters = clusters_for(batch, heads, indices, resident_clusters(device))
    return Launch(ctypes.pointer(parameters), by_sequence, grid, slots, clusters)


@cache
def multiprocessors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def resident_clusters(device: int) -> int:
    """How many clusters of 16 CTAs the device has room for at once: 7 on the H200s measured."""
    with torch.cuda.device(device):
        return int(load().mla_decode_clusters())


@cache
def load() -> ctypes.CDLL:
    """The compiled kernel; OSError if it is not there."""
    library = ctypes.CDLL(str(LIBRARY))
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.mla_decode_launch.argtypes = [
        *([pointer] * 9),
        ctypes.c_float,
        *([pointer] * 3),
        *([number] * 3),
        pointer,
    ]
    library.mla_decode_capture.argtypes = [ctypes.c_void_p]
    library.mla_decode_capture.restype = ctypes.c_ulonglong
    library.mla_decode_error.restype = ctypes.c_char_p
    return library
