"""The surrogate model: certain where it has seen, unsure elsewhere, and right about what it can know."""

import itertools
import math

import pytest

from kernels.space import Choice, Move, Space
from teams.agents.surrogate import Seen, Surrogate, expected_improvement

SPACE = Space(
    "c",
    [
        Move("a", "first", "structure", ("x", "y", "z"), "x"),
        Move("b", "second", "structure", ("x", "y"), "x"),
        Move("n", "number", "number", (1, 2, 4, 8), 1),
        Move("m", "other number", "number", (1, 2, 3), 1),
    ],
    lambda design: {},
)


def designs():
    keys = [move.key for move in SPACE.moves]
    return [SPACE.design(dict(zip(keys, choices, strict=True))) for choices in itertools.product(*_choices())]


def _choices():
    return [move.choices for move in SPACE.moves]


def test_without_verdicts_every_design_is_as_good_and_as_unsure():
    model = Surrogate(SPACE, [])
    assert len({model.predict(design) for design in designs()}) == 1
    assert model.predict(SPACE.start)[1] > 0.5


def test_it_is_sure_of_what_it_has_seen_and_less_sure_the_less_alike_a_design_is():
    model = Surrogate(SPACE, [Seen(SPACE.start, 0.4), Seen(SPACE.design({"b": "y", "n": 8}), 0.0)])
    mean, spread = model.predict(SPACE.start)
    assert mean == pytest.approx(0.4, abs=0.02)
    assert spread < 0.06
    changes: list[dict[str, Choice]] = [{}, {"m": 2}, {"m": 3}, {"m": 3, "a": "z", "n": 4}]
    spreads = [model.predict(SPACE.design(choices))[1] for choices in changes]
    assert spreads == sorted(spreads)
    assert len(set(spreads)) == 4


def test_a_structural_choice_is_as_far_from_every_other_and_numbers_lie_in_order():
    model = Surrogate(SPACE, [Seen(SPACE.start, 1.0), Seen(SPACE.design({"a": "y", "n": 8, "m": 3}), 0.0)])
    assert model.predict(SPACE.design({"a": "z"}))[1] == pytest.approx(model.predict(SPACE.design({"b": "y"}))[1], 0.1)
    means = [model.predict(SPACE.design({"n": n}))[0] for n in (1, 2, 4, 8)]
    assert means == sorted(means, reverse=True)


def test_it_agrees_with_the_normal_distribution_conditioned_by_hand():
    """Two verdicts and a design between: the conditional mean of three jointly normal figures."""
    one, two, asked = SPACE.start, SPACE.design({"a": "y"}), SPACE.design({"n": 8})
    k = {apart: 0.09**2 * (4 - apart) + 0.55**2 * math.exp(-0.16 * apart) for apart in (0, 1, 2)}
    v = k[0] + 0.05**2
    det = v * v - k[1] ** 2
    weights = [(v * 0.1 + k[1] * 0.1) / det, (-k[1] * 0.1 - v * 0.1) / det]  # values 0.5 and 0.3, mean 0.4
    mean, spread = Surrogate(SPACE, [Seen(one, 0.5), Seen(two, 0.3)]).predict(asked)
    assert mean == pytest.approx(0.4 + k[1] * weights[0] + k[2] * weights[1])
    explained = (k[1] * (v * k[1] - k[1] * k[2]) + k[2] * (v * k[2] - k[1] * k[1])) / det
    assert spread == pytest.approx(math.sqrt(k[0] - explained))


def test_it_learns_which_choice_pays_from_designs_that_mix_choices():
    def speed(design):
        return 0.5 * (design["a"] == "y") + 0.1 * math.log2(design["n"]) - 0.3 * (design["b"] == "y")

    every = designs()
    model = Surrogate(SPACE, [Seen(design, speed(design)) for design in every[::3]])
    told = [(model.predict(design)[0], speed(design)) for design in every]
    assert max(abs(a - b) for a, b in told) < 0.25
    best = max(every, key=lambda design: model.predict(design)[0])
    assert (best["a"], best["b"], best["n"]) == ("y", "x", 8)


def test_only_the_latest_verdicts_are_looked_at():
    old = [Seen(SPACE.start, 5.0)] * 10
    recent = [Seen(design, 0.0) for design in designs()] * 3
    assert Surrogate(SPACE, old + recent[-160:]).predict(SPACE.start)[0] == pytest.approx(0, abs=1e-6)


def test_expected_improvement_is_positive_grows_with_spread_and_with_the_mean():
    assert (
        expected_improvement(0.0, 0.1, 0.5) < expected_improvement(0.0, 0.5, 0.5) < expected_improvement(0.3, 0.5, 0.5)
    )
    assert expected_improvement(1.0, 1e-6, 0.5) == pytest.approx(0.5)
    assert expected_improvement(0.5, 1.0, 0.5) == pytest.approx(1 / math.sqrt(2 * math.pi))
