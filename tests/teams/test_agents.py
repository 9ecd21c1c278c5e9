"""Agents without a model: each role makes the moves of its kind, learns from what it sees, repeats nothing."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.space import Design
from teams.agents.brief import Attempt, Brief, HandOver, Write
from teams.agents.builtin import POSTURES, write
from teams.agents.builtin import seen as learnt
from teams.agents.risks import risks
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
@settings(max_examples=12)
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


def test_a_turn_ends_at_its_limit():
    assert isinstance(write(brief("engineer", written=3)), HandOver)


def test_verdicts_are_learnt_and_a_failure_says_nothing_of_speed():
    good, stopped, failed = (
        attempt(2, {"convert": "once"}, 0.3),
        attempt(3, {"prefetch": "keys ahead"}, None, "partial", parent=2),
        attempt(4, {"tail": "ignored", "blocking": "blocks"}, None, "failed"),
    )
    start, fast, slow = learnt(brief("engineer", good, stopped, failed))
    assert start.value == pytest.approx(math.log(0.15))
    assert fast.design == good.design
    assert fast.value == pytest.approx(math.log(0.3))
    assert slow.design == stopped.design
    assert slow.value < fast.value
    assert slow.noise > fast.noise


def test_what_the_weakest_batch_size_shows_is_learnt_from_its_own_speedups():
    good = attempt(2, {"convert": "once"}, 0.3, groups={"64": 0.5})
    assert [one.value for one in learnt(brief("analyst", good), "64")] == pytest.approx([math.log(0.1), math.log(0.5)])


def test_a_tuner_changes_numbers_of_rivals_of_the_best_as_well():
    base = attempt(2, {"vectors": "vector extensions", "lanes": 8}, 0.8)
    rival = attempt(3, {"vectors": "vector extensions", "lanes": 8, "convert": "once", "blocking": "blocks"}, 0.79)
    slow = attempt(4, {"vectors": "vector extensions", "lanes": 16}, 0.1)
    answers = [write(brief("tuner", base, rival, slow, base=base, seed=seed)) for seed in range(12)]
    parents = {answer.parent for answer in answers if isinstance(answer, Write)}
    assert 3 in parents
    assert parents <= {2, 3}, "what is far slower than the base is no place to begin"


def test_a_scout_writes_what_is_unlike_the_best_in_structure():
    base = attempt(2, {"vectors": "vector extensions", "lanes": 16, "convert": "once"}, 0.8)
    for seed in range(5):
        answer = write(brief("scout", base, base=base, seed=seed))
        assert isinstance(answer, Write)
        assert sum(KINDS[key] == "structure" for key in changed_keys(answer, base)) >= 3


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
