"""Do a run's files agree with its rows?

python manage.py check_workspace 7 [--repair]
"""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import CommandError

from teams import workspace
from teams.management.ready import ReadyCommand
from teams.models import Run


class Command(ReadyCommand):
    """Say where they differ, and mend it if asked."""

    help = "Say where a run's files differ from its rows; exit status 1 if they do."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Which run, and whether to mend it."""
        parser.add_argument("run", type=int)
        parser.add_argument("--repair", action="store_true", help="write again what the rows hold")

    def handle(self, **options: Any) -> None:
        """Look, mend, look again."""
        run = Run.objects.filter(pk=options["run"]).first()
        if run is None:
            raise CommandError(f"there is no run {options['run']}")
        for text in workspace.repair(run) if options["repair"] and not run.is_imported else ():
            self.stdout.write(text)
        left = workspace.disagreements(run)
        if left:
            raise CommandError("\n".join(left))
        self.stdout.write(f"run {run.pk}: files and rows agree")
