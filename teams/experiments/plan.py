"""The plan of an experiment: what is run how often, written down before it is run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fields import read_json
from kernels.task import BadInputError, task_names
from teams.devices import DEVICES
from teams.models import Run
from teams.supervisor import thresholds

MOST_SEEDS, MOST_CANDIDATES = 1000, 100_000
KEYS = ("name", "task", "device", "arms", "seeds", "candidates", "targets", "against", "why")


@dataclass(frozen=True)
class Arm:
    """One way of working: a strategy, and changes to the supervisor's thresholds."""

    name: str
    strategy: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """`targets` are geometric means whose cost in candidates is compared; `against` is the arm that the others are
    held against; `why` says what the experiment is to show."""

    name: str
    task: str
    device: str
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    candidates: int
    targets: tuple[float, ...]
    against: str
    why: str

    @property
    def cells(self) -> list[tuple[Arm, int]]:
        """All runs, arm by arm within a seed, so that all arms see the machine at its best and at its worst."""
        return [(arm, seed) for seed in self.seeds for arm in self.arms]


def read(path: Path) -> Plan:
    """A plan file; `BadInputError` names file and field."""
    data = read_json(path)
    try:
        return parse(data)
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from None


def parse(data: Any) -> Plan:
    """A plan from its JSON value; `BadInputError` names the field."""
    if not isinstance(data, dict):
        raise BadInputError("must be an object")
    for key in data:
        if key not in KEYS:
            raise BadInputError(f"no field {key!r}; there is {', '.join(KEYS)}")
    name = data.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,60}", name):
        raise BadInputError("name: must be small letters, digits and hyphens")
    arms = _arms(data.get("arms"))
    against = data.get("against", arms[0].name)
    if against not in [arm.name for arm in arms]:
        raise BadInputError(f"against: {against!r} is no arm")
    return Plan(
        name,
        _one_of(data, "task", task_names()),
        _one_of(data, "device", DEVICES),
        arms,
        tuple(_whole(data.get("seeds"), "seeds", MOST_SEEDS)),
        _candidates(data.get("candidates")),
        tuple(_targets(data.get("targets", []))),
        against,
        str(data.get("why", "")),
    )


def _one_of(data: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    value = data.get(key)
    if value not in allowed:
        raise BadInputError(f"{key}: {value!r} is not one of {', '.join(allowed)}")
    return str(value)


def _arms(data: Any) -> tuple[Arm, ...]:
    if not isinstance(data, dict) or not data:
        raise BadInputError("arms: must be an object of arms by name, one at least")
    arms = []
    for name, arm in data.items():
        if not isinstance(arm, dict) or set(arm) - {"strategy", "settings"}:
            raise BadInputError(f"arms.{name}: must be an object of strategy and settings")
        strategy, settings = arm.get("strategy"), arm.get("settings", {})
        if strategy not in Run.Strategy.values:
            allowed = ", ".join(Run.Strategy.values)
            raise BadInputError(f"arms.{name}.strategy: {strategy!r} is not one of {allowed}")
        if not isinstance(settings, dict):
            raise BadInputError(f"arms.{name}.settings: must be an object")
        try:
            thresholds.read(settings)
        except BadInputError as error:
            raise BadInputError(f"arms.{name}.settings: {error}") from None
        arms.append(Arm(name, strategy, settings))
    return tuple(arms)


def _whole(data: Any, key: str, most: int) -> list[int]:
    if not isinstance(data, list) or not 1 <= len(data) <= most:
        raise BadInputError(f"{key}: must be a list of 1 to {most} whole numbers")
    for i, value in enumerate(data):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
            raise BadInputError(f"{key}[{i}]: must be a whole number from 0, not {value!r}")
    if len(set(data)) != len(data):
        raise BadInputError(f"{key}: the same number twice")
    return list(data)


def _candidates(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CANDIDATES:
        raise BadInputError(f"candidates: must be a whole number from 1 to {MOST_CANDIDATES}, not {value!r}")
    return int(value)


def _targets(data: Any) -> list[float]:
    if not isinstance(data, list):
        raise BadInputError("targets: must be a list of numbers")
    for i, value in enumerate(data):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
            raise BadInputError(f"targets[{i}]: must be a number above 0, not {value!r}")
    return [float(value) for value in data]
