"""A run: one attempt at one task by one strategy under one budget; its commands, events and ledger."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from django.db import models, transaction
from django.db.models import F, Q, Sum
from django.utils import timezone

from teams.models.states import Stateful, table

if TYPE_CHECKING:
    from teams.models.work import Report

LEASE = timedelta(seconds=30)
"""A supervisor that has not renewed its lease for this long has lost the run."""


class LostRunError(RuntimeError):
    """Another supervisor has taken the run."""


@dataclass(frozen=True)
class Owner:
    """A supervisor's process: machine, boot and process namespace, process id and when it started."""

    place: str
    pid: int
    started: int

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        return cls(_place(), os.getpid(), _started(os.getpid()) or 0)

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """From its text; None if it is none."""
        place, _, numbers = text.rpartition("/")
        pid, _, started = numbers.partition("-")
        return cls(place, int(pid), int(started)) if pid.isdigit() and started.isdigit() else None

    @property
    def is_dead(self) -> bool:
        """Is it known to have ended? Only of processes of this machine can one know."""
        return self.place == _place() and _started(self.pid) != self.started

    def __str__(self) -> str:
        return f"{self.place}/{self.pid}-{self.started}"


def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    return f"{socket.gethostname()[:30]}/{boot}/{Path('/proc/self/ns/pid').readlink().name.strip('pid:[]')}"


def _started(pid: int) -> int | None:
    """When a process started, in ticks since boot; None if there is none (a zombie is none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class RunQuerySet(models.QuerySet["Run"]):
    """Questions about runs."""

    def open(self) -> Self:
        """Runs that a supervisor has work with."""
        return self.exclude(state__in=ENDED)

    def claimable(self, owner: str, now: datetime) -> Self:
        """Open runs that are this owner's or nobody's, whose owner's lease has run out, or whose owner is dead."""
        others = self.open().exclude(owner__in=("", owner)).values_list("owner", flat=True).distinct()
        dead = [o for o in others if (process := Owner.parse(o)) is not None and process.is_dead]
        return self.open().filter(Q(owner__in=("", owner, *dead)) | Q(lease_until__lt=now))


class Run(Stateful):
    """One attempt at one task. Its `settings` are the supervisor's thresholds as they were at the start."""

    class Strategy(models.TextChoices):
        """Who works, and whether that may change. The last three are controls: a search without a team that learns
        nothing, one that takes single steps from the best, and a team that changes at random."""

        EVOLVING = "evolving"
        FIXED = "fixed"
        SINGLE = "single"
        RANDOM = "random"
        CLIMBING = "climbing"
        SHUFFLED = "shuffled"

    class State(models.TextChoices):
        """Where the run is; `pausing` and `stopping` wait for turns and reports in hand. In an `imported` one nobody
        ever works: it holds a report that was measured elsewhere."""

        QUEUED = "queued"
        RUNNING = "running"
        PAUSING = "pausing"
        PAUSED = "paused"
        STOPPING = "stopping"
        DONE = "done"
        FAILED = "failed"
        IMPORTED = "imported"

    TRANSITIONS = table(
        queued="running stopping failed",
        running="pausing stopping done failed",
        pausing="paused running stopping failed",
        paused="running stopping failed",
        stopping="done failed",
        done="",
        failed="",
        imported="",
    )

    task = models.CharField(max_length=80)
    label = models.CharField(max_length=120, blank=True, help_text="what an experiment calls it")
    strategy = models.CharField(max_length=20, choices=Strategy, blank=True)
    agents = models.CharField(max_length=40, default="builtin", blank=True)
    device = models.CharField(max_length=20, default="cpu")
    language = models.CharField(max_length=20, default="c")
    seed = models.BigIntegerField(default=1)
    settings = models.JSONField(default=dict)
    state = models.CharField(max_length=20, choices=State, default=State.QUEUED)
    state_reason = models.TextField(blank=True)
    steered = models.BooleanField(default=False)
    owner = models.CharField(max_length=120, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    progress_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    last_event = models.PositiveBigIntegerField(default=0)
    team = models.ForeignKey("Team", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    best = models.ForeignKey("Report", null=True, blank=True, on_delete=models.PROTECT, related_name="+")

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return f"run {self.pk} ({self.strategy or 'imported'} on {self.task})"

    def claim(self, owner: str) -> bool:
        """Take or renew the lease; False if another supervisor holds it."""
        now = timezone.now()
        taken = Run.objects.filter(pk=self.pk).claimable(owner, now).update(
            owner=owner, lease_until=now + LEASE, heartbeat_at=now
        )  # fmt: skip
        if taken:
            self.refresh_from_db()
        return taken == 1

    @contextmanager
    def held(self) -> Iterator[None]:
        """A transaction in which the run is its owner's and nobody can take it; `LostRunError` if it is not any more.

        The owner is the one that this object had when it was claimed.
        """
        with transaction.atomic():
            if not Run.objects.filter(pk=self.pk, owner=self.owner).update(heartbeat_at=timezone.now()):
                raise LostRunError(f"{self} is not {self.owner}'s any more")
            self.refresh_from_db()
            yield

    @property
    def has_ended(self) -> bool:
        """Is there nothing more to come?"""
        return self.state in ENDED

    @property
    def is_imported(self) -> bool:
        """Does it hold a report that was measured elsewhere, and no work? Then `origin` says where it is from."""
        return self.state == Run.State.IMPORTED

    @property
    def shown(self) -> Report | None:
        """The report that stands for the run: its verified best, or the one that was imported."""
        return self.reports.select_related("candidate").first() if self.is_imported else self.best

    def end(self, state: str, why: str) -> bool:
        """Go to a last state, refuse what was asked and not yet in force, and say so; call it inside a transaction."""
        if not self.move(state, ended_at=timezone.now(), state_reason=why):
            return False
        for command in self.commands.filter(state__in=(Command.State.REQUESTED, Command.State.ACCEPTED)):
            command.refuse(f"the run has ended ({state})")
        self.record(state, reason=why, best=self.best.geomean if self.best else None)
        return True

    def record(self, kind: str, **data: Any) -> Event:
        """Append an event, numbered from 1 without gaps; call it inside the transaction whose fact it tells."""
        with transaction.atomic():
            Run.objects.filter(pk=self.pk).update(last_event=F("last_event") + 1, progress_at=timezone.now())
            self.last_event = Run.objects.values_list("last_event", flat=True).get(pk=self.pk)
            return Event.objects.create(run=self, number=self.last_event, kind=kind, data=data)


ENDED = (Run.State.DONE, Run.State.FAILED, Run.State.IMPORTED)


class Command(Stateful):
    """What a person asks of a run, and what became of it. One `key` is one command, however often it is sent."""

    class Kind(models.TextChoices):
        """What can be asked."""

        PAUSE = "pause"
        RESUME = "resume"
        STOP = "stop"
        RESTRUCTURE = "restructure"
        TOP_UP = "top_up"

    class State(models.TextChoices):
        """Asked, taken up by the supervisor, in force; or not."""

        REQUESTED = "requested"
        ACCEPTED = "accepted"
        EFFECTIVE = "effective"
        REFUSED = "refused"

    TRANSITIONS = table(requested="accepted effective refused", accepted="effective refused", effective="", refused="")

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="commands")
    key = models.CharField(max_length=80)
    kind = models.CharField(max_length=20, choices=Kind)
    actor = models.CharField(max_length=150)
    note = models.TextField(blank=True)
    payload = models.JSONField(default=dict)
    state = models.CharField(max_length=20, choices=State, default=State.REQUESTED)
    refused_because = models.TextField(blank=True)
    effective_at_event = models.PositiveBigIntegerField(null=True, blank=True)
    requested_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["pk"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "key"], name="one_command_a_key")]

    def refuse(self, why: str) -> bool:
        """Say that it will not be done, and why."""
        if not self.move(Command.State.REFUSED, refused_because=why):
            return False
        self.run.record("command_refused", command=self.pk, command_kind=self.kind, actor=self.actor, why=why)
        return True


class Event(models.Model):
    """One thing that happened in a run; never changed."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    number = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=40)
    data = models.JSONField(default=dict)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["run", "number"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "number"], name="one_event_a_number")]


class LedgerError(ValueError):
    """A booking would spend what is not there."""


class LedgerQuerySet(models.QuerySet["LedgerEntry"]):
    """Sums over bookings."""

    def total(self, unit: str, *kinds: str) -> float:
        """Sum of these kinds of bookings in this unit."""
        return float(self.filter(unit=unit, kind__in=kinds).aggregate(sum=Sum("amount"))["sum"] or 0)

    def available(self, unit: str) -> float:
        """What may still be reserved: granted and topped up, less reserved, plus refunded."""
        return self.total(unit, "grant", "top_up", "refund") - self.total(unit, "reserve")

    def outstanding(self, unit: str) -> float:
        """What is reserved and neither spent nor refunded."""
        return self.total(unit, "reserve") - self.total(unit, "spend", "refund")

    def spent(self, unit: str) -> float:
        """What is spent for good."""
        return self.total(unit, "spend")


class LedgerEntry(models.Model):
    """A booking. Money is reserved before it is spent; granted = available + outstanding + spent, always."""

    class Kind(models.TextChoices):
        """What a booking does."""

        GRANT = "grant"
        TOP_UP = "top_up"
        RESERVE = "reserve"
        SPEND = "spend"
        REFUND = "refund"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="ledger")
    kind = models.CharField(max_length=10, choices=Kind)
    unit = models.CharField(max_length=20)
    amount = models.FloatField()
    note = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField(auto_now_add=True)

    objects = LedgerQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["pk"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(amount__gt=0), name="a_booking_is_above_0"),
        ]


def book(run: Run, kind: str, unit: str, amount: float, note: str = "") -> LedgerEntry:
    """Append a booking; `LedgerError` if it would reserve more than is available or settle more than is reserved."""
    if not 0 < amount < float("inf"):
        raise LedgerError(f"an amount must be a positive number, not {amount}")
    with transaction.atomic():
        Run.objects.select_for_update().get(pk=run.pk)  # bookings of one run one after another
        limits = {"reserve": run.ledger.available, "spend": run.ledger.outstanding, "refund": run.ledger.outstanding}
        if kind in limits and amount > (limit := limits[kind](unit)) + 1e-9:
            raise LedgerError(f"cannot {kind} {amount:g} {unit} of run {run.pk}: there are {limit:g}")
        return LedgerEntry.objects.create(run=run, kind=kind, unit=unit, amount=amount, note=note)
