"""A machine made ready to judge one task: memory, contents, the baseline's process; and the one way to make a call.

Why the clock cannot be cheated (`Bench.call`): the child is told the addresses of a call, then its CPU clock is
read, then the contents are written, then it may go; when it answers, its outputs are copied away, then the clock is
read again. Work done before the contents exist is useless, work done after the copy is lost, and all between is counted
whatever the child does to its own clocks. It has one thread and no helpers, so there is nobody else to do the work.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from benchmarks import arena, build, sandbox
from benchmarks.arena import Arena, Place
from benchmarks.candidate import Candidate, Source, lay_out, read
from benchmarks.worker import CandidateError, JudgeError, Worker, inside_sha256, load
from kernels.task import Source as Contents
from kernels.task import Task, TensorSpec, Workload

if TYPE_CHECKING:
    from torch import Tensor

Progress = Callable[[str], None]
Meanwhile = Callable[[Mapping[str, "Tensor"]], None]
FLOOR = "floor"
WASH_BYTES = 4 << 20
"""Written before each call, so that second-level caches hold the same nothing whatever went before (2 MB here)."""


def _nothing(_: Mapping[str, Tensor]) -> None:
    """For a call during which the parent waits."""


@dataclass(frozen=True)
class Side:
    """Who makes a call: a kernel loaded under a name in a worker."""

    worker: Worker
    slot: str


@dataclass(frozen=True)
class Call:
    """One finished call: its inputs (until the next call), its outputs as they were when it answered, CPU time, and
    wall time from go to answer."""

    workload: Workload
    tensors: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    cpu_us: float
    wall_us: float


class Bench:
    """Everything that judging one task on one device shares between candidates. Use as a context manager."""

    def __init__(
        self, task: Task, device: str, *, choice: sandbox.Choice = "auto", progress: Progress = lambda _: None
    ) -> None:
        self.task, self.device, self.progress = task, device, progress
        self.box = sandbox.choose(choice)
        self.seed = secrets.randbits(62)
        self.rng = random.Random(self.seed)
        self.workloads = task.workloads(device)
        self._cpu = self.rng.choice(sorted(os.sched_getaffinity(0)))
        self._inside = inside_sha256()
        self._scratch = Path(tempfile.mkdtemp(prefix="regroup-judge-"))
        self._scratch.chmod(0o755)
        holdouts = task.holdouts(device, 0)
        layouts = [task.tensors(w) for w in (*self.workloads, *holdouts)]
        self.inputs = Arena(arena.room_for([_with_role(s, inputs=True) for s in layouts]), sealed=True)
        self._output_bytes = arena.room_for([_with_role(s, inputs=False) for s in layouts])
        self._arenas: list[Arena] = [self.inputs]
        self._workers: list[Worker] = []
        self._met: set[str] = set()
        self._hosts: dict[bool, tuple[Worker, set[str]]] = {}
        self._host(twin=False)  # it imports torch beside all that comes first

    @cached_property
    def _contents(self) -> tuple[Contents, Tensor]:
        """Where calls get their contents, and what washes the caches; made when first needed, since it needs torch."""
        import torch  # noqa: PLC0415

        torch.set_num_threads(1)  # the children have a core of their own; a second thread here would sit on it
        return self.task.source(self.device, self.rng.getrandbits(62)), torch.zeros(WASH_BYTES, dtype=torch.uint8)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for worker in self._workers:
            if worker.alive:
                worker.close()
        for memory in self._arenas:
            memory.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def is_untouched(self) -> bool:
        """Is the program that hosts candidates still the one that this bench began with?"""
        return inside_sha256() == self._inside

    def lay_out(self, source: Source) -> Candidate:
        """Copy a source where the sandbox may show it; every candidate gets a folder of its own."""
        return lay_out(source, self._scratch / f"{len(list(self._scratch.iterdir()))}-{source.sha256[:12]}")

    def start_worker(self, folders: Iterable[Path], *, torch: bool) -> Worker:
        """A fresh sandboxed process that sees these folders (and torch, if it is to host PyTorch programs)."""
        outputs = Arena(self._output_bytes, sealed=False)
        self._arenas.append(outputs)
        worker = Worker(
            self.box, self.inputs, outputs, torch=torch, visible=list(folders), cpu=self._cpu, cwd=self._scratch
        )
        self._workers.append(worker)
        return worker

    def baseline_side(self, name: str, *, twin: bool = False) -> Side:
        """The baseline of this name, in the one process that hosts them all or in that one's twin (for A/A)."""
        worker, loaded = self._host(twin)
        if name not in loaded:
            path = self.task.baselines(self.device)[name]
            try:
                load(worker, name, Candidate(read(path), path))
            except CandidateError as error:
                raise JudgeError(f"baseline {name}: {error.message}") from None
            loaded.add(name)
        return Side(worker, name)

    def _host(self, twin: bool) -> tuple[Worker, set[str]]:
        if twin not in self._hosts or not self._hosts[twin][0].alive:
            self._hosts[twin] = (self.start_worker([self.task.folder / "baselines"], torch=True), set())
        return self._hosts[twin]

    def renew(self) -> None:
        """Give the baselines a fresh process, which imports torch beside what comes next."""
        for worker, _ in self._hosts.values():
            if worker.alive:
                worker.close()
        self._hosts.clear()
        self._met.clear()
        self._host(twin=False)

    def meets(self, workload: Workload) -> bool:
        """Is this the first time that the baselines' process is to see this workload? It is not, after this."""
        first = workload.id not in self._met
        self._met.add(workload.id)
        return first

    @contextmanager
    def on_one_core(self) -> Iterator[None]:
        """The parent moves to the children's core for as long as it times them; they never work at once."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self._cpu})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def floor_side(self) -> Side | None:
        """A kernel that only reads, where the task has one and it can be built here."""
        path = self.task.floor(self.device)
        if path is None or build.compiler() is None:
            return None
        candidate = self.lay_out(read(path))
        build.build(candidate, self.box)
        worker = self.start_worker([candidate.folder], torch=False)
        load(worker, FLOOR, candidate)
        return Side(worker, FLOOR)

    def call(
        self,
        side: Side,
        workload: Workload,
        limit_s: float,
        *,
        meanwhile: Meanwhile = _nothing,
        companion: Side | None = None,
    ) -> Call:
        """Let a side make one call on fresh contents; see the top of this file for the order of the steps.

        Where nothing is timed, `meanwhile` is done here during the call, and a `companion` makes the same call.
        """
        source, washer = self._contents
        specs = self.task.tensors(workload)
        places = arena.place(_with_role(specs, inputs=True), self.rng)
        tensors = self.inputs.tensors(places)
        source.fill_plan(workload, tensors)
        sides = [side, companion] if companion else [side]
        targets = [self._announce(s, workload, places, _with_role(specs, inputs=False)) for s in sides]
        side.worker.settle()
        clock = side.worker.cpu_ns()
        source.fill(workload, tensors)
        for tensor in targets[0].values():
            tensor.fill_(float("nan"))
        washer.add_(1)
        begin = time.perf_counter_ns()
        for s in reversed(sides):
            s.worker.go()
        try:
            meanwhile(tensors)
            side.worker.finish(limit_s)
            wall = time.perf_counter_ns() - begin
            outputs = {name: tensor.clone() for name, tensor in targets[0].items()}
            side.worker.settle()
            cpu = side.worker.cpu_ns() - clock
        finally:
            if companion:
                _finish_companion(companion, limit_s)
        return Call(workload, tensors, outputs, cpu / 1e3, wall / 1e3)

    def _announce(
        self, side: Side, workload: Workload, inputs: Mapping[str, Place], specs: Mapping[str, TensorSpec]
    ) -> dict[str, Tensor]:
        places = arena.place(specs, self.rng)
        side.worker.prepare(side.slot, self.task, workload, inputs, places)
        return side.worker.outputs.tensors(places)


def _finish_companion(side: Side, limit_s: float) -> None:
    try:
        side.worker.finish(limit_s)
    except CandidateError as error:
        raise JudgeError(f"baseline {side.slot}: {error.message}") from None


def _with_role(specs: Mapping[str, TensorSpec], *, inputs: bool) -> dict[str, TensorSpec]:
    return {name: spec for name, spec in specs.items() if (spec.role != "output") == inputs}
