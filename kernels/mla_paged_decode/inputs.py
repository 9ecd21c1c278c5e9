"""Fresh contents for every call: where pages lie, what they hold, and NaN where nothing may be read."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from kernels.mla_paged_decode.workloads import MlaWorkload
from kernels.task import Source, Workload

NOISE = {"cpu": 1 << 23, "cuda": 1 << 26}
"""Normal numbers drawn once and then copied from random places: a fresh pool costs a memory copy (86 MB
for the largest workload) instead of 40 million draws, and no two copies are aligned alike."""
CHUNK = 1 << 21
MOST_PLACED = 256
CACHES, QUERIES = ("ckv_cache", "kpe_cache"), ("q_nope", "q_pe")


class MlaSource(Source):
    """Contents from one seed: pages of a workload lie where they lie, what they hold changes. Not thread-safe."""

    def __init__(self, device: str, seed: int) -> None:
        self._generator = torch.Generator(device=device).manual_seed(seed)
        self._device = device
        self._cpu = torch.Generator().manual_seed(seed + 1)  # to draw places on a GPU would wait for it every time
        self._keys = torch.randn(NOISE[device], generator=self._generator, device=device).to(torch.bfloat16)
        self._queries = torch.randn(NOISE["cpu"] // 4, generator=self._generator, device=device).to(torch.bfloat16)
        self._placed: dict[MlaWorkload, tuple[Tensor, Tensor]] = {}
        self._unused: Tensor | None = None

    def fill_plan(self, workload: Workload, tensors: Mapping[str, Tensor]) -> None:
        """Write kv_indptr and kv_indices, and remember which pages are unused."""
        assert isinstance(workload, MlaWorkload)
        lengths = torch.tensor((0, *workload.kv_lengths), dtype=torch.int32, device=self._device)
        tensors["kv_indptr"].copy_(lengths.cumsum(0))
        if workload not in self._placed:
            if len(self._placed) >= MOST_PLACED:  # hold-outs differ every time
                del self._placed[next(iter(self._placed))]
            self._placed[workload] = place_pages(workload, self._generator)
        pages, unused = self._placed[workload]
        stale = unused[
            torch.randint(len(unused), (workload.stale_indices,), generator=self._generator, device=self._device)
        ]
        tensors["kv_indices"].copy_(torch.cat([pages, stale]))
        self._unused = unused

    def fill(self, workload: Workload, tensors: Mapping[str, Tensor], only: Collection[str] | None = None) -> None:
        """Write queries and both caches; pages that no sequence holds are NaN.

        A GPU's cache is 1 GB and holds NaN already: there only the pages in use are written.
        """
        assert isinstance(workload, MlaWorkload)
        assert self._unused is not None, "fill_plan comes first: it decides which pages are unused"
        for name in CACHES if only is None else [n for n in CACHES if n in only]:
            if self._device == "cpu":
                self._copy(self._keys, tensors[name])
                tensors[name].index_fill_(0, self._unused, float("nan"))
            else:
                pages, _ = self._placed[workload]
                tensors[name].index_copy_(0, pages, self._noise(self._keys, (len(pages), *tensors[name].shape[1:])))
        for name in QUERIES if only is None else [n for n in QUERIES if n in only]:
            self._copy(self._queries, tensors[name])

    def _noise(self, noise: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A stretch of it, from a random place."""
        count = math.prod(shape)
        start = int(torch.randint(len(noise) - count, (1,), generator=self._cpu))
        return noise[start : start + count].view(shape)

    def _copy(self, noise: Tensor, target: Tensor) -> None:
        flat = target.view(-1)
        for begin in range(0, len(flat), CHUNK):
            part = flat[begin : begin + CHUNK]
            span = len(noise) - len(part)
            start = int(torch.randint(span, (1,), generator=self._cpu))
            part.copy_(noise[start : start + len(part)])


def place_pages(w: MlaWorkload, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Page ids of all tokens [tokens] and of the unused pages: those that it was captured with, or drawn from the
    generator with exactly `contiguous_runs` runs.

    Tokens are cut into runs at random, the runs laid into the pool in random order, and the unused pages
    spread over the gaps between them, first of all where two runs that follow each other would touch.
    """
    device = generator.device
    if w.kv_indices:
        return _with_unused(torch.frombuffer(bytearray(w.kv_indices), dtype=torch.int32).long().to(device), w)
    runs, unused = max(1, w.contiguous_runs), w.num_pages - w.tokens
    if w.tokens == 0:
        return torch.empty(0, dtype=torch.int64, device=device), torch.arange(unused, device=device)
    cuts = torch.randperm(w.tokens - 1, generator=generator, device=device)[: runs - 1].sort().values + 1
    bounds = torch.cat([cuts.new_zeros(1), cuts, cuts.new_full((1,), w.tokens)])
    lengths = bounds.diff()
    order = torch.randperm(runs, generator=generator, device=device)
    touching = torch.zeros(runs + 1, dtype=torch.int64, device=device)
    touching[1:runs] = (order.diff() == 1).long()
    if int(touching.sum()) > unused:  # so many runs that chance joins some: lay them in reverse
        order, touching = torch.arange(runs - 1, -1, -1, device=device), torch.zeros_like(touching)
    rest = torch.randint(runs + 1, (unused - int(touching.sum()),), generator=generator, device=device)
    gaps = touching + torch.bincount(rest, minlength=runs + 1)
    starts = torch.empty_like(lengths)
    starts[order] = gaps[:runs].cumsum(0) + lengths[order].cumsum(0) - lengths[order]
    pages = torch.repeat_interleave(starts - bounds[:-1], lengths) + torch.arange(w.tokens, device=device)
    if w.shared_pages:
        pages = _share(pages, w)
    return _with_unused(pages, w)


def _with_unused(pages: Tensor, w: MlaWorkload) -> tuple[Tensor, Tensor]:
    held = torch.zeros(w.num_pages, dtype=torch.bool, device=pages.device)
    held[pages] = True
    return pages, (~held).nonzero()[:, 0]


def _share(pages: Tensor, w: MlaWorkload) -> Tensor:
    """Every later sequence begins with the first one's pages, and the last token repeats the first."""
    first = w.kv_lengths[0]
    begin = first
    shared = pages.clone()
    for length in w.kv_lengths[1:]:
        common = min(first, length) // 2
        shared[begin : begin + common] = pages[:common]
        begin += length
    shared[-1] = shared[0]
    return shared
