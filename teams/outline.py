"""A run in words and figures, for terminals: one line of progress, the whole story, the result as plain values."""

from __future__ import annotations

from typing import Any

from teams.design import differences, in_words
from teams.models import Report, Restructuring, Run, Team

BAR = 24


def progress_line(run: Run) -> str:
    """Run, state, candidates, best, team, phase, signals; of an imported run its report."""
    if run.is_imported and (shown := run.shown) is not None:
        figure = shown.status if shown.geomean is None else f"{shown.geomean:.3f}x"
        return f"run {run.pk} {run.state} · {run.origin.name} · {figure} · {'' if shown.verified else 'not '}verified"
    judged, best = run.reports.judged().count(), _best_claim(run)
    words = [f"run {run.pk} {run.state}", f"{judged} judged", f"best {_x(run.best.geomean if run.best else None)}"]
    if best is not None:
        words.append(f"claim {_x(best.smoke_geomean)} on smoke")
    if run.team is not None:
        working = run.turns.filter(ended_at__isnull=True).select_related("role")
        at = ", ".join(turn.role.key for turn in working) or "between turns"
        words.append(f"team {run.team.number} ({at})")
        kinds = list(run.signals.filter(team=run.team).values_list("kind", flat=True))
        words += [f"signals {', '.join(kinds)}"] if kinds else []
    return " · ".join(words)


def _best_claim(run: Run) -> Report | None:
    return run.reports.judged().filter(smoke_geomean__isnull=False).order_by("-smoke_geomean").first()


def _x(value: float | None) -> str:
    return "none verified" if value is None else f"{value:.3f}x"


def result(run: Run) -> dict[str, Any]:
    """What scripts read: `manage.py run --json`."""
    best = run.best
    ended = run.ended_at or run.heartbeat_at
    return {
        "run": run.pk,
        "state": run.state,
        "reason": run.state_reason,
        "strategy": run.strategy,
        "agents": run.agents,
        "device": run.device,
        "language": run.language,
        "seed": run.seed,
        "steered": run.steered,
        "geomean": best.geomean if best else None,
        "interval_95": [best.interval_lo, best.interval_hi] if best else None,
        "verified": best is not None,
        "wins": best.wins if best else None,
        "workloads": best.workloads if best else None,
        "best_candidate": best.candidate.number if best else None,
        "teams_installed": run.teams.count(),
        "teams_considered": 1 + sum(run.restructurings.values_list("considered", flat=True)),
        "restructurings": run.restructurings.exclude(state=Restructuring.State.KEPT).count(),
        "signals": list(run.signals.values_list("kind", flat=True)),
        "candidates": run.reports.judged().count(),
        "seconds": round((ended - run.started_at).total_seconds(), 1) if ended and run.started_at else None,
    }


def lines(run: Run) -> list[str]:
    """The story of a run: headline, teams, restructurings with their evidence, rows of the verified best."""
    found = [f"{run}: {run.state}" + (f", {run.state_reason}" if run.state_reason else "")]
    if run.is_imported:
        found = [f"{run}: {run.origin.name}", f"From {run.origin}, sha256 {run.origin.sha256}"]
    found.append(_headline(run))
    if run.steered:
        found.append("A person steered this run.")
    for team in run.teams.prefetch_related("roles"):
        found += ["", f"Team {team.number} ({team.decided_by}): {in_words(team.phases)}"]
        found += _why(team)
    return [*found, *_rows(run)]


def _headline(run: Run) -> str:
    judged = run.reports.judged()
    failed = judged.exclude(status__in=("passed", "partial")).count()
    counts = f"{judged.count()} candidates judged, {failed} of them failed"
    best = run.shown
    if best is None or best.geomean is None:
        return f"Nothing verified; {counts}."
    interval = (
        f", 95 % {best.interval_lo:.3f} to {best.interval_hi:.3f}" if best.interval_lo and best.interval_hi else ""
    )
    return (
        f"{'Verified best' if best.verified else 'Not verified'}: candidate {best.candidate.number}, "
        f"{best.geomean:.3f}x the baseline (geometric mean of {best.workloads}{interval}), {best.wins} faster; "
        f"{counts}."
    )


def _why(team: Team) -> list[str]:
    made = Restructuring.objects.filter(after=team).first()
    if made is None:
        return []
    found = [f"  signal {s.kind}: {s.message} (reports {_few(s.evidence)})" for s in made.signals.all()]
    if made.command is not None:
        found.append(f"  asked by {made.command.actor}: {made.command.note or 'no note'}")
    found.append(f"  diagnosis {made.cause}: {made.explanation}")
    found += [f"  change: {text}" for text in differences(made.before.design(), team.design())]
    expected = made.expected
    found.append(
        f"  expected {expected['metric']} of {expected['at_least']} in {expected['within_candidates']} candidates"
    )
    if made.outcome:
        found.append(
            f"  outcome {made.outcome}: {_x(made.measured['before'])} before, {_x(made.measured['after'])} after"
        )
    return found


def _few(evidence: list[int]) -> str:
    shown = ", ".join(map(str, evidence[:8]))
    return shown if len(evidence) <= 8 else f"{shown} and {len(evidence) - 8} more"


def _rows(run: Run) -> list[str]:
    if (best := run.shown) is None:
        return []
    found = ["", f"{'workload':<12}{'batch':>6}{'tokens':>9}{'baseline us':>13}{'ours us':>11}{'speedup':>9}"]
    for row in best.main_rows():
        bar = "#" * round(BAR * min(row.speedup or 0, 4) / 4)
        figures = f"{row.baseline_us or 0:>13.1f}{row.candidate_us or 0:>11.1f}{row.speedup or 0:>8.2f}x"
        found.append(f"{row.workload[:8]:<12}{row.batch_size:>6}{row.tokens:>9}{figures}  {bar}")
    return found
