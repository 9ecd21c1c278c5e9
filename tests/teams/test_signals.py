"""Each signal fires on what it is for, with the reports it rests on, and keeps quiet otherwise."""

import pytest

from teams.design import validate
from teams.models import Run
from teams.models.team import install
from teams.strategies import ROLES, first_team
from teams.supervisor.diagnosis import CAUSES, RULES, diagnose, least_useful
from teams.supervisor.progress import Gain, Judged, Progress
from teams.supervisor.signals import ONCE, SIGNALS
from teams.supervisor.thresholds import Thresholds
from tests.teams.conftest import SPACE

T = Thresholds()


class Story:
    """Verdicts and gains one after another; report ids are 101, 102, ..."""

    def __init__(self, postures=("engineer", "tuner")):
        self.judged: list[Judged] = []
        self.gains: list[Gain] = []
        self.postures = frozenset(postures)
        self.since_team = 0
        self.verdict(0.15, role="start")

    def verdict(self, score=None, *, role="architect", status=None, failure="", choices=None, looked_at=True):
        n = len(self.judged) + 1
        status = status or ("passed" if score else "failed")
        design = SPACE.design(choices or {})
        self.judged.append(
            Judged(100 + n, n, 1, 1, role, "engineer", status, failure, "", score, {}, design, False, looked_at)
        )
        return self

    def many(self, count, score=None, **more):
        for _ in range(count):
            self.verdict(score, **more)
        return self

    def gain(self, geomean, groups=None):
        ratio = geomean / self.gains[-1].geomean if self.gains else None
        n = len(self.judged)
        self.gains.append(Gain(n, 500 + n, n, geomean, groups or {}, ratio))
        return self

    def team(self):
        self.since_team = len(self.judged)
        return self

    def fires(self, kind, floor_ratio=None):
        run = Run(pk=1)
        progress = Progress(run, self.judged, self.gains, self.since_team, floor_ratio, self.postures)
        return SIGNALS[kind](progress, T)


def test_no_gain_counts_from_the_last_verified_gain_and_from_the_teams_coming():
    story = Story().gain(0.15).many(7, 0.15)
    assert story.fires("no_gain") is None
    fired = story.verdict(0.15).fires("no_gain")
    assert (fired.value, fired.threshold) == (8, 8)
    assert fired.evidence == tuple(range(102, 110))
    assert story.gain(0.16).fires("no_gain") is None
    assert story.many(8, 0.16).team().many(3, 0.16).fires("no_gain") is None


def test_a_gain_within_the_noise_is_none_and_a_claim_that_waits_for_its_verification_is_one():
    story = Story().gain(0.150).many(4, 0.15).gain(0.1508).many(4, 0.15)
    assert story.fires("no_gain") is not None
    waiting = Story().gain(0.15).many(7, 0.15).verdict(0.3, looked_at=False)
    assert waiting.fires("no_gain") is None


def test_the_same_failure_fires_and_different_ones_do_not():
    story = Story().verdict(failure="a").verdict(failure="a").verdict(0.2).verdict(failure="a")
    fired = story.fires("same_failure")
    assert fired.evidence == (102, 103, 105)
    assert Story().verdict(failure="a").verdict(failure="b").verdict(failure="a").fires("same_failure") is None


def test_near_identical_candidates_fire():
    story = Story()
    for lanes in (4, 8, 16, 32):
        story.verdict(0.3, choices={"vectors": "vector extensions", "lanes": lanes})
    assert story.fires("near_identical").value == 4
    far = Story()
    for lanes, score in zip((4, 8, 16, 32), (0.2, 0.3, 0.4, 0.5), strict=True):
        far.verdict(score, choices={"vectors": "vector extensions", "lanes": lanes})
    assert far.fires("near_identical") is None


def test_a_retreat_is_an_easier_program_after_wrong_results():
    hard = {"vectors": "vector extensions", "lanes": 16, "convert": "once"}
    story = Story().many(2, choices=hard).many(2, 0.15, choices={"convert": "once"})
    fired = story.fires("retreat")
    assert fired.value == 2
    assert fired.evidence == (102, 103, 104, 105)
    brave = Story().many(2, choices=hard).many(2, 0.15, choices={**hard, "query": "converted once"})
    assert brave.fires("retreat") is None
    gained = Story().many(2, choices=hard).many(2, 0.4, choices={"convert": "once"})
    assert gained.fires("retreat") is None


def test_a_missing_debugger_and_a_missing_analyst():
    failing = Story().many(3, 0.15).many(3, failure="x")
    assert failing.fires("missing_debugger").value == pytest.approx(0.5)
    failing.postures = frozenset(["engineer", "debugger"])
    assert failing.fires("missing_debugger") is None
    uneven = Story().gain(1.5, {"1": 2.0, "16": 1.5, "64": 1.2}).many(6, 1.0)
    assert uneven.fires("missing_analyst").value == pytest.approx(0.6)
    uneven.postures = frozenset(["analyst"])
    assert uneven.fires("missing_analyst") is None
    slow = Story().gain(0.5, {"1": 0.8, "64": 0.3}).many(6, 0.4)
    assert slow.fires("missing_analyst") is None, "before it beats the baseline, structure matters to all"


def test_a_group_that_lost_while_the_whole_gained():
    story = Story().gain(1.0, {"1": 1.2, "64": 1.0}).verdict(1.1).gain(1.1, {"1": 1.0, "64": 1.3})
    fired = story.fires("group_worse")
    assert fired.message == "batch 1 lost 17% while the whole gained"
    assert Story().gain(1.0, {"1": 1.0}).verdict(1.1).gain(1.1, {"1": 0.99}).fires("group_worse") is None


def test_spend_without_gain_is_a_share_of_the_budget(new):
    run = new(candidates=20)
    story = Story().gain(0.15).many(4, 0.15)
    assert SIGNALS["spend_since_gain"](Progress(run, story.judged, story.gains), T) is None
    story.verdict(0.15)
    fired = SIGNALS["spend_since_gain"](Progress(run, story.judged, story.gains), T)
    assert fired is not None
    assert fired.value == pytest.approx(0.25)


def test_falling_gain_is_a_small_share_of_what_as_many_gained_before():
    story = Story()
    for step in range(12):
        story.verdict(0.15 * 1.3 ** (step + 1))
    top = 0.15 * 1.3**12
    for _ in range(5):
        story.verdict(top)
    story.verdict(top * 1.02)
    assert story.fires("falling_gain").value < T.falling
    steady = Story()
    for step in range(20):
        steady.verdict(0.15 * 1.1 ** (step + 1))
    assert steady.fires("falling_gain") is None


def test_changes_of_stage():
    assert Story().fires("stage_correct") is None, "a start that is right is no change"
    assert Story().gain(0.9).verdict(1.1).gain(1.1).fires("stage_faster").evidence == (502,)
    assert Story().gain(0.9).fires("stage_faster") is None
    assert Story().gain(1.1).verdict(1.2).gain(1.2).fires("stage_faster") is None
    assert Story().gain(2.0).fires("stage_near_floor", floor_ratio=1.2).value == 1.2
    assert Story().gain(2.0).fires("stage_near_floor", floor_ratio=2.0) is None


def test_every_signal_has_a_cause_a_rule_and_is_known():
    assert set(SIGNALS) == set(CAUSES) == set(RULES)
    assert set(ONCE) <= set(SIGNALS)
    assert all(signal.__doc__ for signal in SIGNALS.values())


@pytest.mark.parametrize("kind", SIGNALS)
@pytest.mark.parametrize("roles", [(), ("debugger",), ("analyst", "scout"), ("debugger", "analyst")])
def test_whatever_fires_the_answer_is_a_valid_team_unlike_the_present_one(new, kind, roles):
    run = new()
    present = first_team("evolving", "builtin")
    seats = {**present.seats, **{key: ROLES[key] for key in roles}}
    present = type(present)(seats, (*present.phases, *((key,) for key in roles)))
    run.team = install(run, present, "start")
    run.signals.create(team=run.team, kind=kind, value=1, threshold=1, message="", at_candidate=1)
    story = Story().many(3, 0.3, choices={"vectors": "vector extensions", "lanes": 16, "convert": "once"})
    story.many(3, failure="x", role="tuner")
    progress = Progress(run, story.judged, story.gains)
    answer = diagnose(run, progress, list(run.signals.all()))
    assert answer is not None
    validate(answer.design)
    assert answer.design != present
    assert answer.considered >= 1
    assert answer.cause == CAUSES[kind]


def test_the_least_useful_role_is_the_one_that_gained_least_and_never_a_pinned_one(new):
    story = Story().verdict(0.3, role="architect").verdict(0.15, role="tuner")
    team = first_team("evolving", "builtin")
    progress = Progress(Run(pk=1), story.judged, story.gains)
    assert least_useful(team, progress) == "tuner"
    pinned = {**team.seats, "tuner": type(team.seats["tuner"])(**{**vars(team.seats["tuner"]), "pinned": True})}
    assert least_useful(type(team)(pinned, team.phases), progress) == "architect"


def test_what_has_not_helped_for_a_cause_comes_later(new):
    run = new()
    run.team = install(run, first_team("evolving", "builtin"), "start")
    signal = run.signals.create(team=run.team, kind="no_gain", value=8, threshold=8, message="", at_candidate=8)
    story = Story().many(8, 0.15)
    progress = Progress(run, story.judged, story.gains)
    first = diagnose(run, progress, [signal])
    assert first is not None
    run.restructurings.create(
        before=run.team, cause=first.cause, explanation="", operations=first.operations, decided_by="supervisor",
        state="measured", outcome="worse",
    )  # fmt: skip
    second = diagnose(run, progress, [signal])
    assert second is not None
    assert second.operations != first.operations
