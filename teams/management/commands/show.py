"""Show a run: its teams, why each followed the other, and the rows of its best candidate:

python manage.py show 7
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.core.management.base import CommandError

from teams import outline
from teams.management.ready import ReadyCommand
from teams.models import Run


class Command(ReadyCommand):
    """Print a run, or the list of runs."""

    help = (
        "Show a run: teams, restructurings with their evidence, the best candidate's rows. Without a number, the runs."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Which run, and how."""
        parser.add_argument("run", type=int, nargs="?")
        parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")

    def handle(self, **options: Any) -> None:
        """Print it."""
        if options["run"] is None:
            runs = [outline.progress_line(run) for run in Run.objects.select_related("team", "best", "origin")]
            self.stdout.write("\n".join(runs) or "no runs yet; start one with: manage.py run TASK")
            return
        run = Run.objects.filter(pk=options["run"]).first()
        if run is None:
            raise CommandError(f"there is no run {options['run']}")
        self.stdout.write(json.dumps(outline.result(run)) if options["json"] else "\n".join(outline.lines(run)))
