"""Agents without a model: seeded, they write candidates by moves of the task's space and learn from verdicts.

All of them share moves and judge; a posture decides which moves it considers and where it starts:

    engineer     structural moves, two or three at once while little is known
    tuner        numbers near the best
    debugger     a failed candidate with one of its changes taken back or made otherwise
    analyst      changes that help the batch size that gains least, by the rows
    scout        another structure altogether
    generalist   any move
    random       any design, drawn blindly (a control)
    climber      one move from the best, drawn blindly (a control)

What choices are worth is learnt from what the role sees of the verdicts (worth.py), and the next move drawn from what
that leaves open. The same seed and the same verdicts give the same moves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kernels.space import Choice, Design, Kind
from teams.agents.brief import Attempt, Brief, HandOver, Write
from teams.agents.worth import Observation, Option, Worth, log_ratio, risks

STOPPED, STOPPED_NOISE = -0.6, 0.3
"""What a candidate that was stopped early, being far slower, counts as (log speedup)."""
NOISE = 0.1
"""How far a verdict may be off what its choices are worth elsewhere (log speedup)."""
DRAWS = 40
"""Proposals drawn before a role finds that it has nothing new to try."""
FAILED = ("build_error", "failed", "cheated", "screened_out")
GOOD = 0.7
"""A failed candidate is worth repairing if its parent had this share of the best speed."""
FAR = 3
"""Choices in which a scout's start differs from the best."""


def write(brief: Brief) -> Write | HandOver:
    """The next candidate of a turn, or its end."""
    if brief.written >= brief.limit:
        return HandOver(f"wrote {brief.written} candidates")
    for parent, design in POSTURES[brief.posture](brief):
        if brief.is_known(design) or any(choices <= design.items() for choices in brief.avoid):
            continue
        assert parent.design is not None
        changes = brief.space.changes(parent.design, design)
        return Write(design, parent.number, "; ".join(changes)[:200] or "simplified")
    return HandOver(f"wrote {brief.written} candidates; nothing left to try as {brief.posture}")


def observations(brief: Brief, group: str | None = None) -> list[Observation]:
    """What the verdicts say of choices; by the speedup of one batch size if `group` is given."""
    by_number = {a.number: a for a in (brief.base, *brief.attempts)}
    found: list[Observation] = []
    for attempt in brief.attempts:
        parent = by_number.get(attempt.parent) if attempt.parent is not None else None
        if parent is None or attempt.design is None or parent.design is None or _score(parent, group) is None:
            continue
        change: dict[Option, float] = {}
        for key, choice in attempt.design.items():
            if parent.design[key] != choice:
                change[key, choice], change[key, parent.design[key]] = 1.0, -1.0
        if change and (seen := _observed(parent, attempt, group)) is not None:
            found.append(Observation(change, *seen))
    return found


def _observed(parent: Attempt, attempt: Attempt, group: str | None) -> tuple[float, float] | None:
    """Log speedup of an attempt over its parent and how far it may be off; None where it says nothing of speed."""
    before, after = _score(parent, group), _score(attempt, group)
    if attempt.status == "partial":
        return STOPPED, STOPPED_NOISE
    return (log_ratio(after, before), NOISE) if before and after else None


def _score(attempt: Attempt, group: str | None) -> float | None:
    return attempt.groups.get(group) if group else attempt.score


@dataclass(frozen=True)
class Insight:
    """What a role has learnt: worth and risk of choices, and the choices that it must not make."""

    worth: Worth
    risk: Mapping[Option, float]
    wrong: frozenset[Option]

    def daring(self, rng: random.Random) -> Callable[[Option], bool]:
        """Which choices to consider this time: the riskier one is, the more seldom."""
        refused = {option for option, risk in self.risk.items() if rng.random() < risk} | self.wrong
        return lambda option: option not in refused


def insight(brief: Brief, group: str | None = None) -> Insight:
    """Learn from what the brief shows."""
    by_number = {a.number: a for a in (brief.base, *brief.attempts)}
    tried = []
    for attempt in brief.attempts:
        parent = by_number.get(attempt.parent) if attempt.parent is not None else None
        if parent is not None and parent.design is not None and attempt.design is not None:
            new = frozenset((k, c) for k, c in attempt.design.items() if parent.design[k] != c)
            tried.append((new, attempt.status in FAILED))
    wrong = frozenset(option for choices in brief.avoid if len(choices) == 1 for option in choices)
    return Insight(Worth(observations(brief, group)), risks(tried), wrong)


def _moved(brief: Brief, start: Design, kind: Kind | None, moves: int, known: Insight) -> Design:
    """`start` with its most promising changes, one after another, each of another move, while they promise a gain."""
    worth, dares = known.worth.draw(brief.rng), known.daring(brief.rng)
    design, used = start, set[str]()
    for count in range(moves):
        options: list[tuple[float, str, Choice]] = [
            (worth((move.key, choice)) - worth((move.key, design[move.key])), move.key, choice)
            for move in brief.space.active(design)
            if kind in (None, move.kind) and move.key not in used
            for choice in move.choices
            if choice != design[move.key] and dares((move.key, choice))
        ]
        gain, key, choice = max(options, key=lambda option: option[0], default=(0.0, "", ""))
        if not key or (count > 0 and gain <= 0):
            break
        used.add(key)
        before, design = design, brief.space.changed(design, key, choice)
        design = _with_numbers(brief, before, design, worth, dares)
    return design


def _with_numbers(
    brief: Brief, before: Design, design: Design, worth: Callable[[Option], float], dares: Callable[[Option], bool]
) -> Design:
    """The numbers that a change brings with it (the width of vectors, the keys of a block), chosen with it."""
    known = {move.key for move in brief.space.active(before)}
    for move in brief.space.active(design):
        if move.kind == "number" and move.key not in known:
            options = [(worth((move.key, c)), i) for i, c in enumerate(move.choices) if dares((move.key, c))]
            if options:
                design = brief.space.changed(design, move.key, move.choices[max(options)[1]])
    return design


Proposals = Iterator[tuple[Attempt, Design]]


def _explore(kind: Kind | None, boldness: tuple[int, ...]) -> Callable[[Brief], Proposals]:
    """Moves of a kind from the base; `boldness` are the numbers of moves to choose from."""

    def propose(brief: Brief) -> Proposals:
        return _draw(brief, brief.base, kind, boldness, insight(brief))

    return propose


def _draw(brief: Brief, start: Attempt, kind: Kind | None, boldness: tuple[int, ...], known: Insight) -> Proposals:
    assert start.design is not None
    for _ in range(DRAWS):
        yield start, _moved(brief, start.design, kind, brief.rng.choice(boldness), known)


def _debug(brief: Brief) -> Proposals:
    """Failed candidates whose parent was good, newest first, with one change taken back or made otherwise."""
    by_number = {a.number: a for a in (brief.base, *brief.attempts)}
    best = max((a.score or 0 for a in brief.attempts), default=0)
    for attempt in sorted(brief.attempts, key=lambda a: -a.number):
        parent = by_number.get(attempt.parent) if attempt.parent is not None else None
        if attempt.status not in ("build_error", "failed") or attempt.design is None or parent is None:
            continue
        if parent.design is None or (parent.score or 0) < best * GOOD:
            continue
        yield from ((attempt, design) for design in _repairs(brief, parent.design, attempt.design))


def _repairs(brief: Brief, good: Design, bad: Design) -> Iterable[Design]:
    """The bad design with one of its changes undone, the most suspect first, then made in another way."""
    risk = insight(brief).risk
    changed = sorted((k for k in bad if bad[k] != good[k]), key=lambda k: -risk.get((k, bad[k]), 0.0))
    if len(changed) > 1:
        for key in changed:
            yield brief.space.changed(bad, key, good[key])
    for move in brief.space.active(bad):
        if move.key in changed:
            for choice in move.choices:
                yield brief.space.changed(bad, move.key, choice)


def _analyse(brief: Brief) -> Proposals:
    """First what others do better on the weakest batch size, then moves by what they brought there."""
    start, groups = brief.base.design, brief.base.groups
    assert start is not None
    weakest = min(groups, key=lambda g: groups[g]) if groups else None
    better = [a for a in brief.attempts if weakest and a.design and a.groups.get(weakest, 0) > groups[weakest] * 1.02]
    for attempt in sorted(better, key=lambda a: -a.groups[weakest or ""]):
        assert attempt.design is not None
        for key in (k for k in start if start[k] != attempt.design[k]):
            yield brief.base, brief.space.changed(start, key, attempt.design[key])
    yield from _draw(brief, brief.base, None, (1, 2), insight(brief, weakest))


def _scout(brief: Brief) -> Proposals:
    """Structural moves from another place: a right candidate unlike the best, the faster the likelier; or any moves
    from the start, if there is none."""
    best = brief.base.design
    assert best is not None
    far = [
        a for a in brief.attempts
        if a.score and a.design and sum(best[key] != choice for key, choice in a.design.items()) >= FAR
    ]  # fmt: skip
    if not far:
        yield from _draw(brief, brief.base, None, (4, 5), insight(brief))
        return
    known = insight(brief)
    for start in brief.rng.choices(far, [(a.score or 0) ** 2 for a in far], k=DRAWS):
        assert start.design is not None
        yield start, _moved(brief, start.design, None, brief.rng.choice((2, 3, 4)), known)


def _blindly(brief: Brief) -> Proposals:
    """Designs in which every move that means something is drawn anew."""
    start = min(brief.attempts, key=lambda a: a.number, default=brief.base)
    for _ in range(DRAWS):
        design = brief.space.start
        for move in brief.space.moves:
            if any(move.key == active.key for active in brief.space.active(design)):
                design = brief.space.changed(design, move.key, brief.rng.choice(move.choices))
        yield start if start.design is not None else brief.base, design


def _climb(brief: Brief) -> Proposals:
    """Neighbours of the best, in any order."""
    assert brief.base.design is not None
    neighbours = list(brief.space.neighbours(brief.base.design))
    brief.rng.shuffle(neighbours)
    yield from ((brief.base, design) for design in neighbours)


POSTURES: Mapping[str, Callable[[Brief], Proposals]] = {
    "engineer": _explore("structure", (3, 2, 2, 1)),
    "tuner": _explore("number", (2, 1, 1)),
    "debugger": _debug,
    "analyst": _analyse,
    "scout": _scout,
    "generalist": _explore(None, (3, 2, 1)),
    "random": _blindly,
    "climber": _climb,
}
