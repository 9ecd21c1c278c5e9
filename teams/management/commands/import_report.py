"""Show a report that was measured elsewhere on the pages, as a run that is marked imported:

python manage.py import_report report.json --name "H200, first pass"
"""

from __future__ import annotations

import argparse
import getpass
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import OperationalError

from kernels.task import BadInputError
from teams import importing
from teams.management.ready import ReadyCommand


class Command(ReadyCommand):
    """Import one file."""

    help = "Import a report of the judge (a JSON file): pages show it like any other run, marked imported."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The file, and what to call it."""
        parser.add_argument("file", type=Path, metavar="FILE", help="a report, as `python -m benchmarks` writes it")
        parser.add_argument("--name", default="", help="what to call it (default: the candidate's name)")

    def handle(self, **options: Any) -> None:
        """Read, import, say which run it is."""
        path: Path = options["file"]
        try:
            with path.open("rb") as file:
                content = file.read(importing.MOST_BYTES + 1)
            run, new = importing.import_report(content, str(path), actor=getpass.getuser(), name=options["name"])
        except OSError as error:
            raise CommandError(f"{path}: cannot be read: {error.strerror}") from None
        except BadInputError as error:
            raise CommandError(str(error)) from None
        except OperationalError as error:
            raise CommandError(f"the database cannot be used ({error}); has Regroup been started here?") from None
        if new:
            self.stdout.write(f"run {run.pk}: {run.origin.name}, imported from {path}")
        else:
            self.stdout.write(f"{path} is here already, as run {run.pk} ({run.origin}); nothing has changed")
