"""Stage `time`: candidate and baseline side by side, in rounds, on contents that change with every call.

A visit to a workload is a few calls of both sides in strict turns; a side's time in a round is its shortest call, since
whatever disturbs a process adds to its time (on a loaded machine the ratio of one call scatters by 12 %, that of
shortest calls by 2 %). Each of the two rounds visits every workload once. Then, as long as the rounds disagree by more
than a few percent, the workload that disagrees most, whichever way, is visited again for both: a quiet machine is done
at once, a busy one makes a verdict slower rather than worse.

Everybody works on one core, the parent as well, and the parent does the same before and after each call, so that both
sides find the caches alike. Who begins changes from workload to workload and from visit to visit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from benchmarks.bench import Call
from benchmarks.check import as_row_status, check_timed, limit_s
from benchmarks.report import RUN_ONLY, Row, Timing
from benchmarks.trial import Trial
from benchmarks.worker import CandidateError, JudgeError
from kernels.task import Mismatch, Workload

ROUNDS = 2
DISAGREEMENT = 0.03
"""Root mean square, over workloads, of the relative difference of the two rounds, at which they agree well enough:
for 47 workloads a standard error of 0.2 % of the geometric mean."""
MOST_VISITS = 5
"""Visits of one workload to a round: what differs still differs by itself."""
ENOUGH_SECONDS = 30.0
"""After this long nothing is visited again."""
BLOCK_US = 6000.0
"""A visit is as many calls as the baseline makes in about this long."""
MOST_CALLS = 12


def time_rows(trial: Trial, workloads: Sequence[Workload], rounds: int = ROUNDS) -> bool:
    """Time these workloads; False as soon as one is not right any more."""
    begin = time.monotonic()
    visits = dict.fromkeys(workloads, 1)
    with trial.bench.on_one_core():
        for number in range(rounds):
            for i, workload in enumerate(workloads):
                trial.bench.progress(f"timing: round {number + 1}, workload {i + 1} of {len(workloads)}")
                if not _time_row(trial, workload, number, candidate_first=(number + i) % 2 == 0):
                    return False
        while rounds > 1 and time.monotonic() - begin < ENOUGH_SECONDS:
            apart = {w: _disagreement(trial.rows[w.id]) for w in workloads if visits[w] < MOST_VISITS}
            if sum(d * d for d in apart.values()) <= DISAGREEMENT**2 * len(workloads):
                break
            worst = max(apart, key=lambda w: apart[w])
            visits[worst] += 1
            trial.bench.progress(f"timing: visit {visits[worst]} to a workload whose rounds disagree")
            for number in range(rounds):
                if not _time_row(trial, worst, number, candidate_first=number % 2 == 0):
                    return False
    return True


def _disagreement(row: Row) -> float:
    """Relative difference between the rounds' speedups, from 0 up."""
    ratios = row.scopes[RUN_ONLY].ratios
    return math.log(max(ratios) / min(ratios))


def _time_row(trial: Trial, workload: Workload, number: int, *, candidate_first: bool) -> bool:
    row, standard = trial.rows[workload.id], trial.standards[workload.id]
    try:
        baseline_us, candidate_us = visit_row(trial, workload, row, candidate_first=candidate_first)
    except CandidateError as error:
        row.status, row.message = as_row_status(error.status), error.message
    if row.status != "passed":
        row.scopes.clear()
        return False
    timing = row.scopes.setdefault(RUN_ONLY, Timing(standard.baseline))
    timing.add(number, baseline_us, candidate_us)
    return True


def visit_row(trial: Trial, workload: Workload, row: Row, *, candidate_first: bool) -> tuple[float, float]:
    """Shortest call of baseline and candidate in one visit (us); a wrong output changes the row's status."""
    standard, bench = trial.standards[workload.id], trial.bench
    shortest = {False: math.inf, True: math.inf}
    for _ in range(max(1, min(MOST_CALLS, round(BLOCK_US / standard.baseline_us)))):
        for is_candidate in (candidate_first, not candidate_first):
            side = trial.side(workload) if is_candidate else trial.baseline(workload)
            call = bench.call(side, workload, limit_s(standard))
            shortest[is_candidate] = min(shortest[is_candidate], call.cpu_us)
            wrong = check_timed(bench, call, standard)
            if is_candidate:
                _judge_call(trial, row, call, wrong)
            elif wrong is not None:
                raise JudgeError(f"baseline {standard.baseline} is wrong on {workload.id}: {wrong.message}")
        if row.status != "passed":
            break
    trial.side(workload).worker.check_alone()
    return shortest[False], shortest[True]


def _judge_call(trial: Trial, row: Row, call: Call, wrong: Mismatch | None) -> None:
    row.calls_us.append(call.wall_us)
    if trial.repeats(call.workload, call.outputs):
        row.status = "cheated"
        row.message = "a timed call gave the very output of an earlier one, though its inputs had changed"
    elif wrong is not None:
        row.status, row.message = as_row_status(wrong.status), f"in a timed call: {wrong.message}"
