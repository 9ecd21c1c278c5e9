"""Agents without a model: each role makes the moves of its kind, learns from what it sees, repeats nothing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.space import Design
from teams.agents.brief import Attempt, Brief, HandOver, Write
from teams.agents.builtin import POSTURES, observations, write
from teams.agents.worth import Observation, Worth, risks
from teams.models import Role
from teams.supervisor.progress import Judged
from teams.supervisor.turns import _visible, seen
from tests.teams.conftest import SPACE

KINDS = {move.key: move.kind for move in SPACE.moves}
START = Attempt(1, "start", "passed", 0.15, None, SPACE.start, {"1": 0.2, "16": 0.15, "64": 0.1})


def brief(posture, *attempts, base=START, seed=0, written=0, known=(), avoid=()):
    seen_designs = {a.design for a in (START, *attempts)} | set(known)
    return Brief(
        role="r",
        posture=posture,
        objective="",
        base=base,
        attempts=(START, *attempts),
        avoid=frozenset(avoid),
        written=written,
        limit=3,
        space=SPACE,
        is_known=seen_designs.__contains__,
        rng=random.Random(seed),
    )


def attempt(number, choices, score=None, status="passed", parent=1, groups=None):
    return Attempt(number, "r", status, score, parent, SPACE.design(choices), groups or {}, "")


def changed_keys(answer, parent):
    assert isinstance(answer, Write)
    return [key for key in parent.design if parent.design[key] != answer.design[key]]


@pytest.mark.parametrize(("posture", "kind"), [("engineer", "structure"), ("tuner", "number")])
@pytest.mark.parametrize("seed", range(10))
def test_architect_and_tuner_keep_to_their_kind_of_move(posture, kind, seed):
    answer = write(brief(posture, seed=seed))
    changed = changed_keys(answer, START)
    assert changed
    assert any(KINDS[key] == kind for key in changed)
    if posture == "tuner":
        assert all(KINDS[key] == "number" for key in changed)


@pytest.mark.parametrize("posture", POSTURES)
def test_the_same_brief_and_seed_give_the_same_move(posture):
    failed = attempt(2, {"vectors": "vector extensions", "empty": "not handled"}, status="failed")
    first, second = (write(brief(posture, failed, seed=4)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("posture", POSTURES)
@given(seed=st.integers(0, 10_000))
def test_whatever_a_role_writes_is_a_new_program_of_the_space(posture, seed):
    failed = attempt(2, {"vectors": "vector extensions", "empty": "not handled"}, status="failed")
    answer = write(brief(posture, failed, seed=seed))
    if isinstance(answer, Write):
        SPACE.check(answer.design)
        assert answer.design not in (START.design, failed.design)
        assert set(SPACE.render(answer.design)) == {"kernel.py", "kernel.c"}
        assert answer.title


def test_a_debugger_takes_back_one_change_of_the_failed_program_the_suspect_one_first():
    good = attempt(3, {"convert": "once"}, 0.2)
    again = attempt(4, {"empty": "not handled"}, status="failed")
    failed = attempt(2, {"vectors": "vector extensions", "empty": "not handled"}, status="failed")
    answer = write(brief("debugger", failed, good, again, known=[again.design]))
    assert isinstance(answer, Write)
    assert answer.parent in (2, 4)
    first = write(brief("debugger", good, failed, again, seed=1))
    assert isinstance(first, Write)
    fixed = [a for a in (answer, first) if a.parent == 2]
    assert all(a.design["empty"] == "handled" and a.design["vectors"] == "vector extensions" for a in fixed)


def test_a_debugger_with_nothing_to_repair_hands_over():
    assert isinstance(write(brief("debugger", attempt(2, {"convert": "once"}, 0.2))), HandOver)


def test_a_debugger_does_not_retry_what_a_record_says_failed():
    failed = attempt(2, {"vectors": "vector extensions", "empty": "not handled"}, status="failed")
    records = [frozenset({("empty", "not handled")}), frozenset({("vectors", "vector extensions")})]
    answer = write(brief("debugger", failed, avoid=records))
    assert isinstance(answer, HandOver)


@pytest.mark.parametrize("posture", POSTURES)
@pytest.mark.parametrize("seed", range(8))
def test_no_role_writes_what_a_record_says_is_wrong(posture, seed):
    records = [frozenset({("empty", "not handled")}), frozenset({("convert", "once"), ("query", "transposed")})]
    answer = write(brief(posture, seed=seed, avoid=records))
    if isinstance(answer, Write):
        assert all(not choices <= answer.design.items() for choices in records)


def test_an_analyst_takes_over_what_others_do_better_on_the_weakest_batch_size():
    base = attempt(2, {"vectors": "vector extensions"}, 0.4, groups={"1": 0.6, "16": 0.4, "64": 0.3})
    other = attempt(3, {"prefetch": "keys ahead"}, 0.3, groups={"1": 0.2, "16": 0.3, "64": 0.5})
    answer = write(brief("analyst", base, other, base=base))
    assert isinstance(answer, Write)
    assert answer.design == SPACE.changed(base.design, "prefetch", "keys ahead")


def test_a_scout_starts_from_a_right_candidate_unlike_the_best():
    base = attempt(2, {"vectors": "vector extensions", "lanes": 16, "convert": "once"}, 0.8)
    near = attempt(3, {"vectors": "vector extensions", "lanes": 16}, 0.7)
    answer = write(brief("scout", base, near, base=base))
    assert isinstance(answer, Write)
    assert answer.parent == 1, "only the start differs from the best in three choices"


def test_a_turn_ends_at_its_limit():
    assert isinstance(write(brief("engineer", written=3)), HandOver)


def test_what_came_together_may_owe_its_gain_to_either_until_a_verdict_tells_them_apart():
    both = Observation({("a", 1): 1.0, ("b", 1): 1.0}, 0.7, 0.1)
    alone = Observation({("a", 1): 1.0}, -0.1, 0.1)
    one = Worth([both])
    draws = [one.draw(random.Random(i)) for i in range(400)]
    pairs = [(d(("a", 1)), d(("b", 1))) for d in draws]
    assert sum(a > 0.35 for a, _ in pairs) == pytest.approx(200, abs=60)
    sums = [a + b for a, b in pairs]
    assert max(sums) - min(sums) < 1.2 < max(a for a, _ in pairs) - min(a for a, _ in pairs)
    told = Worth([both, alone])
    assert told.mean(("a", 1)) < 0
    assert told.mean(("b", 1)) > 0.6
    assert told.mean(("c", 1)) == 0


def test_draws_have_the_posteriors_mean_and_are_the_same_for_the_same_seed():
    seen_ = [Observation({("a", 1): 1.0, ("b", 2): -1.0}, 0.4, 0.2), Observation({("b", 2): 1.0}, 0.1, 0.1)]
    worth = Worth(seen_)
    for option in (("a", 1), ("b", 2)):
        draws = [worth.draw(random.Random(i))(option) for i in range(2000)]
        assert sum(draws) / len(draws) == pytest.approx(worth.mean(option), abs=0.03)
    assert worth.draw(random.Random(3))(("z", 9)) == worth.draw(random.Random(3))(("z", 9))


def test_a_verdict_is_compared_with_its_parent_and_a_failure_says_nothing_of_speed():
    good, failed = (
        attempt(2, {"convert": "once"}, 0.3),
        attempt(3, {"tail": "ignored", "blocking": "blocks"}, None, "failed"),
    )
    (found,) = observations(brief("engineer", good, failed))
    assert found.change == {("convert", "once"): 1.0, ("convert", "at each use"): -1.0}
    assert found.value == pytest.approx(0.693, abs=0.001)


def test_of_what_came_in_with_a_failure_that_which_ran_elsewhere_is_hardly_suspect():
    a, b, c = ("a", 1), ("b", 1), ("c", 1)
    risk = risks([(frozenset({a, b}), True), (frozenset({a}), False), (frozenset({b, c}), True)])
    assert risk[b] > 0.6
    assert risk[a] < 0.15
    assert risk[a] < risk[c] < risk[b]


def test_what_a_role_sees_changes_what_it_is_told():
    one = Judged(7, 2, 1, 1, "tuner", "tuner", "passed", "", "fine", 0.3, {"1": 0.3}, Design(SPACE.start), False, False)
    assert (seen(one, "full").groups, seen(one, "full").message) == ({"1": 0.3}, "fine")
    assert (seen(one, "summary").groups, seen(one, "summary").design) == ({}, SPACE.start)
    assert (seen(one, "scores").design, seen(one, "scores").score) == (None, 0.3)
    told = {
        level: list(_visible([one], Role(key="architect", sees={"*": "full", "tuner": level})))
        for level in ("full", "summary", "scores", "none")
    }
    assert [len(t) for t in told.values()] == [1, 1, 1, 0]
    own = list(_visible([one], Role(key="tuner", sees={"*": "none"})))
    assert own[0].groups, "a role's own work is never hidden from it"
