"""Teams on paper and the operations that change them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teams import design
from teams.design import InvalidTeamError, Seat, TeamDesign


def seat(key, **changes):
    return Seat(**{"key": key, "title": key.title(), "charter": "work", "posture": "engineer", **changes})


def team(*seats, phases=None):
    return TeamDesign({s.key: s for s in seats}, tuple(phases or tuple((s.key,) for s in seats)))


ROLE = {"key": "scout", "title": "Scout", "charter": "start elsewhere", "posture": "scout"}


def test_a_role_is_added_alone_or_beside_others():
    before = team(seat("a"), seat("b"))
    assert design.apply(before, [{"op": "add_role", "role": ROLE}]).phases == (("a",), ("b",), ("scout",))
    assert design.apply(before, [{"op": "add_role", "role": ROLE, "phase": 0}]).phases == (("a", "scout"), ("b",))


def test_splitting_and_merging_keep_place_and_share():
    before = team(seat("a", share=0.6), seat("b", share=0.2), phases=[("a", "b")])
    split = design.apply(before, [{"op": "split_role", "key": "a", "into": [{"key": "a1"}, {"key": "a2"}]}])
    assert [s.share for s in split.seats.values()] == [0.2, 0.3, 0.3]
    merged = design.apply(split, [{"op": "merge_roles", "keys": ["a1", "a2"], "into": {"key": "a"}}])
    assert merged.seats["a"].share == pytest.approx(0.6)
    assert merged.phases == (("b", "a"),)


def test_the_difference_is_said_in_words():
    before = team(seat("a"), seat("b"))
    after = design.apply(
        before,
        [{"op": "remove_role", "key": "b"}, {"op": "add_role", "role": ROLE}, {"op": "set_base", "candidate": 7}],
    )
    assert design.differences(before, after) == [
        "adds Scout", "removes B", "order: a, then b becomes a, then scout", "starts from candidate 7",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("operations", "said"),
    [
        ([], "change nothing"),
        ([{"op": ["dance"]}], "no operation"),
        (["dance"], "no operation"),
        ([{"op": "dance"}], "no operation 'dance'; there is add_role"),
        ([{"op": "remove_role", "key": "z"}], "no role 'z'; there is a, b"),
        ([{"op": "remove_role", "key": "a"}], "role a is pinned"),
        ([{"op": "set_phases", "phases": [["b"]]}], "the phases must name each role exactly once"),
        ([{"op": "set_phases", "phases": [["a", "b", "b"]]}], "exactly once"),
        (
            [{"op": "edit_role", "key": "b", "writes": False}, {"op": "remove_role", "key": "a"}],
            "at least one role that",
        ),
        ([{"op": "edit_role", "key": "b", "pinned": True}], "edit_role cannot change pinned"),
        ([{"op": "set_sees", "key": "b", "sees": {"*": "everything"}}], "cannot see 'everything'"),
        ([{"op": "set_sees", "key": "b", "sees": {"z": "full"}}], "cannot see 'full' of 'z'"),
        ([{"op": "set_shares", "shares": {"b": 1.5}}], "add up to 1"),
        ([{"op": "add_role", "role": {"key": "x"}}], "add_role: "),
        ([{"op": "add_role", "role": ROLE, "phase": 9}], "no phase 9"),
        ([{"op": "merge_roles", "keys": ["b"], "into": {"key": "c"}}], "at least two roles"),
    ],
)
def test_what_will_not_do_is_refused_with_the_reason(operations, said):
    with pytest.raises(InvalidTeamError, match=said.replace("(", r"\(")):
        design.apply(team(seat("a", pinned=True, writes=True), seat("b")), operations)


keys = st.sampled_from(["a", "b", "c", "scout", "nobody", ""])
levels = st.sampled_from([*design.SEES, "everything"])
operations = st.one_of(
    st.builds(lambda k: {"op": "add_role", "role": {**ROLE, "key": k}}, keys),
    st.builds(lambda k: {"op": "remove_role", "key": k}, keys),
    st.builds(lambda k, w: {"op": "edit_role", "key": k, "writes": w}, keys, st.booleans()),
    st.builds(lambda k, a, b: {"op": "split_role", "key": k, "into": [{"key": a}, {"key": b}]}, keys, keys, keys),
    st.builds(lambda ks, k: {"op": "merge_roles", "keys": ks, "into": {"key": k}}, st.lists(keys, max_size=3), keys),
    st.builds(lambda p: {"op": "set_phases", "phases": p}, st.lists(st.lists(keys, max_size=3), max_size=3)),
    st.builds(lambda k, s: {"op": "set_sees", "key": k, "sees": s}, keys, st.dictionaries(keys, levels, max_size=2)),
    st.builds(lambda s: {"op": "set_shares", "shares": s}, st.dictionaries(keys, st.floats(-1, 2), max_size=2)),
    st.builds(lambda c: {"op": "set_base", "candidate": c}, st.integers(1, 9)),
    st.dictionaries(st.sampled_from(["op", "key", "role"]), st.sampled_from(["add_role", 3, None]), max_size=3),
    st.integers(),
)


@given(st.lists(st.lists(operations, max_size=4), max_size=5))
def test_any_sequence_of_operations_leaves_a_valid_team_or_is_refused_whole(steps):
    current = team(seat("a", pinned=True), seat("b"), seat("c"), phases=[("a",), ("b", "c")])
    pinned = current.seats["a"]
    for step in steps:
        before = current
        try:
            current = design.apply(current, step)
        except InvalidTeamError:
            assert current is before
        design.validate(current)
        assert current.seats["a"] == pinned
