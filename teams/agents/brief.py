"""What an agent is told: its role, where it starts, and of the others' work as much as its role sees."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernels.space import Choice, Design, Space


@dataclass(frozen=True)
class Attempt:
    """A judged candidate as a role sees it. Hidden: `design` None at `scores`; `groups`, `message` at `summary`.

    `score` is the geometric mean on the smoke workloads (x the baseline), None unless all of them passed; `groups` the
    same by batch size. `status` is the report's.
    """

    number: int
    role: str
    status: str
    score: float | None
    parent: int | None = None
    design: Design | None = None
    groups: Mapping[str, float] = field(default_factory=dict)
    message: str = ""


@dataclass(frozen=True)
class Brief:
    """A turn's beginning. `base` is the attempt to start from; `avoid` holds the sets of choices that, together, a
    record says give wrong results."""

    role: str
    posture: str
    objective: str
    base: Attempt
    attempts: tuple[Attempt, ...]
    avoid: frozenset[frozenset[tuple[str, Choice]]]
    written: int
    limit: int
    space: Space
    is_known: Callable[[Design], bool]
    rng: random.Random


@dataclass(frozen=True)
class Write:
    """The next candidate: its design, the attempt it starts from, what it changes in a few words."""

    design: Design
    parent: int
    title: str


@dataclass(frozen=True)
class HandOver:
    """The end of a turn: what was done, what is left, in words."""

    summary: str


Agent = Callable[[Brief], Write | HandOver]
