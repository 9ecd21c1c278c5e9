"""Commands find the database up to date, in a new home as well."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import connection
from django.db.migrations.executor import MigrationExecutor


class ReadyCommand(BaseCommand):
    """A command that makes or changes tables before it does anything else, where that is due."""

    def execute(self, *arguments: Any, **options: Any) -> str | None:
        """Bring the database up to date, then go on."""
        bring_up_to_date()
        return super().execute(*arguments, **options)


def bring_up_to_date() -> None:
    """Apply the migrations that are due."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", verbosity=0)
