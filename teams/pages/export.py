"""The speedup report of a run as CSV: a line for each workload and scope of its best candidate."""

from __future__ import annotations

import csv
import io

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET

from teams.models import Report, Run, WorkloadResult
from teams.pages.regions import best_report

COLUMNS = (
    "run", "strategy", "agents", "steered", "candidate", "verified", "workload", "batch_size", "tokens", "scope",
    "status", "candidate_us", "baseline", "baseline_us", "floor_us", "speedup", "interval_lo", "interval_hi", "device",
    "protocol",
)  # fmt: skip


@require_GET
def speedups(request: HttpRequest, number: int) -> HttpResponse:
    """The verified best, or the best claim where nothing is verified yet (`verified` says which)."""
    run = get_object_or_404(Run, pk=number)
    report = best_report(run)
    if report is None:
        raise Http404("nothing is judged yet")
    response = HttpResponse(text(run, report), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="run-{run.pk}-candidate-{report.candidate.number}.csv"'
    return response


def text(run: Run, report: Report) -> str:
    """The whole file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in report.rows.all():
        writer.writerow(_cell(value) for value in _values(run, report, row))
    return out.getvalue()


def _values(run: Run, report: Report, row: WorkloadResult) -> tuple[object, ...]:
    return (
        run.pk, run.strategy or run.state, run.agents, run.steered, report.candidate.number, report.verified,
        row.workload, row.batch_size, row.tokens, row.scope, row.status, row.candidate_us, row.baseline,
        row.baseline_us, row.floor_us, row.speedup, row.interval_lo, row.interval_hi,
        report.conditions.get("device", ""), report.conditions.get("protocol", ""),
    )  # fmt: skip


def _cell(value: object) -> object:
    """Empty for what was not measured; words that a spreadsheet would take for a formula are quoted, numbers never."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" else value
