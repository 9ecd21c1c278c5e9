"""What people set in motion: new runs, and commands to runs. Bad input is a `BadInputError` that names the field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from benchmarks import build
from kernels.task import BadInputError, load_task, task_names
from teams import budget
from teams.agents import AGENTS
from teams.devices import DEVICES, why_not
from teams.models import Command, Run
from teams.models.run import book
from teams.supervisor import thresholds

MOST_CANDIDATES, MOST_MINUTES = 100_000, 100_000
NOTE_CHARACTERS = 2000


def new_run(
    task: str,
    *,
    strategy: str = "evolving",
    agents: str = "builtin",
    device: str = "cpu",
    candidates: int | None = None,
    minutes: float | None = None,
    seed: int = 1,
    settings: Mapping[str, Any] | None = None,
    owner: str = "",
    label: str = "",
) -> Run:
    """A queued run with its budget granted: judged candidates, minutes of judging, or both; one of them at least.

    `settings` are changes to the supervisor's thresholds; `owner` a supervisor that keeps the run for itself.
    """
    for name, value, allowed in (
        ("task", task, task_names()),
        ("strategy", strategy, Run.Strategy.values),
        ("agents", agents, tuple(AGENTS)),
        ("device", device, DEVICES),
    ):
        if value not in allowed:
            raise BadInputError(f"{name}: {value!r} is not one of {', '.join(allowed)}")
    if why := why_not(device):
        raise BadInputError(f"device: {device} cannot be used: {why}")
    if not -(2**63) <= seed < 2**63:
        raise BadInputError(f"seed: must be a whole number of 64 bits, not {seed}")
    grants = _grants(candidates, minutes)
    changes = dict(settings or {})
    thresholds.read(changes)
    language, why = _language(task, device)
    with transaction.atomic():
        run = Run.objects.create(
            task=task, strategy=strategy, agents=agents, device=device, seed=seed, settings=changes,
            language=language, owner=owner, label=label,
        )  # fmt: skip
        for unit, amount in grants.items():
            book(run, "grant", unit, amount, "at the start")
        run.record("created", strategy=strategy, agents=agents, device=device, seed=seed, budget=grants)
        if why:
            run.record("language", language=language, why=why)
    return run


def _language(task: str, device: str) -> tuple[str, str]:
    """What agents without a model write on this device, and, where it is the second choice, why."""
    space = load_task(task).space
    if device == "cpu":
        found = ("c", "") if build.compiler() else ("pytorch", "there is no C compiler here, so agents write PyTorch")
    else:
        try:
            space("triton")
            found = "triton", ""
        except BadInputError:
            found = "pytorch", "the task has no moves in Triton, so agents write PyTorch"
    space(found[0])
    return found


def _grants(candidates: float | None, minutes: float | None) -> dict[str, float]:
    grants: dict[str, float] = {}
    if candidates is not None:
        grants[budget.CANDIDATES] = _amount("candidates", candidates, MOST_CANDIDATES)
    if minutes is not None:
        grants[budget.SECONDS] = 60 * _amount("minutes", minutes, MOST_MINUTES)
    if not grants:
        raise BadInputError("a run needs a budget: candidates, minutes, or both")
    return grants


def _amount(name: str, value: float, most: float) -> float:
    whole = name == "candidates"
    if isinstance(value, bool) or not math.isfinite(value) or not 0 < value <= most or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise BadInputError(f"{name}: must be {kind} above 0 and at most {most}, not {value}")
    return float(value)


def ask(
    run: Run, kind: str, key: str, *, actor: str, note: str = "", payload: Mapping[str, Any] | None = None
) -> Command:
    """Write down what somebody asks of a run. The same `key` again is the same command, and must ask the same."""
    if kind not in Command.Kind.values:
        raise BadInputError(f"command: {kind!r} is not one of {', '.join(Command.Kind.values)}")
    if not 0 < len(key) <= 80:
        raise BadInputError("key: must have 1 to 80 characters")
    if len(note) > NOTE_CHARACTERS:
        raise BadInputError(f"note: at most {NOTE_CHARACTERS} characters, not {len(note)}")
    content = _top_up(payload or {}) if kind == Command.Kind.TOP_UP else {}
    with transaction.atomic():
        command, created = Command.objects.get_or_create(
            run=run, key=key, defaults={"kind": kind, "actor": actor, "note": note, "payload": content}
        )
        if created:
            run.record("command_requested", command=command.pk, command_kind=kind, actor=actor, note=note)
            run.refresh_from_db()
            if run.has_ended:
                command.refuse(f"the run has ended ({run.state})")
    if (command.kind, command.payload) != (kind, content):
        raise BadInputError(f"key: {key!r} was used for another command ({command.kind})")
    return command


def _top_up(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Unit and amount of a top-up, from candidates or minutes."""
    given = {name: payload[name] for name in ("candidates", "minutes") if payload.get(name) is not None}
    if len(given) != 1:
        raise BadInputError("top_up: needs either candidates or minutes")
    ((name, value),) = given.items()
    if not isinstance(value, int | float):
        raise BadInputError(f"{name}: must be a number, not {value!r}")
    grants = _grants(value, None) if name == "candidates" else _grants(None, value)
    ((unit, amount),) = grants.items()
    return {"unit": unit, "amount": amount}
