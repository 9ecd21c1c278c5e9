"""Ask something of a run that a supervisor carries on, here or elsewhere:

python manage.py command 7 pause
python manage.py command 7 restructure --note "nobody looks at batch 1"
python manage.py command 7 top_up --candidates 20 --key once-only
"""

from __future__ import annotations

import argparse
import getpass
import secrets
from typing import Any

from django.core.management.base import CommandError

from kernels.task import BadInputError
from teams.launch import ask
from teams.management.ready import ReadyCommand
from teams.models import Command as Asked
from teams.models import Run
from teams.supervisor.consumer import wake_supervisor


class Command(ReadyCommand):
    """Write a command down; the run's supervisor takes it up."""

    help = "Ask a run to pause, resume, stop, restructure or take more budget. The same --key twice is one command."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """What is asked of which run."""
        parser.add_argument("run", type=int)
        parser.add_argument("kind", choices=Asked.Kind.values)
        parser.add_argument("--note", default="", help="why")
        parser.add_argument("--key", default="", help="a name of your own, so that sending twice does no harm")
        parser.add_argument("--candidates", type=int, help="top_up: how many more")
        parser.add_argument("--minutes", type=float, help="top_up: minutes of judging more")

    def handle(self, **options: Any) -> None:
        """Write it down and say what is known of it."""
        run = Run.objects.filter(pk=options["run"]).first()
        if run is None:
            raise CommandError(f"there is no run {options['run']}")
        payload = {name: options[name] for name in ("candidates", "minutes")}
        key = options["key"] or secrets.token_hex(8)
        try:
            command = ask(run, options["kind"], key, actor=getpass.getuser(), note=options["note"], payload=payload)
        except BadInputError as error:
            raise CommandError(str(error)) from None
        wake_supervisor()
        why = f": {command.refused_because}" if command.refused_because else ""
        self.stdout.write(f"{command.kind} of run {run.pk} is {command.state}{why} (key {key})")
