"""Run teams on a task without a browser:

python manage.py run mla_paged_decode --strategy evolving --candidates 60 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from django.core.management.base import CommandError

from kernels.task import BadInputError
from teams import outline
from teams.launch import new_run
from teams.management.ready import ReadyCommand
from teams.management.watching import watch
from teams.models import Run
from teams.supervisor import thresholds
from teams.supervisor.consumer import supervisor


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
            asyncio.run(watch(run.pk, self.stderr))
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


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInputError(f"--set: {text!r} must be NAME=NUMBER")
    return name, value
