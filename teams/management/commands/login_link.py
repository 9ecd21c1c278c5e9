"""A new way in, for whoever can start commands on this machine:

python manage.py login_link --port 8001
"""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import CommandError
from django.db import OperationalError
from django.urls import reverse

from teams.management.ready import ReadyCommand
from teams.models import LoginLink


class Command(ReadyCommand):
    """Print a login link."""

    help = "Print a login link that works once, for a day."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Where the page is."""
        parser.add_argument("--port", type=int, default=8000, help="the port that Regroup said at its start")

    def handle(self, **options: Any) -> None:
        """Make and print it."""
        try:
            self.stdout.write(login_url(options["port"]))
        except OperationalError as error:
            raise CommandError(f"the database cannot be used ({error}); has Regroup been started here?") from None


def login_url(port: int) -> str:
    """The address of a new login link."""
    return f"http://127.0.0.1:{port}{reverse('login_link', args=[LoginLink.make()])}"
