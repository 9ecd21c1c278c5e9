"""Stage `profile`: what the timings and the compiler say, in figures and words that an author can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks import statistics
from benchmarks.candidate import Language
from benchmarks.report import RUN_ONLY, Row
from benchmarks.trial import Trial
from benchmarks.worker import CandidateError
from kernels.task import Workload

FINISHED = re.compile(r"flashinfer|flash_mla|flash_fwd|BatchMLAPagedAttention|BatchDecode", re.IGNORECASE)
"""In names of kernels: a finished attention kernel, the baseline's first of all."""
PYTORCH = re.compile(r"at::native|at_cuda_detail|cublas|cutlass|cudnn|\bgemm|xmma|gemv", re.IGNORECASE)
MOST_OF_PYTORCH = 0.5
"""Share of a candidate's device time that PyTorch's kernels may take (they clear buffers, say)."""
LAUNCH_WORDS = {
    "registers": "registers a thread", "shared_bytes": "bytes of shared memory", "grid": "grid", "block": "block",
    "blocks_per_multiprocessor": "blocks a multiprocessor", "occupancy_percent": "% occupancy",
}  # fmt: skip
FLOOR_SHARE = 0.7
"""A time below this share of the floor is a finding; the rest is noise, and on tiny workloads the call itself."""


def profile(trial: Trial, build_notes: Mapping[str, Any], launches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Groups by batch size with speed, bytes/s, operations/s, share of the floor; the slowest rows; the build."""
    workloads = {w.id: w for w in trial.bench.workloads}
    timed = [(workloads[row.workload], row) for row in trial.rows.values() if RUN_ONLY in row.scopes]
    groups = [
        _group(trial, size, [p for p in timed if p[0].batch_size == size])
        for size in sorted({w.batch_size for w, _ in timed})
    ]
    slowest = sorted(timed, key=lambda pair: median(pair[1].scopes[RUN_ONLY].ratios))[:5]
    return {
        "groups": groups, "build": dict(build_notes), "launches": list(launches),
        "slowest": [{"workload": w.id, "batch_size": w.batch_size, "tokens": w.tokens,
                     "speedup": median(row.scopes[RUN_ONLY].ratios)} for w, row in slowest],
        "advice": [
            *(_advice(group) for group in groups),
            *(_launch_advice(launch) for launch in launches),
            *_spill_advice(build_notes),
        ],
    }  # fmt: skip


def look(trial: Trial, workloads: Sequence[Workload]) -> list[dict[str, Any]]:
    """The kernels that the candidate runs, in a fresh process, on the largest workload of each batch size. One that
    computes with somebody else's is `cheated`: a `CandidateError`."""
    if trial.candidate is None:
        return []
    trial.end()
    found = []
    for workload in {w.batch_size: w for w in sorted(workloads, key=lambda w: w.tokens)}.values():
        launches = trial.bench.launches(trial.side(workload), workload)
        if launches is None:
            return []
        found += [{"batch_size": workload.batch_size, "workload": workload.id, **launch} for launch in launches]
    if (why := foreign(found, trial.candidate.source.language)) is not None:
        raise CandidateError("cheated", why)
    return found


def foreign(launches: Sequence[Mapping[str, Any]], language: Language) -> str | None:
    """Whose kernels these are, if not the candidate's own."""
    for launch in launches:
        if (match := FINISHED.search(str(launch.get("name", "")))) is not None:
            return f"it runs {match[0]}, a finished kernel: {launch['name']}"
    if language == "pytorch":
        return None
    everything = sum(float(launch.get("us", 0.0)) for launch in launches)
    theirs = [launch for launch in launches if PYTORCH.search(str(launch.get("name", "")))]
    share = sum(float(launch.get("us", 0.0)) for launch in theirs) / everything if everything else 0.0
    if share <= MOST_OF_PYTORCH:
        return None
    return (
        f"PyTorch's kernels take {share:.0%} of its time on the device (the first: {theirs[0]['name']}); "
        f"a {language} candidate computes in its own"
    )


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


def _launch_advice(launch: Mapping[str, Any]) -> str:
    """One sentence: what a launch takes of each multiprocessor."""
    known = [
        (f"{launch[field]:g} {word}" if isinstance(launch[field], int | float) else f"{word} {launch[field]}")
        for field, word in LAUNCH_WORDS.items()
        if launch.get(field) is not None
    ]
    return f"batch {launch['batch_size']}: {launch['name'].split('(')[0]} took {launch['us']:.1f} us: " + ", ".join(
        known
    )


def _spill_advice(build_notes: Mapping[str, Any]) -> list[str]:
    return [
        f"{kernel['kernel']} spills {kernel['spilled_bytes']} bytes a thread: fewer values at once, or fewer threads"
        for kernel in build_notes.get("kernels", [])
        if kernel["spilled_bytes"]
    ]


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
