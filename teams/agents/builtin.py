"""Agents without a model: seeded, they write candidates by moves of the task's space and learn from verdicts.

All of them share moves and judge; a posture decides which moves it considers and where it starts:

    engineer     structural moves, two or three at once
    tuner        numbers near the best and near its rivals
    debugger     a failed candidate with one of its changes taken back or made otherwise
    analyst      changes that help the batch size that gains least, by the rows
    scout        another structure altogether
    generalist   any move
    random       any design, drawn blindly (a control)
    climber      one move from the best, drawn blindly (a control)

What a design may bring is learnt from what the role sees of the verdicts (surrogate.py, risks.py): of many designs that
its moves lead to, a role writes the one that promises most. The same seed and the same verdicts give the same moves.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernels.space import Design, Kind, Move, Space
from teams.agents.brief import Attempt, Brief, HandOver, Write
from teams.agents.risks import PRIOR_RISK, Option, risks
from teams.agents.surrogate import Seen, Surrogate, expected_improvement

STOPPED, STOPPED_NOISE = -0.6, 0.3
"""What a candidate that was stopped early, being far slower, counts as beside its parent (log speedup)."""
DRAWS = 500
"""Designs drawn, of which the most promising is written."""
FAILED = ("build_error", "failed", "cheated", "screened_out")
GOOD = 0.7
"""A failed candidate is worth repairing if its parent had this share of the best speed."""
NEAR, RIVALS = 0.6, 4
"""A tuner looks at as many others, besides its base, that have this share of its speed."""
FAR = 3
"""Structural choices in which what a scout writes differs from the best."""


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


def seen(brief: Brief, group: str | None = None) -> list[Seen]:
    """What the verdicts say of designs; by the speedup of one batch size if `group` is given."""
    by_number = {a.number: a for a in (brief.base, *brief.attempts)}
    found: list[Seen] = []
    for attempt in by_number.values():
        if attempt.design is None:
            continue
        if score := _score(attempt, group):
            found.append(Seen(attempt.design, math.log(score)))
            continue
        parent = by_number.get(attempt.parent or 0)
        if attempt.status == "partial" and parent and (before := _score(parent, group)):
            found.append(Seen(attempt.design, math.log(before) + STOPPED, STOPPED_NOISE))
    return found


def _score(attempt: Attempt, group: str | None) -> float | None:
    return attempt.groups.get(group) if group else attempt.score


@dataclass(frozen=True)
class Insight:
    """What a role has learnt: a model of speed, the best so far (log speedup), and risks of choices."""

    model: Surrogate
    best: float
    risk: Mapping[Option, float]

    def promise(self, start: Design, design: Design) -> float:
        """Expected improvement on the best, times the chance that what came in since `start` makes nothing fail."""
        mean, spread = self.model.predict(design)
        runs = math.prod(1 - self.risk.get((k, c), PRIOR_RISK) for k, c in design.items() if start[k] != c)
        return expected_improvement(mean, spread, self.best) * runs


def insight(brief: Brief, group: str | None = None) -> Insight:
    """Learn from what the brief shows."""
    by_number = {a.number: a for a in (brief.base, *brief.attempts)}
    tried = []
    for attempt in brief.attempts:
        parent = by_number.get(attempt.parent) if attempt.parent is not None else None
        if parent is not None and parent.design is not None and attempt.design is not None:
            new = frozenset((k, c) for k, c in attempt.design.items() if parent.design[k] != c)
            tried.append((new, attempt.status in FAILED))
    found = seen(brief, group)
    best = max((one.value for one in found), default=0.0)
    return Insight(Surrogate(brief.space, found), best, risks(tried))


Proposals = Iterator[tuple[Attempt, Design]]


def _ranked(
    brief: Brief, starts: Sequence[Attempt], kind: Kind | None, boldness: tuple[int, ...], known: Insight
) -> Proposals:
    """Designs that some moves of a kind lead to from the starts, the most promising first."""
    drawn: dict[Design, tuple[float, Attempt]] = {}
    for _ in range(DRAWS):
        start = brief.rng.choice(starts)
        assert start.design is not None
        design = _moved(brief.space, start.design, kind, brief.rng.choice(boldness), brief.rng)
        if design not in drawn and not brief.is_known(design):
            drawn[design] = known.promise(start.design, design), start
    for design in sorted(drawn, key=lambda one: -drawn[one][0]):
        yield drawn[design][1], design


def _moved(space: Space, start: Design, kind: Kind | None, moves: int, rng: random.Random) -> Design:
    """`start` after some random changes, each of another move."""
    design, used = start, set[str]()
    for _ in range(moves):
        here = space.active(design)
        options = [
            move for move in here
            if kind in (None, move.kind) and move.key not in used and len(move.choices) > 1
        ]  # fmt: skip
        if not options:
            break
        move = rng.choice(options)
        used.add(move.key)
        choice = rng.choice([choice for choice in move.choices if choice != design[move.key]])
        design = _with_numbers(space, here, space.changed(design, move.key, choice), rng)
    return design


def _with_numbers(space: Space, before: Sequence[Move], design: Design, rng: random.Random) -> Design:
    """The numbers that a change brings with it (the width of vectors, the keys of a block), drawn with it."""
    for move in space.active(design):
        if move.kind == "number" and move not in before:
            design = space.changed(design, move.key, rng.choice(move.choices))
    return design


def _explore(kind: Kind | None, boldness: tuple[int, ...]) -> Callable[[Brief], Proposals]:
    """Moves of a kind from the base; `boldness` are the numbers of moves to choose from."""

    def propose(brief: Brief) -> Proposals:
        return _ranked(brief, [brief.base], kind, boldness, insight(brief))

    return propose


def _tune(brief: Brief) -> Proposals:
    """Numbers, from the base and from the fastest others that come near it."""
    rivals = sorted(
        (a for a in brief.attempts if a.design and (a.score or 0) > NEAR * (brief.base.score or 0) and a != brief.base),
        key=lambda a: -(a.score or 0),
    )
    return _ranked(brief, [brief.base, *rivals[:RIVALS]], "number", (2, 1, 1), insight(brief))


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
    yield from _ranked(brief, [brief.base], None, (1, 2), insight(brief, weakest))


def _scout(brief: Brief) -> Proposals:
    """Any moves from right candidates to where the structure is unlike the best one's."""
    best = brief.base.design
    assert best is not None
    starts = [a for a in brief.attempts if a.score and a.design] or [brief.base]
    structure = [move.key for move in brief.space.moves if move.kind == "structure"]
    for start, design in _ranked(brief, starts, None, (2, 3, 4), insight(brief)):
        if sum(best[key] != design[key] for key in structure) >= FAR:
            yield start, design


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
    "tuner": _tune,
    "debugger": _debug,
    "analyst": _analyse,
    "scout": _scout,
    "generalist": _explore(None, (3, 2, 1)),
    "random": _blindly,
    "climber": _climb,
}
