"""Experiments: plans, controls, runs that go on where they were, and what the report says of them."""

import copy
import json
import math

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from kernels.task import BadInputError
from teams.experiments import analysis, plan
from teams.experiments.record import record
from teams.management.commands import experiment
from teams.models import Run

PLAN = {
    "name": "small", "task": "mla_paged_decode", "device": "cpu", "why": "To see it work.",
    "arms": {"evolving": {"strategy": "evolving"}, "blind": {"strategy": "random", "settings": {"turn": 2}}},
    "seeds": [3, 4], "candidates": 10, "targets": [1.5], "against": "evolving",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Big Name"}, "name: must be small letters"),
        ({"task": "none"}, "task: 'none' is not one of"),
        ({"device": "tpu"}, "device: 'tpu' is not one of cpu, cuda"),
        ({"arms": {}}, "arms: must be an object of arms by name, one at least"),
        ({"arms": {"a": {"strategy": "hope"}}, "against": "a"}, r"arms\.a\.strategy: 'hope' is not one of"),
        ({"arms": {"a": {"strategy": "single", "settings": {"x": 1}}}}, r"arms\.a\.settings: no setting 'x'"),
        ({"arms": {"a": {"strategy": "single", "seed": 1}}}, r"arms\.a: must be an object of strategy and settings"),
        ({"seeds": []}, "seeds: must be a list of 1 to 1000 whole numbers"),
        ({"seeds": [1, True]}, r"seeds\[1\]: must be a whole number from 0, not True"),
        ({"seeds": [1, 1]}, "seeds: the same number twice"),
        ({"candidates": 0}, "candidates: must be a whole number from 1"),
        ({"targets": [0]}, r"targets\[0\]: must be a number above 0, not 0"),
        ({"against": "nobody"}, "against: 'nobody' is no arm"),
        ({"seed": [1]}, "no field 'seed'; there is name"),
    ],
)
def test_a_plan_that_is_not_right_names_file_and_field(tmp_path, change, message):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**PLAN, **change}))
    with pytest.raises(BadInputError, match=f"plan.json: {message}"):
        plan.read(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(PLAN)), json_values)
def test_whatever_stands_in_a_plan_it_is_read_or_refused(key, value):
    data = copy.deepcopy(PLAN)
    data[key] = value
    try:
        assert plan.parse(data).cells
    except BadInputError as error:
        assert str(error)


def line(arm, seed, claims, final):
    course = [[float(k), claim] for k, claim in enumerate(claims, 1)]
    verified = [[k, claim] for k, claim in enumerate(claims, 1)]
    changes = [{"at": 3, "cause": "local_optimum", "outcome": "met", "before": 1.0, "after": 1.2}]
    return {
        "arm": arm,
        "seed": seed,
        "geomean": final,
        "course": course,
        "verified_at": verified,
        "changes": changes if arm == "a" else [],
    }


def test_the_report_says_what_the_runs_say():
    found = plan.parse(
        {**PLAN, "arms": {"a": {"strategy": "evolving"}, "b": {"strategy": "single"}}, "against": "a", "candidates": 4}
    )
    runs = {
        "a": {3: line("a", 3, [0.1, 1.6, 1.6, 2.0], 2.0), 4: line("a", 4, [0.1, 0.15, 1.5], 1.5)},
        "b": {3: line("b", 3, [0.1, 0.2, 0.3, 1.6], 1.6), 4: line("b", 4, [0.1, 0.2, 0.3, 0.4], None)},
    }
    report = analysis.analyse(found, runs)
    first, second = report["arms"]["a"], report["arms"]["b"]
    assert (first["median"], first["best"], first["worst"]) == (1.75, 2.0, 1.5)
    assert first["needed"] == {"1.5": {"reached": 2, "median": 2.5}}
    assert second["needed"] == {"1.5": {"reached": 1, "median": None}}, "one needed more than there were"
    assert second["without_a_verified_result"] == 1
    against = report["comparisons"]["b"]
    assert against["needed"]["1.5"]["value"] == pytest.approx(2.5 / 4.5)
    assert (against["seeds"], against["area_wins"]) == (2, 2)
    sooner = [math.log(x / y) for x, y in zip([0.1, 1.6, 1.6, 2.0], [0.1, 0.2, 0.3, 1.6], strict=True)]
    later = [math.log(x / y) for x, y in zip([0.1, 0.15, 1.5, 1.5], [0.1, 0.2, 0.3, 0.4], strict=True)]
    assert against["area"]["value"] == pytest.approx((sum(sooner) + sum(later)) / 8)
    assert first["changes"] == {"local_optimum": {"made": 2, "outcomes": {"met": 2}, "median_gain": 1.2}}
    words = analysis.in_words(report)
    assert "| a | 2 | 1.750x | 1.500 to 2.000 | 2.000x | 1.500x |" in words
    assert "a, local_optimum: 2 made; 2 met; median gain 1.200x" in words


def test_a_report_of_nothing_is_possible():
    words = analysis.in_words(analysis.analyse(plan.parse(PLAN), {}))
    assert "| evolving | 0 | - |" in words


@pytest.mark.parametrize("strategy", ["random", "climbing"])
def test_a_search_that_learns_nothing_spends_its_budget_alone(new, carry, strategy):
    run = carry(new(strategy=strategy, candidates=15))
    assert run.reports.judged().count() == 15
    assert run.teams.count() == 1
    if strategy == "climbing":
        best = 0.0
        for report in run.reports.judged().in_order().with_authors():
            if report.candidate.parent:
                parent = report.candidate.parent.reports.get(is_verification=False)
                assert parent.smoke_geomean >= best * 0.999, "it starts from the best"
            best = max(best, report.smoke_geomean or 0.0)


def test_a_shuffled_team_changes_without_a_signal(new, carry):
    run = carry(new(strategy="shuffled", candidates=40))
    made = list(run.restructurings.all())
    assert len(made) >= 2
    assert {one.cause for one in made} == {"random"}
    assert not any(one.signals.exists() for one in made)
    again = carry(new(strategy="shuffled", candidates=40))
    assert [o.operations for o in again.restructurings.all()] == [o.operations for o in made], "by its seed alone"


@pytest.fixture
def folder(tmp_path, monkeypatch, db, home, carry):
    """A plan's folder; runs are carried on by a judge that answers at once."""
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))

    async def at_once(number, out, head=""):
        from asgiref.sync import sync_to_async

        await sync_to_async(lambda: carry(Run.objects.get(pk=number)))()

    monkeypatch.setattr(experiment, "watch", at_once)
    return tmp_path


@pytest.mark.django_db(transaction=True)
def test_an_experiment_makes_every_run_once_and_goes_on_where_it_was(folder):
    plan_file = folder / "plan.json"
    call_command("experiment", plan_file, "--runs", "3")
    lines = [json.loads(text) for text in (folder / "runs.jsonl").read_text().splitlines()]
    assert [(one["arm"], one["seed"]) for one in lines] == [("evolving", 3), ("blind", 3), ("evolving", 4)]
    call_command("experiment", plan_file)
    lines = [json.loads(text) for text in (folder / "runs.jsonl").read_text().splitlines()]
    assert len(lines) == Run.objects.count() == 4
    assert [len(one["course"]) for one in lines] == [10] * 4
    assert all(one["course"][-1][1] for one in lines)
    report = json.loads((folder / "report.json").read_text())
    assert [arm["runs"] for arm in report["arms"].values()] == [2, 2]
    assert "# small" in (folder / "report.md").read_text()
    blind = Run.objects.get(label="small/blind/3")
    assert (blind.settings, blind.strategy) == ({"turn": 2}, "random")
    assert {**record(blind, "blind")} == next(one for one in lines if (one["arm"], one["seed"]) == ("blind", 3))


def test_a_damaged_line_of_an_experiment_is_named(folder):
    (folder / "runs.jsonl").write_text('{"arm": "evolving"}\n')
    with pytest.raises(CommandError, match=r"runs.jsonl line 1: is no record of a run"):
        call_command("experiment", folder / "plan.json", "--report")
