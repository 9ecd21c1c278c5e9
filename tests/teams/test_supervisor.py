"""The loop and its steps: a run from its start to its end, what kills it, who may carry it on."""

from datetime import timedelta

import pytest
from django.utils import timezone

from benchmarks import report as reports
from benchmarks.candidate import read
from kernels.task import BadInputError
from teams import budget, workspace
from teams.launch import new_run
from teams.models import Report, Run
from teams.models.run import LostRunError, Owner
from teams.supervisor import turns, verdicts
from teams.supervisor.loop import Supervisor
from tests.teams.conftest import TASK, ReadyJudge, files_agree


def history(run):
    return list(run.events.values_list("number", "kind", "data"))


@pytest.mark.parametrize("strategy", ["evolving", "fixed", "single"])
def test_a_run_spends_its_budget_and_ends_with_a_verified_best(new, carry, strategy):
    run = carry(new(strategy=strategy, candidates=30))
    assert (run.state, run.state_reason) == ("done", "the budget is spent")
    assert run.reports.judged().count() == 30
    assert run.best.verified
    assert run.best.workloads == run.best.passed == run.best.rows.count() == 47
    assert run.best.geomean == pytest.approx(run.best.smoke_geomean, rel=0.02)
    assert run.ledger.spent("candidates") == 30
    assert run.ledger.available("candidates") == run.ledger.outstanding("candidates") == 0
    assert [number for number, _, _ in history(run)] == list(range(1, run.last_event + 1))
    files_agree(run)


def test_only_an_evolving_team_changes(new, carry):
    assert carry(new(strategy="evolving", candidates=36)).teams.count() > 1
    for strategy in ("fixed", "single"):
        run = carry(new(strategy=strategy, candidates=20))
        assert run.teams.count() == 1
        assert run.signals.exists(), "its signals are seen all the same"


def test_a_restructuring_rests_on_signals_and_its_outcome_is_measured(new, carry):
    run = carry(new(candidates=60))
    made = list(run.restructurings.all())
    assert made
    for one in made:
        assert one.signals.exists()
        assert all(run.reports.filter(pk__in=s.evidence).count() == len(set(s.evidence)) for s in one.signals.all())
        assert one.expected["within_candidates"] == 6
        assert one.after.installed_at - one.before.installed_at >= 6
        assert one.before.design() != one.after.design()
    measured = [one for one in made if one.state == "measured"]
    assert len(measured) >= len(made) - 1
    assert all(one.outcome for one in measured)
    assert run.records.filter(title__startswith="Team 2:").count() == (made[0].state == "measured")


def test_the_same_seed_and_the_same_verdicts_give_the_same_candidates(new, carry):
    first, second, other = (carry(new(candidates=20, seed=seed)) for seed in (5, 5, 6))
    hashes = [list(run.candidates.values_list("source_sha256", flat=True)) for run in (first, second, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_all_strategies_start_from_the_same_candidate(new, carry):
    starts = {
        carry(new(strategy=s, candidates=2)).candidates.get(number=1).source_sha256
        for s in ("evolving", "fixed", "single")
    }
    assert len(starts) == 1


def test_verifications_are_paid_in_seconds_and_never_in_candidates(new, carry, judge):
    judge.seconds = 9.0
    run = carry(new(candidates=None, minutes=6))
    assert run.reports.filter(is_verification=True).exists()
    assert run.ledger.spent("seconds") == pytest.approx(9.0 * run.reports.filter(state="done").count())
    assert run.ledger.outstanding("seconds") == pytest.approx(0)
    assert 0 <= run.ledger.available("seconds") < budget.VERDICT_SECONDS + budget.VERIFICATION_SECONDS


def test_a_claim_that_is_not_borne_out_is_left_aside(new, carry, judge, monkeypatch):
    real = ReadyJudge.answer

    def refuse(self, request, message):
        real(self, request, message)
        if "claim" in message:
            path = workspace.report_file(Report.objects.get(pk=request))
            found = reports.read(path)
            found.verified, found.verdict = False, "cheated"
            found.write(path)

    monkeypatch.setattr(ReadyJudge, "answer", refuse)
    run = carry(new(candidates=12))
    assert run.best is None
    refuted = run.reports.filter(is_verification=True)
    assert refuted.exists()
    told = [data["candidate"] for _, kind, data in history(run) if kind == "refuted"]
    assert told == [r.candidate.number for r in refuted]


def test_the_judges_own_failure_is_asked_again_and_charged_to_nobody(new, carry, judge, monkeypatch):
    real, tries = ReadyJudge.answer, []

    def fail(self, request, message):
        real(self, request, message)
        if Report.objects.get(pk=request).candidate.number == 3:
            tries.append(request)
            found = reports.read(workspace.report_file(Report.objects.get(pk=request)))
            found.verdict, found.message = "judge_error", "the floor does not run here"
            found.write(workspace.report_file(Report.objects.get(pk=request)))

    monkeypatch.setattr(ReadyJudge, "answer", fail)
    run = carry(new(candidates=8))
    assert len(tries) == verdicts.MOST_TRIES
    report = run.reports.get(candidate__number=3)
    assert (report.status, report.message) == ("judge_error", "the floor does not run here")
    taught = {pk for record in run.records.all() for pk in record.evidence}
    assert report.pk not in taught, "it says nothing of the candidate"
    assert run.reports.judged().count() == 8
    assert run.candidates.count() == 9


def test_what_a_dead_judge_held_is_asked_again(new, carry, judge, supervisor):
    run = new(candidates=5)
    judge.answers = False
    carry(run, lambda run: run.reports.filter(state="judging").exists())
    judge.alive, judge.answers = False, True
    judge.held.clear()
    fresh = ReadyJudge()
    supervisor._make_judge = lambda *_: fresh
    carry(run)
    assert fresh.asked[0][0] == judge.asked[0][0]
    assert run.reports.judged().count() == 5


def test_a_supervisor_that_dies_again_and_again_is_no_failure_of_the_judge(new, carry, judge, supervisor):
    run = new(candidates=5)
    judge.answers = False
    for _ in range(verdicts.MOST_TRIES + 2):
        carry(run, lambda run: run.reports.filter(state="judging").exists())
        Run.objects.filter(pk=run.pk).update(owner=str(Owner(Owner.here().place, 2**22 + 1, 7)))
        judge.held.clear()
        run.refresh_from_db()
    judge.answers = True
    carry(run)
    assert set(run.reports.values_list("tries", flat=True)) == {1}
    assert run.reports.judged().count() == 5


def test_a_judge_that_does_not_run_ends_the_run_with_its_last_words(new, carry, judge, home):
    judge.alive = judge.answers = False
    judge.log_file = home / "judge.log"
    judge.log_file.write_text("Traceback\nRuntimeError: no torch here\n")
    run = carry(new(candidates=5))
    assert run.state == "failed"
    assert run.state_reason == "the judge does not run: RuntimeError: no torch here"


def test_a_second_supervisor_does_no_harm(new, judge, supervisor):
    run = new(candidates=6)
    for _ in range(3):
        supervisor.advance(run)
        run.refresh_from_db()
    other = Supervisor(lambda *_: ReadyJudge())  # type: ignore[arg-type]
    other.owner = Owner("elsewhere", 1, 1)
    before = history(run)
    assert not other.advance(Run.objects.get(pk=run.pk))
    assert not other.advance_all()
    assert history(run) == before


def test_a_supervisor_that_lost_its_run_changes_nothing_any_more(new, carry, supervisor):
    run = new(candidates=6)
    carry(run, lambda run: run.turns.exists())
    stale = Run.objects.get(pk=run.pk)
    Run.objects.filter(pk=run.pk).update(owner="elsewhere/1-1", lease_until=timezone.now() + timedelta(seconds=30))
    before = history(run)
    with pytest.raises(LostRunError):
        turns.work(stale)
    assert history(run) == before


def test_a_dead_supervisors_run_is_taken_at_once_and_a_living_ones_only_after_its_lease(new, supervisor):
    run = new(candidates=6)
    here = Owner.here()
    for owner, taken in ((Owner(here.place, 2**22 + 1, 7), True), (Owner("elsewhere", 1, 1), False)):
        Run.objects.filter(pk=run.pk).update(owner=str(owner), lease_until=timezone.now() + timedelta(seconds=30))
        assert Run.objects.claimable(str(here), timezone.now()).filter(pk=run.pk).exists() == taken
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert Run.objects.claimable(str(here), timezone.now()).filter(pk=run.pk).exists()


def test_an_owner_is_read_back_from_its_text():
    here = Owner.here()
    assert Owner.parse(str(here)) == here
    assert not here.is_dead
    assert Owner.parse("no owner") is None


def test_a_run_at_the_floor_ends_instead_of_restructuring(new, carry):
    run = carry(new(candidates=60, settings={"at_floor": 1e5, "verify_from": 0.01}))
    assert run.state == "done"
    assert run.state_reason.startswith("at the floor:")
    assert run.reports.judged().count() < 60
    assert run.ledger.outstanding("candidates") == 0


def test_without_a_c_compiler_agents_write_pytorch_and_the_run_says_so(new, carry, monkeypatch):
    monkeypatch.setattr("benchmarks.build.compiler", lambda: None)
    run = new(candidates=5)
    assert run.language == "pytorch"
    assert "no C compiler" in run.events.get(kind="language").data["why"]


def test_on_a_gpu_agents_write_triton_from_its_plain_start(new, carry, home, monkeypatch):
    monkeypatch.setattr("teams.devices.gpus", lambda: ("NVIDIA H200",))
    run = carry(new(candidates=15, device="cuda"))
    assert run.language == "triton"
    assert not run.events.filter(kind="language").exists(), "it is no second choice"
    assert set(run.candidates.values_list("language", flat=True)) == {"triton"}
    assert run.candidates.get(number=1).source_sha256 == read(TASK.start("triton")).sha256
    assert run.reports.judged().count() > 10
    files_agree(run)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"strategy": "clever"}, "strategy: 'clever' is not one of evolving, fixed, single"),
        ({"agents": "robot"}, "agents: 'robot' is not one of builtin"),
        ({"device": "tpu"}, "device: 'tpu' is not one of cpu"),
        ({"candidates": 0}, "candidates: must be a whole number above 0"),
        ({"candidates": None, "minutes": float("nan")}, "minutes: must be a number above 0"),
        ({"candidates": None}, "a run needs a budget"),
        ({"seed": 2**63}, "seed: must be a whole number of 64 bits"),
        ({"settings": {"no_gian": 3}}, "no setting 'no_gian'; there is no_gain"),
        ({"settings": {"no_gain": "3"}}, "no_gain: must be a whole number above 0, not '3'"),
    ],
)
def test_a_run_that_cannot_be_is_refused_with_the_field_and_what_would_be_right(new, options, said):
    with pytest.raises(BadInputError, match=said):
        new(**options)
    assert not Run.objects.exists()


def test_a_task_that_is_not_there_is_refused(db):
    with pytest.raises(BadInputError, match="task: 'nothing' is not one of mla_paged_decode"):
        new_run("nothing", candidates=3)
