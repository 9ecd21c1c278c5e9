"""Is a GPU candidate's word of its own times to be believed? The parent's clock over many queued calls says so.

The candidate's process puts many calls behind a gate. Only then are their queries written, the gate is opened and the
parent's clock runs until all is done; outputs are copied away at once and compared. Nothing can be computed before the
gate opens, nothing counts that is late, and the clock is out of the candidate's reach. A queued call takes less time
than one timed alone, since part of the cache is warm and no launch is waited for; so a kernel whose own figure is below
the parent's has not told the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.check import limit_s
from benchmarks.queued import Queue
from benchmarks.report import RUN_ONLY
from benchmarks.trial import Trial
from benchmarks.worker import CandidateError
from kernels.task import Workload

if TYPE_CHECKING:
    from benchmarks.cuda import CudaBench

QUEUE_US = 1500.0
"""A queue is as many calls as take about this long: what the parent's clock is off by (20 us) hardly shows."""
LEAST_CALLS = 16
TRUSTED = 0.85
SLACK_US = 1.0
"""A figure is believed from 85 % of the parent's, less a microsecond, up."""
COMPARED = 6
"""Of a queue's calls, as many drawn at random are compared with the reference; none may repeat another."""


def audit(bench: CudaBench, trial: Trial, workloads: Sequence[Workload]) -> bool:
    """Set `audit_us` of each row; one whose figure does not stand up is `cheated`. False at the first such."""
    latency = None
    for i, workload in enumerate(workloads):
        bench.progress(f"auditing the times: workload {i + 1} of {len(workloads)}")
        row = trial.rows[workload.id]
        claim = median(row.scopes[RUN_ONLY].candidate_us)
        calls = max(LEAST_CALLS, min(bench.queue_room, round(QUEUE_US / claim)))
        try:
            if latency is None:
                latency = max(0.0, _queue(bench, trial, workload, 1) - claim)
            row.audit_us = max(1e-3, (_queue(bench, trial, workload, calls) - latency) / calls)
        except CandidateError as error:
            row.status, row.message = "cheated", f"in queued calls: {error.message}"
            row.scopes.clear()
            return False
        if claim < TRUSTED * row.audit_us - SLACK_US:
            row.status = "cheated"
            row.message = (
                f"its own clock says {claim:.2f} us a call, the judge's {row.audit_us:.2f} us over {calls} calls"
            )
            row.scopes.clear()
            return False
    return True


def _queue(bench: CudaBench, trial: Trial, workload: Workload, calls: int) -> float:
    standard = trial.standards[workload.id]
    compared = set(bench.rng.sample(range(calls), min(COMPARED, calls)))
    queue = Queue(bench, trial.side(workload), workload, calls)
    us = queue.time(limit_s(standard))
    queue.check(compared, standard)
    return us
