"""Many calls of a GPU kernel behind one gate, timed by the parent's clock."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from benchmarks import arena, driver
from benchmarks.arena import Place
from benchmarks.bench import Call, Side, with_role
from benchmarks.calibration import Standard
from benchmarks.check import Sample
from benchmarks.worker import CandidateError
from kernels.task import TensorSpec, Workload

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.cuda import CudaBench

PUT_SECONDS = 0.5
"""A kernel that has not put its calls behind the gate by then waits for the device within a call."""


SLACK = 8 << 20
"""Large inputs are moved about by as much as this."""


def pack(specs: Mapping[str, TensorSpec], calls: int, base: int) -> list[dict[str, Place]]:
    """Tensors of many calls, one behind the other: pages of memory whose addresses a call must look up would be the
    longest part of a short one."""
    places, at = [], base
    for _ in range(calls):
        own = {}
        for name, spec in specs.items():
            own[name] = (at, spec)
            at += -(-arena.size_of(spec) // arena.ALIGN) * arena.ALIGN
        places.append(own)
    return places


class Queue:
    """Calls that share one plan and differ in all other inputs, which come when the calls stand behind the gate. Large
    ones lie anywhere, those of later calls over those of earlier ones, and are out of the caches when the calls begin;
    small ones are each call's own."""

    def __init__(self, bench: CudaBench, side: Side, workload: Workload, calls: int) -> None:
        self.bench, self.side, self.workload = bench, side, workload
        specs = bench.task.tensors(workload)
        large, small, plan = bench.parts(with_role(specs, inputs=True))
        self._parts = (set(large), set(small))
        first = bench.place(specs)
        shared = {name: first[name] for name in plan}
        packed = pack(small, calls, bench.small_base)
        self.inputs = [{**arena.place(large, bench.rng, slack=SLACK), **own, **shared} for own in packed]
        self.places = pack(with_role(specs, inputs=False), calls, 0)
        self.outputs: list[dict[str, Tensor]] = []

    def time(self, limit_s: float) -> float:
        """Microseconds from the opening of the gate until all calls are done; outputs are copied away after that."""
        import torch  # noqa: PLC0415

        bench, worker = self.bench, self.side.worker
        bench.write_plan(self.workload, self.inputs)
        worker.prepare(self.side.slot, bench.task, self.workload, self.inputs[0], self.places[0])
        for target in self._targets():
            for tensor in target.values():
                tensor.fill_(float("nan"))
        torch.cuda.synchronize()
        both = zip(self.inputs, self.places, strict=True)
        worker.ask_queue([[offset for offset, _ in (*i.values(), *o.values())] for i, o in both])
        worker.enqueue(b"q", PUT_SECONDS)
        for part in self._parts:
            for places in self.inputs:
                bench.source.fill(self.workload, bench.inputs.tensors(places), only=part)
            bench.empty_cache()
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        worker.open_gate()
        worker.finish_queue(10 * limit_s)
        us = (time.perf_counter_ns() - begin) / 1e3
        self.outputs = [{name: tensor.clone() for name, tensor in target.items()} for target in self._targets()]
        torch.cuda.synchronize()
        return us

    def check(self, compared: Container[int], standard: Standard) -> None:
        """`CandidateError` if one of these calls' outputs is not right, or one of any repeats an earlier one's."""
        seen: set[tuple[int, ...]] = set()
        for i, (places, outputs) in enumerate(zip(self.inputs, self.outputs, strict=True)):
            marks = tuple(driver.sums(outputs).values())
            if marks in seen:
                raise CandidateError("cheated", f"queued call {i} gave the very output of an earlier one")
            seen.add(marks)
            if i not in compared:
                continue
            sample, tensors = Sample(self.bench, self.workload), self.bench.inputs.tensors(places)
            sample.refer(tensors)
            if wrong := sample.mismatch(Call(self.workload, tensors, outputs, 0.0), standard):
                raise CandidateError(wrong.status, f"call {i}: {wrong.message}")

    def _targets(self) -> list[dict[str, Tensor]]:
        return [self.side.worker.outputs.tensors(places) for places in self.places]
