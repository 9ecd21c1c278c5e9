"""One candidate before the judge: its process, its rows, what it has answered so far."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.bench import Bench, Side
from benchmarks.calibration import Standard
from benchmarks.candidate import Candidate
from benchmarks.report import Row
from benchmarks.worker import load
from kernels.task import Workload

if TYPE_CHECKING:
    from torch import Tensor

SLOT = "candidate"
MOST_HASHED = 1 << 14
"""Bytes of an output that are remembered: the first sequence of a batch."""
MOST_RESTARTS = 3
"""A candidate that crashes gets a new process for the workloads that are left, this many times."""


@dataclass
class Trial:
    """`candidate` None stands for the baselines themselves (A/A): each workload by its own, in a second process."""

    bench: Bench
    candidate: Candidate | None
    standards: Mapping[str, Standard]
    rows: dict[str, Row]
    findings: list[dict[str, Any]] = field(default_factory=list)
    holdouts: list[dict[str, Any]] = field(default_factory=list)
    restarts: int = 0
    _side: Side | None = None
    _seen: dict[str, set[str]] = field(default_factory=dict)

    def side(self, workload: Workload) -> Side:
        """Who makes the candidate's call on this workload; starts or restarts its process as needed."""
        if self.candidate is None:
            standard = self.standards.get(workload.id) or next(iter(self.standards.values()))  # a hold-out has none
            return self.bench.baseline_side(standard.baseline, twin=True)
        if self._side is not None and not self._side.worker.alive:
            self.restarts += 1
            self._side = None
        if self._side is None:
            worker = self.bench.start_worker([self.candidate.folder], self.candidate.source.language)
            load(worker, SLOT, self.candidate)
            self._side = Side(worker, SLOT)
        return self._side

    def baseline(self, workload: Workload) -> Side:
        """Who the candidate is measured against on this workload."""
        return self.bench.baseline_side(self.standards[workload.id].baseline)

    def confine(self, workloads: Sequence[Workload]) -> None:
        """Everything is compiled now: the candidate's process may start no other from here on."""
        if self.candidate is not None and self.bench.compile_seconds > 0:
            self.side(workloads[0]).worker.confine()

    @property
    def given_up(self) -> bool:
        """It has died too often to be started again."""
        dead = self._side is not None and not self._side.worker.alive
        return dead and self.restarts >= MOST_RESTARTS

    def end(self) -> None:
        """End its process; a later call starts a fresh one."""
        if self._side is not None and self._side.worker.alive:
            self._side.worker.close()
        self._side = None

    def repeats(self, workload: Workload, outputs: Mapping[str, Tensor]) -> bool:
        """Has it given the same bits before for this workload, whose contents differ at every call? Remembers them."""
        digest = hashlib.sha256()
        for tensor in outputs.values():
            some = tensor.reshape(-1)[: MOST_HASHED // tensor.element_size()].cpu()
            digest.update(ctypes.string_at(some.data_ptr(), some.numel() * some.element_size()))
        seen = self._seen.setdefault(workload.id, set())
        known = digest.hexdigest() in seen
        seen.add(digest.hexdigest())
        return known
