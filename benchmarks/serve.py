"""`python -m benchmarks serve`: one warm judge for many candidates, asked in lines of JSON.

A request is one line on standard input:

    {"id": "7", "path": "/a/folder", "out": "/a/report.json", "workloads": "all", "stop_below": 0.9}

`path` is a candidate's folder, `out` is where its report is written (whole, or not at all); `workloads` (`all`) and
`stop_below` (null) are as on the command line. With a `claim` (the path of an earlier report of the same candidate) the
request is for its verification: fresh processes, nothing stopped early.
Answers are lines on standard output, each with the request's `id`:

    {"id": "7", "progress": "checking: workload 3 of 47"}          at most two a second
    {"id": "7", "status": "passed", "out": "/a/report.json"}       the last: the report is there
    {"id": "7", "error": "path: must be a string"}                  instead: the request was not understood

Requests are served one after another, since two candidates timed at once would disturb each other. The process ends
when its standard input does, so it never outlives who started it. A candidate that crashes ends its own process alone.

With `--socket PATH` the same lines go over a Unix socket that only its owner may open, one connection after another,
until the process is told to end (SIGTERM, Ctrl-C). From another machine: `ssh -L /tmp/judge:PATH HOST`; paths in
requests are then paths of that HOST.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import candidate
from benchmarks import report as reports
from benchmarks.bench import Bench
from benchmarks.judge import judge, verify
from kernels.task import BadInputError, Task, Workload

PROGRESS_SECONDS = 0.5
PATIENCE_S, PATIENCE_TO_VERIFY_S = 24.0, 60.0
"""What a busy machine may cost (see `judge`), where many candidates wait."""
Say = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Request:
    """One line, understood."""

    path: Path
    out: Path
    workloads: str
    stop_below: float | None
    claim: Path | None


def select(task: Task, device: str, choice: str) -> list[Workload]:
    """The workloads that `smoke`, `all` or ids with commas name, in the order of reports."""
    everything = task.workloads(device)
    if choice == "all":
        return list(everything)
    wanted = task.smoke if choice == "smoke" else tuple(part.strip() for part in choice.split(","))
    for part in wanted:
        matches = sum(w.id.startswith(part) for w in everything) if part else 0
        if matches != 1:
            raise BadInputError(f"--workloads: {part!r} begins {matches} workload ids of {task.name}, not one")
    return [w for w in everything if w.id.startswith(wanted)]


def parse(message: Any) -> Request:
    """A request from its JSON value; `BadInputError` names the field."""
    if not isinstance(message, dict):
        raise BadInputError("a request must be an object")
    for key in ("path", "out"):
        if not isinstance(message.get(key), str) or not message[key]:
            raise BadInputError(f"{key}: must be a string")
    claim = message.get("claim")
    if claim is not None and (not isinstance(claim, str) or not claim):
        raise BadInputError("claim: must be the path of a report or null")
    workloads, stop_below = message.get("workloads", "all"), message.get("stop_below")
    if not isinstance(workloads, str):
        raise BadInputError("workloads: must be a string")
    if stop_below is not None and not (isinstance(stop_below, float | int) and 0 < stop_below < 1e9):
        raise BadInputError("stop_below: must be a positive number or null")
    return Request(Path(message["path"]), Path(message["out"]), workloads, stop_below, Path(claim) if claim else None)


class Progress:
    """Passes on what the judge says of its progress, as often as a reader can use."""

    def __init__(self, say: Say) -> None:
        self._say, self._last = say, 0.0
        self.id: Any = None

    def redirect(self, say: Say) -> None:
        """Tell somebody else from now on."""
        self._say = say

    def __call__(self, text: str) -> None:
        if (now := time.monotonic()) - self._last >= PROGRESS_SECONDS:
            self._last = now
            self._say({"id": self.id, "progress": text})


def serve(bench: Bench, lines: Iterable[str], say: Say, progress: Progress) -> None:
    """Answer every line until there are no more."""
    for line in lines:
        try:
            message = json.loads(line)
            progress.id = message.get("id") if isinstance(message, dict) else None
            say({"id": progress.id, **_answer(bench, parse(message))})
        except BadInputError as error:
            say({"id": progress.id, "error": str(error)})
        except (ValueError, RecursionError) as error:
            say({"id": None, "error": f"a request must be one line of JSON: {error}"})


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A socket at this path, for its owner alone; `BadInputError` if somebody listens there, or nobody can."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        if path.is_socket():
            _remove_dead(path)
        listener.bind(str(path))
        listener.listen()
    except OSError as error:
        listener.close()
        raise BadInputError(f"--socket {path}: {error.strerror or error}") from None
    finally:
        os.umask(before)
    try:
        yield listener
    finally:
        listener.close()
        path.unlink(missing_ok=True)


def _remove_dead(path: Path) -> None:
    """A socket that its process left behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise BadInputError(f"--socket {path}: a judge listens there already")


def serve_socket(bench: Bench, listener: socket.socket, progress: Progress) -> None:
    """Serve one connection after another, for ever; one that breaks ends alone."""
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("r", errors="replace") as lines:

            def say(answer: dict[str, Any], connection: socket.socket = connection) -> None:
                connection.sendall(json.dumps(answer).encode() + b"\n")

            progress.redirect(say)
            try:
                serve(bench, lines, say, progress)
            except ConnectionError:
                continue


def _answer(bench: Bench, request: Request) -> dict[str, Any]:
    workloads = select(bench.task, bench.device, request.workloads)
    source = candidate.read(request.path)
    command = f"python -m benchmarks judge {bench.task.name} {request.path} --workloads {request.workloads}"
    if request.claim:
        claim, patience, command = reports.read(request.claim), PATIENCE_TO_VERIFY_S, f"{command} --verify"
        report = verify(bench, source, claim, workloads, patience_s=patience, command=command)
    else:
        report = judge(bench, source, workloads, stop_below=request.stop_below, patience_s=PATIENCE_S, command=command)
    report.write(request.out)
    return {"status": report.status, "out": str(request.out)}
