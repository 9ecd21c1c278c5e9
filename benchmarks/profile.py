"""Stage `profile`: what the timings and the compiler say, in figures and words that an author can act on."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from benchmarks import statistics
from benchmarks.report import RUN_ONLY, Row
from benchmarks.trial import Trial
from kernels.task import Workload

FLOOR_SHARE = 0.7
"""A time below this share of the floor is a finding; the rest is noise, and on tiny workloads the call itself."""


def profile(trial: Trial, build_notes: Mapping[str, Any]) -> dict[str, Any]:
    """Groups by batch size with speed, bytes/s, operations/s, share of the floor; the slowest rows; the build."""
    workloads = {w.id: w for w in trial.bench.workloads}
    timed = [(workloads[row.workload], row) for row in trial.rows.values() if RUN_ONLY in row.scopes]
    groups = [
        _group(trial, size, [p for p in timed if p[0].batch_size == size])
        for size in sorted({w.batch_size for w, _ in timed})
    ]
    slowest = sorted(timed, key=lambda pair: median(pair[1].scopes[RUN_ONLY].ratios))[:5]
    return {
        "groups": groups, "build": dict(build_notes),
        "slowest": [{"workload": w.id, "batch_size": w.batch_size, "tokens": w.tokens,
                     "speedup": median(row.scopes[RUN_ONLY].ratios)} for w, row in slowest],
        "advice": [_advice(group) for group in groups],
    }  # fmt: skip


def _group(trial: Trial, batch_size: int, pairs: list[tuple[Workload, Row]]) -> dict[str, Any]:
    task = trial.bench.task
    us = sum(median(row.scopes[RUN_ONLY].candidate_us) for _, row in pairs)
    floors = [row.floor_us for _, row in pairs]
    return {
        "batch_size": batch_size, "workloads": len(pairs),
        "geomean": statistics.geometric_mean([median(row.scopes[RUN_ONLY].ratios) for _, row in pairs]),
        "gbytes_per_s": sum(task.bytes_moved(w) for w, _ in pairs) / us / 1e3,
        "gflops_per_s": sum(task.flops(w) for w, _ in pairs) / us / 1e3,
        "times_floor": None if None in floors else us / sum(f for f in floors if f),
    }  # fmt: skip


def _advice(group: Mapping[str, Any]) -> str:
    """One sentence: how far the group is from merely reading its data, and so where the time goes."""
    head = (
        f"batch {group['batch_size']}: {group['geomean']:.2f}x the baseline, {group['gbytes_per_s']:.1f} GB/s, "
        f"{group['gflops_per_s']:.1f} GFLOP/s"
    )
    if group["times_floor"] is None:
        return head
    times = group["times_floor"]
    where = "the arithmetic is the limit, not memory" if times > 3 else "close to what memory allows"
    return f"{head}; {times:.1f} times as long as reading the data alone: {where}"


def suspicions(trial: Trial) -> list[dict[str, Any]]:
    """Findings that the times themselves give: below the floor, or too good to be believed."""
    found: list[dict[str, Any]] = []
    for row in trial.rows.values():
        if RUN_ONLY not in row.scopes or row.floor_us is None:
            continue
        us = median(row.scopes[RUN_ONLY].candidate_us)
        if us < FLOOR_SHARE * row.floor_us:
            found.append(
                {
                    "kind": "below_floor",
                    "workload": row.workload,
                    "message": f"{us:.2f} us is less than reading the data takes ({row.floor_us:.2f} us)",
                }
            )
        if median(row.scopes[RUN_ONLY].ratios) > trial.bench.suspicious:
            found.append(
                {
                    "kind": "too_fast",
                    "workload": row.workload,
                    "message": f"more than {trial.bench.suspicious:g} times as fast as the baseline: to be looked at",
                }
            )
    return found
