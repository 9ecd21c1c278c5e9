"""What people ask of a run: requested, accepted, effective at an event; or refused with a reason."""

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from kernels.task import BadInputError
from teams.launch import ask
from teams.models import Command
from tests.teams.conftest import files_agree


def under_way(run):
    return run.candidates.count() >= 6


def test_a_paused_run_starts_nothing_new_after_effective_and_goes_on_when_resumed(new, carry, judge, supervisor):
    run = carry(new(candidates=20), under_way)
    judge.answers = False
    carry(run, lambda run: run.reports.filter(state="judging").exists())
    pause = ask(run, "pause", "p1", actor="ada", note="lunch")
    for _ in range(5):
        supervisor.advance(run)
        run.refresh_from_db()
    pause.refresh_from_db()
    assert (run.state, pause.state) == ("pausing", "accepted"), "the judge still holds a candidate"
    judge.answers = True
    for request, message in [(r, m) for r, m in judge.asked if r in judge.held]:
        judge.answer(request, message)
    carry(run, lambda run: run.state == "paused")
    pause.refresh_from_db()
    assert pause.state == "effective"
    assert run.events.get(number=pause.effective_at_event).kind == "command_effective"
    for _ in range(5):
        supervisor.advance(run)
    assert run.events.order_by("number").last().number == pause.effective_at_event
    assert judge.held == set()
    resume = ask(run, "resume", "r1", actor="ada")
    carry(run)
    resume.refresh_from_db()
    assert resume.state == "effective"
    assert run.state == "done"
    assert run.reports.judged().count() == 20
    assert run.steered
    files_agree(run)


def test_the_same_command_twice_with_one_key_is_one_command(new, carry):
    run = carry(new(candidates=20), under_way)
    first = ask(run, "top_up", "more", actor="ada", payload={"candidates": 5})
    assert ask(run, "top_up", "more", actor="ada", payload={"candidates": 5}) == first
    carry(run)
    ask(run, "top_up", "more", actor="ada", payload={"candidates": 5})
    assert run.reports.judged().count() == 25
    assert run.ledger.total("candidates", "top_up") == 5
    with pytest.raises(BadInputError, match="key: 'more' was used for another command"):
        ask(run, "top_up", "more", actor="ada", payload={"candidates": 6})


def test_a_stopped_run_verifies_its_best_claim_and_gives_back_what_it_had_not_begun(new, carry):
    run = carry(new(candidates=40, settings={"verify_every": 30}), lambda run: run.candidates.count() >= 12)
    assert not run.reports.verified().exists()
    stop = ask(run, "stop", "s", actor="ada")
    carry(run)
    stop.refresh_from_db()
    assert (run.state, run.state_reason, stop.state) == ("done", "stopped by ada", "effective")
    assert run.best is not None
    assert run.ledger.outstanding("candidates") == 0
    assert run.ledger.available("candidates") == 40 - run.reports.judged().count()
    files_agree(run)


@pytest.mark.parametrize("strategy", ["evolving", "fixed"])
def test_a_person_can_force_a_restructuring_with_a_note(new, carry, strategy):
    run = carry(new(candidates=14, strategy=strategy, settings={"minimum_window": 100}), under_way)
    command = ask(run, "restructure", "f", actor="ada", note="nobody looks at batch 1")
    carry(run)
    command.refresh_from_db()
    assert command.state == "effective"
    made = run.restructurings.get()
    assert (made.command, made.decided_by) == (command, "ada (asked)")
    assert made.after.number == 2
    assert run.turns.filter(team=made.after).exists()


def test_what_cannot_be_done_is_refused_with_the_reason(new, carry):
    run = carry(new(candidates=6), under_way)
    ask(run, "stop", "s", actor="ada")
    meanwhile = ask(run, "pause", "p", actor="ada")
    carry(run)
    late = ask(run, "resume", "late", actor="ada")
    for command, why in ((meanwhile, "the run is stopping"), (late, "the run has ended (done)")):
        command.refresh_from_db()
        assert (command.state, command.refused_because) == ("refused", why)
    assert run.events.filter(kind="command_refused").count() == 2


def test_what_was_asked_and_not_in_force_when_the_run_ends_is_refused(new, carry):
    run = carry(new(candidates=8, strategy="single"), under_way)
    pause = ask(run, "pause", "p", actor="ada")
    type(pause).objects.filter(pk=pause.pk).update(state="accepted")
    run.move("stopping")
    carry(run)
    pause.refresh_from_db()
    assert pause.state == "refused"


@pytest.mark.parametrize(
    ("kind", "payload", "said"),
    [
        ("dance", {}, "command: 'dance' is not one of pause, resume"),
        ("top_up", {}, "top_up: needs either candidates or minutes"),
        ("top_up", {"candidates": 1, "minutes": 2}, "top_up: needs either candidates or minutes"),
        ("top_up", {"candidates": -1}, "candidates: must be a whole number above 0"),
        ("top_up", {"candidates": "7"}, "candidates: must be a number, not '7'"),
        ("top_up", {"minutes": float("inf")}, "minutes: must be a number above 0"),
    ],
)
def test_a_command_that_makes_no_sense_is_not_written_down(new, kind, payload, said):
    run = new()
    with pytest.raises(BadInputError, match=said):
        ask(run, kind, "k", actor="ada", payload=payload)
    assert not Command.objects.exists()


def test_manage_command_writes_it_down_once(new, capsys):
    run = new()
    for _ in range(2):
        call_command("command", str(run.pk), "pause", "--key", "once", "--note", "wait")
    assert "is requested (key once)" in capsys.readouterr().out
    assert Command.objects.get().note == "wait"
    with pytest.raises(CommandError, match="there is no run 77"):
        call_command("command", "77", "pause")
    with pytest.raises(CommandError, match="top_up: needs either"):
        call_command("command", str(run.pk), "top_up")


def test_manage_show_prints_teams_evidence_and_rows(new, carry, capsys):
    run = carry(new(candidates=40))
    call_command("show", str(run.pk))
    shown = capsys.readouterr().out
    assert "Verified best: candidate" in shown
    assert shown.count("us") >= 2
    for made in run.restructurings.all():
        assert f"Team {made.after.number}" in shown
        assert all(s.message in shown for s in made.signals.all())
    assert len([line for line in shown.splitlines() if line[:8] in {r.workload[:8] for r in run.best.rows.all()}]) == 47
    call_command("show")
    assert f"run {run.pk} done" in capsys.readouterr().out
    with pytest.raises(CommandError, match="there is no run 99"):
        call_command("show", "99")


def test_manage_run_says_what_is_wrong_with_a_flag(db, home):
    for arguments, said in (
        (["nothing"], "task: 'nothing' is not one of"),
        ([], "task: name one"),
        (["mla_paged_decode", "--set", "no_gain"], "--set: 'no_gain' must be NAME=NUMBER"),
        (["mla_paged_decode", "--set", "no_gain=x"], "no_gain: 'x' is not a number"),
        (["mla_paged_decode", "--candidates", "-3"], "candidates: must be a whole number above 0"),
        (["--resume", "12"], "--resume: there is no run 12"),
    ):
        with pytest.raises(CommandError, match=said):
            call_command("run", *arguments)
