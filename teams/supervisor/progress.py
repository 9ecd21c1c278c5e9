"""How a run goes, read from its rows once: what every signal, diagnosis and brief looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from benchmarks import statistics
from kernels.space import Design
from teams.models import Candidate, Report, Run


@dataclass(frozen=True)
class Judged:
    """A candidate with its first verdict. `score`: geometric mean on the smoke workloads, None unless all passed."""

    report: int
    number: int
    parent: int | None
    team: int
    role: str
    posture: str
    status: str
    failure: str
    message: str
    score: float | None
    groups: dict[str, float]
    design: Design | None
    refuted: bool
    """Did its verification not bear it out?"""
    looked_at: bool
    """Has it been verified, or refuted?"""

    @property
    def failed(self) -> bool:
        """Was it wrong, or did it not run?"""
        return self.status not in ("passed", "partial")


@dataclass(frozen=True)
class Gain:
    """A verified best, better than the one before. `at` counts the judged candidates when it was given."""

    at: int
    report: int
    candidate: int
    geomean: float
    groups: dict[str, float]
    ratio: float | None
    """Over the verified best before it; None for the first."""


@dataclass(frozen=True)
class Progress:
    """All verdicts that count, in the order in which they were given, and the verified gains among them."""

    run: Run
    judged: Sequence[Judged]
    gains: Sequence[Gain]
    since_team: int = 0
    """Judged candidates when the current team was installed."""
    floor_ratio: float | None = None
    """How many times as long as the floor the verified best takes, geometric mean; None if unknown."""
    postures: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def of_team(self) -> Sequence[Judged]:
        """What was judged since the current team was installed."""
        return self.judged[self.since_team :]

    @property
    def best(self) -> float | None:
        """The best verified geometric mean."""
        return self.gains[-1].geomean if self.gains else None

    def since_gain(self, least: float) -> int:
        """Judged candidates since the last gain of more than `least`: a verified one, or a claim over all before it
        that has not been looked at yet."""
        last = max((g.at for g in self.gains if g.ratio is None or g.ratio > 1 + least), default=0)
        best = 0.0
        for at, one in enumerate(self.judged, 1):
            if one.score is not None and not one.refuted and one.score > best * (1 + least):
                best = one.score
                last = max(last, 0 if one.looked_at else at)
        return len(self.judged) - last


def progress_of(run: Run) -> Progress:
    """Read it; a constant number of queries."""
    firsts = run.reports.judged().in_order().with_authors()
    seconds = run.reports.filter(is_verification=True, state=Report.State.DONE)
    verified = dict(seconds.values_list("candidate_id", "verified"))
    judged = [_judged(report, verified) for report in firsts]
    team = run.team
    return Progress(
        run,
        judged,
        _gains(run),
        team.installed_at if team else 0,
        floor_ratio(run.best) if run.best else None,
        frozenset(role.posture for role in team.roles.all()) if team else frozenset(),
    )


def _judged(report: Report, verified: Mapping[int, bool]) -> Judged:
    candidate = report.candidate
    turn = candidate.turn
    return Judged(
        report.pk,
        candidate.number,
        candidate.parent.number if candidate.parent else None,
        turn.team.number if turn else 0,
        turn.role.key if turn else "start",
        turn.role.posture if turn else "start",
        report.status,
        report.failure,
        report.message,
        report.smoke_geomean,
        report.groups,
        design_of(candidate),
        refuted=not verified.get(candidate.pk, True),
        looked_at=candidate.pk in verified,
    )


def design_of(candidate: Candidate) -> Design | None:
    """The moves behind a candidate; None for what was written freely."""
    return Design(candidate.design) if candidate.design else None


def _gains(run: Run) -> list[Gain]:
    found: list[Gain] = []
    for report in run.reports.verified().in_order().select_related("candidate"):
        assert report.geomean is not None
        if not found or report.geomean > found[-1].geomean:
            ratio = report.geomean / found[-1].geomean if found else None
            found.append(
                Gain(report.at_candidate, report.pk, report.candidate.number, report.geomean, report.groups, ratio)
            )
    return found


def floor_ratio(report: Report) -> float | None:
    """How many times as long as the floor a report's candidate takes (geometric mean); None if no floor is known."""
    rows = report.main_rows().exclude(floor_us=None).exclude(candidate_us=None).values_list("candidate_us", "floor_us")
    return statistics.geometric_mean([c / f for c, f in rows if c and f]) if rows else None
