"""The 47 published workloads and the hold-outs: sequence lengths, page placement, shapes."""

from __future__ import annotations

import json
import math
import random
from array import array
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeGuard

from kernels.task import BadInputError, Captured, TensorSpec, Workload

HEADS, CKV, KPE = 16, 512, 64
SPARE_PAGES = 10
"""On a CPU the pool holds one unused page per ten used, not the trace's 989,669 pages (1.1 GB)."""
VAST_PAGES = 4_400_000


@dataclass(frozen=True)
class MlaWorkload(Workload):
    """One batch of sequences. `contiguous_runs` counts the stretches of consecutive page ids in kv_indices."""

    kv_lengths: tuple[int, ...]
    contiguous_runs: int
    sm_scale: float
    num_pages: int
    stale_indices: int = 0
    """Entries of kv_indices beyond kv_indptr[-1]: left over from earlier steps, pointing at unused pages."""
    shared_pages: bool = False
    """Sequences share pages, and one sequence holds a page twice."""
    kv_indices: bytes = field(default=b"", repr=False)
    """Page ids where a file gives them (int32, little-endian); empty: `contiguous_runs` decides. Bytes, since a
    workload is looked up at every call and these remember their hash."""

    def on(self, device: str) -> MlaWorkload:
        """The same workload with the pool that this device is given."""
        if device != "cpu":
            return self
        if self.kv_indices:
            kv_indices, pages = compact(self.kv_indices)
            return replace(self, kv_indices=kv_indices, num_pages=pages)
        pages = self.tokens + max(1, math.ceil(self.tokens / SPARE_PAGES))
        return MlaWorkload(**{**self.__dict__, "num_pages": pages})


@cache
def compact(kv_indices: bytes) -> tuple[bytes, int]:
    """Page ids for a pool in which each stretch of unused pages is one page long, and that pool's number of pages.

    Who follows whom and who shares a page with whom stays as it was, so the number of contiguous runs does, too.
    """
    ids, compacted, last, pages = array("i", kv_indices), {}, -1, 0
    for page in sorted(set(ids)):
        pages += page != last + 1
        compacted[page] = pages
        last, pages = page, pages + 1
    return array("i", [compacted[page] for page in ids]).tobytes(), pages + 1


def with_pages(w: MlaWorkload, found: Captured) -> MlaWorkload:
    """The workload with the pages where its sequences really lay; `BadInputError` if those are not this workload's."""
    bounds, ids = array("i", found.tensors["kv_indptr"]), array("i", found.tensors["kv_indices"])
    pages = found.axes["num_pages"]
    if list(bounds) != [0, *accumulate(w.kv_lengths)]:
        raise BadInputError(f"{found.where}: kv_indptr: its sequences' lengths are not those of workload {w.id}")
    if not 1 <= pages <= VAST_PAGES:
        raise BadInputError(f"{found.where}: axes.num_pages: must be from 1 to {VAST_PAGES}, not {pages}")
    if not 0 <= min(ids) <= max(ids) < pages:
        raise BadInputError(f"{found.where}: kv_indices: {min(ids)} to {max(ids)} are not pages of a pool of {pages}")
    return replace(w, sm_scale=found.scalars["sm_scale"], num_pages=pages, kv_indices=ids.tobytes())


def axes(w: MlaWorkload) -> dict[str, int]:
    """Sizes by the definition's names."""
    return {
        "batch_size": w.batch_size,
        "num_pages": w.num_pages,
        "len_indptr": w.batch_size + 1,
        "num_kv_indices": w.tokens,
    }


def tensors(w: MlaWorkload) -> dict[str, TensorSpec]:
    """Arguments of run() that are tensors; names, shapes and types are the definition's."""
    batch, pages = w.batch_size, w.num_pages
    return {
        "q_nope": TensorSpec((batch, HEADS, CKV), "bfloat16", "input"),
        "q_pe": TensorSpec((batch, HEADS, KPE), "bfloat16", "input"),
        "ckv_cache": TensorSpec((pages, 1, CKV), "bfloat16", "input"),
        "kpe_cache": TensorSpec((pages, 1, KPE), "bfloat16", "input"),
        "kv_indptr": TensorSpec((batch + 1,), "int32", "plan"),
        "kv_indices": TensorSpec((w.tokens + w.stale_indices,), "int32", "plan"),
        "output": TensorSpec((batch, HEADS, CKV), "bfloat16", "output"),
        "lse": TensorSpec((batch, HEADS), "float32", "output"),
    }


def published(path: Path) -> tuple[MlaWorkload, ...]:
    """Read workloads.json; `BadInputError` names the file and field that is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("workloads"), list):
        raise BadInputError(f"{path}: must be an object with a list 'workloads'")
    scale, pages = data.get("sm_scale"), data.get("num_pages")
    if not isinstance(scale, float) or not math.isfinite(scale):
        raise BadInputError(f"{path}: sm_scale must be a finite number, not {scale!r}")
    if not _whole(pages) or pages < 1:
        raise BadInputError(f"{path}: num_pages must be a whole number above 0, not {pages!r}")
    return tuple(_workload(path, i, row, scale, pages) for i, row in enumerate(data["workloads"]))


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _workload(path: Path, i: int, row: Any, scale: float, pages: int) -> MlaWorkload:
    where = f"{path}: workloads[{i}]"
    if not isinstance(row, dict) or not isinstance(row.get("id"), str) or not row["id"]:
        raise BadInputError(f"{where}: must be an object with an 'id'")
    lengths, runs = row.get("kv_lengths"), row.get("contiguous_runs")
    if not isinstance(lengths, list) or not lengths or not all(_whole(n) and n >= 0 for n in lengths):
        raise BadInputError(f"{where}.kv_lengths: must be a list of whole numbers from 0 up")
    if sum(lengths) > pages:
        raise BadInputError(f"{where}.kv_lengths: {sum(lengths)} tokens do not fit in {pages} pages")
    if not _whole(runs) or not 1 <= runs <= max(1, sum(lengths)):
        raise BadInputError(f"{where}.contiguous_runs: must be from 1 to the number of tokens, not {runs!r}")
    return MlaWorkload(row["id"], len(lengths), sum(lengths), tuple(lengths), runs, scale, pages)


def holdouts(seed: int, sm_scale: float) -> tuple[MlaWorkload, ...]:
    """Small batches that no published workload resembles; ragged lengths differ with the seed."""
    rng = random.Random(seed)
    ragged = tuple(rng.choice((1, 2, 3, 15, 17, 31, 33, 64, 127, 129, 255, 300)) for _ in range(rng.randint(5, 9)))
    skewed = (rng.randint(1500, 2500), *(rng.randint(1, 9) for _ in range(6)))
    edges = [31, 32, 33, 63, 64, 65]
    rng.shuffle(edges)
    return (
        _holdout("one token", (1,), sm_scale),
        _holdout("edges of tiles", tuple(edges), sm_scale, scattered=True),
        _holdout("empty sequences", (0, rng.randint(2, 40), 0, 0, rng.randint(60, 140), 0), sm_scale),
        _holdout("nothing but an empty sequence", (0,), sm_scale),
        _holdout("ragged", ragged, 1 / math.sqrt(192), scattered=True),
        _holdout("skewed", skewed, sm_scale),
        _holdout("shared and repeated pages", (40, 70, 33), sm_scale, shared_pages=True),
        _holdout("kv_indices longer than needed", (rng.randint(3, 50), 65, 17), sm_scale, stale_indices=61),
        _holdout("large logits", (96, 200), 0.5, scattered=True),
    )


def vast_holdout(seed: int, sm_scale: float) -> MlaWorkload:
    """A few pages all over a cache of more than 2^31 elements (4.5 GB): an offset in 32 bits misses them."""
    lengths = tuple(random.Random(seed + 1).choices((17, 64, 130, 257), k=3))
    found = _holdout("a cache of more than 2^31 elements", lengths, sm_scale, scattered=True)
    return replace(found, num_pages=VAST_PAGES)


def _holdout(
    name: str,
    lengths: tuple[int, ...],
    sm_scale: float,
    *,
    scattered: bool = False,
    stale_indices: int = 0,
    shared_pages: bool = False,
) -> MlaWorkload:
    tokens = sum(lengths)
    runs = tokens if scattered else min(max(1, tokens), 2 * len(lengths))
    return MlaWorkload(
        f"hold-out: {name}",
        len(lengths),
        tokens,
        lengths,
        max(1, runs),
        sm_scale,
        num_pages=tokens + 512,
        stale_indices=stale_indices,
        shared_pages=shared_pages,
    )
