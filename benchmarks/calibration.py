"""Which baseline serves which workload, settled once for a machine, apart from any measurement of a candidate.

For each workload the fastest baseline whose result is right; besides, how exact it is and how long merely reading the
workload takes (the floor). Kept in a file named after everything that it depends on.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bench import FLOOR, Bench, Side
from benchmarks.candidate import read
from benchmarks.report import PROTOCOL
from benchmarks.worker import CandidateError, JudgeError
from kernels.task import Workload

ROUNDS = 5
LIMIT_S = 60.0
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Standard:
    """What a workload is judged by: the baseline's name, its time and error, and the floor (us; None: unknown)."""

    baseline: str
    baseline_us: float
    rmse: float
    floor_us: float | None


def device_name() -> str:
    """The processor as /proc/cpuinfo names it, with family and model, since names alone are vague on some hosts."""
    facts: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name", platform.machine())
    if "model" in facts:
        name += f" (family {facts.get('cpu family', '?')} model {facts['model']})"
    return f"{name}, 1 thread"


def baseline_versions(bench: Bench) -> dict[str, str]:
    """Name and version of each baseline: torch's version and the hash of the program that calls it."""
    torch_version = version("torch")
    return {
        name: f"torch {torch_version}, {read(path).sha256[:12]}"
        for name, path in bench.task.baselines(bench.device).items()
    }


def calibrate(bench: Bench) -> dict[str, Standard]:
    """The standards of all workloads: from the file if this machine has one, else measured now and kept."""
    key = {
        "protocol": PROTOCOL,
        "task": bench.task.name,
        "device": device_name(),
        "baselines": baseline_versions(bench),
        "workloads": [w.id for w in bench.workloads],
    }
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = home() / "calibration" / f"{bench.task.name}-{bench.device}-{name}.json"
    standards = _read(path, [w.id for w in bench.workloads])
    if standards is None:
        try:
            standards = _measure(bench)
        except CandidateError as error:
            raise JudgeError(f"a baseline or the floor does not run here: {error.message}") from None
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.part")
        temporary.write_text(json.dumps({**key, "standards": {k: asdict(v) for k, v in standards.items()}}, indent=1))
        temporary.replace(path)
    return standards


def home() -> Path:
    """Where data is kept: $REGROUP_HOME, or `var` beside the packages."""
    return Path(os.environ.get("REGROUP_HOME") or ROOT / "var")


def _read(path: Path, workloads: list[str]) -> dict[str, Standard] | None:
    """The kept standards; None (measure again) if there are none or the file is damaged."""
    try:
        data: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["standards"]
        found = {
            w: Standard(
                str(s["baseline"]),
                float(s["baseline_us"]),
                float(s["rmse"]),
                None if s["floor_us"] is None else float(s["floor_us"]),
            )
            for w, s in data.items()
        }
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if list(found) == workloads and all(s.baseline_us > 0 for s in found.values()) else None


def _measure(bench: Bench) -> dict[str, Standard]:
    sides = {name: bench.baseline_side(name) for name in bench.task.baselines(bench.device)}
    floor = bench.floor_side()
    standards: dict[str, Standard] = {}
    with bench.on_one_core():
        for i, workload in enumerate(bench.workloads):
            bench.progress(f"calibrating the baselines (once for this machine): {i + 1} of {len(bench.workloads)}")
            standards[workload.id] = _standard(bench, workload, sides, floor)
    if floor is not None:
        floor.worker.close()
    return standards


def _standard(bench: Bench, workload: Workload, sides: Mapping[str, Side], floor: Side | None) -> Standard:
    """The sides take turns, as they do when a candidate is timed."""
    times: dict[str, list[float]] = {name: [] for name in (*sides, FLOOR)}
    errors: dict[str, float] = {}
    items = range(len(bench.task.items(workload)))
    everyone = {**sides, **({FLOOR: floor} if floor else {})}
    for i in range(ROUNDS):
        for name, side in everyone.items():
            call = bench.call(side, workload, LIMIT_S)
            times[name].append(call.cpu_us)
            if i > 0 or name == FLOOR:
                continue
            expected = bench.task.reference(workload, call.tensors, items)
            if bench.task.mismatch(workload, call.outputs, expected, items, 0.0) is None:
                errors[name] = bench.task.rmse(call.outputs, expected)
    if not errors:
        raise JudgeError(f"no baseline is right on workload {workload.id}")
    best = min(errors, key=lambda name: median(times[name]))
    return Standard(best, median(times[best]), errors[best], median(times[FLOOR]) if floor else None)
