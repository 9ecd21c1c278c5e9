"""A judge that lets a wrong kernel pass says so of itself."""

import pytest

from benchmarks import canaries
from benchmarks.worker import JudgeError
from kernels.task import load_task

TASK = load_task("mla_paged_decode")


def test_the_wrong_kernel_is_refused_here(bench):
    assert "wrong" in TASK.canaries("cpu")
    canaries.prove(bench)


def test_a_judge_that_lets_it_pass_is_not_to_be_trusted(bench, monkeypatch):
    monkeypatch.setattr(type(bench.task), "mismatch", lambda *arguments: None)
    with pytest.raises(JudgeError, match="known to be wrong was found right"):
        canaries.prove(bench)


def test_a_judge_that_refuses_what_is_right_is_none_either(bench, monkeypatch):
    wrong = TASK.canaries("cpu")["wrong"]
    monkeypatch.setattr(type(bench.task), "canaries", lambda self, device: {"slow": wrong})
    with pytest.raises(JudgeError, match="known to be right was refused"):
        canaries.prove(bench)


def test_a_clock_that_is_fast_is_found():
    canaries.check_clock("it", 1009.0, 1010.0)
    for us in (900.0, float("nan")):
        with pytest.raises(JudgeError, match="of a call that takes at least 1010 us"):
            canaries.check_clock("it", us, 1010.0)
