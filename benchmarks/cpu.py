"""The bench on a CPU: sealed shared memory, CPU time of one thread.

Why the clock cannot be cheated (`CpuBench.call`): the child is told the addresses of a call, then its CPU clock is
read, then the contents are written, then it may go; when it answers, its outputs are copied away, then the clock is
read again. All between is counted whatever the child does to its own clocks. It has one thread and no helpers, so
there is nobody else to do the work.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from benchmarks import arena, build, sandbox
from benchmarks.arena import Arena, Place
from benchmarks.bench import Bench, Call, Progress, Refer, Rhythm, Side, nothing, with_role
from benchmarks.candidate import Candidate, Language, Source
from benchmarks.report import RUN_ONLY
from benchmarks.worker import CandidateError, JudgeError, Setup, Worker
from kernels.task import Source as Contents
from kernels.task import Task, TensorSpec, Workload

if TYPE_CHECKING:
    from torch import Tensor

WASH_BYTES = 4 << 20
"""Written before each call, so that second-level caches hold the same nothing whatever went before (2 MB here)."""
MEMORY_BYTES = {False: 4 << 30, True: 24 << 30}
"""Address space of a child without and with torch, which maps several GB that it never touches."""
LIBRARIES_THAT_COMPUTE = ("libtorch", "numpy", "openblas", "mkl", "libblas", "libdnnl")
FILE_BYTES, FILES, CPU_SECONDS = 1 << 16, 64, 1800
"""Largest file that a child may write, files that it may have open, CPU time that it may use."""


class CpuBench(Bench):
    """One core for all children and, while it times them, for the parent as well."""

    device = "cpu"
    clock = "CPU time of one thread, read by the parent"
    # A visit's figure is its shortest call, since whatever disturbs a process adds to its time (on a loaded machine the
    # ratio of one call scatters by 12 %, that of shortest calls by 2 %).
    rhythm = Rhythm(rounds=2, block_us=6000.0, most_calls=8, least_calls=1, of_visit=min, quiet_seconds=6.5)
    scopes = (RUN_ONLY,)
    wall_apart = False
    compile_seconds = 0.0
    renews = True
    suspicious = 20.0

    def __init__(self, task: Task, *, choice: sandbox.Choice = "auto", progress: Progress = lambda _: None) -> None:
        super().__init__(task, choice=choice, progress=progress)
        self._cpu = self.rng.choice(sorted(os.sched_getaffinity(0)))
        self.inputs = Arena(arena.room_for([with_role(s, inputs=True) for s in self.layouts]), sealed=True)
        self._output_bytes = arena.room_for([with_role(s, inputs=False) for s in self.layouts])
        self._arenas: list[Arena] = [self.inputs]
        self.warm_up()

    @cached_property
    def _contents(self) -> tuple[Contents, Tensor]:
        """Where calls get their contents, and what washes the caches; made when first needed, since it needs torch."""
        import torch  # noqa: PLC0415

        torch.set_num_threads(1)  # the children have a core of their own; a second thread here would sit on it
        return self.task.source(self.device, self.rng.getrandbits(62)), torch.zeros(WASH_BYTES, dtype=torch.uint8)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        super().__exit__(kind, error, tb)
        for memory in self._arenas:
            memory.close()

    def device_name(self) -> str:
        """The processor as /proc/cpuinfo names it, with family and model, since names alone are vague on some hosts."""
        facts: dict[str, str] = {}
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
        name = facts.get("model name", platform.machine())
        if "model" in facts:
            name += f" (family {facts.get('cpu family', '?')} model {facts['model']})"
        return f"{name}, 1 thread"

    def baseline_version(self, source: Source) -> str:
        """torch's version and the hash of the program that calls it."""
        return f"torch {version('torch')}, {source.sha256[:12]}"

    def tools(self) -> dict[str, str]:
        """The C compiler."""
        return {"compiler": build.compiler_version()}

    def choose_box(self, choice: sandbox.Choice) -> sandbox.Sandbox:
        """bubblewrap where it works."""
        return sandbox.choose(choice)

    def can_build(self, source: Source) -> bool:
        """Is there a C compiler?"""
        return source.language != "c" or build.compiler() is not None

    def build(self, candidate: Candidate) -> dict[str, Any]:
        """Compile its C files."""
        return build.build_c(candidate, self.box)

    def start_worker(self, folders: Iterable[Path], language: Language, *, ours: bool = False) -> Worker:
        """A fresh sandboxed process that sees these folders (and torch, if it is to host PyTorch programs)."""
        outputs = Arena(self._output_bytes, sealed=False)
        self._arenas.append(outputs)
        torch = language != "c"
        settings = {
            "device": "cpu", "torch": torch,
            "inputs": self.inputs.descriptor, "input_bytes": self.inputs.size,
            "outputs": outputs.descriptor, "output_bytes": outputs.size,
            "memory_bytes": MEMORY_BYTES[torch], "cpu_seconds": CPU_SECONDS, "file_bytes": FILE_BYTES, "files": FILES,
        }  # fmt: skip
        descriptors = (self.inputs.descriptor, outputs.descriptor)
        setup = Setup(
            settings, outputs, torch, visible=list(folders), descriptors=descriptors, cpu=self._cpu,
            foreign_libraries=() if torch else LIBRARIES_THAT_COMPUTE,
        )  # fmt: skip
        return self.kept(Worker(self.box, setup, cwd=self.scratch))

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """The parent moves to the children's core for as long as it times them; they never work at once."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self._cpu})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

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
        """See the top of this file for the order of the steps. Inputs are sealed, so `refer` may be shown them during
        the call, or after it where that is timed; the wall time is measured anyway."""
        source, washer = self._contents
        specs = self.task.tensors(workload)
        places = arena.place(with_role(specs, inputs=True), self.rng)
        tensors = self.inputs.tensors(places)
        source.fill_plan(workload, tensors)
        sides = [side, companion] if companion else [side]
        targets = [self._announce(s, workload, places, with_role(specs, inputs=False)) for s in sides]
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
            if not timed:
                refer(tensors)
            side.worker.finish(limit_s)
            wall_ns = time.perf_counter_ns() - begin
            outputs = {name: tensor.clone() for name, tensor in targets[0].items()}
            side.worker.settle()
            cpu = side.worker.cpu_ns() - clock
        finally:
            if companion:
                finish_companion(companion, limit_s)
        if timed:
            refer(tensors)
        return Call(workload, tensors, outputs, cpu / 1e3, wall_ns / 1e3)

    def _announce(
        self, side: Side, workload: Workload, inputs: Mapping[str, Place], specs: Mapping[str, TensorSpec]
    ) -> dict[str, Tensor]:
        places = arena.place(specs, self.rng)
        side.worker.prepare(side.slot, self.task, workload, inputs, places)
        return side.worker.outputs.tensors(places)


def finish_companion(side: Side, limit_s: float) -> None:
    """Wait for a baseline that made the same call; what goes wrong with it is the judge's fault."""
    try:
        side.worker.finish(limit_s)
    except CandidateError as error:
        raise JudgeError(f"baseline {side.slot}: {error.message}") from None
