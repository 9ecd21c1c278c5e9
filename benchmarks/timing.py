"""Stage `time`: candidate and baseline side by side, in rounds, on contents that change with every call.

A round visits every workload once; on each, both sides make the same number of calls in strict turns, and the ratio of
their median CPU times is the round's speedup. Everybody works on one core, the parent as well, and the parent does the
same before and after each call, so that both sides find the caches alike: with the parent on another core the A/A ratio
of one call scattered by 10 % instead of 2 %. Who begins changes from row to row and from round to round: beginning cost
about 1 % on short workloads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from benchmarks.bench import Call
from benchmarks.check import as_row_status, check_timed, limit_s
from benchmarks.report import RUN_ONLY, Row, Timing
from benchmarks.trial import Trial
from benchmarks.worker import CandidateError, JudgeError
from kernels.task import Mismatch, Workload

ROUNDS = 2
EXTRA_ROUNDS = 1
DISAGREEMENT = 1.2
"""A row whose rounds differ by more than this factor gets another: the machine was disturbed."""
ENOUGH_SECONDS = 15.0
"""After this long there are no extra rounds: only a very slow candidate gets here."""
BLOCK_US = 6000.0
"""Calls are repeated within a round until the baseline has taken about this long."""
MOST_CALLS = 12
COMPARED_CALLS = 2
"""Calls of a block, drawn at random, whose outputs are compared with the reference; of all the others it is seen that
they are complete and not those of an earlier call."""


def time_rows(trial: Trial, workloads: Sequence[Workload], rounds: int = ROUNDS) -> bool:
    """Add rounds to the rows of these workloads; False as soon as one is not right any more."""
    with trial.bench.on_one_core():
        return _rounds(trial, workloads, rounds)


def _rounds(trial: Trial, workloads: Sequence[Workload], rounds: int) -> bool:
    begin = time.monotonic()
    for number in range(rounds + EXTRA_ROUNDS):
        if number >= rounds and (rounds == 1 or time.monotonic() - begin > ENOUGH_SECONDS):
            break
        due = [w for w in workloads if number < rounds or _disagrees(trial.rows[w.id])]
        for i, workload in enumerate(due):
            trial.bench.progress(f"timing: round {number + 1}, workload {i + 1} of {len(due)}")
            row = trial.rows[workload.id]
            try:
                time_row(trial, workload, row, candidate_first=(number + i) % 2 == 0)
            except CandidateError as error:
                row.status, row.message = as_row_status(error.status), error.message
            if row.status != "passed":
                row.scopes.clear()
                return False
    return True


def _disagrees(row: Row) -> bool:
    """Its rounds differ, whichever way: more of them are needed."""
    ratios = row.scopes[RUN_ONLY].ratios
    return max(ratios) > DISAGREEMENT * min(ratios)


def time_row(trial: Trial, workload: Workload, row: Row, *, candidate_first: bool) -> None:
    """One round of one workload; a wrong output of a timed call changes the row's status."""
    standard, bench = trial.standards[workload.id], trial.bench
    ours: list[float] = []
    theirs: list[float] = []
    calls = max(1, min(MOST_CALLS, round(BLOCK_US / standard.baseline_us)))
    compared = bench.rng.sample(range(calls), min(calls, COMPARED_CALLS))
    for number in range(calls):
        for is_candidate in (candidate_first, not candidate_first):
            side = trial.side(workload) if is_candidate else trial.baseline(workload)
            call = bench.call(side, workload, limit_s(standard))
            (ours if is_candidate else theirs).append(call.cpu_us)
            wrong = check_timed(bench, call, standard, compare=number in compared)
            if is_candidate:
                _judge_call(trial, row, call, wrong)
            elif wrong is not None:
                raise JudgeError(f"baseline {standard.baseline} is wrong on {workload.id}: {wrong.message}")
        if row.status != "passed":
            return
    trial.side(workload).worker.check_alone()
    timing = row.scopes.setdefault(RUN_ONLY, Timing(standard.baseline))
    timing.candidate_us.append(median(ours))
    timing.baseline_us.append(median(theirs))


def _judge_call(trial: Trial, row: Row, call: Call, wrong: Mismatch | None) -> None:
    row.calls_us.append(call.wall_us)
    if trial.repeats(call.workload, call.outputs):
        row.status = "cheated"
        row.message = "a timed call gave the very output of an earlier one, though its inputs had changed"
    elif wrong is not None:
        row.status, row.message = as_row_status(wrong.status), f"in a timed call: {wrong.message}"
