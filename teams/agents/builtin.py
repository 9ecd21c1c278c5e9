"""Agents without a model: seeded, they write candidates by moves of the task's space and learn from verdicts.

All of them share moves and judge; a posture decides which moves it considers and where it starts:

    engineer     structural moves, two or three at once while little is known
    tuner        numbers near the best
    debugger     a failed candidate with one of its changes taken back or made otherwise
    analyst      changes that help the batch size that gains least, by the rows
    scout        another structure altogether
    generalist   any move

What a move is worth is estimated from what the role sees: each verdict is compared with that of its parent, and the
difference shared out among the moves between them. Choices are then drawn by Thompson sampling, so that what is
unknown is tried too. The same seed and the same verdicts give the same moves.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kernels.space import Choice, Design, Kind
from teams.agents.brief import Attempt, Brief, HandOver, Write

FAILURE = -0.7
"""What a failed candidate counts as, in log speedup: half the speed."""
PRIOR_MEAN, PRIOR_SPREAD = 0.05, 0.35
"""Log speedup expected of a choice that nobody has tried."""
NOISE = 0.15
"""Spread of one verdict's share of a choice, in log speedup; it shrinks with the root of the number of verdicts."""
DRAWS = 40
"""Proposals drawn before a role finds that it has nothing new to try."""

Option = tuple[str, Choice]


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


@dataclass(frozen=True)
class Estimate:
    """Mean and number of the verdicts that speak of a choice (log speedup)."""

    total: float = 0.0
    count: int = 0

    def draw(self, gauss: Callable[[float, float], float]) -> float:
        """A plausible worth of the choice."""
        weight = NOISE**2 / PRIOR_SPREAD**2
        mean = (self.total + weight * PRIOR_MEAN) / (self.count + weight)
        return gauss(mean, NOISE / math.sqrt(self.count + weight))


def estimates(brief: Brief, group: str | None = None) -> Mapping[Option, Estimate]:
    """What each choice has brought so far; by the speedup of one batch size if `group` is given."""
    by_number = {a.number: a for a in (brief.base, *brief.attempts)}
    found: dict[Option, Estimate] = defaultdict(Estimate)
    for attempt in brief.attempts:
        parent = by_number.get(attempt.parent) if attempt.parent is not None else None
        if parent is None or attempt.design is None or parent.design is None:
            continue
        changed = [(k, c) for k, c in attempt.design.items() if parent.design[k] != c]
        gain = _gain(parent, attempt, group)
        if gain is None or not changed:
            continue
        for key, choice in changed:
            _add(found, (key, choice), gain / len(changed))
            _add(found, (key, parent.design[key]), -max(gain, FAILURE / 2) / len(changed))
    return found


def _add(found: dict[Option, Estimate], option: Option, value: float) -> None:
    found[option] = Estimate(found[option].total + value, found[option].count + 1)


def _gain(parent: Attempt, attempt: Attempt, group: str | None) -> float | None:
    """Log speedup of an attempt over its parent; None where it says nothing."""
    before, after = _score(parent, group), _score(attempt, group)
    if attempt.status in ("build_error", "failed", "cheated", "screened_out"):
        return FAILURE
    if before is None:
        return None
    if after is None:  # stopped early, since it was far slower
        return FAILURE / 2
    return max(FAILURE, min(1.5, math.log(after / before)))


def _score(attempt: Attempt, group: str | None) -> float | None:
    return attempt.groups.get(group) if group else attempt.score


def _drawn(brief: Brief, start: Design, kind: Kind | None, moves: int, worth: Mapping[Option, Estimate]) -> Design:
    """`start` with the most promising choices, one after another, each of another move; promise is drawn anew."""
    design, used = start, set[str]()
    for _ in range(moves):
        options = [
            (move.key, choice)
            for move in brief.space.active(design)
            if kind in (None, move.kind) and move.key not in used
            for choice in move.choices
            if choice != design[move.key] and {(move.key, choice)} not in brief.avoid
        ]
        if not options:
            break
        key, choice = max(options, key=lambda o: worth.get(o, Estimate()).draw(brief.rng.gauss))
        used.add(key)
        design = brief.space.changed(design, key, choice)
    return design


Proposals = Iterator[tuple[Attempt, Design]]


def _explore(kind: Kind | None, boldness: tuple[int, ...]) -> Callable[[Brief], Proposals]:
    """Thompson sampling over moves of a kind, `boldness` the numbers of moves to choose from, boldest first."""

    def propose(brief: Brief) -> Proposals:
        worth, start = estimates(brief), brief.base.design
        assert start is not None
        for _ in range(DRAWS):
            yield brief.base, _drawn(brief, start, kind, brief.rng.choice(boldness), worth)

    return propose


def _debug(brief: Brief) -> Proposals:
    """Failed candidates whose parent was good, newest first, with one change taken back or made otherwise."""
    by_number = {a.number: a for a in (brief.base, *brief.attempts)}
    best = max((a.score or 0 for a in brief.attempts), default=0)
    for attempt in sorted(brief.attempts, key=lambda a: -a.number):
        parent = by_number.get(attempt.parent) if attempt.parent is not None else None
        if attempt.status not in ("build_error", "failed") or attempt.design is None or parent is None:
            continue
        if parent.design is None or (parent.score or 0) < best / 2:
            continue
        yield from ((attempt, design) for design in _repairs(brief, parent.design, attempt.design))


def _repairs(brief: Brief, good: Design, bad: Design) -> Iterable[Design]:
    """The bad design with one of its changes undone, the most suspect first, then made in another way."""
    worth = estimates(brief)
    changed = sorted((k for k in bad if bad[k] != good[k]), key=lambda k: worth.get((k, bad[k]), Estimate()).total)
    if len(changed) > 1:
        for key in changed:
            yield brief.space.changed(bad, key, good[key])
    for move in brief.space.active(bad):
        if move.key in changed:
            for choice in move.choices:
                yield brief.space.changed(bad, move.key, choice)


def _analyse(brief: Brief) -> Proposals:
    """First what others do better on the weakest batch size, then moves by what they brought there."""
    start = brief.base.design
    assert start is not None
    groups = brief.base.groups
    weakest = min(groups, key=lambda g: groups[g]) if groups else None
    better = [a for a in brief.attempts if weakest and a.design and a.groups.get(weakest, 0) > groups[weakest] * 1.02]
    for attempt in sorted(better, key=lambda a: -a.groups[weakest or ""]):
        assert attempt.design is not None
        for key in (k for k in start if start[k] != attempt.design[k]):
            yield brief.base, brief.space.changed(start, key, attempt.design[key])
    worth = estimates(brief, weakest)
    for _ in range(DRAWS):
        yield brief.base, _drawn(brief, start, None, brief.rng.choice((1, 2)), worth)


def _scout(brief: Brief) -> Proposals:
    """Half of the structure drawn at random, the rest and all numbers as in the base."""
    start = brief.base.design
    assert start is not None
    for _ in range(DRAWS):
        design = start
        for move in brief.space.moves:
            if move.kind == "structure" and brief.rng.random() < 0.5 and move in brief.space.active(design):
                design = brief.space.changed(design, move.key, brief.rng.choice(move.choices))
        yield brief.base, design


POSTURES: Mapping[str, Callable[[Brief], Proposals]] = {
    "engineer": _explore("structure", (3, 2, 2, 1)),
    "tuner": _explore("number", (2, 1, 1)),
    "debugger": _debug,
    "analyst": _analyse,
    "scout": _scout,
    "generalist": _explore(None, (3, 2, 1)),
}
