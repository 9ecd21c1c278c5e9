"""Teams: immutable versions of who works how, and why one follows another."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import ClassVar

from django.db import models

from teams.design import Seat, TeamDesign
from teams.models.run import Run
from teams.models.states import Stateful, table


class Team(models.Model):
    """A numbered version: roles, the order in which they work, what each sees. Any change makes a new one."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="teams")
    number = models.PositiveIntegerField()
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="children")
    phases = models.JSONField(help_text="list of groups of role keys; a group's roles work side by side")
    base = models.ForeignKey("Candidate", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    decided_by = models.CharField(max_length=150, default="start")
    installed_at = models.PositiveIntegerField(default=0, help_text="verdicts that counted when it was installed")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["run", "number"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "number"], name="one_team_a_number")]

    def __str__(self) -> str:
        return f"team {self.number}"

    def design(self) -> TeamDesign:
        """The team on paper."""
        return TeamDesign(
            {role.key: role.seat() for role in self.roles.all()},
            tuple(tuple(group) for group in self.phases),
            self.base.number if self.base else None,
        )


def install(run: Run, design: TeamDesign, decided_by: str) -> Team:
    """Write a design as the run's next team and make it the current one; call it inside a transaction."""
    base = None if design.base is None else run.candidates.get(number=design.base)
    team = Team.objects.create(
        run=run,
        number=run.teams.count() + 1,
        parent=run.team,
        phases=[list(group) for group in design.phases],
        base=base,
        decided_by=decided_by,
        installed_at=run.reports.judged().count(),
    )
    for position, seat in enumerate(design.seats.values()):
        values = asdict(seat)
        Role.objects.create(team=team, position=position, **{**values, "tools": list(seat.tools)})
    run.team = team
    run.save(update_fields=["team"])
    return team


class Role(models.Model):
    """A seat in a team. `sees` gives for each role, or `*`, one of full, summary, scores, none."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="roles")
    key = models.SlugField(max_length=40)
    title = models.CharField(max_length=80)
    charter = models.TextField()
    agent = models.CharField(max_length=40, default="builtin")
    posture = models.CharField(max_length=40)
    tools = models.JSONField(default=list)
    sees = models.JSONField(default=dict)
    share = models.FloatField(default=0.0)
    writes = models.BooleanField(default=True)
    pinned = models.BooleanField(default=False)
    position = models.PositiveIntegerField(default=0)

    class Meta:
        ordering: ClassVar = ["team", "position"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["team", "key"], name="one_role_a_key")]

    def seat(self) -> Seat:
        """The role on paper."""
        values = {f.name: getattr(self, f.name) for f in fields(Seat)}
        return Seat(**{**values, "tools": tuple(self.tools)})


class Signal(models.Model):
    """Measured evidence that the team no longer fits the work."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="signals")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="signals")
    kind = models.CharField(max_length=40)
    value = models.FloatField()
    threshold = models.FloatField()
    message = models.TextField()
    evidence = models.JSONField(default=list, help_text="report ids that it rests on")
    at_candidate = models.PositiveIntegerField(help_text="judged candidates of the run when it fired")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["pk"]


class Restructuring(Stateful):
    """Signals, diagnosis, operations, the new team, what was expected of it and what came of it."""

    class State(models.TextChoices):
        """Installed and being watched, or measured; `kept` is a decision to change nothing."""

        INSTALLED = "installed"
        MEASURED = "measured"
        KEPT = "kept"

    class Outcome(models.TextChoices):
        """What came of it, against what was expected."""

        MET = "met"
        PARTLY = "partly"
        MISSED = "missed"
        WORSE = "worse"

    TRANSITIONS = table(installed="measured", measured="", kept="")

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="restructurings")
    before = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="+")
    after = models.OneToOneField(Team, null=True, on_delete=models.CASCADE, related_name="restructuring")
    signals = models.ManyToManyField(Signal, related_name="restructurings")
    command = models.ForeignKey("Command", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    cause = models.CharField(max_length=40)
    explanation = models.TextField()
    operations = models.JSONField(default=list)
    considered = models.PositiveIntegerField(default=1)
    expected = models.JSONField(default=dict)
    fallback = models.CharField(max_length=200, blank=True)
    decided_by = models.CharField(max_length=150)
    state = models.CharField(max_length=20, choices=State, default=State.INSTALLED)
    outcome = models.CharField(max_length=20, choices=Outcome, blank=True)
    measured = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["pk"]
