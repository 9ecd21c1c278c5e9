"""The one scorer: every geometric mean, interval, count and comparison of the project comes from here.

A speedup is baseline time / candidate time. A row's speedup is the median over rounds of the ratio within a round,
since the two were timed side by side there. All intervals are 95 % bootstrap percentiles, seeded: the same figures
give the same interval.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

RESAMPLES = 1000
SEED = 20261101
NOISE_BAND = 0.01
"""Differences of 1 % or less are ties whatever their interval says (A/A on a loaded CPU stays within it)."""

Interval = tuple[float, float]


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean of logs; `ValueError` for no values or for one that is not a positive number."""
    if not values:
        raise ValueError("a geometric mean needs at least one value")
    if not all(math.isfinite(v) and v > 0 for v in values):
        raise ValueError("a geometric mean needs positive, finite values")
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def ratios(baseline_us: Sequence[float], candidate_us: Sequence[float]) -> list[float]:
    """Speedup of each round."""
    return [b / c for b, c in zip(baseline_us, candidate_us, strict=True)]


def row_interval(rounds: Sequence[float]) -> Interval | None:
    """Interval of a row's median over rounds; None for one round, which tells nothing of its noise."""
    if len(rounds) < 2:
        return None
    rng = random.Random(SEED)
    return _percentiles([median(rng.choices(rounds, k=len(rounds))) for _ in range(RESAMPLES)])


def mean_interval(rows: Sequence[Sequence[float]]) -> Interval | None:
    """Interval of the geometric mean over rows, resampling the workloads and, within each, its rounds."""
    if not rows:
        return None
    rng = random.Random(SEED)
    pools = [_medians_of_logs(rounds, rng) for rounds in rows]
    means = []
    for _ in range(RESAMPLES):
        drawn = rng.choices(pools, k=len(pools))
        means.append(math.exp(math.fsum(rng.choice(pool) for pool in drawn) / len(drawn)))
    return _percentiles(means)


def _medians_of_logs(rounds: Sequence[float], rng: random.Random, draws: int = 64) -> list[float]:
    if len(rounds) < 2:
        return [math.log(rounds[0])]
    return [math.log(median(rng.choices(rounds, k=len(rounds)))) for _ in range(draws)]


def _percentiles(values: list[float]) -> Interval:
    ordered = sorted(values)
    return ordered[int(0.025 * len(ordered))], ordered[math.ceil(0.975 * len(ordered)) - 1]


@dataclass(frozen=True)
class Summary:
    """A scope's figures over all rows of a report."""

    geomean: float
    interval_95: Interval | None
    wins: int
    worst: tuple[str, float]


def summarise(rows: Mapping[str, Sequence[float]]) -> Summary:
    """Figures over every workload's rounds; only for a candidate whose workloads all passed."""
    speedups = {workload: median(rounds) for workload, rounds in rows.items()}
    worst = min(speedups.items(), key=lambda item: item[1])
    return Summary(
        geometric_mean(list(speedups.values())),
        mean_interval(list(rows.values())),
        wins(list(speedups.values())),
        worst,
    )


def wins(speedups: Sequence[float]) -> int:
    """How many are faster than the baseline."""
    return sum(s > 1 for s in speedups)


def fast_p(speedups: Sequence[float | None], p: float) -> float:
    """Share of all workloads that are right and strictly more than p times faster; None is one that is not right."""
    if not speedups:
        raise ValueError("fast_p needs at least one workload")
    return sum(s is not None and s > p for s in speedups) / len(speedups)


@dataclass(frozen=True)
class Comparison:
    """Two candidates on the workloads that both have; a ratio above 1 says that the first is faster."""

    ratio: float
    interval_95: Interval | None
    rows: Mapping[str, float]
    faster: tuple[str, ...]
    slower: tuple[str, ...]
    ties: tuple[str, ...]
    dropped: tuple[str, ...]

    @property
    def is_tie(self) -> bool:
        """No difference that can be told from noise."""
        return _tied(self.ratio, self.interval_95, NOISE_BAND)


def compare(
    first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]], band: float = NOISE_BAND
) -> Comparison:
    """Paired comparison of two sets of speedups by workload and round; `ValueError` if they share no workload."""
    common = [w for w in first if w in second]
    if not common:
        raise ValueError("nothing to compare: no workload is in both")
    rows = {w: median(first[w]) / median(second[w]) for w in common}
    verdicts = {w: _verdict(rows[w], first[w], second[w], band) for w in common}
    chosen = {word: tuple(w for w in common if verdicts[w] == word) for word in ("faster", "slower", "tie")}
    dropped = tuple(w for w in (*first, *second) if (w in first) != (w in second))
    return Comparison(
        geometric_mean(list(rows.values())),
        _paired_interval(first, second, common),
        rows,
        chosen["faster"],
        chosen["slower"],
        chosen["tie"],
        dropped,
    )


def _verdict(ratio: float, first: Sequence[float], second: Sequence[float], band: float) -> str:
    rng = random.Random(SEED)
    interval = None
    if len(first) > 1 and len(second) > 1:
        draws = [
            median(rng.choices(first, k=len(first))) / median(rng.choices(second, k=len(second)))
            for _ in range(RESAMPLES // 4)
        ]
        interval = _percentiles(draws)
    if _tied(ratio, interval, band):
        return "tie"
    return "faster" if ratio > 1 else "slower"


def _tied(ratio: float, interval: Interval | None, band: float) -> bool:
    inside = abs(math.log(ratio)) <= math.log1p(band)
    return inside or (interval is not None and interval[0] <= 1 <= interval[1])


def _paired_interval(
    first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]], common: Sequence[str]
) -> Interval:
    rng = random.Random(SEED)
    pools = [(_medians_of_logs(first[w], rng), _medians_of_logs(second[w], rng)) for w in common]
    means = []
    for _ in range(RESAMPLES):
        drawn = rng.choices(pools, k=len(pools))
        means.append(math.exp(math.fsum(rng.choice(a) - rng.choice(b) for a, b in drawn) / len(drawn)))
    return _percentiles(means)


def median_interval(values: Sequence[float]) -> Interval | None:
    """Interval of a median; None for fewer than two values."""
    return row_interval(values)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile; `ValueError` for no values."""
    if not values:
        raise ValueError("quartiles need at least one value")
    if len(values) == 1:
        return values[0], values[0], values[0]
    first, middle, third = quantiles(values, n=4, method="inclusive")
    return first, middle, third


LEAST_SPEEDUP = 0.01
"""What a search that has found nothing yet counts as, in areas."""


def area(best: Sequence[float]) -> float:
    """Mean logarithm of the best speedup after each step: of two searches with one end, the sooner one has more."""
    if not best:
        raise ValueError("an area needs at least one step")
    return math.fsum(math.log(max(b, LEAST_SPEEDUP)) for b in best) / len(best)


def ratio_of_medians(first: Sequence[float], second: Sequence[float]) -> dict[str, Any] | None:
    """median(first) / median(second), whose values belong together in pairs, with its interval; None for no pairs."""
    if not first:
        return None
    rng, draws = random.Random(SEED), []
    for _ in range(RESAMPLES):
        drawn = rng.choices(range(len(first)), k=len(first))
        draws.append(median(first[i] for i in drawn) / median(second[i] for i in drawn))
    return {"value": median(first) / median(second), "interval_95": list(_percentiles(draws))}


def mean_difference(differences: Sequence[float]) -> dict[str, Any] | None:
    """Mean of differences within pairs, with its interval; None for no pairs."""
    if not differences:
        return None
    rng, count = random.Random(SEED), len(differences)
    draws = [math.fsum(rng.choices(differences, k=count)) / count for _ in range(RESAMPLES)]
    return {"value": math.fsum(differences) / count, "interval_95": list(_percentiles(draws))}
