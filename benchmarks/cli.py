"""The judge's command line: judge, serve, aa, compare, attacks, export-solution, export-trace.

    python -m benchmarks judge mla_paged_decode kernels/mla_paged_decode/c_blocked
    python -m benchmarks judge mla_paged_decode PATH --workloads smoke --json
    python -m benchmarks aa mla_paged_decode --runs 10 --out benchmarks/results
    python -m benchmarks compare A.json B.json
    python -m benchmarks attacks

Exit status: 0 passed, 1 the candidate did not pass, 2 bad input, 3 the judge's own fault.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import compare as comparison
from benchmarks import report as reports
from benchmarks import table
from benchmarks.attacks import suite
from benchmarks.bench import open_bench
from benchmarks.interchange import dataset, solution, trace
from benchmarks.judge import judge, verify
from benchmarks.report import Report
from benchmarks.serve import Progress, listening, select, serve, serve_socket
from kernels.task import BadInputError, load_task, task_names

EXIT = {"passed": 0, "partial": 1, "judge_error": 3}


def main(argv: Sequence[str]) -> int:
    """Run a command; its exit status."""
    arguments = _parser().parse_args(argv)
    arguments.command_line = shlex.join(["python", "-m", "benchmarks", *argv])
    try:
        action: Callable[[argparse.Namespace], int] = arguments.action
        return action(arguments)
    except BadInputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Judge kernels.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    judge = commands.add_parser("judge", help="build, check and time one candidate")
    judge.set_defaults(action=_judge)
    _task_argument(judge)
    judge.add_argument("path", type=Path, help="the candidate's folder, its kernel.py, or a Solution's JSON file")
    judge.add_argument("--trace", type=Path, help="judge on the inputs that this flashinfer-trace folder captured")
    judge.add_argument("--workloads", default="all", help="smoke, all, or ids (or their beginnings) with commas")
    judge.add_argument("--stop-below", type=_positive, help="time no further if the smoke workloads' mean is less")
    judge.add_argument("--verify", action="store_true", help="measure twice, in fresh processes; report the second")
    _common(judge)
    warm = commands.add_parser("serve", help="judge many candidates: requests and answers are lines of JSON")
    warm.set_defaults(action=_serve)
    _task_argument(warm)
    warm.add_argument("--socket", type=Path, help="listen on a Unix socket at this path instead of standard input")
    _machine(warm)
    aa = commands.add_parser("aa", help="judge the baselines against themselves")
    aa.set_defaults(action=_aa)
    _task_argument(aa)
    aa.add_argument("--runs", type=_count, default=1, help="how many in a row (each is written, none left out)")
    aa.add_argument("--workloads", default="all", help="smoke, all, or ids with commas")
    _common(aa)
    compare = commands.add_parser("compare", help="compare two reports, workload by workload")
    compare.set_defaults(action=_compare)
    compare.add_argument("first", help="a report, or Traces: FILE.jsonl, FILE.jsonl::SOLUTION")
    compare.add_argument("second")
    compare.add_argument("--scope", choices=reports.SCOPES, default=reports.RUN_ONLY)
    attacks = commands.add_parser("attacks", help="let every known way of cheating try, and every honest kernel pass")
    attacks.set_defaults(action=_attacks)
    attacks.add_argument("--only", help="names with commas")
    attacks.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    attacks.add_argument("--sandbox", choices=("auto", "required", "off"), default="auto")
    _exports(commands)
    return parser


def _exports(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    names = task_names()
    export = commands.add_parser("export-solution", help="write a candidate as flashinfer-bench's Solution")
    export.set_defaults(action=_export_solution)
    export.add_argument("path", type=Path)
    export.add_argument("--task", choices=names, default=names[0], required=len(names) > 1)
    export.add_argument("--out", type=Path, required=True)
    export = commands.add_parser("export-trace", help="write a report as flashinfer-bench's Traces")
    export.set_defaults(action=_export_trace)
    export.add_argument("report", type=Path)
    export.add_argument("--trace", type=Path, help="the flashinfer-trace folder that it was judged with")
    export.add_argument("--out", type=Path, required=True)


def _task_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", help=f"one of {', '.join(task_names())}")


def _machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sandbox", choices=("auto", "required", "off"), default="auto")


def _common(parser: argparse.ArgumentParser) -> None:
    _machine(parser)
    parser.add_argument("--out", type=Path, help="write the report here as JSON")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a table")
    parser.add_argument(
        "--patience", type=_seconds, default=60.0, metavar="SECONDS",
        help="what a machine that others keep busy may cost for figures as good as a quiet one's (60)",
    )  # fmt: skip


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, not {text}")
    return value


def _seconds(text: str) -> float:
    return 0.0 if text == "0" else _positive(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text}")
    return int(text)


def _judge(arguments: argparse.Namespace) -> int:
    task = load_task(arguments.task)
    if arguments.trace is not None:
        task = dataset.with_captured_inputs(task, arguments.trace)
    source = solution.read_candidate(arguments.path, task)
    workloads = select(task, arguments.device, arguments.workloads)
    how: dict[str, Any] = {"patience_s": arguments.patience, "command": arguments.command_line}
    with open_bench(task, arguments.device, choice=arguments.sandbox, progress=progress) as bench:
        report = judge(bench, source, workloads, stop_below=arguments.stop_below, **how)
        if arguments.verify and report.status == "passed":
            report = verify(bench, source, report, **how)
    return _deliver(report, arguments.out, arguments.json)


def _serve(arguments: argparse.Namespace) -> int:
    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), flush=True)

    told, task = Progress(say), load_task(arguments.task)
    with ExitStack() as stack:
        listener = stack.enter_context(listening(arguments.socket)) if arguments.socket else None
        bench = stack.enter_context(open_bench(task, arguments.device, choice=arguments.sandbox, progress=told))
        if listener is None:
            serve(bench, sys.stdin, say, told)
        else:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            serve_socket(bench, listener, told)
    return 0


def _aa(arguments: argparse.Namespace) -> int:
    task = load_task(arguments.task)
    workloads = select(task, arguments.device, arguments.workloads)
    statuses = []
    for i in range(arguments.runs):
        with open_bench(task, arguments.device, choice=arguments.sandbox, progress=progress) as bench:
            report = judge(bench, None, workloads, patience_s=arguments.patience, command=arguments.command_line)
        out = arguments.out
        if out is not None and arguments.runs > 1:
            out = out / f"run-{i + 1:02d}.json"
        statuses.append(_deliver(report, out, arguments.json, brief=arguments.runs > 1))
    return max(statuses)


def _deliver(report: Report, out: Path | None, as_json: bool, *, brief: bool = False) -> int:
    progress("")
    if out is not None:
        report.write(out)
    if as_json:
        print(reports.dumps(report.to_json()), end="")
    elif brief:
        print(table.headline(report))
    else:
        print("\n".join(table.lines(report)))
    sys.stdout.flush()
    return EXIT.get(report.status, 1)


def _compare(arguments: argparse.Namespace) -> int:
    first, second = trace.read_report(arguments.first), trace.read_report(arguments.second)
    for line in comparison.lines(first, second, arguments.scope):
        print(line)
    return 0


def _export_solution(arguments: argparse.Namespace) -> int:
    task = load_task(arguments.task)
    solution.write_solution(solution.read_candidate(arguments.path, task), task, arguments.out)
    return 0


def _export_trace(arguments: argparse.Namespace) -> int:
    report = reports.read(arguments.report)
    if left_out := trace.write_traces(report, arguments.out, arguments.trace):
        print(f"left out: {left_out} of {len(report.rows)} rows, which were not run or not timed")
    return 0


def _attacks(arguments: argparse.Namespace) -> int:
    only = arguments.only.split(",") if arguments.only else None
    return suite.run(only, arguments.device, arguments.sandbox, progress, print)


def progress(text: str) -> None:
    """One line on a terminal that replaces itself; elsewhere nothing (logs want no hundred lines)."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
