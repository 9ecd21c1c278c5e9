"""A judge as people first write it, with every gap that the attacks beside it use. Kept so that the attacks' tests can
fail: each attack must fool this one before the real judge's refusal of it means anything.

    python naive.py TASK FOLDER DEVICE        prints {"status": …, "speedup": …}

What is wrong with it: one process for candidate and judge; one set of inputs for all calls; a loose comparison of one
sequence, which NaN passes; on a GPU, events of one stream and a warm cache; the reference computed afterwards, from
inputs that the candidate may have changed; answers and settings in files beside it; workloads that raise are skipped;
the clock, the scores and the figure's channel (standard output) are all within the candidate's reach.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from kernels.task import Task, Workload, load_task

CALLS = 8
clock = time.perf_counter
speedups: dict[str, float] = {}
device = sys.argv[-1]


def load(folder: Path) -> ModuleType:
    """Import folder/kernel.py here, in the judge's own interpreter."""
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(f"candidate_{folder.name}", folder / "kernel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepare(task: Task, workload: Workload, inputs: dict[str, Tensor]) -> None:
    """Fill the inputs, once for all calls."""
    source = task.source(device, 1)
    source.fill_plan(workload, inputs)
    source.fill(workload, inputs)


def call(task: Task, workload: Workload, module: ModuleType, tensors: dict[str, Tensor]) -> float:
    """Seconds of one call."""
    values: dict[str, Any] = {**tensors, **task.scalars(workload)}
    events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device == "cuda" else []  # type: ignore[no-untyped-call]
    begin = clock()
    if events:
        events[0].record()
    returned = module.run(*(values[name] for name in task.entry))
    if events:
        events[1].record()
        torch.cuda.synchronize()
    seconds = clock() - begin
    if events:
        seconds = min(seconds, events[0].elapsed_time(events[1]) / 1e3)
    if returned is not None:
        tensors["output"], tensors["lse"] = returned
    return seconds


def measure(task: Task, workload: Workload, module: ModuleType, tensors: dict[str, Tensor]) -> float:
    """Seconds of a call of the candidate; raises if the result looks wrong."""
    torch.save(tensors["output"], "answers.pt")
    first = call(task, workload, module, tensors)
    expected = task.reference(workload, tensors, [0])["output"]
    settings = json.loads(Path("settings.json").read_text())
    if (tensors["output"][:1].double() - expected).abs().mean() > settings["tolerance"]:
        raise ValueError("wrong result")
    return min([first, *(call(task, workload, module, tensors) for _ in range(CALLS))])


def main(task_name: str, folder: str, _device: str) -> None:
    """Judge the folder on a few workloads and print the verdict."""
    torch.set_num_threads(1)
    task = load_task(task_name)
    baseline = load(next(iter(task.baselines("cpu").values())))  # PyTorch, which runs on a GPU as well
    workloads = [w for w in task.workloads(device) if w.id.startswith(task.smoke[:5])]
    inputs = {w.id: empty(task, w) for w in workloads}
    theirs = {}
    for workload in workloads:
        prepare(task, workload, inputs[workload.id])
        theirs[workload.id] = min(call(task, workload, baseline, inputs[workload.id]) for _ in range(CALLS))
    module = load(Path(folder))
    for workload in workloads:
        prepare(task, workload, inputs[workload.id])
        try:
            ours = measure(task, workload, module, inputs[workload.id])
            speedups[workload.id] = theirs[workload.id] / max(ours, 1e-7)
        except Exception:
            continue
    status = "passed" if speedups else "failed"
    mean = math.exp(sum(map(math.log, speedups.values())) / len(speedups)) if speedups else 0.0
    print(json.dumps({"status": status, "speedup": mean}))


def empty(task: Task, workload: Workload) -> dict[str, Tensor]:
    """Tensors for a call."""
    specs = task.tensors(workload)
    return {n: torch.zeros(s.shape, dtype=getattr(torch, s.dtype), device=device) for n, s in specs.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
