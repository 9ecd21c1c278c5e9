"""Steps between rows and the judge: hand reports over, fold in what it says, ask for verifications."""

from __future__ import annotations

from pathlib import Path

from django.utils import timezone

from benchmarks import report as reports
from kernels.task import BadInputError, load_task
from teams import budget, reported, workspace
from teams.models import Candidate, Report, Run, WorkloadResult
from teams.supervisor import memory
from teams.supervisor.judging import JudgeProcess
from teams.supervisor.thresholds import Thresholds, thresholds_of

MOST_TRIES = 3
"""How often the judge is asked for one report before its own failure is the answer."""


def submit(run: Run, judge: JudgeProcess) -> bool:
    """Give the judge the next report, verifications first; nothing new for a run that is pausing or paused."""
    if run.state not in (Run.State.RUNNING, Run.State.STOPPING) or not judge.has_room:
        return False
    queued = run.reports.filter(state=Report.State.QUEUED).order_by("-is_verification", "pk")
    report = queued.select_related("candidate").first()
    if report is None:
        return False
    out = workspace.report_file(report)
    with run.held():
        out.unlink(missing_ok=True)  # what an earlier try left, if the judge itself had failed
        if run.state not in (Run.State.RUNNING, Run.State.STOPPING):
            return False
        if not report.move(Report.State.JUDGING, tries=report.tries + 1):
            return False
    judge.ask(report.pk, _request(run, report, out))
    return True


def _request(run: Run, report: Report, out: Path) -> dict[str, object]:
    folder = workspace.source_folder(run, report.candidate.source_sha256)
    request: dict[str, object] = {"path": str(folder), "out": str(out)}
    if report.is_verification:
        return {**request, "workloads": "all", "claim": str(out.with_name("report.json"))}
    return {**request, "workloads": "smoke", "stop_below": report.stop_below}


def fold(run: Run, judge: JudgeProcess | None) -> bool:
    """Take in what the judge has answered; what it was asked and lost is queued again. No judge: none is running."""
    changed = False
    for report in run.reports.filter(state=Report.State.JUDGING).select_related("candidate"):
        file = workspace.report_file(report)
        if file.is_file():
            changed |= _take(run, report, file)
        elif judge is None or not judge.holds(report.pk):
            error = judge.errors.pop(report.pk, "") if judge else ""
            changed |= _ask_again(run, report, error or "the judge ended before it answered")
    return changed


def reclaim(run: Run) -> None:
    """For who takes a run over: what its last supervisor's judge had in hand is queued again, and was no try."""
    with run.held():
        for report in run.reports.filter(state=Report.State.JUDGING).select_related("candidate"):
            if not workspace.report_file(report).is_file():
                report.move(Report.State.QUEUED, tries=max(0, report.tries - 1))


def _take(run: Run, report: Report, file: Path) -> bool:
    try:
        found = reports.read(file)
    except BadInputError as error:
        return _ask_again(run, report, str(error))
    if found.status == "judge_error":
        return _ask_again(run, report, found.message)
    with run.held():
        return _store(run, report, found)


def _ask_again(run: Run, report: Report, why: str) -> bool:
    """Queue a report once more; after a few tries its answer is that the judge failed, which nobody is charged for."""
    with run.held():
        if report.tries < MOST_TRIES:
            return report.move(Report.State.QUEUED)
        if not report.move(Report.State.DONE, status="judge_error", message=why, given_at=timezone.now()):
            return False
        budget.settle(run, report.pk, 0.0, charged=False)
        run.record("judge_error", candidate=report.candidate.number, message=why[:500])
        return True


def _store(run: Run, report: Report, found: reports.Report) -> bool:
    counted = run.reports.judged().count() + (not report.is_verification)
    figures = reported.figures(load_task(run.task), found)
    if not report.move(Report.State.DONE, given_at=timezone.now(), at_candidate=counted, **figures):
        return False
    WorkloadResult.objects.bulk_create(reported.rows(report, found))
    budget.settle(run, report.pk, found.seconds.get("total", 0.0), charged=True)
    if report.is_verification:
        _store_verification(run, report, found)
    else:
        _tell(run, "verdict", report)
        memory.remember_verdict(run, report)
    return True


def _store_verification(run: Run, report: Report, found: reports.Report) -> None:
    """A verified best becomes the run's best; a claim that was not borne out is said to be so."""
    better = report.verified and (run.best is None or (report.geomean or 0) > (run.best.geomean or 0))
    before = run.best.geomean if run.best else None
    if better:
        run.best = report
        run.save(update_fields=["best"])
        memory.remember_gain(run, report, before)
    gaps = [f["message"] for f in found.findings if f.get("kind") == "claim_not_verified"]
    _tell(run, "verified" if report.verified else "refuted", report, best=better, before=before, findings=gaps)


def _tell(run: Run, kind: str, report: Report, **more: object) -> None:
    run.record(
        kind,
        candidate=report.candidate.number,
        status=report.status,
        smoke_geomean=report.smoke_geomean,
        geomean=report.geomean,
        message=report.message[:300],
        **more,
    )


def verify_best(run: Run) -> bool:
    """Ask for a second measurement of the best claim, if it promises a gain and the last one is some verdicts ago."""
    if run.state not in (Run.State.RUNNING, Run.State.STOPPING):
        return False
    if run.reports.waiting().filter(is_verification=True).exists():
        return False
    limits = thresholds_of(run)
    closing = run.state == Run.State.STOPPING or not budget.allows_candidate(run)
    if not closing and _since_verification(run) < limits.verify_every:
        return False
    claim = best_claim(run, limits, closing=closing)
    if claim is None:
        return False
    with run.held():
        return _ask_verification(run, claim.candidate)


def _since_verification(run: Run) -> int:
    last = run.reports.filter(is_verification=True, state=Report.State.DONE).in_order().last()
    return run.reports.judged().count() - (last.at_candidate if last else 0)


def best_claim(run: Run, limits: Thresholds, *, closing: bool) -> Report | None:
    """The unverified candidate that is fastest on the smoke workloads, if it beats the verified best there by more
    than noise (by anything at the end of a run)."""
    open_claims = run.reports.judged().filter(smoke_geomean__isnull=False)
    open_claims = open_claims.exclude(candidate__reports__is_verification=True).order_by("-smoke_geomean")
    claim = open_claims.select_related("candidate").first()
    known = run.best.smoke_geomean if run.best else None
    if claim is None or claim.smoke_geomean is None:
        return None
    least = known * (1 if closing else 1 + limits.gain) if known else 0.0
    waits = claim.smoke_geomean < limits.verify_from and not closing
    return claim if claim.smoke_geomean > least and not waits else None


def _ask_verification(run: Run, candidate: Candidate) -> bool:
    report, created = Report.objects.get_or_create(run=run, candidate=candidate, is_verification=True)
    if created:
        budget.reserve(run, report.pk, is_verification=True)
        run.record("verification_asked", candidate=candidate.number)
    return created
