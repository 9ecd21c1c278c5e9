"""Means, intervals, counts and comparisons."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import statistics

speedups = st.lists(st.floats(0.01, 100), min_size=1, max_size=47)
rounds = st.lists(st.floats(0.5, 2), min_size=1, max_size=5)


def test_the_geometric_mean_of_2_and_8_is_4():
    assert statistics.geometric_mean([2, 8]) == pytest.approx(4)


@given(speedups)
def test_the_geometric_mean_lies_between_the_extremes_and_inverts(values):
    mean = statistics.geometric_mean(values)
    assert min(values) <= mean * (1 + 1e-12)
    assert mean <= max(values) * (1 + 1e-12)
    assert statistics.geometric_mean([1 / v for v in values]) == pytest.approx(1 / mean)


@pytest.mark.parametrize("values", [[], [1, 0], [1, -2], [1, math.nan], [1, math.inf]])
def test_a_mean_of_nothing_or_of_no_speedups_is_an_error(values):
    with pytest.raises(ValueError, match="geometric mean needs"):
        statistics.geometric_mean(values)


def test_one_time_near_zero_cannot_make_a_mean():
    with pytest.raises(ValueError, match="positive, finite"):
        statistics.geometric_mean([0.0, 5.0])


def test_fast_p_is_strict_and_counts_what_is_wrong():
    assert statistics.fast_p([1.0, 1.0001, None, 2.0], 1) == 0.5
    assert statistics.fast_p([None, None], 0.1) == 0
    with pytest.raises(ValueError, match="at least one"):
        statistics.fast_p([], 1)


def test_a_row_timed_once_has_no_interval():
    assert statistics.row_interval([1.2]) is None


@given(st.dictionaries(st.text(min_size=1, max_size=3), rounds, min_size=1, max_size=10))
def test_a_summary_is_the_same_each_time_and_its_interval_holds_plausible_means(rows):
    first, second = statistics.summarise(rows), statistics.summarise(rows)
    assert first == second
    assert first.interval_95 is not None
    low, high = first.interval_95
    assert min(map(min, rows.values())) * 0.999 <= low <= high <= max(map(max, rows.values())) * 1.001
    assert first.worst[0] in rows
    assert 0 <= first.wins <= len(rows)


def test_intervals_are_wider_with_more_noise():
    calm = {str(i): [1.5, 1.501, 1.499] for i in range(20)}
    noisy = {str(i): [1.5, 1.9, 1.1] for i in range(20)}
    a, b = statistics.summarise(calm).interval_95, statistics.summarise(noisy).interval_95
    assert a is not None
    assert b is not None
    assert a[1] - a[0] < 0.01 < b[1] - b[0]


def test_a_comparison_pairs_common_workloads_and_names_the_others():
    first = {"a": [2.0, 2.0], "b": [1.0, 1.0], "only first": [9.0]}
    second = {"a": [1.0, 1.0], "b": [1.005, 1.005], "only second": [0.1]}
    result = statistics.compare(first, second)
    assert result.dropped == ("only first", "only second")
    assert result.faster == ("a",)
    assert result.ties == ("b",)
    assert result.slower == ()
    assert result.ratio == pytest.approx(math.sqrt(2 / 1.005))


def test_rounds_that_overlap_are_a_tie():
    result = statistics.compare({"a": [1.0, 1.3, 1.1]}, {"a": [1.2, 0.9, 1.05]})
    assert result.ties == ("a",)


def test_nothing_in_common_is_an_error():
    with pytest.raises(ValueError, match="no workload is in both"):
        statistics.compare({"a": [1.0]}, {"b": [1.0]})


@given(st.dictionaries(st.sampled_from("abcdef"), rounds, min_size=1))
def test_a_candidate_compared_with_itself_is_a_tie(rows):
    result = statistics.compare(rows, rows)
    assert result.ratio == pytest.approx(1)
    assert result.ties == tuple(rows)
    assert result.is_tie


def test_a_candidate_twice_as_fast_everywhere_is_no_tie():
    result = statistics.compare({w: [2.0, 2.1] for w in "abcdef"}, {w: [1.0, 1.02] for w in "abcdef"})
    assert not result.is_tie
    assert len(result.faster) == 6
