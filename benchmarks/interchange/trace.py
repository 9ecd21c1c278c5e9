"""flashinfer-bench's Traces: each the result of one solution on one workload, a line of JSON."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import report as reports
from benchmarks.fields import Fields
from benchmarks.interchange import dataset, read_traces, write
from benchmarks.report import RUN_ONLY, Report, Row, RowStatus, Timing
from kernels.task import BadInputError, Task, Workload, load_task, task_names

STATUSES: dict[RowStatus, str] = {
    "passed": "PASSED",
    "wrong_shape": "INCORRECT_SHAPE",
    "wrong_dtype": "INCORRECT_DTYPE",
    "wrong_result": "INCORRECT_NUMERICAL",
    "runtime_error": "RUNTIME_ERROR",
    "timeout": "TIMEOUT",
}
OURS: dict[str, RowStatus] = {theirs: ours for ours, theirs in STATUSES.items()}
COMPILE_ERROR = "COMPILE_ERROR"
"""Theirs where nothing was built, which here is the status of a report, not of a row."""
UNKNOWN = "NaN"
"""How they spell a number that is not known; left out it would be read as 0, no error at all."""


def write_traces(report: Report, out: Path, folder: Path | None = None) -> int:
    """Write a report's rows as Traces, one a line; how many rows no Trace can express.

    Latencies are milliseconds of scope run_only, `reference` is the baseline. Left out are rows that were not run and
    rows that passed but were not timed, since theirs must have a time. `BadInputError` if that leaves none.
    `folder`: the flashinfer-trace folder with the inputs that the report rests on, if it does not on drawn ones.
    """
    name = report.candidate["name"]
    if report.status == "judge_error":
        raise BadInputError(f"{name}: judge_error says nothing of the candidate: {report.message}")
    task = load_task(report.task)
    known = _records(report, task, folder)
    lines = []
    for row in report.rows:
        if row.workload not in known:
            raise BadInputError(f"rows: {row.workload} is no workload of {task.name}")
        if (evaluation := _evaluation(report, row)) is not None:
            workload = known[row.workload]
            trace = {"definition": task.definition, "workload": workload, "solution": name, "evaluation": evaluation}
            lines.append(json.dumps(trace, allow_nan=False) + "\n")
    if not lines:
        raise BadInputError(f"{name} ({report.status}): none of its rows can be a Trace")
    write(out, "".join(lines))
    return len(report.rows) - len(lines)


def _records(report: Report, task: Task, folder: Path | None) -> dict[str, Any]:
    inputs = report.conditions.get("inputs", "")
    if folder is not None:
        return dataset.records(task, folder, inputs)
    if inputs:
        raise BadInputError(f"the report rests on inputs that a folder holds ({inputs}): --trace must name it")
    return {w.id: _workload(task, w) for w in task.workloads("cuda")}


def _workload(task: Task, workload: Workload) -> dict[str, Any]:
    """Their record of it; tensors count as random, since the judge draws them."""
    specs, scalars = task.tensors(workload), task.scalars(workload)
    inputs = [name for name in task.entry if name not in specs or specs[name].role != "output"]
    return {
        "axes": task.axes(workload),
        "inputs": {n: {"type": "random"} if n in specs else {"type": "scalar", "value": scalars[n]} for n in inputs},
        "uuid": workload.id,
    }


def _evaluation(report: Report, row: Row) -> dict[str, Any] | None:
    status, log = _verdict(report, row)
    if status is None:
        return None
    evaluation: dict[str, Any] = {
        "status": status,
        "environment": {"hardware": str(report.conditions.get("device") or "unknown"), "libs": _libraries(report)},
        "timestamp": str(report.environment.get("date") or "unknown"),
        "log": log,
    }
    if status in ("PASSED", "INCORRECT_NUMERICAL"):
        evaluation["correctness"] = {
            "max_relative_error": UNKNOWN,
            "max_absolute_error": UNKNOWN,
            "extra": {"relative_rmse": row.rmse, "baseline_relative_rmse": row.baseline_rmse},
        }
    if status == "PASSED":
        timing = row.scopes[RUN_ONLY]
        evaluation["performance"] = {
            "latency_ms": median(timing.candidate_us) / 1e3,
            "reference_latency_ms": median(timing.baseline_us) / 1e3,
            "speedup_factor": timing.speedup,
        }
    return evaluation


def _verdict(report: Report, row: Row) -> tuple[str | None, str]:
    """Their status (None: they have none) and a word on it. What cheated anywhere has passed nowhere."""
    if report.status in ("screened_out", "build_error"):
        return COMPILE_ERROR, report.message
    if report.status == "cheated":
        return STATUSES["runtime_error"], f"cheated: {row.message or report.message}"
    if row.status == "passed":
        timing = row.scopes.get(RUN_ONLY)
        return (None, "") if timing is None else (STATUSES["passed"], f"{RUN_ONLY}; reference: {timing.baseline}")
    return STATUSES.get(row.status), row.message


def _libraries(report: Report) -> dict[str, str]:
    """Versions and, as `regroup`, the conditions in which the report was made."""
    conditions = {k: v for k, v in report.conditions.items() if k not in ("device", "workloads")}
    versions = {k: v for k in ("torch", "triton", "cuda") if isinstance(v := report.environment.get(k), str)}
    return {**versions, "regroup": json.dumps(conditions, sort_keys=True)}


def read_report(name: str) -> Report:
    """A report: ours, or made from Traces of one solution: FILE.jsonl, or FILE.jsonl::SOLUTION if it has several."""
    file, _, solution = name.partition("::")
    return _from_traces(Path(file), solution) if file.endswith(".jsonl") else reports.read(Path(name))


def _from_traces(path: Path, solution: str) -> Report:
    """Where they were measured becomes the report's conditions, so that only like is compared with like."""
    traces = [trace for trace in read_traces(path) if trace.data.get("solution") is not None]
    names = sorted({trace.text("solution") for trace in traces})
    chosen = solution or (names[0] if len(names) == 1 else "")
    if chosen not in names:
        there = ", ".join(names) or "none"
        raise BadInputError(f"{path}: one solution must be chosen, as in {path}::NAME; it has results of {there}")
    traces = [trace for trace in traces if trace.data["solution"] == chosen]
    first = traces[0].inside("evaluation")
    task, environment = _task_of(traces[0]), _environment(first)
    report = Report(
        task.name,
        {"name": chosen, "source_sha256": "", "language": "unknown"},
        {"source": "flashinfer-bench Traces", **environment},
        [],
        environment={"date": first.text("timestamp")},
        command=f"read from {path}",
    )
    for trace in traces:
        if (found := _environment(trace.inside("evaluation"))) != environment:
            raise BadInputError(
                f"{trace.where}.evaluation.environment: {found} is not that of the first: {environment}"
            )
        report.rows.append(_row(report, task, trace))
    report.conditions["workloads"] = [row.workload for row in report.rows]
    return report


def _task_of(trace: Fields) -> Task:
    tasks = {task.definition: task for task in map(load_task, task_names())}
    return tasks[trace.one_of("definition", tuple(tasks))]


def _environment(evaluation: Fields) -> dict[str, Any]:
    environment = evaluation.inside("environment")
    libraries = Fields(environment.get("libs", dict, {}), f"{environment.where}.libs")
    return {
        "device": environment.text("hardware"),
        "libraries": {name: libraries.get(name, str) for name in libraries.data},
    }


def _row(report: Report, task: Task, trace: Fields) -> Row:
    """One Trace as a row; what was not built makes that the report's verdict."""
    trace.one_of("definition", (task.definition,))
    evaluation = trace.inside("evaluation")
    uuid = trace.inside("workload").text("uuid")
    workload = next((w for w in task.workloads("cuda") if w.id == uuid), None)
    if workload is None or any(row.workload == uuid for row in report.rows):
        why = "is no workload of this task" if workload is None else "has a result of this solution already"
        raise BadInputError(f"{trace.where}.workload.uuid: {uuid} {why}")
    row = Row(uuid, workload.batch_size, workload.tokens, message=evaluation.get("log", str, ""))
    status = evaluation.one_of("status", (*OURS, COMPILE_ERROR))
    if status == COMPILE_ERROR:
        report.verdict, report.message = "build_error", row.message
        return row
    row.status = OURS[status]
    if row.status == "passed":
        row.scopes.update(_timing(evaluation.inside("performance")))
    return row


def _timing(performance: Fields) -> dict[str, Timing]:
    """Times in microseconds; none where the reference was not timed, which is 0 there."""
    latency_us = performance.number("latency_ms") * 1e3
    if performance.data.get("reference_latency_ms", 0) == 0:
        return {}
    return {RUN_ONLY: Timing("reference", [latency_us], [performance.number("reference_latency_ms") * 1e3])}
