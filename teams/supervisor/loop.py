"""The loop that carries runs on: claims them, takes their steps, wakes when the judge answers or somebody asks.

Rows are the truth. Every step looks at rows, does one thing in one transaction and says whether it changed anything;
it may be killed at any line, and the next supervisor goes on from the rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from django.db import OperationalError, close_old_connections
from django.utils import timezone

from kernels.task import BadInputError
from teams import preparing, workspace
from teams.models import Run
from teams.models.run import LostRunError, Owner
from teams.supervisor import restructure, turns, verdicts
from teams.supervisor.commands import apply_commands
from teams.supervisor.judging import JudgeProcess
from teams.supervisor.signals import watch

log = logging.getLogger(__name__)
IDLE_SECONDS = 1.0
"""How long the loop sleeps when nobody wakes it: what a lost message may cost."""
RENEW = timedelta(seconds=5)
"""A lease is renewed when it is this old."""
MOST_DEATHS = 3
"""A judge that dies this often without an answer in between is not started again."""

Step = Callable[[Run], bool]
STEPS: tuple[Step, ...] = (
    turns.begin,
    turns.work,
    turns.withdraw,
    apply_commands,
    verdicts.verify_best,
    restructure.measure_outcomes,
    watch,
    restructure.restructure,
    restructure.shuffle,
    turns.start_turns,
    turns.stop_at_floor,
    turns.finish,
    turns.give_up,
)
"""In this order, over and over; `fold` and `submit`, which need the judge, come before and after them. Turns end in
`work` and begin in `start_turns`: what changes the team stands between them."""


class Supervisor:
    """One per process: its runs, its judges, and the thread that carries them on."""

    def __init__(self, make_judge: Callable[[str, str, Callable[[], None]], JudgeProcess] = JudgeProcess) -> None:
        self.owner = Owner.here()
        self._make_judge = make_judge
        self.judges: dict[tuple[str, str], JudgeProcess] = {}
        self._deaths: dict[tuple[str, str], int] = {}
        self._last_words = ""
        self._settled: dict[int, int] = {}
        self._awake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to carry runs on, in a thread of its own; does nothing the second time."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="supervisor", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """There may be something to do."""
        self._awake.set()

    def stop(self) -> None:
        """End the loop and the judges; what was in hand is queued again by whoever goes on."""
        self._stopping.set()
        self.wake()
        if self._thread is not None:
            self._thread.join(10)
        for judge in self.judges.values():
            judge.close()
        Run.objects.filter(owner=str(self.owner)).update(owner="", lease_until=None)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._awake.clear()
            try:
                close_old_connections()
                worked = self.advance_all()
            except OperationalError:
                log.exception("the database is away; trying again")
                time.sleep(IDLE_SECONDS)
                continue
            if not worked:
                self._awake.wait(IDLE_SECONDS)

    def advance_all(self) -> bool:
        """One pass over all runs that are ours or nobody's; did anything change?"""
        changed = False
        for run in Run.objects.claimable(str(self.owner), timezone.now()).order_by("pk"):
            if self._stopping.is_set():
                break
            try:
                changed |= self.advance(run)
            except LostRunError as error:
                log.warning("%s", error)
        return changed

    def advance(self, run: Run) -> bool:
        """Claim or keep a run and take each step once."""
        if not self._claim(run):
            return False
        judge = self._judge_for(run)
        try:
            changed = verdicts.fold(run, judge)
            if changed and judge is not None:
                self._deaths.pop((run.task, run.device), None)
            changed |= self._take_steps(run)
            if judge is not None:
                changed |= verdicts.submit(run, judge)
        except BadInputError as error:
            return self._fail(run, str(error))
        if changed:
            workspace.write_from_rows(run)
        return changed

    def _take_steps(self, run: Run) -> bool:
        """Every step once; none if the last time changed nothing and no event has come since."""
        if self._settled.get(run.pk) == run.last_event:
            return False
        changed = False
        for step in STEPS:
            changed |= step(run)
        if not changed:
            self._settled[run.pk] = run.last_event
        return changed

    def _claim(self, run: Run) -> bool:
        mine = run.owner == str(self.owner)
        if mine and run.heartbeat_at is not None and timezone.now() - run.heartbeat_at < RENEW:
            return True
        if not run.claim(str(self.owner)):
            return False
        if not mine:
            verdicts.reclaim(run)
            workspace.write_from_rows(run)
        return True

    def _judge_for(self, run: Run) -> JudgeProcess | None:
        """The judge of the run's task and device, started when there is something to judge and it can be."""
        key = (run.task, run.device)
        judge = self.judges.get(key)
        if judge is not None and not judge.alive:
            self._deaths[key] = self._deaths.get(key, 0) + 1
            self._last_words = _last_line(judge.log_file)
            log.warning("the judge of %s on %s has died; see %s", *key, judge.log_file)
            del self.judges[key]
            judge = None
        if judge is None and run.reports.waiting().exists() and preparing.state() is None:
            if self._deaths.get(key, 0) >= MOST_DEATHS:
                self._fail(run, f"the judge does not run: {self._last_words}")
                return None
            judge = self.judges[key] = self._make_judge(run.task, run.device, self.wake)
        return judge

    def _fail(self, run: Run, why: str) -> bool:
        log.error("%s fails: %s", run, why)
        with run.held():
            return run.end(Run.State.FAILED, why)


def _last_line(file: Path) -> str:
    lines = file.read_text(errors="replace").split("\n") if file.is_file() else []
    return next((line for line in reversed(lines) if line.strip()), f"no word in {file}")
