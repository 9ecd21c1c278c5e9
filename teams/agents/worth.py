"""What choices are worth, learnt from verdicts: a linear model of log speedups, and draws from what it leaves open.

A verdict says how a candidate compares with its parent, hence something of the sum of what their differing choices are
worth. The posterior of all choices together (normal, by sequential updates) knows that two choices which always came
together may owe their gain to either; a draw from it (Thompson sampling) tries what may be good and is not yet known.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernels.space import Choice

Option = tuple[str, Choice]
PRIOR_MEAN, PRIOR_SPREAD = 0.0, 0.35
"""Log speedup of a choice of which nothing is known."""
PRIOR_RISK = 0.1
"""Probability that a choice of which nothing is known makes a candidate fail."""
ROUNDS = 8
"""Of expectation-maximisation; more change nothing that matters."""
MOST = 200
"""Verdicts that are looked at, the latest."""


@dataclass(frozen=True)
class Observation:
    """A log speedup, the choices that came in (+1) and went out (-1), and how far one verdict may be off."""

    change: Mapping[Option, float]
    value: float
    noise: float


class Worth:
    """The posterior after some observations; `draw` gives a plausible worth of every choice."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        seen = observations[-MOST:]
        self._index = {option: i for i, option in enumerate(dict.fromkeys(o for one in seen for o in one.change))}
        self._seen = [([(self._index[o], sign) for o, sign in one.change.items()], one) for one in seen]
        self._gains = list(self._update())

    def _update(self) -> Iterable[Sequence[float]]:
        """The gain of each observation in turn; gains do not depend on the values, so draws can share them."""
        size = len(self._index)
        covariance = [[PRIOR_SPREAD**2 if i == j else 0.0 for j in range(size)] for i in range(size)]
        for change, one in self._seen:
            toward = [sum(row[i] * sign for i, sign in change) for row in covariance]
            spread = sum(toward[i] * sign for i, sign in change) + one.noise**2
            gain = [t / spread for t in toward]
            for row, g in zip(covariance, gain, strict=True):
                if g:
                    row[:] = [c - g * t for c, t in zip(row, toward, strict=True)]
            yield gain

    def draw(self, rng: random.Random) -> Callable[[Option], float]:
        """A draw from the posterior: a draw from the prior, carried through observations with drawn noise."""
        values = [rng.gauss(PRIOR_MEAN, PRIOR_SPREAD) for _ in self._index]
        for (change, one), gain in zip(self._seen, self._gains, strict=True):
            predicted = sum(values[i] * sign for i, sign in change)
            surprise = rng.gauss(one.value, one.noise) - predicted
            values = [v + g * surprise for v, g in zip(values, gain, strict=True)]
        others: dict[Option, float] = {}

        def worth(option: Option) -> float:
            if option in self._index:
                return values[self._index[option]]
            return others.setdefault(option, rng.gauss(PRIOR_MEAN, PRIOR_SPREAD))

        return worth

    def mean(self, option: Option) -> float:
        """The expected worth of a choice."""
        if option not in self._index:
            return PRIOR_MEAN
        values = [PRIOR_MEAN] * len(self._index)
        for (change, one), gain in zip(self._seen, self._gains, strict=True):
            surprise = one.value - sum(values[i] * sign for i, sign in change)
            values = [v + g * surprise for v, g in zip(values, gain, strict=True)]
        return values[self._index[option]]


def risks(tried: Sequence[tuple[frozenset[Option], bool]]) -> dict[Option, float]:
    """Probability that a choice makes a candidate fail, from what came in with each and whether it failed.

    A failure has one culprit, by turns the more probable one the likelier its others show (expectation-maximisation):
    what has been in a candidate that ran is hardly suspect.
    """
    passed: dict[Option, int] = {}
    for options, failed in tried:
        for option in options:
            passed[option] = passed.get(option, 0) + (not failed)
    risk = dict.fromkeys(passed, PRIOR_RISK)
    for _ in range(ROUNDS):
        blame = dict.fromkeys(passed, 0.0)
        for options, failed in tried:
            whole = sum(risk[option] for option in options)
            for option in options if failed else ():
                blame[option] += risk[option] / whole
        risk = {o: (blame[o] + PRIOR_RISK) / (blame[o] + passed[o] + 1) for o in passed}
    return risk


def log_ratio(after: float, before: float) -> float:
    """Log speedup, within what one step may plausibly bring."""
    return max(-1.5, min(1.5, math.log(after / before)))
