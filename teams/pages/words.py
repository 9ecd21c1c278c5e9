"""Events, signals and states in words, for people who have not read the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from teams.models import Event, Report, Run

SIGNALS = {
    "no_gain": "no gain",
    "falling_gain": "falling gain",
    "spend_since_gain": "spend without gain",
    "same_failure": "the same failure again",
    "near_identical": "near-identical candidates",
    "retreat": "retreat",
    "missing_debugger": "nobody repairs",
    "missing_analyst": "nobody reads the rows",
    "group_worse": "a batch size got worse",
    "stage_correct": "first correct",
    "stage_faster": "first faster than the baseline",
    "stage_near_floor": "near the floor",
}
CAUSES = {
    "new_stage": "a new stage",
    "at_limit": "at the limit",
    "missing_capability": "missing capability",
    "duplicate_work": "duplicate work",
    "local_optimum": "local optimum",
    "budget": "budget",
    "asked": "a person asked",
    "random": "chance (a control)",
    "none": "no answer",
}
STATUSES = {
    "passed": "passed",
    "partial": "far slower",
    "failed": "wrong",
    "build_error": "does not build",
    "screened_out": "screened out",
    "cheated": "cheated",
    "judge_error": "judge failed",
}
CLOCKS = {
    "cpu": "CPU time of one thread, read by the judge",
    "cuda": "time on the device with cold caches, audited by the judge's clock",
}
SCOPES = {
    "run_only": "run() alone",
    "plan_and_run": "a plan() for each run()",
    "plan_amortised": "a plan() shared by many runs",
}
QUIET, LOST = timedelta(seconds=90), timedelta(seconds=30)


def factor(value: float | None) -> str:
    """A speedup, with its sign of multiplication; a dash where there is none."""
    return "–" if value is None else f"{value:.2f}×" if value >= 1 else f"{value:.3f}×"


def alive(run: Run, now: datetime) -> str:
    """What two clocks say of a run that should be running: when it was last carried on, and when something happened."""
    if run.has_ended or run.state in (Run.State.PAUSED, Run.State.QUEUED):
        return run.state
    if run.heartbeat_at is None or now - run.heartbeat_at > LOST:
        return "lost"
    if run.progress_at is not None and now - run.progress_at > QUIET:
        return "quiet"
    return run.state


def standing(report: Report | None) -> str:
    """How far a report's figure can be relied on."""
    if report is None:
        return "nothing judged yet"
    if report.geomean and report.verified:
        return "verified where it was measured" if report.run.is_imported else "verified"
    if report.geomean:
        return "measured once, not verified"
    if report.smoke_geomean:
        kind = "verified there alone" if report.verified else "not verified"
        return f"a claim on {report.passed} smoke workloads, {kind}"
    return f"{STATUSES.get(report.status, report.status)}: {report.passed} of {report.workloads} workloads passed"


def sentence(event: Event) -> str:
    """An event as a sentence."""
    words = SENTENCES.get(event.kind)
    return words(event.data) if words else event.kind.replace("_", " ")


def _verdict(d: Mapping[str, Any]) -> str:
    score = f": {factor(d['smoke_geomean'])} on the smoke workloads" if d.get("smoke_geomean") else ""
    lines = str(d.get("message") or "").splitlines() if not score else []
    said = next((line for line in lines if "error: " in line), lines[0] if lines else "")
    message = f" – {said.rpartition('error: ')[2][:140]}" if said else ""
    return f"candidate {d['candidate']} {STATUSES.get(d['status'], d['status'])}{score}{message}"


def _verified(d: Mapping[str, Any]) -> str:
    best = ", the new best" if d.get("best") else ", not better than the best"
    return f"candidate {d['candidate']} verified: {factor(d['geomean'])} on all workloads{best}"


def _restructured(d: Mapping[str, Any]) -> str:
    why = ", ".join(SIGNALS.get(s, s) for s in d["signals"]) or "a person asked"
    return f"team {d['before']} becomes team {d['after']} ({why}): {'; '.join(d['changes'])}"


def _command(said: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda d: (
        f"{str(d['command_kind']).replace('_', ' ')} {said}, {d['actor']}"
        + (f": {d['why']}" if d.get("why") else f": {d['note']}" if d.get("note") else "")
    )


SENTENCES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "created": lambda d: f"run created: {d['strategy']}, {d['agents']} agents, seed {d['seed']}",
    "imported": lambda d: f"imported from {d['file']} by {d['actor']}",
    "language": lambda d: str(d["why"]),
    "begun": lambda d: f"begun: agents write {d['language']}",
    "team": lambda d: f"team {d['team']} takes its seats: {', '.join(d['roles'])}",
    "turn": lambda d: f"turn {d['turn']}: {d['role']} starts from candidate {d['base']}",
    "candidate": lambda d: f"candidate {d['candidate']} by {d['role']}: {d['title']}",
    "verdict": _verdict,
    "verification_asked": lambda d: f"candidate {d['candidate']} is measured again, on all workloads",
    "verified": _verified,
    "refuted": lambda d: f"candidate {d['candidate']} was not borne out: {d.get('message') or d['status']}",
    "judge_error": lambda d: f"the judge failed at candidate {d['candidate']}, nobody is charged: {d['message']}",
    "handover": lambda d: f"{d['role']} hands over: {d['summary']}, {d['failed']} failed, best {factor(d['best'])}",
    "signal": lambda d: f"signal {SIGNALS.get(d['signal_kind'], d['signal_kind'])}: {d['message']}",
    "restructured": _restructured,
    "team_kept": lambda d: "no rule gives another team; it stays",
    "outcome": lambda d: f"outcome {d['outcome']}: {factor(d['before'])} before, {factor(d['after'])} after",
    "at_floor": lambda d: f"at the floor: {d['ratio']:.2f} times as long as reading the data alone",
    "command_requested": _command("requested"),
    "command_accepted": _command("accepted"),
    "command_effective": _command("in force"),
    "command_refused": _command("refused"),
    "done": lambda d: f"done: {d['reason']}",
    "failed": lambda d: f"failed: {d['reason']}",
}
