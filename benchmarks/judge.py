"""judge(): take a candidate through the stages of protocol 1 and say what it is worth.

Cheap stages come first, and a stage visits the few `smoke` workloads before all of them, so that a poor candidate
costs little: screen, build, check (hold-outs, smoke, the rest), time (smoke, the rest), profile. `verify` does it
all again in fresh processes on fresh contents; what it measures then is the figure, not the better of the two.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from benchmarks import profile, screen, statistics, timing
from benchmarks.bench import Bench
from benchmarks.calibration import baseline_versions, calibrate
from benchmarks.candidate import Source
from benchmarks.check import check_holdouts, check_row
from benchmarks.report import PROTOCOL, RUN_ONLY, Report, Row, Status
from benchmarks.trial import Trial
from benchmarks.worker import CandidateError, JudgeError
from kernels.task import Workload

HOPELESS_AFTER = 3
"""Smoke workloads after which a candidate at less than half of `stop_below` is looked at no longer."""

LEAST_CONFIRMED = 0.97
"""A claim holds while the second figure is within 3 % of it: the sum of both measurements' noise, and more."""


@dataclass
class Stages:
    """Seconds spent in each stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begin


def judge(
    bench: Bench,
    source: Source | None,
    workloads: Sequence[Workload],
    *,
    stop_below: float | None = None,
    patience_s: float = 0.0,
    command: str = "",
) -> Report:
    """Judge `source` (None: the baselines against themselves) on these workloads of the bench. `patience_s`: if
    others keep the machine busy, so many seconds more (of all workloads; less of fewer) are worth a better figure.

    With `stop_below`, a candidate whose geometric mean on the smoke workloads is less after one round is timed no
    further; the rows that are left say `not_run`.
    """
    stages = Stages()
    report = _empty_report(bench, source, workloads, command)
    try:
        _judge(bench, source, workloads, (stop_below, patience_s), report, stages)
    except CandidateError as error:
        report.verdict, report.message = _early(error.status), error.message
    except JudgeError as error:
        report.verdict, report.message = "judge_error", str(error)
    if not bench.is_untouched():
        report.verdict, report.message = "cheated", "files of the judge were changed while the candidate ran"
    report.seconds = {**stages.seconds, "total": sum(stages.seconds.values())}
    report.environment["sandbox"] = bench.box.kind
    return report


def _judge(
    bench: Bench,
    source: Source | None,
    workloads: Sequence[Workload],
    how: tuple[float | None, float],
    report: Report,
    stages: Stages,
) -> None:
    notes: dict[str, Any] = {}
    candidate = None
    if source is not None:
        with stages.stage("screen"):
            if (why := screen.screen(source, bench.task, bench.device)) is not None:
                report.verdict, report.message = "screened_out", why
                return
        with stages.stage("build"):
            bench.progress("building")
            candidate = bench.lay_out(source)
            notes = bench.build(candidate)
    with stages.stage("calibrate"):
        standards = calibrate(bench, workloads)
    trial = Trial(bench, candidate, standards, {row.workload: row for row in report.rows})
    if candidate is not None:
        with stages.stage("build"):
            trial.side(workloads[0])
    for row in report.rows:
        row.floor_us = standards[row.workload].floor_us
        row.baseline_rmse = standards[row.workload].rmse
    launches: list[dict[str, Any]] = []
    try:
        _check_and_time(trial, workloads, how, report, stages)
        if all(row.status == "passed" for row in report.rows):
            with stages.stage("profile"):
                launches = profile.look(trial, workloads)
    finally:
        report.holdouts, report.findings = trial.holdouts, trial.findings
        trial.end()
    with stages.stage("profile"):
        report.profile = profile.profile(trial, notes, launches)
        report.findings += profile.suspicions(trial)


def _check_and_time(
    trial: Trial, workloads: Sequence[Workload], how: tuple[float | None, float], report: Report, stages: Stages
) -> None:
    stop_below, patience_s = how
    smoke = [w for w in workloads if w.id.startswith(trial.bench.task.smoke)]
    rest = [w for w in workloads if w not in smoke]
    with stages.stage("check"):
        if not check_holdouts(trial) or not _check(trial, smoke):
            return
    with stages.stage("canaries"):  # not sooner: what is refused by now needs no clock, and no baseline's process
        trial.bench.prove()
    if stop_below is not None and smoke:
        with stages.stage("time"):
            if not _is_fast_enough(trial, smoke, stop_below, report):
                return
    with stages.stage("check"):
        if not _check(trial, rest):
            return
    with stages.stage("time"):
        trial.confine(workloads)
        if timing.time_rows(trial, workloads, patience_s=patience_s):
            trial.bench.audit(trial, workloads)


def _check(trial: Trial, workloads: Sequence[Workload]) -> bool:
    for i, workload in enumerate(workloads):
        trial.bench.progress(f"checking: workload {i + 1} of {len(workloads)}")
        check_row(trial, workload)
        if trial.given_up or trial.rows[workload.id].status in ("cheated", "timeout"):
            return False
    return all(trial.rows[w.id].status == "passed" for w in workloads)


def _is_fast_enough(trial: Trial, smoke: Sequence[Workload], stop_below: float, report: Report) -> bool:
    """A first look at the smoke workloads, one after another; hopeless cases are seen after the first few."""
    seen: list[float] = []
    for workload in smoke:
        if not timing.time_rows(trial, [workload], rounds=1):
            return False
        seen += trial.rows[workload.id].scopes[RUN_ONLY].ratios
        mean = statistics.geometric_mean(seen)
        done, hopeless = len(seen) == len(smoke), len(seen) >= HOPELESS_AFTER and mean < stop_below / 2
        if (done and mean < stop_below) or hopeless:
            report.message = f"{mean:.3f}x on {len(seen)} smoke workloads, below {stop_below:.3f}x: not judged further"
            for row in report.rows:
                row.status = "passed" if row.scopes else "not_run"
            return False
    for workload in smoke:  # the figures come from the rounds that all workloads share
        trial.rows[workload.id].scopes.clear()
    return True


def verify(
    bench: Bench,
    source: Source,
    claim: Report,
    workloads: Sequence[Workload] | None = None,
    *,
    patience_s: float = 0.0,
    command: str = "",
) -> Report:
    """Measure a claim again, in fresh processes and on fresh contents; the report returned is that measurement alone.

    By default on the claim's workloads; on more than these, the claim is compared on those that it has. `verified`
    says that it passed. If it is more than 3 % slower than the claim, a finding says so.
    """
    claimed = {row.workload for row in claim.rows}
    bench.renew()
    chosen = workloads or [w for w in bench.workloads if w.id in claimed]
    report = judge(bench, source, chosen, patience_s=patience_s, command=command)
    report.verified = report.status == "passed" and claim.candidate["source_sha256"] == source.sha256
    if claim.status == "passed" and (gap := _shortfall(claim, report)):
        report.findings.append({"kind": "claim_not_verified", "workload": None, "message": gap})
    return report


def _shortfall(claim: Report, report: Report) -> str:
    """How a second measurement falls short of a claim, on the claim's workloads, by more than both measurements'
    noise; empty if it does not."""
    claimed, found = claim.ratios(), report.ratios()
    before = statistics.summarise(claimed).geomean
    if report.status != "passed" or not claimed.keys() <= found.keys():
        return f"claimed {before:.3f}x, measured again: it did not pass"
    after = statistics.summarise({w: found[w] for w in claimed}).geomean
    return "" if after >= LEAST_CONFIRMED * before else f"claimed {before:.3f}x, measured again: {after:.3f}x"


def _early(status: str) -> Status:
    return status if status in ("cheated", "build_error") else "build_error"  # type: ignore[return-value]


def _empty_report(bench: Bench, source: Source | None, workloads: Sequence[Workload], command: str) -> Report:
    everything = len(workloads) == len(bench.workloads)
    versions = baseline_versions(bench)
    name = (
        {"name": source.name, "source_sha256": source.sha256, "language": source.language}
        if source
        else {"name": "baseline", "source_sha256": "", "language": "pytorch"}
    )
    return Report(
        task=bench.task.name,
        candidate=dict(name),
        command=command,
        conditions={
            "protocol": PROTOCOL,
            "device": bench.device_name(),
            "baseline_versions": versions,
            "workloads": "all" if everything else [w.id for w in workloads],
            "clock": bench.clock,
            **({"inputs": bench.task.inputs} if bench.task.inputs else {}),
        },
        rows=[Row(w.id, w.batch_size, w.tokens) for w in workloads],
        environment={
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "torch": version("torch"),
            **bench.tools(),
            "seed": bench.seed,
            "load_average": os.getloadavg()[0],
        },
    )
