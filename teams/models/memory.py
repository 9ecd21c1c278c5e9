"""Memory: what earlier turns and teams found out, for later ones to read."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from teams.models.run import Run
from teams.models.states import Stateful, table


class Record(Stateful):
    """One piece of shared memory, as a row and as a file of the workspace; `evidence` holds report ids."""

    class Kind(models.TextChoices):
        """What it is."""

        EXPERIMENT = "experiment"
        FAILURE = "failure"
        TECHNIQUE = "technique"
        QUESTION = "question"

    class State(models.TextChoices):
        """Whether it may be built upon."""

        ACTIVE = "active"
        SUPERSEDED = "superseded"
        DISPUTED = "disputed"
        QUARANTINED = "quarantined"

    TRANSITIONS = table(
        active="superseded disputed quarantined",
        superseded="active quarantined",
        disputed="active superseded quarantined",
        quarantined="active",
    )

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="records")
    number = models.PositiveIntegerField()
    kind = models.CharField(max_length=20, choices=Kind)
    title = models.CharField(max_length=200)
    body = models.TextField(blank=True)
    evidence = models.JSONField(default=list)
    moves = models.JSONField(default=list, help_text="the moves that it speaks of, as [key, choice] pairs")
    author = models.CharField(max_length=80)
    state = models.CharField(max_length=20, choices=State, default=State.ACTIVE)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["run", "number"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "number"], name="one_record_a_number")]
