"""`python -m benchmarks attacks`: each attack must fool the naive judge and must not fool the real one; each honest
kernel must pass the real one.

An attack is caught when the real judge does not pass it, or passes it with a figure that its trick did not improve.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import build, candidate, sandbox
from benchmarks.bench import Bench, open_bench
from benchmarks.candidate import Source
from benchmarks.judge import judge
from benchmarks.report import Report
from benchmarks.screen import DEVICES
from benchmarks.worker import INSIDE, CandidateError
from kernels.task import BadInputError, Task, load_task

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NAIVE_SECONDS = 120
DEFAULT_CLAIM = 1.5
"""The naive judge must see at least this speedup (the honest kernel behind most attacks has about 1.0)."""
NO_GAIN = 1.3
"""A passed attack has gained nothing if it is at most this many times as fast as the baseline."""


@dataclass(frozen=True)
class Attack:
    """A cheating candidate; `claim` is the speedup that the naive judge must believe (0: being passed is enough)."""

    task: str
    source: Source
    description: str
    claim: float


@dataclass(frozen=True)
class Outcome:
    """What became of an attack or an honest kernel: `good` is what is wanted of it."""

    name: str
    good: bool
    verdict: str


def attacks(task: str, device: str = "cpu") -> Iterator[Attack]:
    """All attacks on a task that there are on a device, with the files that they share."""
    folder = HERE / task
    shared = {"honest.py": (folder / "honest.py").read_bytes()}
    shared_in_c = {"plain.h": (load_task(task).start("c") / "kernel.c").read_bytes()}
    here = [*folder.glob("*/kernel.py"), *(folder.glob("on_cuda/*/kernel.py") if device == "cuda" else ())]
    for path in sorted(p.parent for p in here):
        source = candidate.read(path)
        if device not in DEVICES[source.language]:
            continue
        extra = shared_in_c if source.language == "c" else shared
        tree = ast.parse(source.files["kernel.py"])
        claims = {
            getattr(n.targets[0], "id", ""): ast.literal_eval(n.value)
            for n in tree.body
            if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "").startswith("CLAIMS")
        }
        yield Attack(
            task,
            Source(source.name, {**source.files, **extra}),
            (ast.get_docstring(tree) or "").splitlines()[0],
            claims.get(f"CLAIMS_ON_{device.upper()}", claims.get("CLAIMS", DEFAULT_CLAIM)),
        )


def honest(task: Task, device: str = "cpu") -> Iterator[Source]:
    """Kernels that must pass: the plain starts and all that the task ships for the device, PyTorch baselines too."""
    folders = {
        task.start("pytorch"),
        *task.baselines("cpu").values(),
        *(p.parent for p in task.folder.glob("*/kernel.py")),
    }
    sources = [candidate.read(folder) for folder in sorted(folders)]
    yield from (source for source in sources if device in DEVICES[source.language])


def fools_the_naive_judge(attack: Attack, device: str = "cpu") -> Outcome:
    """Run the naive judge in a scratch folder of its own and see whether it believes the attack."""
    with tempfile.TemporaryDirectory() as scratch:
        laid = candidate.lay_out(attack.source, Path(scratch) / "candidate")
        build.build_c(laid, sandbox.choose("auto"))
        shutil.copy(HERE / "naive.py", scratch)
        (Path(scratch) / "settings.json").write_text(json.dumps({"tolerance": 1.0}))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        argv = [sys.executable, "naive.py", attack.task, str(laid.folder), device]
        try:
            done = subprocess.run(
                argv, cwd=scratch, env=environment, capture_output=True, text=True, timeout=NAIVE_SECONDS, check=False
            )
            verdict = json.loads(done.stdout.strip().splitlines()[-1])
        except (subprocess.TimeoutExpired, ValueError, IndexError):
            return Outcome(attack.source.name, False, "the naive judge gave no verdict")
    for left in Path(tempfile.gettempdir()).glob("replay-*.bin"):
        left.unlink()
    believed = verdict["status"] == "passed" and verdict["speedup"] >= attack.claim
    return Outcome(attack.source.name, believed, f"{verdict['status']} with {verdict['speedup']:.2f}x")


def is_caught(bench: Bench, attack: Attack) -> Outcome:
    """Let the real judge see it, on the smoke workloads."""
    report = _judge(bench, attack.source)
    (INSIDE / "settings.json").unlink(missing_ok=True)  # what edits_the_harness leaves where no sandbox holds it
    summary = report.summary()
    if report.status == "judge_error":
        return Outcome(attack.source.name, False, f"judge_error: {report.message}")
    if summary is None:
        return Outcome(attack.source.name, True, f"{report.status} at {stage_of(report)}: {reason(report)}")
    gained = summary.geomean > NO_GAIN or attack.claim == 0
    word = "passed" if gained else "passed, but gained nothing:"
    return Outcome(attack.source.name, not gained, f"{word} {summary.geomean:.2f}x")


def passes(bench: Bench, source: Source) -> Outcome:
    """An honest kernel, on the smoke workloads."""
    report = _judge(bench, source)
    good = report.status == "passed" and not report.findings
    return Outcome(source.name, good, report.status if good else f"{report.status}: {reason(report)}")


def _judge(bench: Bench, source: Source) -> Report:
    smoke = [w for w in bench.workloads if w.id.startswith(bench.task.smoke)]
    return judge(bench, source, smoke)


def stage_of(report: Report) -> str:
    """The last stage that it reached."""
    return [stage for stage in report.seconds if stage not in ("calibrate", "profile", "total")][-1]


def reason(report: Report) -> str:
    """The first sentence that says why, in one line."""
    messages = [
        report.message,
        *(h["message"] for h in report.holdouts),
        *(row.message for row in report.rows),
        *(f["message"] for f in report.findings),
    ]
    return next((m for m in messages if m), "").replace("\n", " ")[:150]


def run(
    only: Sequence[str] | None,
    device: str,
    choice: sandbox.Choice,
    progress: Callable[[str], None],
    say: Callable[[str], None],
) -> int:
    """Everything, as a table; 0 if all is as it must be."""
    tasks = sorted(p.name for p in HERE.iterdir() if (p / "honest.py").is_file())
    chosen = [a for task in tasks for a in attacks(task, device) if only is None or a.source.name in only]
    if not chosen:
        raise BadInputError(f"--only: no attack is called {' or '.join(only or ())}")
    bad = 0
    for task in tasks:
        with open_bench(load_task(task), device, choice=choice, progress=progress) as bench:
            say(f"{task} on {bench.device_name()}, sandbox: {bench.box.kind}\n")
            for attack in (a for a in chosen if a.task == task):
                bad += _show_attack(bench, attack, progress, say)
            for source in honest(bench.task, device) if only is None else ():
                outcome = passes(bench, source)
                bad += not outcome.good
                progress("")
                say(f"{'ok' if outcome.good else 'REFUSED':<9}{outcome.name:<28}honest: {outcome.verdict}")
    say(f"\n{len(chosen)} attacks, {bad} of all not as they must be")
    return 1 if bad else 0


def _show_attack(bench: Bench, attack: Attack, progress: Callable[[str], None], say: Callable[[str], None]) -> bool:
    try:
        fooled, caught = fools_the_naive_judge(attack, bench.device), is_caught(bench, attack)
    except CandidateError as error:
        fooled, caught = Outcome(attack.source.name, False, error.message), Outcome(attack.source.name, False, "")
    good = fooled.good and caught.good
    word = "caught" if good else "PASSED" if not caught.good else "HARMLESS"
    progress("")
    say(f"{word:<9}{attack.source.name:<28}naive judge: {fooled.verdict:<24} real judge: {caught.verdict}")
    return not good
