"""Run teams on a task without a browser:

python manage.py run mla_paged_decode --strategy evolving --candidates 60 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import Any

from asgiref.sync import sync_to_async
from django.core.management.base import CommandError

from kernels.task import BadInputError
from teams import outline
from teams.launch import new_run
from teams.management.ready import ReadyCommand
from teams.models import Run
from teams.supervisor import thresholds
from teams.supervisor.consumer import supervisor, working

POLL_SECONDS = 1.0
LOG_SECONDS = 15.0
"""Where the output is no terminal, a line at most this often."""


class Command(ReadyCommand):
    """Start a run, or go on with one, and show its progress until it ends."""

    help = "Run teams on a task, with a line of progress, until the budget is spent."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Flags as in the README."""
        parser.add_argument("task", nargs="?", help="the task to optimise")
        parser.add_argument("--strategy", default="evolving", help="evolving, fixed or single")
        parser.add_argument("--agents", default="builtin", help="who writes candidates")
        parser.add_argument("--device", default="cpu", help="what to judge on: cpu, or cuda for an NVIDIA GPU")
        parser.add_argument("--candidates", type=int, help="budget: candidates judged (60 if nothing is said)")
        parser.add_argument("--minutes", type=float, help="budget: minutes of judging")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER", help="change a threshold")
        parser.add_argument("--resume", type=int, metavar="RUN", help="go on with a run instead of starting one")
        parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")

    def handle(self, **options: Any) -> None:
        """Start or resume, watch, report."""
        try:
            run = self._resume(options["resume"]) if options["resume"] else self._start(options)
        except BadInputError as error:
            raise CommandError(str(error)) from None
        try:
            asyncio.run(self._watch(run.pk))
        except KeyboardInterrupt:
            raise CommandError(f"interrupted; go on with --resume {run.pk}", returncode=130) from None
        run.refresh_from_db()
        if options["json"]:
            self.stdout.write(json.dumps(outline.result(run)))
        else:
            self.stdout.write("\n".join(outline.lines(run)))
        if run.state == Run.State.FAILED:
            raise CommandError(f"run {run.pk} failed: {run.state_reason}")

    def _start(self, options: dict[str, Any]) -> Run:
        if not options["task"]:
            raise BadInputError("task: name one, or a run to go on with (--resume RUN)")
        texts = dict(_pair(text) for text in options["set"])
        nothing_said = options["candidates"] is None and options["minutes"] is None
        return new_run(
            options["task"],
            strategy=options["strategy"],
            agents=options["agents"],
            device=options["device"],
            candidates=60 if nothing_said else options["candidates"],
            minutes=options["minutes"],
            seed=options["seed"],
            settings=thresholds.parse(texts),
            owner=str(supervisor.owner),
        )

    def _resume(self, number: int) -> Run:
        run = Run.objects.filter(pk=number).first()
        if run is None:
            raise BadInputError(f"--resume: there is no run {number}")
        return run

    async def _watch(self, number: int) -> None:
        """Carry the run on (or see who does) and show a line until it has ended."""
        shown = Line(self.stderr)
        async with working():
            while True:
                run = await sync_to_async(Run.objects.select_related("team", "best").get)(pk=number)
                shown.show(await sync_to_async(outline.progress_line)(run))
                if run.has_ended:
                    break
                await asyncio.sleep(POLL_SECONDS)
        shown.end()


class Line:
    """A line that replaces itself on a terminal, and elsewhere is written when it has changed, now and then."""

    def __init__(self, out: Any) -> None:
        self._out, self._last, self._at = out, "", 0.0
        self._live = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Show the text if it is new and due."""
        if text == self._last or (not self._live and time.monotonic() - self._at < LOG_SECONDS):
            return
        self._last, self._at = text, time.monotonic()
        self._out.write(f"\r\033[K{text}" if self._live else text, ending="" if self._live else "\n")
        self._out.flush()

    def end(self) -> None:
        """Leave the line."""
        if self._live:
            self._out.write("")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInputError(f"--set: {text!r} must be NAME=NUMBER")
    return name, value
