"""Which baseline serves which workload, settled once for a machine, apart from any measurement of a candidate.

For each workload the fastest baseline whose result is right; besides, how exact it is and how long merely reading the
workload takes (the floor). Kept in a file named after everything that it depends on.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bench import FLOOR, Bench, Side
from benchmarks.candidate import read
from benchmarks.paths import home
from benchmarks.report import PROTOCOL
from benchmarks.worker import CandidateError, JudgeError
from kernels.task import Workload

ROUNDS = 3
LIMIT_S = 60.0


@dataclass(frozen=True)
class Standard:
    """What a workload is judged by: the baseline's name, its time and error, and the floor (us; None: unknown)."""

    baseline: str
    baseline_us: float
    rmse: float
    floor_us: float | None


def baseline_versions(bench: Bench) -> dict[str, str]:
    """Name and version of each baseline."""
    return {name: bench.baseline_version(read(path)) for name, path in bench.task.baselines(bench.device).items()}


def calibrate(bench: Bench, workloads: Sequence[Workload]) -> dict[str, Standard]:
    """The standards of these workloads: from this machine's file, and what is not there measured now and kept."""
    key = {
        "protocol": PROTOCOL,
        "task": bench.task.name,
        "device": bench.device_name(),
        "baselines": baseline_versions(bench),
        **({"inputs": bench.task.inputs} if bench.task.inputs else {}),
    }
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = home() / "calibration" / f"{bench.task.name}-{bench.device}-{name}.json"
    kept = _read(path, set(bench.task.baselines(bench.device)))
    missing = [w for w in workloads if w.id not in kept]
    if missing:
        try:
            kept |= _measure(bench, missing)
        except CandidateError as error:
            raise JudgeError(f"a baseline or the floor does not run here: {error.message}") from None
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.part")
        temporary.write_text(json.dumps({**key, "standards": {k: asdict(v) for k, v in kept.items()}}, indent=1))
        temporary.replace(path)
    return {w.id: kept[w.id] for w in workloads}


def _read(path: Path, baselines: set[str]) -> dict[str, Standard]:
    """The kept standards; none if there is no file or it is damaged: then they are measured again."""
    try:
        data: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["standards"]
        found = {workload: Standard(**fields) for workload, fields in data.items()}
        return found if all(_is_sound(s, baselines) for s in found.values()) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _is_sound(s: Standard, baselines: set[str]) -> bool:
    times = [s.baseline_us, s.rmse, *([] if s.floor_us is None else [s.floor_us])]
    return s.baseline in baselines and all(isinstance(t, float) and 0 < t < 1e12 for t in times)


def _measure(bench: Bench, workloads: Sequence[Workload]) -> dict[str, Standard]:
    sides = _baselines(bench)
    floor = bench.floor_side()
    standards: dict[str, Standard] = {}
    with bench.measuring():
        for i, workload in enumerate(workloads):
            bench.progress(f"calibrating the baselines (once for this machine): {i + 1} of {len(workloads)}")
            standards[workload.id] = _standard(bench, workload, sides, floor)
    if floor is not None:
        floor.worker.close()
    return standards


def _baselines(bench: Bench) -> dict[str, Side]:
    """Those that can be loaded here; `JudgeError` if none can."""
    sides, errors = {}, []
    for name in bench.task.baselines(bench.device):
        try:
            sides[name] = bench.baseline_side(name)
        except JudgeError as error:
            errors.append(str(error))
    if not sides:
        raise JudgeError("; ".join(errors))
    return sides


def _standard(bench: Bench, workload: Workload, sides: Mapping[str, Side], floor: Side | None) -> Standard:
    """The sides take turns, as they do when a candidate is timed. A first call of each is for correctness alone."""
    times: dict[str, list[float]] = {name: [] for name in (*sides, FLOOR)}
    errors = {name: rmse for name, side in sides.items() if (rmse := _rmse(bench, workload, side)) is not None}
    if not errors:
        raise JudgeError(f"no baseline is right on workload {workload.id}")
    everyone = {**{name: sides[name] for name in errors}, **({FLOOR: floor} if floor else {})}
    for _ in range(max(ROUNDS, bench.rhythm.least_calls)):
        for name, side in everyone.items():
            times[name].append(bench.call(side, workload, LIMIT_S, timed=True).us)
    best = min(errors, key=lambda name: median(times[name]))
    return Standard(best, median(times[best]), errors[best], median(times[FLOOR]) if floor else None)


def _rmse(bench: Bench, workload: Workload, side: Side) -> float | None:
    """Error of a baseline; None if it is wrong."""
    items = range(len(bench.task.items(workload)))
    expected: dict[str, Any] = {}
    call = bench.call(
        side, workload, LIMIT_S, refer=lambda t: expected.update(bench.task.reference(workload, t, items))
    )
    if bench.task.mismatch(workload, call.outputs, expected, items, 0.0) is not None:
        return None
    return bench.task.rmse(call.outputs, expected)
