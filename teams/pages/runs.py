"""The list of runs, and the form for a new one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.db.models import Count, Max, Sum
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from kernels.task import BadInputError, task_names
from teams import devices, importing
from teams.agents import AGENTS
from teams.launch import new_run
from teams.models import LedgerEntry, Report, Run, Team
from teams.pages import figures, words
from teams.pages.notice import notice, notice_version
from teams.pages.stream import stream
from teams.supervisor import thresholds
from teams.supervisor.consumer import wake_supervisor

STRATEGIES = (
    ("evolving", "architect and tuner to begin with; the supervisor changes the team when its signals fire"),
    ("fixed", "architect, tuner, debugger, analyst, never changed"),
    ("single", "one role that may make every move"),
    ("random", "control: programs drawn blindly"),
    ("climbing", "control: one blind change to the best at a time"),
    ("shuffled", "control: begins like evolving, and changes its team at random"),
)


def _list() -> list[dict[str, Any]]:
    """What the table shows; a constant number of queries, but for the spark lines of runs that have one."""
    runs = Run.objects.select_related("best", "origin").order_by("-pk")
    imported = {report.run_id: report for report in Report.objects.filter(run__state=Run.State.IMPORTED)}
    judged = dict(Report.objects.judged().order_by().values_list("run").annotate(Count("pk")))
    teams = dict(Team.objects.order_by().values_list("run").annotate(Count("pk")))
    grants = LedgerEntry.objects.filter(unit="candidates", kind__in=("grant", "top_up"))
    granted = dict(grants.order_by().values_list("run").annotate(sum=Sum("amount")))
    now = timezone.now()
    return [
        {
            "run": run,
            "alive": words.alive(run, now),
            "shown": (shown := imported.get(run.pk, run.best)),
            "figure": words.factor(shown.geomean if shown else None),
            "line": figures.sparkline(run) if run.best else "",
            "judged": judged.get(run.pk, 0),
            "teams": teams.get(run.pk, 0),
            "granted": granted.get(run.pk),
        }
        for run in runs
    ]


def _version() -> str:
    facts = Run.objects.aggregate(count=Count("pk"), events=Sum("last_event"), latest=Max("pk"))
    now = timezone.now()
    states = [words.alive(run, now)[:4] for run in Run.objects.open()]
    return f"{facts['count']}-{facts['events'] or 0}-{facts['latest'] or 0}-{'.'.join(states)}-{notice_version()}"


def _snapshot() -> Mapping[str, str]:
    return {
        "notice": notice(out_of_band=True),
        "list": render_to_string("run/list.html", {"runs": _list(), "out_of_band": True}),
    }


@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """All runs, the latest first."""
    return render(request, "runs.html", {"runs": _list()})


@require_GET
def live(request: HttpRequest) -> StreamingHttpResponse:
    """The stream of the list."""
    return stream(request, _version, _snapshot)


@require_http_methods(["GET", "POST"])
def create(request: HttpRequest) -> HttpResponse:
    """The form for a new run; what cannot be is said above it, and nothing that was typed is lost."""
    values = {
        "task": task_names()[0], "strategy": "evolving", "agents": "builtin", "device": "cpu", "candidates": "60",
        "seed": "1",
    }  # fmt: skip
    error = ""
    if request.method == "POST":
        values = {name: str(value) for name, value in request.POST.items()}
        try:
            run = _create(values)
        except BadInputError as problem:
            error = str(problem)
        else:
            wake_supervisor()
            return redirect("run", run.pk)
    context = {
        "values": {"minutes": "", "candidates": "", **values},
        "error": error,
        "tasks": task_names(),
        "strategies": STRATEGIES,
        "agents": tuple(AGENTS),
        "devices": [(name, devices.why_not(name)) for name in devices.DEVICES],
        "gpus": ", ".join(sorted(set(devices.gpus()))),
        "thresholds": _thresholds(values),
        "thresholds_open": any(name.startswith("set-") and value for name, value in values.items()),
    }
    return render(request, "new_run.html", context, status=400 if error else 200)


def _create(values: Mapping[str, str]) -> Run:
    changes = {name[4:]: value.strip() for name, value in values.items() if name.startswith("set-") and value.strip()}
    return new_run(
        values.get("task", ""),
        strategy=values.get("strategy", ""),
        agents=values.get("agents", ""),
        device=values.get("device", "cpu"),
        candidates=_whole("candidates", values.get("candidates", "")),
        minutes=_real("minutes", values.get("minutes", "")),
        seed=_whole("seed", values.get("seed", "")) or 0,
        settings=thresholds.parse(changes),
    )


@require_http_methods(["GET", "POST"])
def import_report(request: HttpRequest) -> HttpResponse:
    """Import the report of the form; what is wrong with it is said in the form."""
    if request.method == "GET":  # somebody went to the address of a refused form
        return redirect("runs")
    upload, name = request.FILES.get("report"), request.POST.get("name", "")
    try:
        if not isinstance(upload, UploadedFile):
            raise BadInputError("report: choose a file")
        content = upload.read(importing.MOST_BYTES + 1)
        run, new = importing.import_report(content, upload.name or "report", actor=str(request.user), name=name)
    except BadInputError as problem:
        context = {"runs": _list(), "import_error": str(problem), "import_name": name}
        return render(request, "runs.html", context, status=400)
    if not new:
        messages.info(request, f"This report is here already, as run {run.pk}: {run.origin}. Nothing has changed.")
    return redirect("run", run.pk)


def _whole(name: str, text: str) -> int | None:
    if not re.fullmatch(r"\s*-?\d{0,30}\s*", text):
        raise BadInputError(f"{name}: {text!r} is not a whole number")
    return int(text) if text.strip() else None


def _real(name: str, text: str) -> float | None:
    try:
        return float(text) if text.strip() else None
    except ValueError:
        raise BadInputError(f"{name}: {text!r} is not a number") from None


def _thresholds(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "default": default, "words": said, "value": values.get(f"set-{name}", "")}
        for name, default, said in thresholds.described()
    ]
