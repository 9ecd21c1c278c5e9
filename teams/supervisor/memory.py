"""Shared memory: what a verdict, a gain or a restructuring teaches, as records that later turns read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.space import Choice, Design
from kernels.task import load_task
from teams.models import Candidate, Record, Report, Restructuring, Run

Option = tuple[str, Choice]
NOTABLE = 1.05
"""A candidate this much faster than its parent is a technique worth a record."""


def remember_verdict(run: Run, report: Report) -> None:
    """Write what one verdict shows: an experiment, a failure, or a technique."""
    candidate = report.candidate
    if candidate.parent is None:
        return
    parent = run.reports.judged().filter(candidate=candidate.parent).first()
    if report.status == "partial":
        body = f"{report.message}\nChanges: {candidate.title}"
        _write(run, "experiment", f"Candidate {candidate.number}: far slower", body, report)
    elif report.status != "passed":
        _remember_failure(run, report)
    elif parent is not None and parent.smoke_geomean and report.smoke_geomean:
        ratio = report.smoke_geomean / parent.smoke_geomean
        kind = "technique" if ratio >= NOTABLE else "experiment"
        title = f"Candidate {candidate.number}: {ratio:.2f} times the speed of candidate {candidate.parent.number}"
        _write(run, kind, title, f"Changes: {candidate.title}\nOn the smoke workloads: {_figures(report)}", report)
    else:
        title = f"Candidate {candidate.number} is right: {report.smoke_geomean or 0:.2f}x on the smoke workloads"
        _write(run, "experiment", title, f"Changes: {candidate.title}", report)


def _figures(report: Report) -> str:
    groups = ", ".join(f"batch {size} {mean:.2f}x" for size, mean in report.groups.items())
    return f"{report.smoke_geomean:.2f}x ({groups})"


def _remember_failure(run: Run, report: Report) -> None:
    candidate = report.candidate
    _, choices = blamed(run, candidate)
    body = f"{report.message[:1500]}\nChanges: {candidate.title}"
    _write(run, "failure", f"Candidate {candidate.number}: {report.failure}"[:200], body, report, choices)


def blamed(run: Run, candidate: Candidate) -> tuple[int | None, Sequence[Option]]:
    """The nearest ancestor that was right, by number, and the choices that a failed candidate makes otherwise."""
    ancestor = candidate.parent
    while ancestor is not None:
        if run.reports.judged().filter(candidate=ancestor, status__in=("passed", "partial")).exists():
            break
        ancestor = ancestor.parent
    if ancestor is None or not candidate.design or not ancestor.design:
        return None, ()
    return ancestor.number, [(k, c) for k, c in candidate.design.items() if ancestor.design[k] != c]


def remember_gain(run: Run, report: Report, before: float | None) -> None:
    """Write that a candidate is the verified best."""
    gain = f", {report.geomean / before - 1:+.1%}" if before and report.geomean else ""
    title = f"Candidate {report.candidate.number} is the verified best: {report.geomean:.3f}x{gain}"
    start = load_task(run.task).space(run.language)
    design = Design(report.candidate.design)
    body = "Otherwise than the start: " + "; ".join(start.changes(start.start, design)) if design else ""
    _write(run, "technique", title, body, report)


def remember_outcome(run: Run, restructuring: Restructuring) -> None:
    """Write whether a new team helped."""
    measured, kinds = restructuring.measured, [s.kind for s in restructuring.signals.all()]
    title = f"Team {restructuring.after.number if restructuring.after else '?'}: {restructuring.outcome}"
    why = ", ".join(kinds) or "a person asked"
    body = (
        f"Cause: {restructuring.cause} ({why}).\nChange: {'; '.join(measured.get('changes', []))}.\n"
        f"Expected {restructuring.expected.get('at_least')}, measured {measured.get('after')} "
        f"(before {measured.get('before')})."
    )
    _write(run, "technique", title, body, None)


def remember_question(run: Run, title: str, body: str, author: str) -> None:
    """Write what somebody should look into."""
    _create(run, "question", title, body, [], [], author)


def known_failures(run: Run) -> frozenset[frozenset[Option]]:
    """The sets of choices that active records say give wrong results."""
    records = run.records.filter(kind="failure", state=Record.State.ACTIVE).exclude(moves=[])
    return frozenset(frozenset((k, c) for k, c in moves) for moves in records.values_list("moves", flat=True))


def _write(run: Run, kind: str, title: str, body: str, report: Report | None, choices: Sequence[Option] = ()) -> None:
    turn = report.candidate.turn if report else None
    wrong = report is not None and report.status == "failed"
    moves = [list(option) for option in choices] if wrong else []  # a compiler's refusal depends on all the rest
    author = f"{turn.role.key}, team {turn.team.number}" if turn else "supervisor"
    _create(run, kind, title, body, [report.pk] if report else [], moves, author)


def _create(run: Run, kind: str, title: str, body: str, evidence: list[int], moves: list[Any], author: str) -> None:
    number = run.records.count() + 1
    run.records.create(
        number=number, kind=kind, title=title[:200], body=body, evidence=evidence, moves=moves, author=author
    )
