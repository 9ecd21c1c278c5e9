"""The bench on an NVIDIA GPU: memory that the parent owns and the children map, device events on a cold cache.

The parent writes contents and copies outputs away; candidate and baselines are processes of their own that alternate on
the device. A process that the device comes back to finds neither its code nor the addresses of its pages in the
device's caches (that is worth up to 6 us), so a timed call follows two untimed ones on other contents. What the timed
one is asked comes after these, by a copy that leaves the process on the device. It is timed there, between events
behind a write that empties the second-level cache. What a process says of its own times is believed only as far as
`audit.py` bears it out.

Outside a call's contents the inputs' memory holds nothing but NaN, so contents can lie anywhere in it at the price of
writing no more than a call reads.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Any

from benchmarks import arena, audit, build, canaries, driver, sandbox, surroundings
from benchmarks.arena import Place
from benchmarks.bench import Bench, Call, Progress, Refer, Rhythm, Side, nothing, with_role
from benchmarks.candidate import Candidate, Language, Source
from benchmarks.driver import DeviceArena
from benchmarks.paths import home
from benchmarks.queued import Queue
from benchmarks.report import SCOPES
from benchmarks.worker import CandidateError, JudgeError, Setup, Worker
from kernels.task import Source as Contents
from kernels.task import Task, TensorSpec, Workload

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.trial import Trial

SLACK = 64 << 20
"""Contents are moved about by as much as this. Over all of the device's memory would be worse: a process meets few of
its pages' addresses again then, and each is a look-up of a microsecond."""
QUEUE = 128
"""Most calls of a queue."""
SMALL_BYTES = 4 << 20
"""Inputs up to this size are written last: after what warms a timed call up, and behind the gate of a queue."""
FLUSH_BYTES = 256 << 20
"""Written by the parent before a queue: several times what the second-level cache holds."""
WARM_SECONDS = 30.0
LOOK_SECONDS = 60.0
SLOW_CYCLES = 2_000_000
"""Of the slow canary."""
CPU_SECONDS, FILE_BYTES, FILES = 3600, 256 << 20, 4096
LOAD_SECONDS = 240
"""To import a kernel that compiles itself, CUDA C++ above all."""
PLAN_SLACK_US = 1000.0
"""The messages around plan() take less; what it claims to have taken less than that is not believed."""


Specs = dict[str, TensorSpec]


class CudaBench(Bench):
    """One device for all children, which take turns."""

    device = "cuda"
    clock = "device events on a cold second-level cache, audited by the parent's clock"
    rhythm = Rhythm(rounds=4, block_us=0.0, most_calls=6, least_calls=6, of_visit=median, quiet_seconds=12.0)
    scopes = SCOPES
    wall_apart = True
    compile_seconds = 60.0
    renews = False
    suspicious = 4.0

    def __init__(self, task: Task, *, choice: sandbox.Choice = "auto", progress: Progress = lambda _: None) -> None:
        driver.require_device()
        super().__init__(task, choice=choice, progress=progress)
        import torch  # noqa: PLC0415

        torch.set_grad_enabled(False)
        inputs = [with_role(specs, inputs=True) for specs in self.layouts]
        large, small, plan = zip(*(self.parts(specs) for specs in inputs), strict=True)
        self._small_bytes, self._plan_bytes = arena.room_for(small), arena.room_for(plan)
        self._large_bytes = arena.room_for(large) + SLACK
        self.inputs = DeviceArena(self._large_bytes + self._plan_bytes + QUEUE * self._small_bytes)
        self.call_bytes = arena.room_for([with_role(s, inputs=False) for s in self.layouts])
        self.queue_room = QUEUE
        self._arenas = [self.inputs]
        self._gates: list[int] = []
        self._written = 0
        self._late: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self.warm_up()

    @cached_property
    def source(self) -> Contents:
        """Where calls get their contents."""
        return self.task.source(self.device, self.rng.getrandbits(62))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        super().__exit__(kind, error, tb)
        self._late.clear()
        for memory in self._arenas:
            memory.close()
        for descriptor in self._gates:
            os.close(descriptor)

    def device_name(self) -> str:
        """The GPU as its driver names it."""
        import torch  # noqa: PLC0415

        return torch.cuda.get_device_name()

    def baseline_version(self, source: Source) -> str:
        """FlashInfer's version and the hash of the program that calls it."""
        try:
            found = f"flashinfer {version('flashinfer-python')}"
        except PackageNotFoundError:
            found = "flashinfer is not installed"
        return f"{found}, {source.sha256[:12]}"

    def tools(self) -> dict[str, str]:
        """torch, Triton, nvcc and the driver."""
        import torch  # noqa: PLC0415

        try:
            triton = version("triton")
        except PackageNotFoundError:
            triton = "none"
        return {
            "compiler": build.nvcc_version(), "triton": triton, "cuda": str(torch.version.cuda),
            "driver": surroundings.driver_version(),
        }  # fmt: skip

    def choose_box(self, choice: sandbox.Choice) -> sandbox.Sandbox:
        """bubblewrap with the device in it, else namespaces alone, else none: whatever runs a CUDA program."""
        return sandbox.choose_for_gpu(choice)

    def can_build(self, source: Source) -> bool:
        """Is there nvcc, where it is needed?"""
        return source.language != "cuda" or build.nvcc() is not None

    def build(self, candidate: Candidate) -> dict[str, Any]:
        """Compile its .cu files; Triton and PyTorch compile when they are called first."""
        return build.build_cuda(candidate, self.box)

    def start_worker(self, folders: Iterable[Path], language: Language, *, ours: bool = False) -> Worker:
        """A fresh sandboxed process on the device; what it compiles lands in a folder of the bench's."""
        outputs, gate = DeviceArena(QUEUE * self.call_bytes), os.memfd_create("gate")
        os.ftruncate(gate, mmap.PAGESIZE)
        self._arenas.append(outputs)
        self._gates.append(gate)
        folders = list(folders)
        cache = home() / "flashinfer" if ours else self.scratch / f"compiled-{folders[0].name}"
        cache.mkdir(parents=True, exist_ok=True)
        paths = surroundings.foreign_paths() if ours else []
        settings = {
            "device": "cuda", "torch": True, "gate": gate, "paths": paths,
            "inputs": self.inputs.handle, "input_bytes": self.inputs.size,
            "outputs": outputs.handle, "output_bytes": outputs.size,
            "memory_bytes": None, "cpu_seconds": CPU_SECONDS, "file_bytes": FILE_BYTES, "files": FILES,
        }  # fmt: skip
        setup = Setup(
            settings, outputs, True, visible=[*folders, *map(Path, paths)], writable=[cache],
            hidden=[] if ours else surroundings.foreign_packages(), descriptors=(gate,), gate=gate,
            load_seconds=LOAD_SECONDS, environment=surroundings.environment(cache),
            foreign_libraries=() if ours else surroundings.FOREIGN[:4],
        )  # fmt: skip
        return self.kept(Worker(self.box, setup, cwd=self.scratch))

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Nobody else who asks for this lock times anything on the device meanwhile."""
        import torch  # noqa: PLC0415

        name = str(torch.cuda.get_device_properties(0).uuid)
        path = Path(tempfile.gettempdir()) / f"regroup-gpu-{name}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

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
        """`refer` sees the inputs before the call, so that a kernel that changes them changes nothing for it."""
        import torch  # noqa: PLC0415

        if companion:
            self._accompany(companion, workload, limit_s)
        specs = self.task.tensors(workload)
        places = self.place(specs)
        decoy = {n: p for n, p in self.place(specs, 1).items() if specs[n].role != "plan"} if timed else {}
        tensors = self.write_plan(workload, [places, decoy])
        targets, plan_us = self._announce(side, workload, places, decoy)
        if decoy:
            self.source.fill(workload, self.inputs.tensors(decoy), only=set(decoy))
        self.source.fill(workload, tensors)
        for tensor in targets.values():
            tensor.fill_(float("nan"))
        refer(tensors)
        before = None if timed else driver.sums(tensors)
        torch.cuda.synchronize()
        if timed:
            self._go_timed(side, workload, tensors, wall=wall)
        else:
            side.worker.go()
        us = side.worker.finish(limit_s)
        outputs = {name: tensor.clone() for name, tensor in targets.items()}
        if before is not None and (changed := [n for n, s in driver.sums(tensors).items() if s != before[n]]):
            raise CandidateError("wrong_result", f"the kernel changed its input {changed[0]}")
        torch.cuda.synchronize()
        return Call(workload, tensors, outputs, us, us if wall else None, plan_us)

    def _accompany(self, side: Side, workload: Workload, limit_s: float) -> None:
        try:
            self.call(side, workload, limit_s, timed=True)
        except CandidateError as error:
            raise JudgeError(f"baseline {side.slot}: {error.message}") from None

    @staticmethod
    def parts(specs: Mapping[str, TensorSpec]) -> tuple[Specs, Specs, Specs]:
        """Inputs that are large (caches), small (queries), and seen by plan()."""
        seen = {n: s for n, s in specs.items() if s.role == "plan"}
        small = {n: s for n, s in specs.items() if s.role == "input" and arena.size_of(s) <= SMALL_BYTES}
        return {n: s for n, s in specs.items() if s.role == "input" and n not in small}, small, seen

    def place(self, specs: Mapping[str, TensorSpec], number: int = 0) -> dict[str, Place]:
        """Places of a call's inputs; those of several calls (`number`) may share large ones' memory, nothing else."""
        large, small, plan = self.parts(with_role(specs, inputs=True))
        own = self.small_base + number * self._small_bytes
        return {
            **arena.place(large, self.rng, slack=SLACK),
            **arena.place(small, self.rng, base=own),
            **arena.place(plan, self.rng, base=self._large_bytes),
        }

    @property
    def small_base(self) -> int:
        """Where small inputs begin."""
        return self._large_bytes + self._plan_bytes

    def write_plan(self, workload: Workload, calls: Sequence[Mapping[str, Place]]) -> dict[str, Tensor]:
        """Put NaN where the last calls' contents were, and write what plan() may see of these, which share it; the
        first one's tensors."""
        import torch  # noqa: PLC0415

        self.inputs.bytes[: self._written].fill_(0xFF)
        self.inputs.bytes[self._large_bytes :].fill_(0xFF)
        ends = [at + arena.size_of(s) for places in calls for at, s in places.values() if at < self._large_bytes]
        self._written = max(ends, default=0)
        tensors = self.inputs.tensors(calls[0])
        self.source.fill_plan(workload, tensors)
        torch.cuda.synchronize()
        return tensors

    def empty_cache(self) -> None:
        """Write so much that the second-level cache holds nothing of use."""
        self._flush.fill_(1)

    def _go_timed(self, side: Side, workload: Workload, tensors: Mapping[str, Tensor], *, wall: bool) -> None:
        """Take the queries away, let the process warm up on a decoy, and put them back when the call waits for them."""
        import torch  # noqa: PLC0415

        kept = {}
        for name, spec in self.parts(self.task.tensors(workload))[1].items():
            if (key := (name, spec.shape)) not in self._late:
                self._late[key] = torch.empty(spec.shape, dtype=tensors[name].dtype, pin_memory=True)
            kept[name] = self._late[key].copy_(tensors[name])
            tensors[name].fill_(float("nan"))
        torch.cuda.synchronize()
        if not side.worker.enqueue(b"w" if wall else b"t", WARM_SECONDS):
            raise CandidateError("timeout", f"two calls to warm up took more than {WARM_SECONDS:.0f} s")
        for name, there in kept.items():
            tensors[name].copy_(there, non_blocking=True)
        torch.cuda.synchronize()
        side.worker.open_gate()

    def prove_clock(self, slow: Side) -> None:
        """Both the child's events and the parent's clock over a queue."""
        workload = min(self.workloads, key=lambda w: w.tokens)
        least_us = SLOW_CYCLES / driver.most_cycles_per_us()
        canaries.check_clock("the device's clock", self.call(slow, workload, 60.0, timed=True).us, least_us)
        one, five = (Queue(self, slow, workload, n).time(60.0) for n in (1, 5))
        canaries.check_clock("the judge's own clock", (five - one) / 4, least_us)

    def launches(self, side: Side, workload: Workload) -> list[dict[str, Any]] | None:
        """On fresh contents; nothing is timed or compared."""
        import torch  # noqa: PLC0415

        places = self.place(self.task.tensors(workload))
        tensors = self.write_plan(workload, [places])
        self._announce(side, workload, places, {})
        self.source.fill(workload, tensors)
        torch.cuda.synchronize()
        found = side.worker.look(LOOK_SECONDS)
        return found if isinstance(found, list) else []

    def audit(self, trial: Trial, workloads: Sequence[Workload]) -> bool:
        """See audit.py."""
        return audit.audit(self, trial, workloads)

    def _announce(
        self, side: Side, workload: Workload, inputs: Mapping[str, Place], decoy: Mapping[str, Place]
    ) -> tuple[dict[str, Tensor], float | None]:
        """Have a call prepared; its outputs, and the time of plan(). `decoy`: inputs of calls that come first."""
        outputs = with_role(self.task.tensors(workload), inputs=False)
        places = arena.place(outputs, self.rng)
        other = {**decoy, **arena.place(outputs, self.rng, base=self.call_bytes)} if decoy else {}
        begin = time.perf_counter_ns()
        answer = side.worker.prepare(side.slot, self.task, workload, inputs, places, other)
        bracket = (time.perf_counter_ns() - begin) / 1e3
        plan = answer.get("plan_us") if isinstance(answer, dict) else None
        if plan is not None and not (isinstance(plan, float) and 0 < plan < bracket):
            raise CandidateError("cheated", "the time given for plan() is not one that it can have taken")
        return side.worker.outputs.tensors(places), None if plan is None else max(plan, bracket - PLAN_SLACK_US)
