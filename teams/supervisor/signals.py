"""Signals: measured evidence that the team no longer fits the work.

Each is a function of `Progress` that returns what it measured when it is over its threshold, with the reports that it
rests on, and None otherwise. Only verdicts that count are looked at; the judge's own failures are not among them.

What is no stall is no signal: a crash repeats a turn, a claim that is not borne out is left aside, and a candidate at
the floor ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from teams import budget
from teams.models import Run, Signal
from teams.supervisor.progress import Judged, Progress, progress_of
from teams.supervisor.thresholds import Thresholds, thresholds_of


@dataclass(frozen=True)
class Fired:
    """A measurement over its threshold; `evidence` holds report ids."""

    value: float
    threshold: float
    message: str
    evidence: tuple[int, ...]


def no_gain(p: Progress, t: Thresholds) -> Fired | None:
    """Candidates since the last verified gain, or since the team came, whichever are fewer."""
    since = min(p.since_gain(t.gain), len(p.of_team))
    if since < t.no_gain:
        return None
    return Fired(since, t.no_gain, f"{since} candidates without a verified gain", _reports(p.judged[-since:]))


def falling_gain(p: Progress, t: Thresholds) -> Fired | None:
    """Log gain of the claims in the last window, as a share of what the run has gained in as many candidates so far."""
    best = _best_so_far(p)
    if len(best) < 3 * t.window or len(p.of_team) < t.window or best[0] is None:
        return None
    start, before, now = best[0], best[-1 - t.window], best[-1]
    mean = log(now / start) * t.window / (len(best) - 1)
    recent = log(now / before)
    if mean < log(1 + t.gain) or recent >= t.falling * mean or recent < log(1 + t.gain):
        return None  # nothing at all is what `no_gain` is for
    message = f"the last {t.window} candidates gained {recent / mean:.0%} of what as many gained before"
    return Fired(recent / mean, t.falling, message, _reports(p.judged[-t.window :]))


def _best_so_far(p: Progress) -> list[float]:
    """The best claim after each verdict, from the first right one."""
    best: list[float] = []
    for one in p.judged:
        if one.score is not None and not one.refuted:
            best.append(max(one.score, best[-1] if best else 0.0))
        elif best:
            best.append(best[-1])
    return best


def spend_since_gain(p: Progress, t: Thresholds) -> Fired | None:
    """Share of the granted budget spent since the last verified gain."""
    granted = p.run.ledger.total(budget.CANDIDATES, "grant", "top_up")
    since = min(p.since_gain(t.gain), len(p.of_team))
    if not granted or since / granted < t.spend:
        return None
    message = f"{since / granted:.0%} of the budget went without a verified gain"
    return Fired(since / granted, t.spend, message, _reports(p.judged[-since:]))


def same_failure(p: Progress, t: Thresholds) -> Fired | None:
    """The same failure as the last one, that often among the failures in a row since the team came."""
    failures = [j for j in p.of_team if j.failed]
    alike = [j for j in failures[-t.same_failure :] if j.failure == failures[-1].failure]
    if len(alike) < t.same_failure or not any(j.failed for j in p.of_team[-t.window :]):
        return None
    return Fired(len(alike), t.same_failure, f"{len(alike)} times the same: {alike[-1].failure}", _reports(alike))


def near_identical(p: Progress, t: Thresholds) -> Fired | None:
    """Candidates of the window that differ from another by one choice and run as fast, within the noise."""
    window = [j for j in p.of_team[-t.window :] if j.score is not None and j.design is not None]
    twins = [a for a in window if any(_alike(a, b, t.gain) for b in window if b is not a)]
    if len(twins) < t.alike:
        return None
    message = f"{len(twins)} of the last {t.window} candidates are the same but for one choice, and as fast"
    return Fired(len(twins), t.alike, message, _reports(twins))


def _alike(a: Judged, b: Judged, noise: float) -> bool:
    assert a.design is not None
    assert b.design is not None
    assert a.score
    assert b.score
    differing = sum(b.design[key] != choice for key, choice in a.design.items())
    return differing <= 1 and abs(log(a.score / b.score)) <= noise


def retreat(p: Progress, t: Thresholds) -> Fired | None:
    """A role that got wrong results and then wrote easier programs, nearer to the start, without a gain."""
    for role in {j.role for j in p.of_team}:
        own = [j for j in p.of_team if j.role == role and j.design is not None]
        wrong, after = own[-2 * t.retreat : -t.retreat], own[-t.retreat :]
        if len(wrong) < t.retreat or not all(j.failed for j in wrong) or any(j.failed for j in after):
            continue
        least = min(_ambition(p, j) for j in wrong)
        if max(_ambition(p, j) for j in after) < least and not _gained(p, after, t):
            message = f"{role} went back to easier programs after {len(wrong)} wrong results"
            return Fired(least - max(_ambition(p, j) for j in after), 1, message, _reports([*wrong, *after]))
    return None


def _ambition(p: Progress, one: Judged) -> int:
    """Choices that are otherwise than at the start."""
    start, design = p.judged[0].design, one.design
    return sum(start[key] != choice for key, choice in design.items()) if start and design else 0


def _gained(p: Progress, some: Sequence[Judged], t: Thresholds) -> bool:
    first = p.judged.index(some[0])
    before = max((j.score or 0 for j in p.judged[:first]), default=0)
    return any((j.score or 0) > before * (1 + t.gain) for j in some)


def missing_debugger(p: Progress, t: Thresholds) -> Fired | None:
    """Many failures in the window, and nobody who repairs."""
    window = p.of_team[-t.window :]
    failed = [j for j in window if j.failed]
    if "debugger" in p.postures or len(window) < t.window or len(failed) / len(window) < t.failing:
        return None
    share = len(failed) / len(window)
    message = f"{len(failed)} of the last {len(window)} candidates failed, and no role repairs"
    return Fired(share, t.failing, message, _reports(failed))


def missing_analyst(p: Progress, t: Thresholds) -> Fired | None:
    """One batch size far behind another in a verified best that beats the baseline, and nobody who reads the rows."""
    groups = p.gains[-1].groups if p.gains else {}
    if "analyst" in p.postures or len(groups) < 2 or (p.best or 0) <= 1 or len(p.of_team) < t.window:
        return None
    weakest, strongest = min(groups, key=lambda g: groups[g]), max(groups, key=lambda g: groups[g])
    share = groups[weakest] / groups[strongest]
    if share >= t.lagging:
        return None
    message = f"batch {weakest} stands at {groups[weakest]:.2f}x, batch {strongest} at {groups[strongest]:.2f}x"
    return Fired(share, t.lagging, message, (p.gains[-1].report,))


def group_worse(p: Progress, t: Thresholds) -> Fired | None:
    """A batch size that lost from one verified best to the next, though the whole gained."""
    if len(p.gains) < 2 or p.gains[-1].at < p.since_team:
        return None
    before, now = p.gains[-2], p.gains[-1]
    losses = {g: 1 - now.groups[g] / before.groups[g] for g in now.groups if before.groups.get(g)}
    worst = max(losses, key=lambda g: losses[g], default="")
    if not worst or losses[worst] < t.worse:
        return None
    message = f"batch {worst} lost {losses[worst]:.0%} while the whole gained"
    return Fired(losses[worst], t.worse, message, (before.report, now.report))


def stage_correct(p: Progress, _: Thresholds) -> Fired | None:
    """The first candidate that is right, after others that were not."""
    right = [j for j in p.judged if j.score is not None]
    if len(right) != 1 or not p.judged or right[0] is p.judged[0] or p.judged.index(right[0]) < p.since_team:
        return None
    return Fired(1, 1, f"candidate {right[0].number} is the first that is right", (right[0].report,))


def stage_faster(p: Progress, _: Thresholds) -> Fired | None:
    """The first verified best that is faster than the baseline."""
    faster = [g for g in p.gains if g.geomean > 1]
    if len(faster) != 1 or faster[0].at < p.since_team:
        return None
    gain = faster[0]
    return Fired(gain.geomean, 1, f"candidate {gain.candidate} is the first faster than the baseline", (gain.report,))


def stage_near_floor(p: Progress, t: Thresholds) -> Fired | None:
    """The verified best is near the time that reading the data alone takes."""
    if p.floor_ratio is None or p.floor_ratio > t.near_floor or not p.gains:
        return None
    return Fired(p.floor_ratio, t.near_floor, f"{p.floor_ratio:.2f} times the floor", (p.gains[-1].report,))


SIGNALS: dict[str, Callable[[Progress, Thresholds], Fired | None]] = {
    function.__name__: function
    for function in (
        stage_correct, stage_faster, stage_near_floor, same_failure, retreat, missing_debugger, missing_analyst,
        group_worse, near_identical, falling_gain, spend_since_gain, no_gain,
    )
}  # fmt: skip
ONCE = ("stage_correct", "stage_faster", "stage_near_floor")
"""A change of stage happens once in a run."""


def watch(run: Run) -> bool:
    """Write a row for each signal that fires and has not fired for this team; one that led to a new team rests for
    the cooldown."""
    if run.state != Run.State.RUNNING or run.team is None:
        return False
    progress, limits = progress_of(run), thresholds_of(run)
    fired = {kind: found for kind, signal in SIGNALS.items() if (found := signal(progress, limits))}
    new = {kind: found for kind, found in fired.items() if not _is_resting(run, kind, len(progress.judged), limits)}
    if not new:
        return False
    with run.held():
        for kind, found in new.items():
            _fire(run, kind, found, len(progress.judged))
    return True


def _is_resting(run: Run, kind: str, count: int, limits: Thresholds) -> bool:
    earlier = run.signals.filter(kind=kind)
    if kind in ONCE:
        return earlier.exists()
    answered = earlier.exclude(restructurings=None).order_by("-pk").first()
    return earlier.filter(team=run.team).exists() or (
        answered is not None and count - answered.at_candidate < limits.cooldown
    )


def _fire(run: Run, kind: str, found: Fired, count: int) -> None:
    assert run.team is not None
    signal = Signal.objects.create(
        run=run,
        team=run.team,
        kind=kind,
        value=found.value,
        threshold=found.threshold,
        message=found.message,
        evidence=list(found.evidence),
        at_candidate=count,
    )
    run.record("signal", signal=signal.pk, signal_kind=kind, value=found.value, message=found.message)


def _reports(some: Sequence[Judged]) -> tuple[int, ...]:
    return tuple(j.report for j in some)
