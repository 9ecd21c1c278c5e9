"""Steps of the work itself: begin a run, seat the roles of the next phase, let agents write, end a run."""

from __future__ import annotations

import random
from collections.abc import Iterable

from django.utils import timezone

from benchmarks.candidate import Source
from kernels.space import Design, Space
from kernels.task import load_task
from teams import budget, workspace
from teams.agents import AGENTS
from teams.agents.brief import Attempt, Brief, HandOver, Write
from teams.models import Candidate, Command, Report, Role, Run, Turn
from teams.models.team import install
from teams.strategies import first_team
from teams.supervisor import memory
from teams.supervisor.progress import Judged, Progress, floor_ratio, progress_of
from teams.supervisor.thresholds import Thresholds, thresholds_of

OUTRUN = 2.0
"""A team's own start is left when the best claim is this many times as fast."""


def space_of(run: Run) -> Space:
    """The moves of the run's task in its language."""
    return load_task(run.task).space(run.language)


def begin(run: Run) -> bool:
    """Start a queued run: its first team, and the start that all strategies share as candidate 1."""
    if run.state != Run.State.QUEUED:
        return False
    space = space_of(run)
    source = Source("start", space.render(space.start))
    workspace.put_source(run, source)
    with run.held():
        if not run.move(Run.State.RUNNING, started_at=timezone.now()):
            return False
        run.record("begun", strategy=run.strategy, language=run.language, seed=run.seed)
        team = install(run, first_team(run.strategy, run.agents), "start")
        run.record("team", team=team.number, decided_by=team.decided_by, roles=list(team.design().seats))
        _ask(run, _new_candidate(run, source, space.start, None, None, "the start"), None)
    return True


def start_turns(run: Run) -> bool:
    """Begin the turns of the next phase, when none is open, the start is judged and the budget allows a candidate."""
    if run.state != Run.State.RUNNING or run.turns.filter(ended_at__isnull=True).exists():
        return False
    if _is_forced(run):
        return False  # the new team begins
    if not budget.allows_candidate(run) or not run.reports.judged().filter(smoke_geomean__isnull=False).exists():
        return False
    with run.held():
        if run.state != Run.State.RUNNING or run.team is None:
            return False
        cycle, phase = _next_phase(run)
        roles = {role.key: role for role in run.team.roles.all()}
        for key in run.team.phases[phase]:
            _open_turn(run, roles[key], cycle, phase)
    return True


def _is_forced(run: Run) -> bool:
    """Whether a person has asked for another team and it is not there yet."""
    return run.commands.filter(kind=Command.Kind.RESTRUCTURE, state=Command.State.ACCEPTED).exists()


def _next_phase(run: Run) -> tuple[int, int]:
    """Cycle and phase that follow the team's last turn."""
    assert run.team is not None
    last = run.turns.filter(team=run.team).order_by("-number").first()
    if last is None:
        return 0, 0
    if last.phase + 1 < len(run.team.phases):
        return last.cycle, last.phase + 1
    return last.cycle + 1, 0


def _open_turn(run: Run, role: Role, cycle: int, phase: int) -> None:
    number = run.turns.count() + 1
    base = base_of(progress_of(run), role.team.base)
    brief = {
        "objective": role.charter,
        "base": base.number if base else None,
        "sees": role.sees,
        "limit": _limit(role, thresholds_of(run)),
        "avoid": [sorted(map(list, choices)) for choices in sorted(memory.known_failures(run), key=sorted)],
    }
    turn = run.turns.create(team=role.team, role=role, number=number, cycle=cycle, phase=phase, brief=brief)
    run.record("turn", turn=turn.number, role=role.key, team=role.team.number, base=brief["base"])


def _limit(role: Role, limits: Thresholds) -> int:
    """Candidates of a turn: more for a role whose share is more than an equal part."""
    parts = role.share * role.team.roles.count() if role.share else 1.0
    return max(1, round(limits.turn * parts))


def base_of(progress: Progress, wanted: Candidate | None) -> Judged | None:
    """Where to start from: the best claim that was not refuted, or the candidate that the team was given, until the
    best is far ahead of it."""
    right = [j for j in progress.judged if j.score is not None and j.design is not None and not j.refuted]
    best = max(right, key=lambda j: j.score or 0.0, default=None)
    given = [j for j in right if wanted is not None and j.number == wanted.number]
    if best is None or not given:
        return best
    return given[0] if (given[0].score or 0) * OUTRUN > (best.score or 0) else best


def work(run: Run) -> bool:
    """Let every open turn whose candidates are judged take its next step, or end it where another team is to come."""
    changed, forced = False, _is_forced(run)
    for turn in run.turns.filter(ended_at__isnull=True).select_related("role", "team__base"):
        if run.reports.waiting().filter(candidate__turn=turn).exists():
            continue
        if run.state == Run.State.STOPPING or (run.state == Run.State.RUNNING and not budget.allows_candidate(run)):
            changed |= _hand_over(run, turn, "the run ends here")
        elif forced:
            changed |= _hand_over(run, turn, "another team was asked for")
        elif run.state == Run.State.RUNNING:
            changed |= _step(run, turn)
    return changed


def _step(run: Run, turn: Turn) -> bool:
    brief = brief_of(run, turn)
    answer = AGENTS[turn.role.agent](brief)
    if isinstance(answer, HandOver):
        return _hand_over(run, turn, answer.summary)
    source = Source(f"candidate of {turn.role.key}", brief.space.render(answer.design))
    workspace.put_source(run, source)
    with run.held():
        return run.state == Run.State.RUNNING and _store(run, turn, answer, source)


def _store(run: Run, turn: Turn, answer: Write, source: Source) -> bool:
    """Write candidate and request; two turns that wrote the same program at once have it judged once."""
    if run.candidates.filter(source_sha256=source.sha256).exists():
        return _end_turn(run, turn, "wrote what another role had just written")
    parent = run.candidates.get(number=answer.parent)
    candidate = _new_candidate(run, source, answer.design, parent, turn, answer.title)
    _ask(run, candidate, _stop_below(run))
    if turn.state == Turn.State.WORKING:
        turn.move(Turn.State.JUDGING)
    return True


def _stop_below(run: Run) -> float | None:
    """A candidate slower than this on the smoke workloads is timed no further."""
    best = run.reports.judged().filter(smoke_geomean__isnull=False).order_by("-smoke_geomean").first()
    return best.smoke_geomean * thresholds_of(run).stop_below if best and best.smoke_geomean else None


def _new_candidate(
    run: Run, source: Source, design: Design, parent: Candidate | None, turn: Turn | None, title: str
) -> Candidate:
    return run.candidates.create(
        number=run.candidates.count() + 1,
        source_sha256=source.sha256,
        parent=parent,
        turn=turn,
        title=title,
        language=source.language,
        design=dict(design),
    )


def _ask(run: Run, candidate: Candidate, stop_below: float | None) -> None:
    report = run.reports.create(candidate=candidate, stop_below=stop_below)
    budget.reserve(run, report.pk, is_verification=False)
    turn = candidate.turn
    run.record(
        "candidate",
        candidate=candidate.number,
        title=candidate.title,
        role=turn.role.key if turn else "start",
        turn=turn.number if turn else None,
    )


def _hand_over(run: Run, turn: Turn, summary: str) -> bool:
    with run.held():
        return _end_turn(run, turn, summary)


def _end_turn(run: Run, turn: Turn, summary: str) -> bool:
    firsts = run.reports.judged().filter(candidate__turn=turn)
    best = max((r.smoke_geomean for r in firsts if r.smoke_geomean), default=None)
    failed = sum(r.status not in ("passed", "partial") for r in firsts)
    handover = {"summary": summary, "candidates": len(firsts), "failed": failed, "best": best}
    if not turn.move(Turn.State.DONE, ended_at=timezone.now(), handover=handover):
        return False
    run.record("handover", turn=turn.number, role=turn.role.key, **handover)
    return True


def brief_of(run: Run, turn: Turn) -> Brief:
    """What the turn's agent is told now: verdicts so far, as far as its role sees them."""
    progress, space = progress_of(run), space_of(run)
    base = base_of(progress, turn.team.base)
    assert base is not None, "turns begin when the start is judged"
    written = run.candidates.filter(turn=turn).count()
    known = {Design(design) for design in run.candidates.values_list("design", flat=True)}
    return Brief(
        role=turn.role.key,
        posture=turn.role.posture,
        objective=turn.role.charter,
        base=seen(base, "full"),
        attempts=tuple(_visible(progress.judged, turn.role)),
        avoid=memory.known_failures(run),
        written=written,
        limit=turn.brief["limit"],
        space=space,
        is_known=known.__contains__,
        rng=random.Random(f"{run.seed}/{turn.number}/{written}"),
    )


def _visible(judged: Iterable[Judged], role: Role) -> Iterable[Attempt]:
    for one in judged:
        level = "full" if one.role in (role.key, "start") else role.sees.get(one.role, role.sees.get("*", "none"))
        if level != "none":
            yield seen(one, level)


def seen(one: Judged, level: str) -> Attempt:
    """A verdict at one level of sight: scores hide the design, a summary hides rows and messages."""
    if level == "scores":
        return Attempt(one.number, one.role, one.status, one.score)
    groups, message = (one.groups, one.message) if level == "full" else ({}, "")
    return Attempt(one.number, one.role, one.status, one.score, one.parent, one.design, groups, message)


def finish(run: Run) -> bool:
    """End a run that has nothing open: budget spent or asked to stop, and the best claim looked at."""
    ending = run.state == Run.State.STOPPING or (run.state == Run.State.RUNNING and not budget.allows_candidate(run))
    if not ending or run.turns.filter(ended_at__isnull=True).exists() or run.reports.waiting().exists():
        return False
    reason = run.state_reason or ("stopped" if run.state == Run.State.STOPPING else "the budget is spent")
    with run.held():
        return run.end(Run.State.DONE, reason)


def stop_at_floor(run: Run) -> bool:
    """Stop a run whose verified best takes hardly longer than reading the data: there is nothing left to gain."""
    if run.state != Run.State.RUNNING or run.best is None:
        return False
    ratio = floor_ratio(run.best)
    if ratio is None or ratio > thresholds_of(run).at_floor:
        return False
    with run.held():
        reason = f"at the floor: {ratio:.2f} times as long as reading the data alone"
        if not run.move(Run.State.STOPPING, state_reason=reason):
            return False
        run.record("at_floor", ratio=ratio)
    return True


def give_up(run: Run) -> bool:
    """Fail a run whose start could not be judged, through no fault of its own."""
    if run.state != Run.State.RUNNING or run.reports.waiting().exists() or run.reports.judged().exists():
        return False
    start = run.reports.order_by("pk").first()
    why = f"the start could not be judged: {start.message if start else 'it was never asked for'}"
    with run.held():
        return run.end(Run.State.FAILED, why[:2000])


def withdraw(run: Run) -> bool:
    """Take back what a stopping run had queued and the judge has not begun."""
    if run.state != Run.State.STOPPING:
        return False
    queued = run.reports.filter(state=Report.State.QUEUED, is_verification=False)
    if not queued.exists():
        return False
    with run.held():
        for report in queued:
            if report.move(Report.State.WITHDRAWN):
                budget.settle(run, report.pk, 0.0, charged=False)
    return True
