"""Steps that change a team and measure what the change was worth."""

from __future__ import annotations

import random
from collections.abc import Sequence

from teams.design import differences
from teams.models import Command, Restructuring, Run, Signal
from teams.models.team import install
from teams.supervisor import diagnosis, memory
from teams.supervisor.diagnosis import Answer, diagnose
from teams.supervisor.progress import Progress, progress_of
from teams.supervisor.thresholds import Thresholds, thresholds_of


def restructure(run: Run) -> bool:
    """Answer the signals of an evolving team that has had its window, between two turns."""
    if run.strategy != Run.Strategy.EVOLVING or run.state != Run.State.RUNNING or run.team is None:
        return False
    unheard = list(run.signals.filter(team=run.team, restructurings=None))
    if not unheard or run.turns.filter(ended_at__isnull=True).exists():
        return False
    progress, limits = progress_of(run), thresholds_of(run)
    if len(progress.of_team) < limits.minimum_window:
        return False
    with run.held():
        return _answer(run, progress, unheard, None, limits)


def shuffle(run: Run) -> bool:
    """Control: give a shuffled team that has had its window another, at random."""
    if run.strategy != Run.Strategy.SHUFFLED or run.state != Run.State.RUNNING or run.team is None:
        return False
    if run.turns.filter(ended_at__isnull=True).exists():
        return False
    progress, limits = progress_of(run), thresholds_of(run)
    rng = random.Random(f"{run.seed} {len(progress.judged)} shuffle")
    if len(progress.of_team) < limits.minimum_window or rng.random() >= limits.shuffle:
        return False
    with run.held():
        answer = diagnosis.at_random(run, progress, rng)
        if answer is None:
            return False
        measure_outcomes(run, early=True)
        _install(run, progress, (), None, answer, limits)
    return True


def force(run: Run, command: Command) -> str:
    """Restructure because a person asks, with what signals there are; why not, if not. Inside a transaction."""
    assert run.team is not None
    unheard = list(run.signals.filter(team=run.team, restructurings=None))
    done = _answer(run, progress_of(run), unheard, command, thresholds_of(run))
    return "" if done else "no rule gives a team that is valid and unlike the present one"


def _answer(
    run: Run, progress: Progress, signals: Sequence[Signal], command: Command | None, limits: Thresholds
) -> bool:
    answer = diagnose(run, progress, signals, asked=command is not None)
    if answer is None:
        return _keep(run, signals)
    measure_outcomes(run, early=True)
    _install(run, progress, signals, command, answer, limits)
    return True


def _keep(run: Run, signals: Sequence[Signal]) -> bool:
    """No answer: the team stays, and the signals are answered by that."""
    assert run.team is not None
    if not signals:
        return False
    kept = run.restructurings.create(
        before=run.team, cause="none", explanation="No rule gives a valid team unlike the present one.",
        decided_by="supervisor", state=Restructuring.State.KEPT,
    )  # fmt: skip
    kept.signals.set(signals)
    run.record("team_kept", signals=[s.kind for s in signals])
    return True


def _install(
    run: Run,
    progress: Progress,
    signals: Sequence[Signal],
    command: Command | None,
    answer: Answer,
    limits: Thresholds,
) -> None:
    before, old = run.team, progress.best
    assert before is not None
    changes = differences(before.design(), answer.design)
    who = f"{command.actor} (asked)" if command else "supervisor"
    after = install(run, answer.design, who)
    expected = {
        "metric": "geomean_verified",
        "at_least": round((old or 0.0) * (1 + limits.expected_gain), 4),
        "within_candidates": limits.minimum_window,
    }
    restructuring = run.restructurings.create(
        before=before, after=after, command=command, cause=answer.cause, explanation=answer.explanation,
        operations=answer.operations, considered=answer.considered, expected=expected, decided_by=who,
        fallback="the team stays until another signal fires",
        measured={"before": old, "changes": changes},
    )  # fmt: skip
    restructuring.signals.set(signals)
    run.record(
        "restructured",
        restructuring=restructuring.pk,
        before=before.number,
        after=after.number,
        cause=answer.cause,
        signals=[s.kind for s in signals],
        changes=changes,
        expected=expected,
        decided_by=who,
    )


def measure_outcomes(run: Run, *, early: bool = False) -> bool:
    """Hold each team that has had its window against what was expected of it (`early`: it ends now)."""
    waiting = run.restructurings.filter(state=Restructuring.State.INSTALLED).select_related("after")
    verifying = run.reports.waiting().filter(is_verification=True).exists()
    if not waiting or (verifying and not early):
        return False
    progress, limits = progress_of(run), thresholds_of(run)
    changed = False
    for restructuring in waiting:
        assert restructuring.after is not None
        judged = len(progress.judged) - restructuring.after.installed_at
        if judged >= restructuring.expected["within_candidates"] or early or run.state == Run.State.STOPPING:
            with run.held():
                changed |= _measure(run, restructuring, progress, limits)
    return changed


def _measure(run: Run, restructuring: Restructuring, progress: Progress, limits: Thresholds) -> bool:
    before, after = restructuring.measured["before"], progress.best
    outcome = _outcome(before, after, restructuring.expected["at_least"], limits, progress)
    measured = {**restructuring.measured, "after": after, "candidates": len(progress.of_team)}
    if not restructuring.move(Restructuring.State.MEASURED, outcome=outcome, measured=measured):
        return False
    memory.remember_outcome(run, restructuring)
    run.record("outcome", restructuring=restructuring.pk, outcome=outcome, before=before, after=after)
    return True


def _outcome(
    before: float | None, after: float | None, expected: float, limits: Thresholds, progress: Progress
) -> Restructuring.Outcome:
    """Met or partly by the verified gain; without one, worse if more than half of the window failed."""
    if after is not None and after >= expected and after > (before or 0.0):
        return Restructuring.Outcome.MET
    if after is not None and after > (before or 0.0) * (1 + limits.gain):
        return Restructuring.Outcome.PARTLY
    window = progress.of_team
    if window and sum(j.failed for j in window) > len(window) / 2:
        return Restructuring.Outcome.WORSE
    return Restructuring.Outcome.MISSED
