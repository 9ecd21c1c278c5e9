"""What the judge says of a candidate: the report, its JSON, and the reader that trusts no file.

The summary is never stored as a fact of its own: it is computed from the rows when a report is written, and again when
one is read, where a file whose summary does not follow from its rows is refused.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

from benchmarks import fields, statistics
from benchmarks.fields import Fields, shown
from kernels.task import BadInputError

PROTOCOL = 1
RUN_ONLY, PLAN_AND_RUN, PLAN_AMORTISED = "run_only", "plan_and_run", "plan_amortised"
SCOPES = (RUN_ONLY, PLAN_AND_RUN, PLAN_AMORTISED)
RowStatus = Literal[
    "passed", "wrong_shape", "wrong_dtype", "wrong_result", "runtime_error", "timeout", "cheated", "not_run"
]
Status = Literal["judge_error", "screened_out", "build_error", "cheated", "failed", "partial", "passed"]


@dataclass
class Timing:
    """One scope of a row: microseconds of candidate and baseline in each round."""

    baseline: str
    candidate_us: list[float] = field(default_factory=list)
    baseline_us: list[float] = field(default_factory=list)

    def add(self, number: int, baseline_us: float, candidate_us: float) -> None:
        """Take a visit into round `number`: a new one, or the shorter of what it has and this, for each side."""
        for times, us in ((self.baseline_us, baseline_us), (self.candidate_us, candidate_us)):
            if number == len(times):
                times.append(us)
            else:
                times[number] = min(times[number], us)

    @property
    def ratios(self) -> list[float]:
        """Speedup of each round."""
        return statistics.ratios(self.baseline_us, self.candidate_us)

    @property
    def speedup(self) -> float:
        """The row's speedup: the median of its rounds'."""
        return median(self.ratios)

    def to_json(self) -> dict[str, Any]:
        """The figures of the row and, as `rounds`, what they were made of."""
        return {
            "candidate_us": _rounded(median(self.candidate_us)), "baseline_us": _rounded(median(self.baseline_us)),
            "baseline": self.baseline, "speedup": self.speedup,
            "interval_95": statistics.row_interval(self.ratios),
            "rounds": {"candidate_us": self.candidate_us, "baseline_us": self.baseline_us},
        }  # fmt: skip


@dataclass
class Row:
    """One workload of a report. Microseconds are per call; `rmse` is relative and has no unit.
    `audit_us` is what the parent's clock says of a queued call."""

    workload: str
    batch_size: int
    tokens: int
    status: RowStatus = "not_run"
    message: str = ""
    floor_us: float | None = None
    audit_us: float | None = None
    rmse: float | None = None
    baseline_rmse: float | None = None
    calls_us: list[float] = field(default_factory=list)
    scopes: dict[str, Timing] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The row as DESIGN's file format has it."""
        return {
            "workload": self.workload, "batch_size": self.batch_size, "tokens": self.tokens, "status": self.status,
            "message": self.message, "floor_us": self.floor_us, "audit_us": self.audit_us,
            "rmse": self.rmse, "baseline_rmse": self.baseline_rmse,
            "call_us": _rounded(median(self.calls_us)) if self.calls_us else None,
            "scopes": {name: timing.to_json() for name, timing in self.scopes.items()},
        }  # fmt: skip


@dataclass
class Report:
    """What the judge says. `status` and `summary` follow from the rows unless the candidate never got that far."""

    task: str
    candidate: dict[str, Any]
    conditions: dict[str, Any]
    rows: list[Row]
    verdict: Status | None = None
    message: str = ""
    verified: bool = False
    profile: dict[str, Any] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    holdouts: list[dict[str, Any]] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    command: str = ""

    @property
    def status(self) -> Status:
        """The first that applies: an early verdict, cheated, failed, partial, passed."""
        statuses = {row.status for row in self.rows} | {h["status"] for h in self.holdouts}
        if self.verdict is not None:
            return self.verdict
        if "cheated" in statuses:
            return "cheated"
        if statuses - {"passed", "not_run"}:
            return "failed"
        return "passed" if statuses == {"passed"} else "partial"

    @property
    def repeats(self) -> int:
        """Rounds that every timed row has."""
        return min((len(t.candidate_us) for row in self.rows for t in row.scopes.values()), default=0)

    @property
    def passed(self) -> int:
        """Workloads that passed."""
        return sum(row.status == "passed" for row in self.rows)

    def ratios(self, scope: str = RUN_ONLY) -> dict[str, list[float]]:
        """Speedups of each round by workload, for the rows that have this scope."""
        return {row.workload: row.scopes[scope].ratios for row in self.rows if scope in row.scopes}

    def summary(self, scope: str = RUN_ONLY) -> statistics.Summary | None:
        """The figures of a scope; None unless every workload passed and was timed."""
        rounds = self.ratios(scope)
        if self.status != "passed" or len(rounds) != len(self.rows):
            return None
        return statistics.summarise(rounds)

    def to_json(self) -> dict[str, Any]:
        """The whole report; no NaN or infinity in it."""
        scopes = {scope: s for scope in SCOPES if (s := self.summary(scope)) is not None}
        return {
            "protocol": PROTOCOL, "task": self.task, "candidate": self.candidate, "conditions": self.conditions,
            "status": self.status, "message": self.message, "verified": self.verified, "repeats": self.repeats,
            "summary": {
                "passed": self.passed, "workloads": len(self.rows),
                "scopes": {scope: _summary_json(s) for scope, s in scopes.items()},
            },
            "rows": [row.to_json() for row in self.rows],
            "holdouts": self.holdouts, "profile": self.profile, "findings": self.findings,
            "environment": self.environment, "seconds": {k: round(v, 3) for k, v in self.seconds.items()},
            "command": self.command,
        }  # fmt: skip

    def write(self, path: Path) -> None:
        """Write the JSON so that a reader sees the old file or the new one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".part")
        temporary.write_text(dumps(self.to_json()), encoding="utf-8")
        temporary.replace(path)


def dumps(value: Any) -> str:
    """JSON with a line per row, and an error rather than NaN."""
    rows = value.get("rows") if isinstance(value, dict) else None
    if not rows:
        return json.dumps(value, indent=1, allow_nan=False) + "\n"
    marked = json.dumps({**value, "rows": "ROWS"}, indent=1, allow_nan=False)
    lines = ",\n  ".join(json.dumps(row, allow_nan=False) for row in rows)
    return marked.replace('"ROWS"', f"[\n  {lines}\n ]") + "\n"


def _summary_json(s: statistics.Summary) -> dict[str, Any]:
    return {
        "geomean": s.geomean,
        "interval_95": s.interval_95,
        "wins": s.wins,
        "worst": {"workload": s.worst[0], "speedup": s.worst[1]},
    }


def _rounded(value: float) -> float:
    return round(value, 4)


def read(path: Path) -> Report:
    """Read a report; `BadInputError` names file and field for anything that is not as it must be."""
    data = fields.read_json(path)
    try:
        return parse(data)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from None


def parse(data: Any) -> Report:
    """A report from its JSON value; `BadInputError` names the field."""
    top = Fields(data, "report")
    _check_finite(data)
    if (protocol := top.get("protocol", int)) != PROTOCOL:
        raise BadInputError(f"protocol is {protocol}, this judge reads {PROTOCOL}")
    rows = [_parse_row(Fields(row, f"rows[{i}]")) for i, row in enumerate(top.get("rows", list))]
    if len({row.workload for row in rows}) != len(rows):
        raise BadInputError("rows: a workload occurs twice")
    report = Report(
        task=top.get("task", str),
        candidate=top.get("candidate", dict),
        conditions=top.get("conditions", dict),
        rows=rows,
        message=top.get("message", str, ""),
        verified=top.get("verified", bool),
        profile=top.get("profile", dict),
        findings=top.get("findings", list),
        holdouts=[_parse_holdout(Fields(h, f"holdouts[{i}]")) for i, h in enumerate(top.get("holdouts", list))],
        environment=top.get("environment", dict),
        seconds=_parse_seconds(top.inside("seconds")),
        command=top.get("command", str),
    )
    for key in ("name", "source_sha256", "language"):
        Fields(report.candidate, "candidate").get(key, str)
    status = top.one_of("status", get_args(Status))
    if status in ("judge_error", "screened_out", "build_error", "cheated"):
        report.verdict = status  # type: ignore[assignment]
    if report.status != status:
        raise BadInputError(f"status is {status}, but the rows say {report.status}")
    _check_summary(report, top)
    return report


def _check_summary(report: Report, top: Fields) -> None:
    stored = Fields(Fields(top.get("summary", dict), "summary").get("scopes", dict), "summary.scopes")
    for scope in SCOPES:
        figure = report.summary(scope)
        if (figure is None) != (scope not in stored.data):
            raise BadInputError(f"summary.scopes.{scope}: is there without its rows, or missing")
        if figure is not None:
            geomean = Fields(stored.get(scope, dict), f"summary.scopes.{scope}").number("geomean")
            if not math.isclose(geomean, figure.geomean, rel_tol=1e-6):
                raise BadInputError(
                    f"summary.scopes.{scope}.geomean: {geomean} does not follow from the rows, "
                    f"whose rounds give {figure.geomean}"
                )


def _parse_row(row: Fields) -> Row:
    status = row.one_of("status", get_args(RowStatus))
    calls = row.number("call_us", optional=True)
    return Row(
        workload=row.get("workload", str),
        batch_size=row.get("batch_size", int),
        tokens=row.get("tokens", int),
        status=status,  # type: ignore[arg-type]
        message=row.get("message", str, ""),
        floor_us=row.number("floor_us", optional=True),
        audit_us=row.number("audit_us", optional=True),
        baseline_rmse=row.number("baseline_rmse", optional=True),
        rmse=row.number("rmse", optional=True),
        calls_us=[] if calls is None else [calls],
        scopes={
            name: _parse_timing(Fields(value, f"{row.where}.scopes.{name}"))
            for name, value in row.get("scopes", dict).items()
        },
    )


def _check_finite(data: Any) -> None:
    """Refuse infinities, which JSON can spell as 1e999, wherever they stand."""
    try:
        json.dumps(data, allow_nan=False)
    except ValueError:
        raise BadInputError("report: has a number that is infinite or NaN") from None


def _parse_seconds(seconds: Fields) -> dict[str, float]:
    for stage, value in seconds.data.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
            raise BadInputError(f"seconds.{stage}: must be a number of seconds, not {shown(value)}")
    return dict(seconds.data)


def _parse_holdout(holdout: Fields) -> dict[str, Any]:
    holdout.get("name", str)
    holdout.get("message", str)
    holdout.one_of("status", get_args(RowStatus))
    return dict(holdout.data)


def _parse_timing(scope: Fields) -> Timing:
    rounds = Fields(scope.get("rounds", dict), f"{scope.where}.rounds")
    timing = Timing(scope.get("baseline", str), rounds.numbers("candidate_us"), rounds.numbers("baseline_us"))
    if not timing.candidate_us or len(timing.candidate_us) != len(timing.baseline_us):
        raise BadInputError(f"{rounds.where}: both lists must be of one length, at least 1")
    return timing
