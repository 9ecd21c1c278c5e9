"""A machine made ready to judge one task: memory, contents, the baseline's process; and the one way to make a call.

What every device shares is here; `cpu.py` and `cuda.py` hold memory, clock and rhythm of theirs. In both, contents of
a call are written when its process is already waiting for it, and outputs are copied away before anything else happens:
work done before the contents exist is useless, work done after the copy is lost.
"""

from __future__ import annotations

import random
import secrets
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks import canaries, sandbox
from benchmarks.candidate import Candidate, Language, Source, lay_out, read
from benchmarks.worker import CandidateError, JudgeError, Worker, inside_sha256, load
from kernels.task import BadInputError, Task, TensorSpec, Workload

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.trial import Trial

Progress = Callable[[str], None]
Refer = Callable[[Mapping[str, "Tensor"]], None]
FLOOR = "floor"


def nothing(_: Mapping[str, Tensor]) -> None:
    """For a call whose outputs nobody compares."""


@dataclass(frozen=True)
class Side:
    """Who makes a call: a kernel loaded under a name in a worker."""

    worker: Worker
    slot: str


@dataclass(frozen=True)
class Call:
    """One finished call: its inputs (until the next call), its outputs as they were when it answered, and its times in
    microseconds: `us` by the device's clock (scope run_only), `wall_us` of the whole call where that was measured,
    `plan_us` of plan() where that is timed apart."""

    workload: Workload
    tensors: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    us: float
    wall_us: float | None = None
    plan_us: float | None = None


@dataclass(frozen=True)
class Rhythm:
    """How a device's times are taken: rounds over all workloads, calls of each side in one visit to a workload, what
    a visit's calls come to, and how long workloads whose rounds disagree are visited again (seconds, for all
    workloads)."""

    rounds: int
    block_us: float
    most_calls: int
    least_calls: int
    of_visit: Callable[[Sequence[float]], float]
    quiet_seconds: float

    def calls(self, baseline_us: float) -> int:
        """Calls of each side in one visit."""
        return max(self.least_calls, min(self.most_calls, round(self.block_us / baseline_us)))


class Bench(ABC):
    """Everything that judging one task on one device shares between candidates. Use as a context manager."""

    device: ClassVar[str]
    """torch's name of the kind of device."""
    clock: ClassVar[str]
    """What times are read from, as reports say it."""
    rhythm: ClassVar[Rhythm]
    scopes: ClassVar[tuple[str, ...]]
    """Scopes that it measures."""
    wall_apart: ClassVar[bool]
    """Does the wall time of a whole call need a call of its own?"""
    compile_seconds: ClassVar[float]
    """What a candidate's first call of a workload may take besides, where candidates compile themselves."""
    renews: ClassVar[bool]
    """Do times depend on which process makes a call, so that more of them give a better mean?"""
    suspicious: ClassVar[float]
    """A speedup above this is held up as a finding: nothing honest came near it."""

    def __init__(self, task: Task, *, choice: sandbox.Choice = "auto", progress: Progress = lambda _: None) -> None:
        self.task, self.progress = task, progress
        self.box = self.choose_box(choice)
        self.seed = secrets.randbits(62)
        self.rng = random.Random(self.seed)
        self.workloads = task.workloads(self.device)
        self._inside = inside_sha256()
        self.scratch = Path(tempfile.mkdtemp(prefix="regroup-judge-"))
        self.scratch.chmod(0o755)
        holdouts = task.holdouts(self.device, 0)
        self.layouts = [task.tensors(w) for w in (*self.workloads, *holdouts)]
        self._workers: list[Worker] = []
        self._met: set[str] = set()
        self._proven = False
        self._hosts: dict[bool, tuple[Worker, set[str]]] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for worker in self._workers:
            if worker.alive:
                worker.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    @abstractmethod
    def device_name(self) -> str:
        """The device as reports name it: two reports whose names differ are never compared."""

    @abstractmethod
    def baseline_version(self, source: Source) -> str:
        """What a baseline stands on, and the hash of the program that calls it."""

    @abstractmethod
    def tools(self) -> dict[str, str]:
        """Versions of compilers and drivers, for a report's environment."""

    @abstractmethod
    def choose_box(self, choice: sandbox.Choice) -> sandbox.Sandbox:
        """The sandbox in force on this device."""

    @abstractmethod
    def start_worker(self, folders: Iterable[Path], language: Language, *, ours: bool = False) -> Worker:
        """A fresh sandboxed process that sees these folders. `ours`: it is to host baselines, which may use more."""

    @abstractmethod
    def call(
        self,
        side: Side,
        workload: Workload,
        limit_s: float,
        *,
        refer: Refer = nothing,
        timed: bool = False,
        wall: bool = False,
        companion: Side | None = None,
    ) -> Call:
        """Let a side make one call on fresh contents.

        `refer` is shown the inputs, to compute what the outputs should be. `timed`: the call's time will count.
        `wall`: measure the whole call as Python sees it, where that is not `us` itself. A `companion` makes the same
        call (only where nothing is timed). Errors: `CandidateError`.
        """

    @abstractmethod
    def measuring(self) -> AbstractContextManager[None]:
        """While anything is timed."""

    def audit(self, trial: Trial, workloads: Sequence[Workload]) -> bool:
        """Bear the times out by a clock that the candidate cannot reach, where they were not read from one."""
        return True

    def prove_clock(self, slow: Side) -> None:
        """`JudgeError` if the clocks do not give a kernel that is known to be slow the time that it takes."""
        raise NotImplementedError(f"the task has a slow canary for {self.device}, whose bench cannot prove its clock")

    def launches(self, side: Side, workload: Workload) -> list[dict[str, Any]] | None:
        """The kernels that a call runs on a device, in order, as a profiler in the candidate's process names them (see
        `inside/look.py`); None where there is nothing to look at."""
        return None

    def prove(self) -> None:
        """See canaries.py; once."""
        if not self._proven:
            canaries.prove(self)
        self._proven = True

    def is_untouched(self) -> bool:
        """Is the program that hosts candidates still the one that this bench began with?"""
        return inside_sha256() == self._inside

    def lay_out(self, source: Source) -> Candidate:
        """Copy a source where the sandbox may show it; every candidate gets a folder of its own."""
        return lay_out(source, self.scratch / f"{len(list(self.scratch.iterdir()))}-{source.sha256[:12]}")

    def kept(self, worker: Worker) -> Worker:
        """Remember a worker, to end it when the bench is left."""
        self._workers.append(worker)
        return worker

    def baseline_side(self, name: str, *, twin: bool = False) -> Side:
        """The baseline (or canary) of this name, in the process that hosts them all or in its twin (for A/A)."""
        worker, loaded = self._host(twin)
        if name not in loaded:
            path = {**self.task.baselines(self.device), **self.task.canaries(self.device)}[name]
            try:
                load(worker, name, Candidate(read(path), path))
            except CandidateError as error:
                raise JudgeError(f"baseline {name}: {error.message}") from None
            loaded.add(name)
        return Side(worker, name)

    def _host(self, twin: bool) -> tuple[Worker, set[str]]:
        if twin not in self._hosts or not self._hosts[twin][0].alive:
            paths = (*self.task.baselines(self.device).values(), *self.task.canaries(self.device).values())
            worker = self.start_worker(sorted({p.parent for p in paths}), "pytorch", ours=True)
            self._hosts[twin] = (worker, set())
        return self._hosts[twin]

    def warm_up(self) -> None:
        """Start the baselines' process: it imports torch beside all that comes first."""
        self._host(twin=False)

    def renew(self) -> None:
        """Give the baselines a fresh process, which imports torch beside what comes next."""
        for worker, _ in self._hosts.values():
            if worker.alive:
                worker.close()
        self._hosts.clear()
        self._met.clear()
        self.warm_up()

    def meets(self, workload: Workload) -> bool:
        """Is this the first time that the baselines' process is to see this workload? It is not, after this."""
        first = workload.id not in self._met
        self._met.add(workload.id)
        return first

    def floor_side(self) -> Side | None:
        """A kernel that only reads, where the task has one and it can be built here."""
        path = self.task.floor(self.device)
        if path is None or not self.can_build(source := read(path)):
            return None
        candidate = self.lay_out(source)
        self.build(candidate)
        worker = self.start_worker([candidate.folder], source.language)
        load(worker, FLOOR, candidate)
        return Side(worker, FLOOR)

    @abstractmethod
    def can_build(self, source: Source) -> bool:
        """Is there a compiler for it here?"""

    @abstractmethod
    def build(self, candidate: Candidate) -> dict[str, Any]:
        """Stage `build`: what the compiler noted, for the profile. Errors: `CandidateError`."""


def open_bench(
    task: Task, device: str, *, choice: sandbox.Choice = "auto", progress: Progress = lambda _: None
) -> Bench:
    """The bench for this device; `BadInputError` if there is no such device here."""
    if device == "cpu":
        from benchmarks.cpu import CpuBench  # noqa: PLC0415 - each device's module only where it is used

        return CpuBench(task, choice=choice, progress=progress)
    if device == "cuda":
        from benchmarks.cuda import CudaBench  # noqa: PLC0415

        return CudaBench(task, choice=choice, progress=progress)
    raise BadInputError(f"--device: must be cpu or cuda, not {device!r}")


def with_role(specs: Mapping[str, TensorSpec], *, inputs: bool) -> dict[str, TensorSpec]:
    """The specs of inputs (those that plan() sees, too), or of outputs."""
    return {name: spec for name, spec in specs.items() if (spec.role != "output") == inputs}
