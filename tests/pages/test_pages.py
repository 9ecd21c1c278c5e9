"""Pages drawn from rows: what they show, what they refuse, what a stream sends."""

import asyncio
import csv
import io
import re

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import escape

from teams.launch import ask
from teams.models import Command, Run
from teams.pages import figures, regions, stream, words
from teams.pages.export import COLUMNS
from teams.supervisor.diagnosis import CAUSES
from teams.supervisor.signals import SIGNALS
from tests.teams.conftest import carry, home, judge, new, supervisor  # noqa: F401


@pytest.fixture
def visitor(client, db):
    client.force_login(User.objects.create(username="ada"))
    return client


@pytest.fixture
def done(new, carry):  # noqa: F811
    return carry(new(candidates=30))


@pytest.mark.parametrize("name", ["runs", "new_run", "runs_stream", "run", "run_stream", "command", "speedups"])
def test_nothing_is_shown_without_a_login(client, db, name):
    with_number = name in ("run", "run_stream", "command", "speedups")
    address = reverse(name, args=[1] if with_number else [])
    answer = client.post(address) if name == "command" else client.get(address)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/login/")


def test_a_run_that_has_not_begun_has_a_page_with_all_its_workloads(visitor, new):  # noqa: F811
    page = visitor.get(reverse("run", args=[new().pk])).content.decode()
    assert page.count("<tr data-workload=") == 47
    assert "nothing judged yet" in page
    assert "No team yet" in page


def test_a_runs_page_shows_its_best_its_teams_and_why_they_changed(visitor, done):
    page = visitor.get(reverse("run", args=[done.pk])).content.decode()
    assert f"{done.best.geomean:.3f}×" in page or f"{done.best.geomean:.2f}×" in page
    assert "verified" in page
    made = done.restructurings.exclude(after=None)
    assert made
    for one in made:
        assert f'id="restructuring-{one.pk}"' in page
        assert all(escape(s.message) in page for s in one.signals.all())
    for role in done.team.roles.all():
        assert role.title in page
    assert "style=" not in re.sub(r"<style nonce.*?</style>", "", page), "the policy forbids it"


def test_the_csv_has_the_promised_columns_and_every_row(visitor, done):
    answer = visitor.get(reverse("speedups", args=[done.pk]))
    assert answer["Content-Type"].startswith("text/csv")
    lines = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert tuple(lines[0]) == COLUMNS
    assert len(lines) == 47
    for line, row in zip(lines, done.best.rows.all(), strict=True):
        assert (line["workload"], line["status"], line["verified"], line["steered"]) == (
            row.workload, row.status, "true", "false",
        )  # fmt: skip
        assert float(line["speedup"]) == row.speedup
        assert float(line["candidate_us"]) == row.candidate_us
    assert visitor.get(reverse("speedups", args=[99])).status_code == 404


def test_words_that_a_spreadsheet_would_run_are_quoted_and_numbers_are_not(visitor, done):
    Run.objects.filter(pk=done.pk).update(agents="=1+1")
    row = done.best.rows.first()
    type(row).objects.filter(pk=row.pk).update(speedup=-1.5)
    lines = list(csv.DictReader(io.StringIO(visitor.get(reverse("speedups", args=[done.pk])).content.decode())))
    assert lines[0]["agents"] == "'=1+1"
    assert lines[0]["speedup"] == "-1.5"


def test_the_list_costs_the_same_queries_for_one_run_and_for_many(visitor, new):  # noqa: F811
    def queries():
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert visitor.get(reverse("runs")).status_code == 200
        return len(captured)

    new()
    one = queries()
    for seed in range(5):
        new(seed=seed)
    assert queries() == one


def test_a_runs_page_costs_as_many_queries_after_forty_candidates_as_after_ten(visitor, new, carry):  # noqa: F811
    def queries(run):
        with CaptureQueriesContext(connection) as captured:
            visitor.get(reverse("run", args=[run.pk]))
        return len(captured)

    short = carry(new(candidates=10, strategy="fixed"))
    long = carry(new(candidates=40, strategy="fixed"))
    assert queries(long) <= queries(short) + 2


def test_a_new_run_is_made_from_the_form_and_what_cannot_be_is_said_with_nothing_lost(visitor, home):  # noqa: F811
    good = {
        "task": "mla_paged_decode", "strategy": "fixed", "agents": "builtin", "candidates": "7", "minutes": "",
        "seed": "3", "set-no_gain": "12",
    }  # fmt: skip
    for field, value, said in (
        ("candidates", "many", "candidates: &#x27;many&#x27; is not a whole number"),
        ("candidates", "", "a run needs a budget"),
        ("set-no_gain", "x", "no_gain: &#x27;x&#x27; is not a number"),
        ("strategy", "wild", "strategy: &#x27;wild&#x27; is not one of"),
        ("seed", "9" * 25, "seed: must be a whole number of 64 bits"),
    ):
        answer = visitor.post(reverse("new_run"), {**good, field: value})
        assert answer.status_code == 400
        assert said in answer.content.decode()
        assert 'value="12"' in answer.content.decode() or field == "set-no_gain"
    assert not Run.objects.exists()
    answer = visitor.post(reverse("new_run"), good)
    run = Run.objects.get()
    assert answer["Location"] == reverse("run", args=[run.pk])
    assert (run.strategy, run.seed, run.settings, run.ledger.total("candidates", "grant")) == (
        "fixed", 3, {"no_gain": 12}, 7,
    )  # fmt: skip


def test_a_command_is_written_down_once_for_a_key_and_bad_ones_are_explained(visitor, new):  # noqa: F811
    run = new()
    address = reverse("command", args=[run.pk])
    for _ in range(2):
        assert visitor.post(address, {"kind": "restructure", "key": "k", "note": "why"}).status_code == 204
    assert (Command.objects.get().actor, Command.objects.get().note) == ("ada", "why")
    answer = visitor.post(address, {"kind": "top_up", "key": "t", "candidates": "lots"})
    assert (answer.status_code, answer.content.decode()) == (400, "candidates: 'lots' is not a number")
    assert visitor.get(address).status_code == 405
    assert visitor.post(reverse("command", args=[99]), {"kind": "stop"}).status_code == 404


def test_the_buttons_follow_the_state_and_open_commands(new, carry):  # noqa: F811
    run = carry(new(candidates=20), lambda run: run.candidates.count() > 3)
    assert regions.controls(run)["can"] == {"pause", "stop", "steer"}
    ask(run, "pause", "p", actor="ada")
    assert "pause" not in regions.controls(run)["can"]
    carry(run, lambda run: run.state == "paused")
    assert regions.controls(run)["can"] == {"resume", "stop", "steer"}
    ask(run, "stop", "s", actor="ada")
    carry(run)
    assert regions.controls(run)["can"] == set()


def test_every_kind_of_event_is_told_in_a_sentence(new, carry):  # noqa: F811
    run = carry(new(candidates=50), lambda run: run.candidates.count() > 10)
    for kind, key in (("pause", "p"), ("resume", "r"), ("restructure", "f"), ("top_up", "t")):
        ask(run, kind, key, actor="ada", payload={"candidates": 2})
    run = carry(run)
    ask(run, "pause", "late", actor="ada")
    told = {event.kind: words.sentence(event) for event in run.events.all()}
    assert set(told) <= set(words.SENTENCES)
    assert {"verified", "restructured", "outcome", "command_refused", "handover"} <= set(told)
    assert set(words.SIGNALS) == set(SIGNALS)
    assert set(CAUSES.values()) <= set(words.CAUSES)


def test_the_figure_has_a_point_for_each_candidate_a_band_for_each_team_and_a_mark_for_each_change(done):
    figure = figures.run_figure(done)
    points = sum(len(t["x"]) for t in figure["data"] if t.get("mode") == "markers")
    assert points == done.reports.judged().count() == 30
    assert len([s for s in figure["layout"]["shapes"] if s["type"] == "rect"]) == done.teams.count()
    marks = {a["name"] for a in figure["layout"]["annotations"]}
    assert marks == {f"restructuring-{r.pk}" for r in done.restructurings.exclude(after=None)}
    bars = sum(len(t["y"]) for t in figure["data"] if t["type"] == "bar")
    assert bars == done.turns.filter(candidates__isnull=False).distinct().count()


async def sent(messages, count):
    return [await anext(messages) for _ in range(count)]


def test_a_stream_sends_a_snapshot_then_only_what_changed_each_with_its_version(monkeypatch):
    monkeypatch.setattr(stream, "POLL_SECONDS", 0.001)
    versions = iter(["1", "1", "2", "3", "4"])
    drawn = iter(
        [{"a": "<p>a\n1</p>", "b": "<p>b</p>"}, {"a": "<p>a2</p>", "b": "<p>b</p>"}, {"a": "<p>a2</p>", "b": "x"}]
    )
    messages = stream._messages("", lambda: next(versions), lambda: next(drawn))
    first, snapshot, second, third = asyncio.run(sent(messages, 4))
    assert first == "retry: 1000\n\n"
    assert snapshot == "id: 1\nevent: regions\ndata: <p>a\ndata: 1</p><p>b</p>\n\n"
    assert second == "id: 2\nevent: regions\ndata: <p>a2</p>\n\n"
    assert third == "id: 3\nevent: regions\ndata: x\n\n"


def test_a_stream_sends_nothing_to_who_has_seen_the_present_version_but_a_sign_of_life(monkeypatch):
    monkeypatch.setattr(stream, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(stream, "KEEP_ALIVE_SECONDS", 0.01)
    messages = stream._messages("7", lambda: "7", lambda: pytest.fail("nothing has changed"))
    assert asyncio.run(sent(messages, 2))[1] == ": still here\n\n"
