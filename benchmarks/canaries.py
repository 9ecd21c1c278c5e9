"""Is the judge itself in order here? A kernel known wrong must be refused, and one known slow must take its time.

Every bench asks once, before it times anything. A canary that comes through says that figures from this machine are
worth nothing: a `JudgeError`, charged to no candidate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarks.worker import CandidateError, JudgeError

if TYPE_CHECKING:
    from benchmarks.bench import Bench

LIMIT_S = 60.0


def prove(bench: Bench) -> None:
    """`JudgeError` if a wrong kernel passes, a right one does not, or a clock is fast."""
    canaries = bench.task.canaries(bench.device)
    try:
        if "wrong" in canaries and _mismatch(bench, "wrong") is None:
            raise JudgeError("a kernel that is known to be wrong was found right: nothing can be judged here")
        if "slow" in canaries:
            if (why := _mismatch(bench, "slow")) is not None:
                raise JudgeError(f"a kernel that is known to be right was refused: {why}")
            bench.prove_clock(bench.baseline_side("slow"))
    except CandidateError as error:
        raise JudgeError(f"a canary does not run here: {error.message}") from None


def _mismatch(bench: Bench, name: str) -> str | None:
    """What is wrong with its outputs on the smallest workload."""
    workload = min(bench.workloads, key=lambda w: w.tokens)
    items = range(len(bench.task.items(workload)))
    expected: dict[str, Any] = {}

    def refer(tensors: Mapping[str, Any]) -> None:
        expected.update(bench.task.reference(workload, tensors, items))

    call = bench.call(bench.baseline_side(name), workload, LIMIT_S, refer=refer)
    found = bench.task.mismatch(workload, call.outputs, expected, items, 0.0)
    return None if found is None else found.message


def check_clock(what: str, us: float, least_us: float) -> None:
    """`JudgeError` if a call that cannot take less than `least_us` is said to have."""
    if not math.isfinite(us) or us < 0.98 * least_us:
        raise JudgeError(f"{what} says {us:.0f} us of a call that takes at least {least_us:.0f} us")
