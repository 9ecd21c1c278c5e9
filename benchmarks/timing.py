"""Stage `time`: candidate and baseline side by side, in rounds, on contents that change with every call.

A visit to a workload is a few calls of both sides in strict turns; a side's time in a round is its shortest call, since
whatever disturbs a process adds to its time (on a loaded machine the ratio of one call scatters by 12 %, that of
shortest calls by 2 %). Each of the two rounds visits every workload once. Then, as long as the rounds disagree by more
than a few percent, the workload that disagrees most, whichever way, is visited again for both. How long that may go on
depends on whether anybody else works on the machine: a busy one makes a verdict slower rather than worse.

Everybody works on one core, the parent as well, and the parent does the same before and after each call, so that both
sides find the caches alike. Who begins changes from workload to workload and from visit to visit.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
MOST_VISITS = 8
"""Visits of one workload to a round: what differs still differs by itself."""
QUIET_SECONDS, BUSY_SECONDS = 6.5, 30.0
"""After this long nothing is visited again, on a machine that does nothing else and on one that does; for a part of
the workloads, as large a part of it."""
BUSY = 0.1
"""Share of the machine's cores that others use (or its host takes) from which it counts as busy."""
BLOCK_US = 6000.0
"""A visit is as many calls as the baseline makes in about this long."""
MOST_CALLS = 8


@dataclass(frozen=True)
class Moment:
    """A time, and the CPU seconds that all of the machine's cores had worked by then (or were taken by its host)."""

    monotonic: float
    worked: float

    @classmethod
    def now(cls) -> Moment:
        """This moment, as /proc/stat has it."""
        user, nice, system, _idle, _iowait, *rest = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ticks = sum(map(int, (user, nice, system, *rest)))
        return cls(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"))

    @property
    def seconds_ago(self) -> float:
        """Seconds from then to now."""
        return time.monotonic() - self.monotonic

    @property
    def others_since(self) -> float:
        """Share of the cores that others have used since then; the judge itself keeps one busy all the time."""
        now = Moment.now()
        seconds = max(now.monotonic - self.monotonic, 1e-9)
        return ((now.worked - self.worked) / seconds - 1.0) / (os.cpu_count() or 1)


def time_rows(trial: Trial, workloads: Sequence[Workload], rounds: int = ROUNDS) -> bool:
    """Time these workloads; False as soon as one is not right any more."""
    begin = Moment.now()
    with trial.bench.on_one_core():
        for number in range(rounds):
            for i, workload in enumerate(workloads):
                trial.bench.progress(f"timing: round {number + 1}, workload {i + 1} of {len(workloads)}")
                if not _time_row(trial, workload, number, candidate_first=(number + i) % 2 == 0):
                    return False
        return rounds == 1 or _revisit(trial, workloads, begin)


def _revisit(trial: Trial, workloads: Sequence[Workload], begin: Moment) -> bool:
    """Visit what disagrees most until all agree or time is up; False as soon as one is not right any more."""
    visits, share = dict.fromkeys(workloads, 1), len(workloads) / len(trial.bench.workloads)
    while begin.seconds_ago < share * (BUSY_SECONDS if begin.others_since > BUSY else QUIET_SECONDS):
        apart = {w: _disagreement(trial.rows[w.id]) for w in workloads if visits[w] < MOST_VISITS}
        if sum(d * d for d in apart.values()) <= DISAGREEMENT**2 * len(workloads):
            break
        worst = max(apart, key=lambda w: apart[w])
        visits[worst] += 1
        trial.bench.progress(f"timing: visit {visits[worst]} to a workload whose rounds disagree")
        for number in range(ROUNDS):
            if not _time_row(trial, worst, number, candidate_first=(visits[worst] + number) % 2 == 0):
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
