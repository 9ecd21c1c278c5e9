"""Diagnosis by rules: from signals to a cause, and from a cause to teams that might answer it.

A rule gives several answers, the plainest first. An answer that has helped in this run before comes earlier, one that
has not comes later; the first that makes a valid team, unlike the present one, is taken.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from teams.design import InvalidTeamError, TeamDesign, apply
from teams.models import Restructuring, Run, Signal
from teams.strategies import ROLES
from teams.supervisor.progress import Judged, Progress

Operations = list[dict[str, Any]]

CAUSES = {
    "stage_correct": "new_stage",
    "stage_faster": "new_stage",
    "stage_near_floor": "at_limit",
    "same_failure": "missing_capability",
    "retreat": "missing_capability",
    "missing_debugger": "missing_capability",
    "missing_analyst": "missing_capability",
    "group_worse": "missing_capability",
    "near_identical": "duplicate_work",
    "falling_gain": "local_optimum",
    "spend_since_gain": "budget",
    "no_gain": "local_optimum",
}
EXPLANATIONS = {
    "new_stage": "The work has entered another stage and asks for other roles.",
    "at_limit": "The kernel is near what the machine allows: only numbers are left to settle.",
    "missing_capability": "The team lacks somebody for what goes wrong now.",
    "duplicate_work": "Roles try the same things: they should start from different places, or see less of each other.",
    "local_optimum": "Changes near the best bring nothing any more: the search must move elsewhere.",
    "budget": "The budget goes where nothing is gained: fewer roles, those that gained most.",
    "asked": "A person asked for another team.",
    "random": "A control: another team at a random time, for no reason.",
}
SCORES = {"met": 1.0, "partly": 0.5, "missed": -0.5, "worse": -1.0}
CROWD = 4
"""Beyond this many roles, adding one takes out the one that has gained least."""


@dataclass(frozen=True)
class Answer:
    """A team that may be installed, how it comes about, and how many were looked at."""

    cause: str
    explanation: str
    operations: Operations
    design: TeamDesign
    considered: int


def diagnose(run: Run, progress: Progress, signals: Sequence[Signal], *, asked: bool = False) -> Answer | None:
    """The answer to these signals, in the order of `CAUSES`; None if no rule gives a valid new team."""
    assert run.team is not None
    present = run.team.design()
    kinds = [kind for kind in CAUSES if any(s.kind == kind for s in signals)]
    considered = 0
    for kind in kinds or (["no_gain"] if asked else []):
        cause = "asked" if asked and not kinds else CAUSES[kind]
        for operations in _by_merit(run, cause, RULES[kind](present, progress)):
            considered += 1
            try:
                design = apply(present, operations)
            except InvalidTeamError:
                continue
            return Answer(cause, EXPLANATIONS[cause], operations, design, considered)
    return None


def at_random(run: Run, progress: Progress, rng: random.Random) -> Answer | None:
    """Some team that some rule would give, for no reason: what change alone is worth."""
    assert run.team is not None
    present = run.team.design()
    answers = [operations for rule in RULES.values() for operations in rule(present, progress)]
    rng.shuffle(answers)
    for considered, operations in enumerate(answers, 1):
        try:
            return Answer("random", EXPLANATIONS["random"], operations, apply(present, operations), considered)
        except InvalidTeamError:
            continue
    return None


def _by_merit(run: Run, cause: str, answers: Sequence[Operations]) -> list[Operations]:
    """Answers by what their like has brought in this run; those that nobody tried keep their order."""
    past = run.restructurings.filter(cause=cause, state=Restructuring.State.MEASURED)
    outcomes: dict[str, list[float]] = {}
    for operations, outcome in past.values_list("operations", "outcome"):
        outcomes.setdefault(_likeness(operations), []).append(SCORES[outcome])

    def merit(operations: Operations) -> float:
        scores = outcomes.get(_likeness(operations), [])
        return sum(scores) / len(scores) if scores else 0.0

    return sorted(answers, key=lambda o: -merit(o))


def _likeness(operations: Sequence[Mapping[str, Any]]) -> str:
    """What operations do, without the numbers that differ each time."""
    names = [(o["op"], o.get("role", {}).get("key", "") or o.get("key", "")) for o in operations]
    return "; ".join(f"{op} {key}".strip() for op, key in names)


def _add(team: TeamDesign, progress: Progress, key: str, phase: int | None = None) -> Operations:
    """Seat a role of the library, beside the roles of a phase or after all; in a crowd the weakest makes room."""
    if key in team.seats:
        return []
    agent = next(iter(team.seats.values())).agent
    role = {**asdict(replace(ROLES[key], agent=agent)), "share": 0.0}
    operations: Operations = [{"op": "add_role", "role": role, "phase": phase}]
    seats = [*team.seats, key]
    if len(team.seats) >= CROWD and (weakest := least_useful(team, progress)) is not None:
        operations.append({"op": "remove_role", "key": weakest})
        seats.remove(weakest)
    share = 10_000 // len(seats) / 10_000  # rounded down: together they must not exceed 1
    return [*operations, {"op": "set_shares", "shares": dict.fromkeys(seats, share)}]


def least_useful(team: TeamDesign, progress: Progress) -> str | None:
    """The role with the smallest best claim over its parent since the team came; never a pinned or the only one."""
    free = [key for key, seat in team.seats.items() if not seat.pinned]
    if len(team.seats) < 2 or not free:
        return None
    scores = {j.number: j.score for j in progress.judged}

    def use(key: str) -> float:
        own = [j for j in progress.of_team if j.role == key]
        gains = [j.score / before for j in own if j.score and j.parent and (before := scores.get(j.parent))]
        return max(gains, default=1.0 if not own else 0.0)

    return min(free, key=use)


def _elsewhere(progress: Progress, best: Judged | None) -> int | None:
    """The best right candidate whose structure is least like the best's, if it is not hopeless."""
    if best is None or best.design is None:
        return None
    others = [
        j for j in progress.judged
        if j.score and j.design and j.number != best.number and best.score and j.score > best.score / 3
    ]  # fmt: skip
    design = best.design

    def distance(j: Judged) -> int:
        assert j.design is not None
        return sum(design[key] != choice for key, choice in j.design.items())

    far = [j for j in others if distance(j) >= 3]
    return max(far, key=lambda j: (j.score or 0, distance(j))).number if far else None


def _best(progress: Progress) -> Judged | None:
    return max((j for j in progress.judged if j.score and not j.refuted), key=lambda j: j.score or 0, default=None)


def _capability(key: str) -> Callable[[TeamDesign, Progress], list[Operations]]:
    def rule(team: TeamDesign, progress: Progress) -> list[Operations]:
        if key in team.seats:
            writers = [k for k in team.seats if k != key]
            return [
                [{"op": "set_phases", "phases": [[key], *([[k] for k in writers])]}],
                [{"op": "set_sees", "key": k, "sees": {"*": "full"}} for k in writers],
            ]
        return [_add(team, progress, key), _add(team, progress, key, 0)]

    return rule


def _new_stage(team: TeamDesign, progress: Progress) -> list[Operations]:
    """Once it is faster than the baseline, numbers and rows matter more than structure."""
    first = [k for k in ("tuner", "analyst") if k in team.seats]
    rest = [k for k in team.seats if k not in first]
    answers = [_add(team, progress, "analyst")] if "analyst" not in team.seats else []
    return [*answers, [{"op": "set_phases", "phases": [[k] for k in (*first, *rest)]}]]


def _at_limit(team: TeamDesign, progress: Progress) -> list[Operations]:
    if "tuner" not in team.seats:
        return [_add(team, progress, "tuner")]
    return [[{"op": "remove_role", "key": key} for key in team.seats if key != "tuner"]]


def _duplicates(team: TeamDesign, progress: Progress) -> list[Operations]:
    blind: Operations = [{"op": "set_sees", "key": key, "sees": {"*": "scores"}} for key in team.seats]
    weakest = least_useful(team, progress)
    fewer: list[Operations] = [[{"op": "remove_role", "key": weakest}]] if weakest else []
    return [_add(team, progress, "scout"), *fewer, blind]


def _local_optimum(team: TeamDesign, progress: Progress) -> list[Operations]:
    """Move elsewhere: repair what failed, scout, read the rows, or start again from another place."""
    window = progress.of_team[-8:]
    failing = sum(j.failed for j in window) >= len(window) / 2
    order = ("debugger", "scout", "analyst") if failing else ("scout", "analyst", "debugger")
    answers = [_add(team, progress, key) for key in order]
    other = _elsewhere(progress, _best(progress))
    if other is not None and team.base is None:
        answers.insert(1, [{"op": "set_base", "candidate": other}])
    if team.base is not None:
        answers.insert(0, [{"op": "set_base", "candidate": None}])
    if weakest := least_useful(team, progress):
        answers.append([{"op": "remove_role", "key": weakest}])
    backwards = [[k] for k in reversed(list(team.seats))]
    return [*answers, [{"op": "set_phases", "phases": backwards}]]


def _budget(team: TeamDesign, progress: Progress) -> list[Operations]:
    weakest = least_useful(team, progress)
    return [*([[{"op": "remove_role", "key": weakest}]] if weakest else []), *_local_optimum(team, progress)]


RULES: dict[str, Callable[[TeamDesign, Progress], list[Operations]]] = {
    "stage_correct": _new_stage,
    "stage_faster": _new_stage,
    "stage_near_floor": _at_limit,
    "same_failure": _capability("debugger"),
    "retreat": _capability("debugger"),
    "missing_debugger": _capability("debugger"),
    "missing_analyst": _capability("analyst"),
    "group_worse": _capability("analyst"),
    "near_identical": _duplicates,
    "falling_gain": _local_optimum,
    "spend_since_gain": _budget,
    "no_gain": _local_optimum,
}
