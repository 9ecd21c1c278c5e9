"""What the judge's report becomes in rows: its figures, and a row for each workload and scope."""

from __future__ import annotations

import re
from collections.abc import Iterable

from benchmarks import statistics
from benchmarks.report import RUN_ONLY, SCOPES, Report, Row
from kernels.task import Task
from teams import models


def figures(task: Task, found: Report) -> dict[str, object]:
    """The fields of a `models.Report` that follow from what the judge says."""
    summaries = {scope: found.summary(scope) for scope in SCOPES}
    summary = summaries[RUN_ONLY]
    full = summary if found.conditions.get("workloads") == "all" else None
    interval = full.interval_95 if full else None
    ratios = {row.workload: row.scopes[RUN_ONLY].speedup for row in found.rows if RUN_ONLY in row.scopes}
    on_smoke = [ratio for workload, ratio in ratios.items() if workload.startswith(task.smoke)]
    return {
        "status": found.status,
        "message": _message(found)[:4000],
        "failure": failure_of(found),
        "verified": found.verified,
        "passed": found.passed,
        "workloads": len(found.rows),
        "smoke_geomean": statistics.geometric_mean(on_smoke) if summary and len(on_smoke) == len(task.smoke) else None,
        "geomean": full.geomean if full else None,
        "interval_lo": interval[0] if interval else None,
        "interval_hi": interval[1] if interval else None,
        "wins": full.wins if full else None,
        "scopes": {scope: _figures(s) for scope, s in summaries.items() if s} if full else {},
        "groups": _groups(found, ratios) if summary else {},
        "conditions": found.conditions,
        "seconds": found.seconds.get("total"),
    }


def _figures(summary: statistics.Summary) -> dict[str, object]:
    return {"geomean": summary.geomean, "interval_95": summary.interval_95, "wins": summary.wins}


def _groups(found: Report, ratios: dict[str, float]) -> dict[str, float]:
    """Geometric mean of each batch size."""
    by_size: dict[int, list[float]] = {}
    for row in found.rows:
        by_size.setdefault(row.batch_size, []).append(ratios[row.workload])
    return {str(size): statistics.geometric_mean(values) for size, values in sorted(by_size.items())}


def _message(found: Report) -> str:
    if found.message:
        return found.message
    wrong = [f"{h['name']}: {h['message']}" for h in found.holdouts if h["status"] != "passed"]
    wrong += [f"{r.workload[:8]}: {r.message}" for r in found.rows if r.status not in ("passed", "not_run")]
    return "\n".join(wrong)


def failure_of(found: Report) -> str:
    """What went wrong in words that two candidates with the same mistake share: no numbers, no places."""
    if found.status in ("passed", "partial"):
        return ""
    first = next((h for h in found.holdouts if h["status"] != "passed"), None)
    where = f"{first['status']} on {first['name']}: {first['message']}" if first else _message(found)
    lines = where.splitlines() or [""]
    said = next((line for line in lines if "error: " in line), lines[0])
    text = re.sub(r"\[[^\]]*\]|-?\d[\d,.e+-]*|/\S+", "#", said.rpartition("error: ")[2])
    return f"{found.status}: {text}"[:200]


def rows(report: models.Report, found: Report) -> Iterable[models.WorkloadResult]:
    """A row for each workload in the headline's scope, whatever became of it, and one in each other scope it has."""
    scopes = [(row, scope) for row in found.rows for scope in SCOPES if scope == RUN_ONLY or scope in row.scopes]
    return (_row(report, position, row, scope) for position, (row, scope) in enumerate(scopes))


def _row(report: models.Report, position: int, row: Row, scope: str) -> models.WorkloadResult:
    timing = row.scopes.get(scope)
    measured = timing.to_json() if timing else {}
    interval = measured.get("interval_95") or (None, None)
    return models.WorkloadResult(
        report=report,
        position=position,
        workload=row.workload,
        batch_size=row.batch_size,
        tokens=row.tokens,
        scope=scope,
        status=row.status,
        message=row.message,
        candidate_us=measured.get("candidate_us"),
        baseline=measured.get("baseline", ""),
        baseline_us=measured.get("baseline_us"),
        floor_us=row.floor_us,
        speedup=measured.get("speedup"),
        interval_lo=interval[0],
        interval_hi=interval[1],
    )
