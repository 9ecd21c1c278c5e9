"""The regions of a run's page that change while it runs: for each its template and what it shows, drawn from rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import log2
from typing import Any

from django.template.loader import render_to_string
from django.utils import timezone

from benchmarks import statistics
from benchmarks.report import RUN_ONLY
from kernels.task import load_task
from teams import budget
from teams.design import differences, in_words
from teams.models import Command, Report, Restructuring, Run
from teams.pages import words
from teams.pages.figures import run_figure

EVENTS = 60
"""Events that the feed shows; all are in the export."""
MOST_FACTOR = 8.0
"""A bar is full at this speedup, or at one over it."""
HALF = 60
"""Half the width of a bar (SVG user units)."""

Context = dict[str, Any]


def best_report(run: Run) -> Report | None:
    """What the table shows: what stands for the run; before there is a verified best, the best claim."""
    if (shown := run.shown) is not None:
        return shown
    claims = run.reports.judged().filter(smoke_geomean__isnull=False).order_by("-smoke_geomean")
    return claims.select_related("candidate").first()


def headline(run: Run) -> Context:
    """State, best figure, what it rests on."""
    report = best_report(run)
    rows = list(report.main_rows().exclude(speedup=None).order_by("speedup")) if report else []
    figure = (report.geomean or report.smoke_geomean) if report else None
    judged = run.reports.judged()
    return {
        "run": run,
        "alive": words.alive(run, timezone.now()),
        "report": report,
        "figure": words.factor(figure),
        "standing": words.standing(report),
        "worst": rows[0] if rows and figure else None,
        "scopes": _scopes(report) if report else [],
        "clock": words.CLOCKS[run.device],
        "judged": judged.count(),
        "failed": judged.exclude(status__in=("passed", "partial")).count(),
        "budgets": [_budget(run, unit) for unit in budget.limits(run)],
        "device": report.conditions.get("device", "") if report else "",
        "baselines": ", ".join(sorted({row.baseline for row in rows})),
    }


def _scopes(report: Report) -> list[Context]:
    """Figures of the scopes beside the headline's."""
    return [
        {"name": name, "words": words.SCOPES[name], "figure": words.factor(s["geomean"]), **s}
        for name, s in report.scopes.items()
        if name != RUN_ONLY
    ]


def origin(run: Run) -> Context:
    """Of an imported run: the file, who imported it, and what the report says of how it was measured."""
    told = run.origin.report
    profile, environment = told.get("profile"), told.get("environment")
    return {
        "run": run,
        "origin": run.origin,
        "facts": [*_facts(told["conditions"]), *_facts(environment if isinstance(environment, dict) else {})],
        "command": told.get("command", ""),
        "findings": [f["message"] for f in _list(told.get("findings")) if isinstance(f, dict) and f.get("message")],
        "advice": _list(profile.get("advice") if isinstance(profile, dict) else None),
    }


def _facts(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), _fact(value)) for name, value in told.items()]


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _budget(run: Run, unit: str) -> Context:
    granted = run.ledger.total(unit, "grant", "top_up")
    spent = run.ledger.spent(unit)
    scale = 60 if unit == budget.SECONDS else 1
    name = "minutes of judging" if unit == budget.SECONDS else "candidates"
    return {"name": name, "granted": granted / scale, "spent": spent / scale, "percent": 100 * spent / granted}


def rows(run: Run) -> Context:
    """The table: all workloads of the task, with figures where they were measured, grouped by batch size."""
    report = best_report(run)
    measured = {row.workload: row for row in report.main_rows()} if report else {}
    groups: dict[int, list[Context]] = {}
    for workload in load_task(run.task).workloads(run.device):
        row = measured.get(workload.id)
        groups.setdefault(workload.batch_size, []).append(
            {
                "workload": workload.id,
                "tokens": workload.tokens,
                "row": row,
                "status": row.status if row else "not_run",
                "bar": _bar(row.speedup) if row and row.speedup else None,
            }
        )
    return {
        "run": run,
        "report": report,
        "standing": words.standing(report),
        "groups": [{"size": size, "rows": some, "mean": _mean(some)} for size, some in sorted(groups.items())],
        "count": sum(map(len, groups.values())),
    }


def _mean(some: list[Context]) -> float | None:
    """The group's geometric mean, if all of it was measured."""
    speedups = [item["row"].speedup for item in some if item["row"] and item["row"].speedup]
    return statistics.geometric_mean(speedups) if len(speedups) == len(some) else None


def _bar(speedup: float) -> Context:
    """A bar from the middle, where 1.0 is, by the logarithm of the speedup."""
    length = max(-1.0, min(1.0, log2(speedup) / log2(MOST_FACTOR))) * HALF
    return {"x": round(HALF + min(0.0, length), 1), "width": round(abs(length), 1), "faster": speedup > 1}


def controls(run: Run) -> Context:
    """Buttons by state, and what became of the latest commands."""
    commands = list(run.commands.order_by("-pk")[:6])
    open_kinds = {c.kind for c in commands if c.state in (Command.State.REQUESTED, Command.State.ACCEPTED)}
    allowed = {
        "pause": run.state == Run.State.RUNNING,
        "resume": run.state in (Run.State.PAUSED, Run.State.PAUSING),
        "stop": not run.has_ended and run.state != Run.State.STOPPING,
        "steer": run.state in (Run.State.RUNNING, Run.State.PAUSED, Run.State.PAUSING),
    }
    return {
        "run": run,
        "commands": commands,
        "buttons": (("pause", "Pause"), ("resume", "Resume"), ("stop", "Stop")),
        "can": {kind for kind, can in allowed.items() if can and kind not in open_kinds},
        "next": (commands[0].pk if commands else 0) + 1,
    }


def team(run: Run) -> Context:
    """The current team: roles in their phases, what each sees, who is at work."""
    if run.team is None:
        return {"run": run}
    roles = {role.key: role for role in run.team.roles.all()}
    working = set(run.turns.filter(ended_at__isnull=True).values_list("role__key", flat=True))
    phases = [[{"role": roles[key], "working": key in working} for key in group] for group in run.team.phases]
    return {"run": run, "team": run.team, "phases": phases, "order": in_words(run.team.phases)}


def restructurings(run: Run) -> Context:
    """A card for each change of team, the latest first: evidence, diagnosis, change, expectation, outcome."""
    made = run.restructurings.exclude(state=Restructuring.State.KEPT).order_by("-pk")
    cards = [
        _card(one, run.has_ended)
        for one in made.select_related("before", "after", "command").prefetch_related("signals")
    ]
    return {"run": run, "cards": cards, "kept": run.restructurings.filter(state=Restructuring.State.KEPT).count()}


def _card(made: Restructuring, run_ended: bool) -> Context:
    assert made.after is not None
    before, after = made.measured.get("before"), made.measured.get("after")
    return {
        "made": made,
        "label": made.outcome or ("cut short by the end of the run" if run_ended else "not measured yet"),
        "cause": words.CAUSES.get(made.cause, made.cause),
        "signals": [{"name": words.SIGNALS.get(s.kind, s.kind), "signal": s} for s in made.signals.all()],
        "changes": differences(made.before.design(), made.after.design()),
        "order": (in_words(made.before.phases), in_words(made.after.phases)),
        "before": words.factor(before),
        "after": words.factor(after),
        "expected": words.factor(made.expected.get("at_least")),
        "within": made.expected.get("within_candidates"),
        "gain": f"{after / before - 1:+.1%}" if before and after else "",
    }


def feed(run: Run) -> Context:
    """The latest events as sentences."""
    events = run.events.order_by("-number")[:EVENTS]
    return {"run": run, "events": [{"event": event, "words": words.sentence(event)} for event in events]}


def figure(run: Run) -> Context:
    """Plotly's data and layout as JSON, safe inside a script element."""
    text = json.dumps(run_figure(run), allow_nan=False)
    return {"run": run, "json": text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")}


REGIONS: dict[str, Callable[[Run], Context]] = {
    function.__name__: function for function in (headline, controls, origin, figure, rows, team, restructurings, feed)
}
OF_WORK = tuple(name for name in REGIONS if name != "origin")
OF_IMPORT = ("headline", "origin", "rows")


def names(run: Run) -> tuple[str, ...]:
    """The regions of this run's page: where nobody worked there is nothing to steer, and no team."""
    return OF_IMPORT if run.is_imported else OF_WORK


def render(run: Run, name: str, *, out_of_band: bool = False) -> str:
    """One region's HTML, with its element; out of band it takes the place of the element with its id."""
    return render_to_string(f"run/{name}.html", {**REGIONS[name](run), "out_of_band": out_of_band})
