"""Comparing two reports."""

import copy

import pytest

from benchmarks import cli, compare
from tests.benchmarks.test_report import make_report


def faster(report, factor):
    other = copy.deepcopy(report)
    for row in other.rows:
        for timing in row.scopes.values():
            timing.candidate_us = [us / factor for us in timing.candidate_us]
    return other


def run(tmp_path, capsys, first, second):
    first.write(tmp_path / "a.json")
    second.write(tmp_path / "b.json")
    status = cli.main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    return status, capsys.readouterr()


def test_the_faster_of_two_alike_reports_is_named_with_its_factor(tmp_path, capsys):
    report = make_report(("passed",) * 8)
    status, printed = run(tmp_path, capsys, faster(report, 1.5), report)
    assert status == 0
    assert "1.500 (geometric mean of 8 common workloads" in printed.out
    assert "faster on 8, slower on 0, tied on 0" in printed.out


def test_a_report_against_itself_is_no_difference(tmp_path, capsys):
    status, printed = run(tmp_path, capsys, make_report(), make_report())
    assert status == 0
    assert "no difference beyond noise" in printed.out


def test_unlike_conditions_are_refused_and_named(tmp_path, capsys):
    other = make_report()
    other.conditions = {**other.conditions, "device": "another cpu"}
    status, printed = run(tmp_path, capsys, make_report(), other)
    assert status == 2
    assert "device: a cpu / another cpu" in printed.err
    assert printed.out == ""


def test_a_report_without_times_cannot_be_compared(tmp_path, capsys):
    status, printed = run(tmp_path, capsys, make_report(), make_report(("wrong_result", "not_run")))
    assert status == 2
    assert "c (failed) has no times in scope run_only" in printed.err


def test_workloads_of_one_report_only_are_named(tmp_path, capsys):
    _, printed = run(tmp_path, capsys, make_report(("passed",) * 3), make_report(("passed",) * 2))
    assert "left out, in one report only: w2" in printed.out


def test_the_task_is_a_condition_too():
    other = make_report()
    other.task = "another"
    assert compare.differences(make_report(), other) == ["task: mla_paged_decode / another"]


@pytest.mark.parametrize("value", ["0", "-3", "many"])
def test_a_number_of_runs_must_be_a_number_of_runs(value):
    with pytest.raises(SystemExit):
        cli.main(["aa", "mla_paged_decode", "--runs", value])
