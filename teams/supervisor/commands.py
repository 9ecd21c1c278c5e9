"""Steps for what people ask: a command is accepted, and comes into force at the event that its row names."""

from __future__ import annotations

from collections.abc import Callable

from teams.models import Command, Report, Run
from teams.models.run import book
from teams.supervisor import restructure

State = Command.State


def apply_commands(run: Run) -> bool:
    """Take up what was requested, in order, and bring into force what can be by now."""
    changed = False
    for command in run.commands.filter(state__in=(State.REQUESTED, State.ACCEPTED)):
        with run.held():
            command.refresh_from_db()
            if command.state == State.REQUESTED:
                changed |= _take_up(run, command)
            if command.state == State.ACCEPTED:
                changed |= _finish(run, command)
    return changed


def _take_up(run: Run, command: Command) -> bool:
    if why := _refusal(run, command):
        return command.refuse(why)
    if not command.move(State.ACCEPTED):
        return False
    run.steered = True
    run.save(update_fields=["steered"])
    run.record("command_accepted", command=command.pk, command_kind=command.kind, actor=command.actor)
    return ACCEPT[command.kind](run, command)


def _refusal(run: Run, command: Command) -> str:
    """Why a command cannot be taken up in the run's state; empty if it can."""
    allowed = {
        "pause": ("running", "pausing", "paused"),
        "resume": ("pausing", "paused", "running"),
        "restructure": ("running", "pausing", "paused"),
    }.get(command.kind)
    if allowed and run.state not in allowed:
        return f"the run is {run.state}"
    if command.kind == "restructure" and run.team is None:
        return "the run has no team yet"
    return ""


def _pause(run: Run, _: Command) -> bool:
    return run.move(Run.State.PAUSING) if run.state == Run.State.RUNNING else True


def _resume(run: Run, _: Command) -> bool:
    return run.move(Run.State.RUNNING) if run.state in (Run.State.PAUSING, Run.State.PAUSED) else True


def _stop(run: Run, command: Command) -> bool:
    if run.state == Run.State.STOPPING:
        return True
    return run.move(Run.State.STOPPING, state_reason=f"stopped by {command.actor}")


def _nothing_yet(run: Run, command: Command) -> bool:
    return True


ACCEPT: dict[str, Callable[[Run, Command], bool]] = {
    "pause": _pause,
    "resume": _resume,
    "stop": _stop,
    "restructure": _nothing_yet,
    "top_up": _nothing_yet,
}


def _finish(run: Run, command: Command) -> bool:
    """Bring an accepted command into force if its time has come."""
    match command.kind:
        case "pause":
            return _finish_pause(run, command)
        case "restructure":
            return _finish_restructure(run, command)
        case "top_up":
            book(run, "top_up", command.payload["unit"], command.payload["amount"], f"by {command.actor}")
    return _effective(run, command)


def _finish_pause(run: Run, command: Command) -> bool:
    """Paused once the judge holds nothing of the run; from then on nothing new begins."""
    if run.state not in (Run.State.PAUSING, Run.State.PAUSED):
        return command.refuse(f"the run is {run.state} before the pause came into force")
    if run.reports.filter(state=Report.State.JUDGING).exists():
        return False
    if run.state == Run.State.PAUSING and not run.move(Run.State.PAUSED):
        return False
    return _effective(run, command)


def _finish_restructure(run: Run, command: Command) -> bool:
    """Once the open turns have ended, which they do as soon as what they have written is judged."""
    if run.state == Run.State.STOPPING:
        return command.refuse("the run stops before its turn has ended")
    if run.turns.filter(ended_at__isnull=True).exists():
        return False
    why = restructure.force(run, command)
    return command.refuse(why) if why else _effective(run, command)


def _effective(run: Run, command: Command) -> bool:
    event = run.record("command_effective", command=command.pk, command_kind=command.kind, actor=command.actor)
    return command.move(State.EFFECTIVE, effective_at_event=event.number)
