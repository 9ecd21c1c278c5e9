"""Work: turns, the candidates that they write, the judge's reports and their rows."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models

from benchmarks.report import RUN_ONLY
from teams.models.run import Run
from teams.models.states import Stateful, table
from teams.models.team import Role, Team


class Turn(Stateful):
    """One role's piece of work, from brief to hand-over."""

    class State(models.TextChoices):
        """Begun, waiting for the judge, handed over; or lost with its process."""

        WORKING = "working"
        JUDGING = "judging"
        DONE = "done"
        LOST = "lost"

    TRANSITIONS = table(working="judging done lost", judging="working done lost", done="", lost="")

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="turns")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="turns")
    role = models.ForeignKey(Role, on_delete=models.CASCADE, related_name="turns")
    number = models.PositiveIntegerField()
    cycle = models.PositiveIntegerField(help_text="how often the team has been through its phases")
    phase = models.PositiveIntegerField()
    brief = models.JSONField(default=dict)
    handover = models.JSONField(default=dict)
    state = models.CharField(max_length=20, choices=State, default=State.WORKING)
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["run", "number"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "number"], name="one_turn_a_number")]


class Candidate(models.Model):
    """One version of a kernel; its files lie in the workspace under its hash."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="candidates")
    number = models.PositiveIntegerField()
    source_sha256 = models.CharField(max_length=64)
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="children")
    turn = models.ForeignKey(Turn, null=True, blank=True, on_delete=models.PROTECT, related_name="candidates")
    title = models.CharField(max_length=200)
    language = models.CharField(max_length=20)
    design = models.JSONField(default=dict, help_text="the moves that a built-in agent made; empty for a model's work")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["run", "number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["run", "number"], name="one_candidate_a_number"),
            models.UniqueConstraint(fields=["run", "source_sha256"], name="one_candidate_a_hash"),
        ]


class ReportQuerySet(models.QuerySet["Report"]):
    """Questions about reports."""

    def judged(self) -> Self:
        """First verdicts that count: judged, and not the judge's own fault."""
        return self.filter(state=Report.State.DONE, is_verification=False).exclude(status="judge_error")

    def verified(self) -> Self:
        """Second measurements that passed."""
        return self.filter(state=Report.State.DONE, verified=True)

    def in_order(self) -> Self:
        """As they were given."""
        return self.order_by("given_at", "pk")

    def with_authors(self) -> Self:
        """With candidate, parent, turn, team and role."""
        return self.select_related("candidate__parent", "candidate__turn__team", "candidate__turn__role")

    def waiting(self) -> Self:
        """Asked for, not yet judged."""
        return self.filter(state__in=(Report.State.QUEUED, Report.State.JUDGING))


class Report(Stateful):
    """A verdict, asked for and then given; the judge's whole report lies in the workspace."""

    class State(models.TextChoices):
        """Asked for, in the judge's hands, given; or taken back before the judge had it."""

        QUEUED = "queued"
        JUDGING = "judging"
        DONE = "done"
        WITHDRAWN = "withdrawn"

    TRANSITIONS = table(queued="judging withdrawn", judging="done queued", done="", withdrawn="")

    candidate = models.ForeignKey(Candidate, on_delete=models.CASCADE, related_name="reports")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="reports")
    is_verification = models.BooleanField(default=False)
    state = models.CharField(max_length=20, choices=State, default=State.QUEUED)
    status = models.CharField(max_length=20, blank=True)
    message = models.TextField(blank=True)
    tries = models.PositiveIntegerField(default=0, help_text="how often the judge was asked")
    stop_below = models.FloatField(null=True, blank=True)
    failure = models.CharField(max_length=200, blank=True, help_text="what went wrong, without the numbers in it")
    groups = models.JSONField(default=dict, help_text="geometric mean of each batch size")
    verified = models.BooleanField(default=False)
    passed = models.PositiveIntegerField(default=0)
    workloads = models.PositiveIntegerField(default=0)
    smoke_geomean = models.FloatField(null=True, blank=True, help_text="over the smoke workloads alone, to steer by")
    geomean = models.FloatField(null=True, blank=True, help_text="over all workloads; null unless all passed")
    interval_lo = models.FloatField(null=True, blank=True)
    interval_hi = models.FloatField(null=True, blank=True)
    wins = models.PositiveIntegerField(null=True, blank=True)
    scopes = models.JSONField(default=dict, help_text="geomean, interval_95 and wins of each scope, over all workloads")
    conditions = models.JSONField(default=dict)
    seconds = models.FloatField(null=True, blank=True)
    at_candidate = models.PositiveIntegerField(
        default=0, help_text="verdicts that counted when it was given, its own included"
    )
    asked_at = models.DateTimeField(auto_now_add=True)
    given_at = models.DateTimeField(null=True, blank=True)

    objects = ReportQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["candidate", "is_verification"], name="one_verdict_and_one_verification"),
        ]

    def main_rows(self) -> models.QuerySet[WorkloadResult]:
        """A row for each workload, in the scope of the headline."""
        return self.rows.filter(scope=RUN_ONLY)


class WorkloadResult(models.Model):
    """One row of a report in one scope; times in microseconds, null where nothing was measured."""

    report = models.ForeignKey(Report, on_delete=models.CASCADE, related_name="rows")
    position = models.PositiveIntegerField()
    workload = models.CharField(max_length=80)
    batch_size = models.PositiveIntegerField()
    tokens = models.PositiveIntegerField()
    scope = models.CharField(max_length=20)
    status = models.CharField(max_length=20)
    message = models.TextField(blank=True)
    candidate_us = models.FloatField(null=True, blank=True)
    baseline = models.CharField(max_length=80, blank=True)
    baseline_us = models.FloatField(null=True, blank=True)
    floor_us = models.FloatField(null=True, blank=True)
    speedup = models.FloatField(null=True, blank=True)
    interval_lo = models.FloatField(null=True, blank=True)
    interval_hi = models.FloatField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["report", "position"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["report", "workload", "scope"], name="one_row_a_workload_and_scope"),
        ]
