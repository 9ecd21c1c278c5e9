"""What a finished run of an experiment leaves: one line of JSON, from which everything else is made."""

from __future__ import annotations

from typing import Any

from teams import outline
from teams.models import Restructuring, Run
from teams.supervisor.progress import progress_of


def record(run: Run, arm: str) -> dict[str, Any]:
    """The run's result and its course: of each judged candidate, in order, the seconds of judging so far and the best
    claim so far (geometric mean over the smoke workloads, x the baseline; None while nothing passed). `verified_at`:
    after how many candidates a verification gave which geometric mean over all workloads."""
    refuted = {judged.report for judged in progress_of(run).judged if judged.refuted}
    seconds, best, course = 0.0, None, []
    for report in run.reports.judged().in_order():
        seconds += report.seconds or 0.0
        if report.smoke_geomean is not None and report.pk not in refuted:
            best = max(report.smoke_geomean, best or 0.0)
        course.append([round(seconds, 2), None if best is None else round(best, 4)])
    made = run.restructurings.exclude(state=Restructuring.State.KEPT).select_related("after")
    return {
        "arm": arm,
        **outline.result(run),
        "course": course,
        "verified_at": [[r.at_candidate, round(r.geomean, 4)] for r in run.reports.verified().in_order() if r.geomean],
        "changes": [
            {
                "at": one.after.installed_at if one.after else None,
                "cause": one.cause,
                "outcome": one.outcome,
                "before": one.measured.get("before"),
                "after": one.measured.get("after"),
            }
            for one in made
        ],
    }
