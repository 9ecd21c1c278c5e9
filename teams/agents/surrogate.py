"""A surrogate model of a task's designs: what it expects of one that was never judged, and how sure it is.

A Gaussian process on log speedups. Two designs are alike as far as they make the same choices, and the model has two
parts: what a choice is worth wherever it is made, and what choices are worth together, which fades as designs differ.
Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), algorithm 2.1; expected improvement as in Jones,
Schonlau and Welch, Efficient Global Optimization of Expensive Black-Box Functions (1998).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from kernels.space import Design, Space

ALONE = 0.09
"""Standard deviation of a choice's own worth (log speedup)."""
TOGETHER, UNLIKE = 0.55, 0.16
"""Standard deviation of what choices are worth together (log speedup), and how fast it fades per differing choice."""
NOISE = 0.05
"""Standard deviation of a verdict (log speedup)."""
MOST = 160
"""Verdicts that are looked at, the latest: the work grows with their square."""


@dataclass(frozen=True)
class Seen:
    """A design and its log speedup; `noise` is how far that may be off."""

    design: Design
    value: float
    noise: float = NOISE


class Surrogate:
    """What verdicts make one expect of the designs of a space."""

    def __init__(self, space: Space, seen: Sequence[Seen]) -> None:
        self._code = _Code(space)
        seen = seen[-MOST:]
        self._mean = sum(one.value for one in seen) / len(seen) if seen else 0.0
        self._seen = [self._code(one.design) for one in seen]
        self._inverse = _inverse(
            [
                [self._code.covariance(a, b) + (one.noise**2 if i == j else 0.0) for j, b in enumerate(self._seen)]
                for i, (a, one) in enumerate(zip(self._seen, seen, strict=True))
            ]
        )
        beyond = [one.value - self._mean for one in seen]
        self._weights = [sum(map(mul, row, beyond)) for row in self._inverse]

    def predict(self, design: Design) -> tuple[float, float]:
        """Mean and standard deviation of a design's log speedup."""
        code = self._code(design)
        like = [self._code.covariance(code, other) for other in self._seen]
        explained = sum(one * sum(map(mul, row, like)) for one, row in zip(like, self._inverse, strict=True))
        variance = self._code.covariance(code, code) - explained
        return self._mean + sum(map(mul, like, self._weights)), math.sqrt(max(variance, 1e-12))


def expected_improvement(mean: float, spread: float, best: float) -> float:
    """By how much a normal figure is expected to exceed `best`, where not exceeding it counts as 0."""
    z = (mean - best) / spread
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return (mean - best) * (1 + math.erf(z / math.sqrt(2))) / 2 + spread * density


class _Code:
    """Designs as bits, so that the bits in which two of them differ count the choices in which they do.

    Another choice of a structural move is a whole difference; of a number, as much of one as its place among that
    number's choices is moved.
    """

    def __init__(self, space: Space) -> None:
        self._unit = 2 * math.lcm(*(max(1, len(move.choices) - 1) for move in space.moves if move.kind == "number"))
        self._bits: dict[tuple[str, str | int], int] = {}
        at = 0
        for move in space.moves:
            for i, choice in enumerate(move.choices):
                if move.kind == "number":
                    bits = (1 << (i * self._unit // max(1, len(move.choices) - 1))) - 1
                    self._bits[move.key, choice] = bits << at
                else:
                    self._bits[move.key, choice] = ((1 << self._unit // 2) - 1) << (at + i * self._unit // 2)
            at += self._unit * len(move.choices)
        most = len(space.moves)
        self._covariances = [
            ALONE**2 * (most - apart / self._unit) + TOGETHER**2 * math.exp(-UNLIKE * apart / self._unit)
            for apart in range(most * self._unit + 1)
        ]

    def __call__(self, design: Design) -> int:
        return sum(map(self._bits.__getitem__, design.items()))

    def covariance(self, a: int, b: int) -> float:
        return self._covariances[(a ^ b).bit_count()]


def _inverse(matrix: list[list[float]]) -> list[list[float]]:
    """Of a symmetric positive definite matrix, by Gauss-Jordan elimination (which needs no pivots there)."""
    size = len(matrix)
    rows = [row + [float(i == j) for j in range(size)] for i, row in enumerate(matrix)]
    for i in range(size):
        pivot = rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(size):
            if j != i and (factor := rows[j][i]):
                rows[j] = [value - factor * p for value, p in zip(rows[j], pivot, strict=True)]
    return [row[size:] for row in rows]
