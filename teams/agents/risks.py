"""Which choices make candidates fail, learnt from verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.space import Choice

Option = tuple[str, Choice]
PRIOR_RISK = 0.1
"""Probability that a choice of which nothing is known makes a candidate fail."""
ROUNDS = 8
"""Of expectation-maximisation; more change nothing that matters."""


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
