"""Run an experiment, whole or what is left of it:

python manage.py experiment benchmarks/results/experiments/NAME/plan.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from kernels.task import BadInputError
from teams.experiments import analysis, plan
from teams.experiments.plan import Arm, Plan
from teams.experiments.record import record
from teams.launch import new_run
from teams.management.ready import ReadyCommand
from teams.management.watching import watch
from teams.models import Run
from teams.supervisor.consumer import supervisor
from teams.workspace import put_text


class Command(ReadyCommand):
    """Go through a plan's runs one after another; interrupted, it goes on where it was."""

    help = "Run a plan's strategies and seeds; runs.jsonl, report.json and report.md come to lie beside the plan."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The plan, and how much of it."""
        parser.add_argument("plan", type=Path, help="a JSON file: name, task, device, arms, seeds, candidates, targets")
        parser.add_argument("--runs", type=int, help="make at most this many runs now")
        parser.add_argument(
            "--report", action="store_true", help="make no run, only the report of those that are there"
        )

    def handle(self, **options: Any) -> None:
        """Make what runs are missing, then the report."""
        try:
            found = plan.read(options["plan"])
            results = Results(options["plan"].parent, found)
        except BadInputError as error:
            raise CommandError(str(error)) from None
        missing = [cell for cell in found.cells if not results.has(*cell)]
        for arm, seed in [] if options["report"] else missing[: options["runs"]]:
            done = len(results.lines)
            self._run(results, found, arm, seed, f"{done + 1} of {len(found.cells)} · {arm.name} {seed} · ")
        results.report()
        self.stdout.write(f"{len(results.lines)} of {len(found.cells)} runs; see {results.folder / 'report.md'}")

    def _run(self, results: Results, found: Plan, arm: Arm, seed: int, head: str) -> None:
        label = f"{found.name}/{arm.name}/{seed}"
        run = Run.objects.filter(label=label).order_by("-pk").first()
        if run is None or run.state == Run.State.FAILED:
            run = new_run(
                found.task, strategy=arm.strategy, device=found.device, candidates=found.candidates, seed=seed,
                settings=arm.settings, owner=str(supervisor.owner), label=label,
            )  # fmt: skip
        try:
            asyncio.run(watch(run.pk, self.stderr, head))
        except KeyboardInterrupt:
            raise CommandError("interrupted; the same command goes on with it", returncode=130) from None
        run.refresh_from_db()
        if run.state == Run.State.FAILED:
            raise CommandError(f"run {run.pk} ({label}) failed: {run.state_reason}")
        results.add(record(run, arm.name))


class Results:
    """The lines of finished runs beside a plan."""

    def __init__(self, folder: Path, found: Plan) -> None:
        self.folder, self.plan, self.file = folder, found, folder / "runs.jsonl"
        self.lines: list[dict[str, Any]] = []
        for number, text in enumerate(self.file.read_text().splitlines() if self.file.exists() else (), 1):
            try:
                line = json.loads(text)
                self.lines.append({**line, "arm": str(line["arm"]), "seed": int(line["seed"])})
            except (ValueError, KeyError, TypeError) as error:
                raise BadInputError(f"{self.file} line {number}: is no record of a run: {error!r}") from None

    def has(self, arm: Arm, seed: int) -> bool:
        """Has this been run?"""
        return any((line["arm"], line["seed"]) == (arm.name, seed) for line in self.lines)

    def add(self, line: dict[str, Any]) -> None:
        """Keep the line of a run that has ended."""
        self.lines.append(line)
        put_text(self.file, "".join(json.dumps(one) + "\n" for one in self.lines))

    def report(self) -> None:
        """Write report.json and report.md."""
        runs: dict[str, dict[int, dict[str, Any]]] = {}
        for line in self.lines:
            runs.setdefault(line["arm"], {})[line["seed"]] = line
        found = analysis.analyse(self.plan, runs)
        put_text(self.folder / "report.json", json.dumps(found, indent=1) + "\n")
        put_text(self.folder / "report.md", analysis.in_words(found))
