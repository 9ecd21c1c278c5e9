"""Stage `check`: is the candidate right? Hold-outs first, then the published workloads, always on fresh contents.

Nothing is timed here, so the reference is computed while the candidate works, and a baseline that has not met the
workload yet makes the same call beside it: both know it before it is timed (a first call costs PyTorch up to twice as
long).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarks.bench import Bench, Call
from benchmarks.calibration import Standard
from benchmarks.report import Row, RowStatus
from benchmarks.trial import Trial
from benchmarks.worker import CandidateError
from kernels.task import Mismatch, Workload

if TYPE_CHECKING:
    from torch import Tensor

SLOWEST = 60.0
"""A call may take this many times its baseline before it counts as hung; the plain C start takes about 10."""
LEAST_LIMIT_S = 1.0
HOLDOUT_LIMIT_S = 2.0
TIMED_KEYS = 256
"""Keys whose outputs are compared after each timed call: sequences drawn at random until this many are reached."""


def limit_s(standard: Standard) -> float:
    """CPU seconds that a call of this workload may take."""
    return max(LEAST_LIMIT_S, SLOWEST * standard.baseline_us / 1e6)


def check_holdouts(trial: Trial) -> bool:
    """Call the candidate on every hold-out until one is wrong; all right?"""
    bench = trial.bench
    for workload in bench.task.holdouts(bench.device, bench.rng.getrandbits(31)):
        wrong = _call(trial, workload, HOLDOUT_LIMIT_S, 0.0, None)
        status, message = (wrong.status, wrong.message) if wrong else ("passed", "")
        trial.holdouts.append({"name": workload.id, "status": as_row_status(status), "message": message})
        if wrong:
            return False
    return True


def check_row(trial: Trial, workload: Workload) -> None:
    """Set the row's status and error from one call on this workload, all outputs compared."""
    row, standard = trial.rows[workload.id], trial.standards[workload.id]
    wrong = _call(trial, workload, limit_s(standard), standard.rmse, row)
    if wrong:
        row.status, row.message = as_row_status(wrong.status), wrong.message
    else:
        row.status = "passed"


def _call(trial: Trial, workload: Workload, limit: float, baseline_rmse: float, row: Row | None) -> Mismatch | None:
    bench, items = trial.bench, range(len(trial.bench.task.items(workload)))
    expected: dict[str, Tensor] = {}

    companion = trial.baseline(workload) if row is not None and bench.meets(workload) else None

    def refer(tensors: Mapping[str, Tensor]) -> None:
        expected.update(bench.task.reference(workload, tensors, items))

    try:
        side = trial.side(workload)
        limit += bench.compile_seconds
        call = bench.call(side, workload, limit, refer=refer, companion=companion)
        side.worker.check_alone()
    except CandidateError as error:
        return Mismatch(error.status, error.message)
    trial.repeats(workload, call.outputs)
    if row is not None:
        rmse = bench.task.rmse(call.outputs, expected)
        row.rmse = rmse if 0 < rmse < float("inf") else None
    return bench.task.mismatch(workload, call.outputs, expected, items, baseline_rmse)


class Sample:
    """A part of a timed call's outputs, drawn where the kernel cannot see it, and what it should be."""

    def __init__(self, bench: Bench, workload: Workload) -> None:
        self._task, self._workload = bench.task, workload
        keys = self._task.items(workload)
        order = list(range(len(keys)))
        bench.rng.shuffle(order)
        self._chosen: list[int] = []
        for item in order:
            if self._chosen and sum(keys[i] for i in self._chosen) + keys[item] > TIMED_KEYS:
                break
            self._chosen.append(item)
        self._expected: dict[str, Tensor] = {}

    def refer(self, tensors: Mapping[str, Tensor]) -> None:
        """Compute what the part should be."""
        self._expected = self._task.reference(self._workload, tensors, self._chosen)

    def mismatch(self, call: Call, standard: Standard) -> Mismatch | None:
        """Are the outputs all there, and is the part right?"""
        for name, tensor in call.outputs.items():
            if tensor.isnan().any():
                return Mismatch("wrong_result", f"{name} has elements that were left unwritten, or are NaN")
        outputs = {name: tensor[self._chosen] for name, tensor in call.outputs.items()}
        return self._task.mismatch(self._workload, outputs, self._expected, self._chosen, standard.rmse)


def as_row_status(status: str) -> RowStatus:
    """A row's word for what went wrong; a build error this late is an error at run time."""
    return "runtime_error" if status == "build_error" else status  # type: ignore[return-value]
