"""Every attack fools the naive judge (so this test can fail) and not the real one."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks import build
from benchmarks.attacks import suite

ATTACKS = list(suite.attacks("mla_paged_decode"))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.source.name)
def test_an_attack_fools_the_naive_judge_and_is_caught_by_the_real_one(bench, attack):
    if attack.source.language == "c" and build.compiler() is None:
        pytest.skip("no C compiler here")
    with ThreadPoolExecutor(1) as beside:  # both judges at once: a machine that is busy helps no attack
        fooled = beside.submit(suite.fools_the_naive_judge, attack)
        caught = suite.is_caught(bench, attack)
    assert fooled.result().good, f"harmless: {fooled.result().verdict}"
    assert caught.good, f"not caught: {caught.verdict}"


def test_all_honest_kernels_pass(bench):
    outcomes = [suite.passes(bench, source) for source in suite.honest(bench.task)]
    assert len(outcomes) >= 5
    assert [o for o in outcomes if not o.good] == []


def test_the_attacks_that_exist_on_a_cpu_are_all_there():
    assert len(ATTACKS) >= 30
    assert len({a.source.sha256 for a in ATTACKS}) == len(ATTACKS)
