"""flashinfer-bench's Solutions: a candidate in one JSON file, with the sources in it."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath

from benchmarks import build, candidate, fields, screen
from benchmarks.candidate import MOST_BYTES, MOST_FILES, SUFFIXES, Candidate, Source
from benchmarks.fields import Fields, shown
from benchmarks.interchange import write
from benchmarks.worker import CandidateError
from kernels.task import BadInputError, Task

LANGUAGES = ("python", "triton", "cpp", "cuda", "tilelang")
JUDGED = ("python", "triton")
"""The others need their own builders and bindings (tvm-ffi, torch); ours is nvcc and ctypes."""
FOLDER = "solution"
"""A Solution is a package there, too: its files import each other with `from .other import …`."""
ENTRY = "regroup_entry.py"
PLAIN = re.compile(r"(?:\w[\w.+-]{0,99}/){0,8}\w[\w.+-]{0,99}", re.ASCII)

ADAPTER = '''"""Calls a flashinfer-bench Solution; made by the judge."""

import importlib
{imports}
_entry = getattr(importlib.import_module({module!r}), {function!r})


def run({arguments}, state=None):
    {call}
'''

EXPORTED = '''"""Entry point for flashinfer-bench: plans and runs kernel.py, which was written for Regroup's judge."""

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).parent
{build}
sys.path.insert(0, str(HERE))
_spec = importlib.util.spec_from_file_location(__name__ + "_kernel", HERE / "kernel.py")
_kernel = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_kernel)
sys.path.remove(str(HERE))


def run({arguments}):
    state = (_kernel.plan({plan}),) if hasattr(_kernel, "plan") else ()
    returned = _kernel.run({arguments}, *state)
    if returned is not None:
        for output, value in zip(({outputs},), returned, strict=True):
            output.copy_(value)
'''

BUILD = """
import os
import shutil
import subprocess

COMMAND = {command}
PART = f"kernel.{{os.getpid()}}.so"  # several processes may be at it
subprocess.run([*COMMAND, "-shared", "-o", PART, *{sources}, *{libraries}], cwd=HERE, check=True)
(HERE / PART).replace(HERE / "kernel.so")
"""

NVCC = """[shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc", "-Xcompiler", "-fPIC", *{flags}]"""
THIS_GPU = """["-O3", "-std=c++17", "-arch=sm_%d%d%s" % (*_capability, "a" if _capability[0] >= 9 else "")]"""


def read_candidate(path: Path, task: Task) -> Source:
    """A candidate's sources: a folder, its kernel.py, or a Solution's JSON file."""
    return read_solution(path, task) if path.suffix == ".json" else candidate.read(path)


def read_solution(path: Path, task: Task) -> Source:
    """A Solution as a candidate: its files in a package, beside a kernel.py that calls its entry point.

    One that `write_solution` made is the candidate that it was made of. `BadInputError` names the field.
    """
    top = Fields(fields.read_json(path), f"{path}: solution")
    name, spec, files = top.text("name"), top.inside("spec"), _sources(top)
    top.one_of("definition", (task.definition,))
    language = spec.one_of("language", LANGUAGES)
    if language not in JUDGED:
        raise BadInputError(f"{spec.where}.language: {language} cannot be judged here, {' and '.join(JUDGED)} can")
    file, _, function = spec.text("entry_point").partition("::")
    entry = PurePosixPath(file)
    if str(entry) not in files or entry.suffix != ".py" or not function or "::" in function:
        raise BadInputError(
            f"{spec.where}.entry_point: must be FILE.py::FUNCTION, a file of sources, not {shown(file)}"
        )
    if str(entry) == ENTRY and "kernel.py" in files:
        return Source(name, {n: content for n, content in files.items() if n != ENTRY})
    passes = spec.get("destination_passing_style", bool, True)
    adapter = _adapter(task, entry, function, language, passes)
    package = {f"{FOLDER}/__init__.py": b"", **{f"{FOLDER}/{n}": content for n, content in files.items()}}
    return Source(name, {**package, "kernel.py": adapter.encode()})


def _sources(top: Fields) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for source in top.each("sources"):
        name = str(PurePosixPath(source.text("path")))
        if not PLAIN.fullmatch(name) or PurePosixPath(name).suffix not in SUFFIXES:
            raise BadInputError(
                f"{source.where}.path: must be a relative path of plain names that ends in {', '.join(SUFFIXES)}, "
                f"not {shown(name)}"
            )
        if name in files:
            raise BadInputError(f"{source.where}.path: {name} occurs twice")
        files[name] = source.text("content").encode()
    if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_BYTES:
        raise BadInputError(f"{top.where}.sources: more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB")
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents}
    if both := sorted(folders & files.keys()):
        raise BadInputError(f"{top.where}.sources: {both[0]} is a file and a folder")
    return files


def _adapter(task: Task, entry: PurePosixPath, function: str, language: str, passes: bool) -> str:
    arguments = ", ".join(task.entry)
    inputs = ", ".join(name for name in task.entry if name not in _outputs(task))
    return ADAPTER.format(
        imports="import triton\n" if language == "triton" else "",
        module=".".join((FOLDER, *entry.with_suffix("").parts)),
        function=function,
        arguments=arguments,
        call=f"_entry({arguments})" if passes else f"return _entry({inputs})",
    )


def _outputs(task: Task) -> list[str]:
    return [n for n, spec in task.tensors(task.workloads("cuda")[0]).items() if spec.role == "output"]


def write_solution(source: Source, task: Task, out: Path) -> None:
    """Write a candidate as a Solution in destination-passing style.

    Its entry point compiles what is to be compiled when it is imported, and calls plan() in each call, since a Solution
    is one function. `BadInputError` if the judge would not build it.
    """
    devices = screen.DEVICES[source.language]
    if (why := screen.screen(source, task, devices[0])) is not None:
        raise BadInputError(f"{source.name}: {why}")
    files = {**source.files, ENTRY: _entry(source, task).encode()}
    solution = {
        "name": source.name,
        "definition": task.definition,
        "author": "regroup",
        "description": f"{source.language}, sha256 {source.sha256}",
        "spec": {
            "language": "triton" if source.language == "triton" else "python",
            "target_hardware": list(devices),
            "entry_point": f"{ENTRY}::run",
            "dependencies": [],
            "destination_passing_style": True,
        },
        "sources": [{"path": name, "content": content.decode() or "\n"} for name, content in files.items()],
    }
    write(out, json.dumps(solution, indent=1) + "\n")


def _entry(source: Source, task: Task) -> str:
    return EXPORTED.format(
        build=_build(source),
        arguments=", ".join(task.entry),
        plan=", ".join(task.plan_values.get(name, name) for name in task.plan_entry),
        outputs=", ".join(_outputs(task)),
    )


def _build(source: Source) -> str:
    """The lines that compile kernel.so as the judge would, if the candidate has something to compile."""
    suffix = {"c": ".c", "cuda": ".cu"}.get(source.language)
    if suffix is None:
        return ""
    sources = sorted(name for name in source.files if name.endswith(suffix))
    laid = Candidate(source, Path())
    try:
        if suffix == ".c":
            flags = build.read_flags(laid, "CFLAGS", build.DEFAULT_FLAGS, build.ALLOWED_FLAG)
            return BUILD.format(command=["cc", "-fPIC", *flags], sources=sources, libraries=["-lm"])
        flags = build.read_flags(laid, "NVCC_FLAGS", [], build.ALLOWED_NVCC_FLAG)
    except CandidateError as error:
        raise BadInputError(f"{source.name}: {error.message}") from None
    capability = "" if flags else "\nimport torch\n\n_capability = torch.cuda.get_device_capability()"
    command = NVCC.format(flags=flags or THIS_GPU)
    return capability + BUILD.format(command=command, sources=sources, libraries=[])
