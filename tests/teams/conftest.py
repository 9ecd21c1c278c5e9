"""A run and a judge that answers at once, with reports in the real format."""

import hashlib
import json
import random
from pathlib import Path

import pytest

from benchmarks import candidate as candidates
from benchmarks import report as reports
from benchmarks.serve import select
from kernels.space import Design
from kernels.task import load_task
from teams import workspace
from teams.launch import new_run
from teams.models import Report, Run
from teams.supervisor.loop import Supervisor

TASK = load_task("mla_paged_decode")
SPACE = TASK.space("c")
HELPFUL = {
    ("vectors", "vector extensions"): 2.0,
    ("lanes", 16): 2.0,
    ("convert", "once"): 1.3,
    ("query", "converted once"): 1.4,
    ("order", "keys outside"): 1.2,
    ("values", "in registers"): 0.6,
}
HARMFUL = {("empty", "not handled"), ("tail", "ignored"), ("degree", 1)}


def speedup_of(design):
    """A landscape with a few hills; each program's figure also differs a little from every other's."""
    value = 0.15
    for option, factor in HELPFUL.items():
        if option in design.items():
            value *= factor
    jitter = int(hashlib.sha256(json.dumps(dict(design)).encode()).hexdigest()[:4], 16) / 0xFFFF
    return value * (1 + 0.004 * jitter)


class ReadyJudge:
    """Stands where JudgeProcess does: takes the same requests and leaves the same files, without judging anything."""

    def __init__(self, task="", device="", on_answer=lambda: None):
        self.alive, self.has_room, self.log_file = True, True, Path("/dev/null")
        self.progress, self.errors, self.asked = {}, {}, []
        self.held: set[int] = set()
        self.answers = True
        self.seconds = 1.0

    def ask(self, request, message):
        self.asked.append((request, message))
        self.held.add(request)
        if self.answers:
            self.answer(request, message)

    def answer(self, request, message):
        report = Report.objects.select_related("candidate").get(pk=request)
        judged(report, message, self.seconds).write(Path(message["out"]))
        self.held.discard(request)

    def holds(self, request):
        return request in self.held

    def close(self):
        self.alive = False


def judged(report, message, seconds=1.0):
    """A report as the judge would write it for this request."""
    source = candidates.read(Path(message["path"]))
    assert source.sha256 == report.candidate.source_sha256
    design = Design(report.candidate.design)
    device = report.run.device
    workloads = select(TASK, device, message["workloads"])
    wrong = HARMFUL & set(design.items())
    found = reports.Report(
        task=TASK.name,
        candidate={"name": "x", "source_sha256": source.sha256, "language": "c"},
        conditions={"protocol": 1, "workloads": "all" if message["workloads"] == "all" else [w.id for w in workloads]},
        rows=[reports.Row(w.id, w.batch_size, w.tokens) for w in workloads],
        verified="claim" in message,
        seconds={"total": seconds},
    )
    if wrong:
        found.holdouts.append({"name": "empty", "status": "wrong_result", "message": f"lse[0, 3] is NaN: {wrong}"})
        found.verified = False
        return found
    for row in found.rows:
        row.status, row.floor_us = "passed", 10.0
        for more, scope in enumerate(reports.SCOPES if device == "cuda" else (reports.RUN_ONLY,)):
            timing = row.scopes.setdefault(scope, reports.Timing(next(iter(TASK.baselines(device)))))
            for number in range(1 if device == "cuda" else 2):
                timing.add(number, 1000.0, 1000.0 / speedup_of(design) + 10 * more)
    return found


def cuda_report(verified=True):
    """A report as the judge writes it on a GPU, with three scopes (and one round, since intervals take time)."""
    rng = random.Random(1)
    found = reports.Report(
        task=TASK.name,
        candidate={"name": "fast", "source_sha256": "ab" * 32, "language": "triton"},
        conditions={
            "protocol": 1, "device": "NVIDIA H200", "workloads": "all", "clock": "device events",
            "baseline_versions": {name: f"flashinfer 0.6.13, {name}" for name in TASK.baselines("cuda")},
        },
        rows=[reports.Row(w.id, w.batch_size, w.tokens, "passed", floor_us=5.0) for w in TASK.workloads("cuda")],
        verified=verified,
        command="python -m benchmarks aa",
    )  # fmt: skip
    for row in found.rows:
        for plan_us, scope in zip((0, 90, 1.5), reports.SCOPES, strict=True):
            timing = row.scopes.setdefault(scope, reports.Timing(next(iter(TASK.baselines("cuda")))))
            timing.add(0, 12 + plan_us, rng.uniform(7, 11) + plan_us / 2)
    return found


@pytest.fixture
def home(settings, tmp_path):
    settings.HOME = tmp_path
    return tmp_path


@pytest.fixture
def judge():
    return ReadyJudge()


@pytest.fixture
def supervisor(judge):
    return Supervisor(lambda *_: judge)


@pytest.fixture
def new(db, home):
    """Make a run; its budget is 60 candidates if nothing is said."""

    def make(**options) -> Run:
        return new_run("mla_paged_decode", **{"candidates": 60, **options})

    return make


@pytest.fixture
def carry(supervisor):
    """Carry a run on: until it ends, or until `stop(run)` is true."""

    def until(run, stop=lambda run: run.state in ("done", "failed"), most=2000):
        for _ in range(most):
            supervisor.advance(run)
            run.refresh_from_db()
            if stop(run):
                return run
        raise AssertionError(f"after {most} passes {run} is still {run.state}")

    return until


def files_agree(run):
    assert workspace.disagreements(run) == []
