"""Task and Workload: what every task tells the judge, so that nobody outside its folder need know its name.

A task is a folder `kernels/NAME/` whose module `kernels.NAME.task` holds `TASK`, an instance of a `Task`.
"""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from kernels.space import Space

KERNELS = Path(__file__).parent

Role = Literal["plan", "input", "output"]
"""Who sees a tensor when: `plan` tensors are known to plan() and run(), `input` to run() alone."""


class BadInputError(ValueError):
    """A file, field or flag is not what it must be; the message names it and says what would be right."""


@dataclass(frozen=True)
class TensorSpec:
    """Shape, element type (torch's name: `bfloat16`, `float32`, `int32`) and role of one argument."""

    shape: tuple[int, ...]
    dtype: str
    role: Role


@dataclass(frozen=True)
class Workload:
    """One input of a task. `tokens` counts the keys that all its sequences read together."""

    id: str
    batch_size: int
    tokens: int


@dataclass(frozen=True)
class Captured:
    """One workload's inputs as a file holds them. `axes`: sizes by the definition's names; `scalars`: arguments that
    are numbers; `tensors`: those that plan() sees, as their bytes (int32, little-endian); `where`: names it in errors.
    """

    where: str
    axes: Mapping[str, int]
    scalars: Mapping[str, float]
    tensors: Mapping[str, bytes]


@dataclass(frozen=True)
class Mismatch:
    """Why an output is not right: a status of the protocol and a sentence for the kernel's author."""

    status: str
    message: str


class Source(ABC):
    """Fresh contents for the tensors of a call, from a seed that only the judge knows."""

    @abstractmethod
    def fill_plan(self, workload: Workload, tensors: Mapping[str, Tensor]) -> None:
        """Write what plan() may see, in place."""

    @abstractmethod
    def fill(self, workload: Workload, tensors: Mapping[str, Tensor], only: Collection[str] | None = None) -> None:
        """Write everything else (or only tensors of these names), in place, different at every call.

        What must not be read holds NaN: on a GPU it does so before and is left alone.
        """


class Task(ABC):
    """A kernel to optimise: definition, workloads, inputs, reference, tolerance, baselines."""

    name: str
    title: str
    definition: str
    """What flashinfer-bench calls it; arguments and their order are the same there."""
    entry: tuple[str, ...]
    """Names of run()'s parameters, in order; `state=None` may follow."""
    plan_entry: tuple[str, ...]
    """Names of plan()'s parameters, in order; `device` is torch's name of the device."""
    plan_values: ClassVar[Mapping[str, str]]
    """How those of plan()'s parameters that run() lacks follow from run()'s, as Python."""
    smoke: tuple[str, ...]
    """Ids of the few workloads that stand for all in a first look."""
    inputs: str = ""
    """Which captured inputs its workloads carry, as conditions of reports say it; empty: all are drawn from seeds."""

    @property
    def folder(self) -> Path:
        """Where the task lives."""
        return KERNELS / self.name

    @abstractmethod
    def workloads(self, device: str) -> tuple[Workload, ...]:
        """The published workloads, in the order of reports, sized for this device."""

    @abstractmethod
    def captured(self, found: Mapping[str, Captured], inputs: str) -> Task:
        """This task with captured inputs for all its workloads, by id; `BadInputError` if they are not theirs."""

    @abstractmethod
    def axes(self, workload: Workload) -> dict[str, int]:
        """Sizes of a workload by the definition's names."""

    @abstractmethod
    def holdouts(self, device: str, seed: int) -> tuple[Workload, ...]:
        """Workloads in no published list that an honest kernel gets right; they differ with the seed."""

    @abstractmethod
    def tensors(self, workload: Workload) -> dict[str, TensorSpec]:
        """The tensors of one call by parameter name."""

    @abstractmethod
    def scalars(self, workload: Workload) -> dict[str, float]:
        """Arguments of run() and plan() that are numbers, by parameter name."""

    @abstractmethod
    def source(self, device: str, seed: int) -> Source:
        """Contents for the tensors of this task's workloads on this device."""

    @abstractmethod
    def items(self, workload: Workload) -> Sequence[int]:
        """The parts of a workload whose outputs can be checked alone (sequences): the keys of each."""

    @abstractmethod
    def reference(self, workload: Workload, tensors: Mapping[str, Tensor], items: Sequence[int]) -> dict[str, Tensor]:
        """The right outputs in float64 of these parts (indices into `items`), stacked in this order."""

    @abstractmethod
    def mismatch(
        self,
        workload: Workload,
        outputs: Mapping[str, Tensor],
        expected: Mapping[str, Tensor],
        items: Sequence[int],
        baseline_rmse: float,
    ) -> Mismatch | None:
        """None if the outputs of these parts are within tolerance, else the first thing that is wrong."""

    @abstractmethod
    def rmse(self, outputs: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
        """Root mean square error relative to the root mean square of the reference (no unit)."""

    @abstractmethod
    def bytes_moved(self, workload: Workload) -> int:
        """Bytes that any kernel must read or write at least once."""

    @abstractmethod
    def flops(self, workload: Workload) -> int:
        """Floating-point operations (a multiply-add is two)."""

    @abstractmethod
    def baselines(self, device: str) -> dict[str, Path]:
        """Candidate folders to be judged against, by name."""

    def canaries(self, device: str) -> dict[str, Path]:
        """Candidate folders by what is known of them: `wrong`, `slow` (right, and slower than its constant CYCLES)."""
        return {}

    @abstractmethod
    def floor(self, device: str) -> Path | None:
        """A candidate folder that only reads what the workload must read, where there is one."""

    @abstractmethod
    def start(self, language: str) -> Path:
        """The plain candidate that a run begins from."""

    @abstractmethod
    def space(self, language: str) -> Space:
        """The moves from which agents without a model make candidates; `BadInputError` names the languages."""


def task_names() -> tuple[str, ...]:
    """Every task there is, sorted."""
    return tuple(sorted(p.parent.name for p in KERNELS.glob("*/task.py")))


def load_task(name: str) -> Task:
    """The task of this name; `BadInputError` names those there are."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name not in task_names():
        raise BadInputError(f"no task {name!r}; there is {', '.join(task_names()) or 'none'}")
    task = importlib.import_module(f"kernels.{name}.task").TASK
    assert isinstance(task, Task)
    return task
