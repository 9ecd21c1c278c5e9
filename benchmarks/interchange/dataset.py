"""A flashinfer-trace folder: the inputs that it captured for a task's workloads.

It holds `definitions/OP/NAME.json`, `workloads/OP/NAME.jsonl` (Traces that have no result) and the safetensors files
that these name, by paths from the folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks import fields, safetensors
from benchmarks.fields import Fields
from benchmarks.interchange import read_traces
from kernels.task import BadInputError, Captured, Task, Workload

INT32 = "I32"


def with_captured_inputs(task: Task, folder: Path) -> Task:
    """The task with what the folder has captured for all its workloads (matched by uuid) of what plan() sees.

    `BadInputError` names file, line and field of what is damaged or belongs to another task.
    """
    _check_definition(task, folder)
    known = {w.id: w for w in task.workloads("cuda")}
    found: dict[str, Captured] = {}
    path = _workloads(task, folder)
    for trace in read_traces(path):
        workload = trace.inside("workload")
        uuid = workload.text("uuid")
        if uuid not in known or uuid in found:
            why = "occurs twice" if uuid in found else f"is none of the {len(known)} of {task.name}"
            raise BadInputError(f"{workload.where}.uuid: {uuid} {why}")
        found[uuid] = _captured(task, known[uuid], workload, folder)
    if missing := [uuid for uuid in known if uuid not in found]:
        raise BadInputError(f"{path}: lacks {len(missing)} workloads of {task.name}, the first is {missing[0]}")
    return task.captured(found, f"captured, {_digest(found)}")


def records(task: Task, folder: Path, inputs: str) -> dict[str, Any]:
    """The folder's own records of the workloads by uuid; `BadInputError` if these are not the inputs it captured."""
    if (found := with_captured_inputs(task, folder).inputs) != inputs:
        raise BadInputError(f"{folder}: its inputs are {found}, not {inputs or 'drawn by the judge'}")
    traces = read_traces(_workloads(task, folder))
    return {trace.inside("workload").text("uuid"): trace.data["workload"] for trace in traces}


def _workloads(task: Task, folder: Path) -> Path:
    return _only(folder, "workloads", f"{task.definition}.jsonl")


def _check_definition(task: Task, folder: Path) -> None:
    path = _only(folder, "definitions", f"{task.definition}.json")
    definition = Fields(fields.read_json(path), f"{path}: definition")
    arguments = (*definition.inside("inputs").data, *definition.inside("outputs").data)
    if arguments != task.entry:
        raise BadInputError(f"{path}: definition.inputs, outputs: must be {', '.join(task.entry)}, in this order")


def _only(folder: Path, kind: str, name: str) -> Path:
    if not folder.is_dir():
        raise BadInputError(f"{folder}: no such folder")
    paths = list(folder.glob(f"{kind}/*/{name}"))
    if len(paths) != 1:
        raise BadInputError(f"{folder}: must hold one {kind}/*/{name}, not {len(paths)}")
    return paths[0]


def _captured(task: Task, workload: Workload, given: Fields, folder: Path) -> Captured:
    axes, inputs, specs = given.inside("axes"), given.inside("inputs"), task.tensors(workload)
    plan = {name: spec for name, spec in specs.items() if spec.role == "plan"}
    return Captured(
        given.where,
        axes={name: axes.get(name, int) for name in task.axes(workload)},
        scalars={name: inputs.inside(name).number("value") for name in task.entry if name not in specs},
        tensors={name: _tensor(inputs.inside(name), spec.shape, folder) for name, spec in plan.items()},
    )


def _tensor(given: Fields, shape: tuple[int, ...], folder: Path) -> bytes:
    given.one_of("type", ("safetensors",))
    inside, key = PurePosixPath(given.text("path")), given.text("tensor_key")
    if inside.is_absolute() or ".." in inside.parts:
        raise BadInputError(f"{given.where}.path: must lie in the folder, not at {inside}")
    try:
        stored = safetensors.read(folder / inside)
    except BadInputError as error:
        raise BadInputError(f"{given.where}.path: {error}") from None
    tensor = stored.get(key)
    if tensor is None or (tensor.dtype, tensor.shape) != (INT32, shape):
        is_there = "is not there" if tensor is None else f"is {tensor.dtype} of shape {list(tensor.shape)}"
        raise BadInputError(f"{given.where}.tensor_key: {key} {is_there}; must be {INT32} of shape {list(shape)}")
    return tensor.data


def _digest(found: Mapping[str, Captured]) -> str:
    digest = hashlib.sha256()
    for uuid, captured in sorted(found.items()):
        digest.update(repr((uuid, sorted(captured.axes.items()), sorted(captured.scalars.items()))).encode())
        for _, data in sorted(captured.tensors.items()):
            digest.update(data)
    return digest.hexdigest()[:12]
