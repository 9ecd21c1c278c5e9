"""Stage `time`: candidate and baseline side by side, in rounds, on contents that change with every call.

A visit to a workload is a few calls of both sides in strict turns; what a visit's calls come to (the shortest, or the
median) is a matter of the device's clock: see its `Rhythm`. Each round visits every workload once. Then, as long as the
rounds disagree by more than a few percent, the workload that disagrees most, whichever way, is visited again for all of
them. That may go on longer where somebody else works on the machine: as long as the judge's `patience_s` says, a busy
one makes a verdict slower rather than worse. Who begins changes from workload to workload and from visit to visit.

Processes differ for as long as they live (where their memory lies decides how much of a shared cache they get), on a
busy machine by a percent and more. So there, if the patience is great enough, all of this is done again in fresh
processes, until their means agree.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.bench import Call
from benchmarks.check import Sample, as_row_status, limit_s
from benchmarks.report import PLAN_AMORTISED, PLAN_AND_RUN, RUN_ONLY, Row, Timing
from benchmarks.trial import Trial
from benchmarks.worker import CandidateError, JudgeError
from kernels.task import Mismatch, Workload

DISAGREEMENT = 0.03
"""Root mean square, over workloads, of the relative difference of the rounds, at which they agree well enough:
for 47 workloads a standard error of 0.2 % of the geometric mean."""
REVISITS_S = 24.0
"""Of the patience that a busy machine is met with, what may go to visiting again; the rest goes to fresh processes."""
LEAST_PASSES, MOST_PASSES, PASSES_AGREE = 4, 12, 0.0035
"""On a busy machine: fresh pairs of processes, and the standard error of the mean of their geometric means (logarithms)
from which on there are enough."""
MOST_VISITS = 8
"""Visits of one workload to a round: what differs still differs by itself."""
BUSY = 0.1
"""Share of the machine's cores that others use (or its host takes) from which it counts as busy."""
LAYERS = 61
"""Runs that share one plan in scope plan_amortised: DeepSeek-V3's layers."""


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


def time_rows(
    trial: Trial, workloads: Sequence[Workload], rounds: int | None = None, *, patience_s: float = 0.0
) -> bool:
    """Time these workloads; False as soon as one is not right any more. `patience_s`: how much
    longer it may take on a busy machine (of all workloads; less of fewer)."""
    begin = Moment.now()
    with trial.bench.measuring():
        for number in range(rounds or trial.bench.rhythm.rounds):
            if not _time_round(trial, workloads, number):
                return False
        return rounds is not None or (
            _revisit(trial, workloads, begin, patience_s) and _pass_again(trial, workloads, begin, patience_s)
        )


def _time_round(trial: Trial, workloads: Sequence[Workload], number: int) -> bool:
    for i, workload in enumerate(workloads):
        trial.bench.progress(f"timing: round {number + 1}, workload {i + 1} of {len(workloads)}")
        if not _time_row(trial, workload, number, candidate_first=(number + i) % 2 == 0):
            return False
    return True


def _pass_again(trial: Trial, workloads: Sequence[Workload], begin: Moment, patience_s: float) -> bool:
    """Time all of them in fresh processes, while the machine is busy, the processes' means are apart and patience
    lasts; False as soon as one workload is not right any more."""
    bench = trial.bench
    end = _share(trial, workloads) * (bench.rhythm.quiet_seconds + patience_s)
    rounds, means = bench.rhythm.rounds, [_mean(trial, workloads, 0)]
    while bench.renews and len(means) < MOST_PASSES and not _agree(means):
        if begin.seconds_ago >= end or begin.others_since <= BUSY:
            break
        trial.end()
        bench.renew()
        for workload in workloads:
            meet(trial, workload)
        for number in range(len(means) * rounds, (len(means) + 1) * rounds):
            if not _time_round(trial, workloads, number):
                return False
        means.append(_mean(trial, workloads, len(means)))
    return True


def _mean(trial: Trial, workloads: Sequence[Workload], number: int) -> float:
    """Logarithm of the geometric mean of one pass."""
    here = slice(number * trial.bench.rhythm.rounds, (number + 1) * trial.bench.rhythm.rounds)
    return fmean(math.log(ratio) for w in workloads for ratio in trial.rows[w.id].scopes[RUN_ONLY].ratios[here])


def _agree(means: Sequence[float]) -> bool:
    return len(means) >= LEAST_PASSES and stdev(means) / math.sqrt(len(means)) <= PASSES_AGREE


def meet(trial: Trial, workload: Workload) -> None:
    """An untimed call of both sides, since a process's first one takes longer."""
    limit, bench = limit_s(trial.standards[workload.id]), trial.bench
    bench.meets(workload)
    bench.call(trial.side(workload), workload, limit, companion=trial.baseline(workload))


def _share(trial: Trial, workloads: Sequence[Workload]) -> float:
    return len(workloads) / len(trial.bench.workloads)


def _revisit(trial: Trial, workloads: Sequence[Workload], begin: Moment, patience_s: float) -> bool:
    """Visit what disagrees most until all agree or time is up; False as soon as one is not right any more."""
    visits, share = dict.fromkeys(workloads, 1), _share(trial, workloads)
    rhythm, more = trial.bench.rhythm, min(patience_s, REVISITS_S)
    while begin.seconds_ago < share * (rhythm.quiet_seconds + (more if begin.others_since > BUSY else 0.0)):
        apart = {w: _disagreement(trial.rows[w.id]) for w in workloads if visits[w] < MOST_VISITS}
        if sum(d * d for d in apart.values()) <= DISAGREEMENT**2 * len(workloads):
            break
        worst = max(apart, key=lambda w: apart[w])
        visits[worst] += 1
        trial.bench.progress(f"timing: visit {visits[worst]} to a workload whose rounds disagree")
        for number in range(rhythm.rounds):
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
        baseline, candidate = visit_row(trial, workload, row, candidate_first=candidate_first)
    except CandidateError as error:
        row.status, row.message = as_row_status(error.status), error.message
    if row.status != "passed":
        row.scopes.clear()
        return False
    for scope in trial.bench.scopes:
        timing = row.scopes.setdefault(scope, Timing(standard.baseline))
        timing.add(number, baseline.in_scope(scope), candidate.in_scope(scope))
    return True


@dataclass
class Visit:
    """One side's calls in a visit (us)."""

    of_visit: Callable[[Sequence[float]], float]
    run_us: list[float] = field(default_factory=list)
    plan_us: list[float] = field(default_factory=list)

    def add(self, call: Call) -> None:
        """Take in a timed call."""
        self.run_us.append(call.us)
        self.plan_us.append(call.plan_us or 0.0)

    def in_scope(self, scope: str) -> float:
        """What the calls come to, with as much of plan() as the scope counts."""
        share = {RUN_ONLY: 0.0, PLAN_AND_RUN: 1.0, PLAN_AMORTISED: 1 / LAYERS}[scope]
        return self.of_visit(self.run_us) + share * self.of_visit(self.plan_us)


def visit_row(trial: Trial, workload: Workload, row: Row, *, candidate_first: bool) -> tuple[Visit, Visit]:
    """Calls of baseline and candidate in one visit; a wrong output changes the row's status."""
    standard, bench = trial.standards[workload.id], trial.bench
    visits = {is_candidate: Visit(bench.rhythm.of_visit) for is_candidate in (False, True)}
    for _ in range(bench.rhythm.calls(standard.baseline_us)):
        for is_candidate in (candidate_first, not candidate_first):
            visits[is_candidate].add(_call(trial, workload, row, is_candidate=is_candidate))
        if row.status != "passed":
            break
    if bench.wall_apart and row.status == "passed":
        _call(trial, workload, row, is_candidate=True, wall=True)
    trial.side(workload).worker.check_alone()
    return visits[False], visits[True]


def _call(trial: Trial, workload: Workload, row: Row, *, is_candidate: bool, wall: bool = False) -> Call:
    """One call, and what its outputs say."""
    standard, bench = trial.standards[workload.id], trial.bench
    side = trial.side(workload) if is_candidate else trial.baseline(workload)
    sample = Sample(bench, workload)
    call = bench.call(side, workload, limit_s(standard), refer=sample.refer, timed=True, wall=wall)
    wrong = sample.mismatch(call, standard)
    if is_candidate:
        _judge_call(trial, row, call, wrong)
    elif wrong is not None:
        raise JudgeError(f"baseline {standard.baseline} is wrong on {workload.id}: {wrong.message}")
    return call


def _judge_call(trial: Trial, row: Row, call: Call, wrong: Mismatch | None) -> None:
    if call.wall_us is not None:
        row.calls_us.append(call.wall_us)
    if trial.repeats(call.workload, call.outputs):
        row.status = "cheated"
        row.message = "a timed call gave the very output of an earlier one, though its inputs had changed"
    elif wrong is not None:
        row.status, row.message = as_row_status(wrong.status), f"in a timed call: {wrong.message}"
