"""What Triton makes of candidates where there is no GPU: `python -m tests.kernels.triton_run interpret|compile`.

Source texts come in as a JSON list, a line for each goes out: null, or what is wrong. A process of its own, since
TRITON_INTERPRET counts at the first import. The interpreter shows whether a program is right and nothing of its time.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]

from kernels.mla_paged_decode import reference
from kernels.mla_paged_decode.workloads import HEADS

SM_SCALE = 0.1352337788608801
BATCHES = ((37, 0, 70), (33,), (0,))
MULTIPROCESSORS = 8
VAST_PAGES = 4_200_000
"""Offsets of the last of so many pages (4.3 GB of which a few are touched) do not fit into 32 bits."""
SHARED_BYTES = 232_448
"""A program's shared memory on an H100 or H200."""
POINTERS = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32"}


@dataclass
class Call:
    """The arguments of a run; pages that no sequence holds are NaN, and kv_indices goes on with three of them."""

    lengths: tuple[int, ...]
    tensors: dict[str, torch.Tensor]

    @property
    def arguments(self) -> list[Any]:
        """In the order of the contract."""
        inputs = [
            self.tensors[name] for name in ("q_nope", "q_pe", "ckv_cache", "kpe_cache", "kv_indptr", "kv_indices")
        ]
        return [*inputs, SM_SCALE, self.tensors["output"], self.tensors["lse"]]

    def mistake(self, run: Callable[..., None], state: Any) -> str | None:
        """What is wrong with the outputs of a run."""
        for name in ("output", "lse"):
            self.tensors[name].fill_(math.nan)
        run(*self.arguments, **({} if state is None else {"state": state}))
        sequences = range(len(self.lengths))
        expected = reference.attend(self.tensors, SM_SCALE, sequences)
        wrong = reference.mismatch(self.tensors, expected, sequences, self.lengths, 0.0)
        return None if wrong is None else f"{self.lengths}: {wrong.message}"


def make_call(lengths: tuple[int, ...], *, vast: bool = False) -> Call:
    """Random contents, the same each time."""
    random, tokens = torch.Generator().manual_seed(sum(lengths)), sum(lengths)
    pages = VAST_PAGES if vast else 2 * tokens + 5
    used = pages - 1 - torch.randperm(2 * tokens + 1, generator=random)[:tokens]
    tensors = {}
    for name, size in (("ckv_cache", 512), ("kpe_cache", 64)):
        tensors[name] = torch.empty(pages, 1, size, dtype=torch.bfloat16)
        if not vast:
            tensors[name].fill_(math.nan)
        tensors[name][used] = torch.randn(tokens, 1, size, generator=random).bfloat16()
    for name, size in (("q_nope", 512), ("q_pe", 64)):
        tensors[name] = torch.randn(len(lengths), HEADS, size, generator=random).bfloat16()
    tensors["kv_indptr"] = torch.tensor((0, *lengths)).cumsum(0).int()
    tensors["kv_indices"] = torch.cat([used, torch.zeros(3, dtype=torch.int64)]).int()
    tensors["output"] = torch.empty(len(lengths), HEADS, 512, dtype=torch.bfloat16)
    tensors["lse"] = torch.empty(len(lengths), HEADS)
    return Call(lengths, tensors)


def interpretable(source: str) -> str:
    """The program without what the interpreter gets wrong (products of bf16, rounding to bf16) or has not (PDL)."""
    for name, instead in (
        ("DOT = tl.bfloat16", "DOT = tl.float32"),
        ("STORED = torch.bfloat16", "STORED = torch.float32"),
    ):
        source = source.replace(name, instead)
    for launch in ("tl.extra.cuda.gdc_launch_dependents()", "tl.extra.cuda.gdc_wait()"):
        source = source.replace(launch, "pass")
    return source.replace("launch_pdl=True", "num_stages=1")


def interpret(source: str, calls: list[Call]) -> str | None:
    """The first mistake in some calls of one module: what a launch leaves behind is there for the next."""
    module = load(interpretable(source))
    for call in calls:
        state = None
        if hasattr(module, "plan") and len(call.lengths) > 1:  # else run() has to plan for itself
            indptr, indices = call.tensors["kv_indptr"], call.tensors["kv_indices"]
            state = module.plan(indptr, indices, len(call.lengths), HEADS, "cpu")
        if mistake := call.mistake(module.run, state):
            return mistake
    return None


class Launches:
    """Stands for a kernel and notes how it is launched."""

    def __init__(self, kernel: Any, found: list[tuple[Any, tuple[Any, ...], dict[str, Any]]]) -> None:
        self.kernel, self.found = kernel, found

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *given, **named: self.found.append((self.kernel, given, named))


def compile_for_hopper(source: str) -> str | None:
    """What the compiler makes of its launches must fit an H100 or H200."""
    module, found = load(source), list[tuple[Any, tuple[Any, ...], dict[str, Any]]]()
    for name in ("decode", "merge_all"):
        if hasattr(module, name):
            setattr(module, name, Launches(getattr(module, name), found))
    module.run(*make_call((300, 40)).arguments)
    for kernel, given, named in found:
        shared = compiled(kernel, given, named).metadata.shared
        if shared > SHARED_BYTES:
            return f"{kernel.__name__} wants {shared} bytes of shared memory"
    return None


def compiled(kernel: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """One launch, compiled for compute capability 9.0; tensors at addresses that 16 divides."""
    from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from triton.compiler import ASTSource  # type: ignore[import-not-found, import-untyped, unused-ignore]

    names = kernel.arg_names
    constants = {(names.index(name),): value for name, value in named.items() if name in names}
    signature = {name: "constexpr" for name in named if name in names}
    attributes = {}
    for i, value in enumerate(given):
        tensor = isinstance(value, torch.Tensor)
        signature[names[i]] = POINTERS[value.dtype] if tensor else "fp32" if isinstance(value, float) else "i32"
        if tensor:
            attributes[(i,)] = [["tt.divisibility", 16]]
    options = {name: value for name, value in named.items() if name not in names}
    text = ASTSource(kernel, {name: signature[name] for name in names}, constants, attributes)
    return triton.compile(text, target=GPUTarget("cuda", 90, 32), options=options)


def load(source: str) -> ModuleType:
    """A candidate's kernel.py as a module; Triton reads its text from a file."""
    path = Path(tempfile.mkdtemp(dir=FOLDER)) / "kernel.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers(mode: str, sources: list[str]) -> Iterator[str | None]:
    """One for each source, in order."""
    torch.set_num_threads(1)
    calls = [make_call(lengths) for lengths in BATCHES] if mode == "interpret" else []
    if mode == "vast":
        calls = [make_call((3, 1), vast=True)]
    for source in sources:
        try:
            yield compile_for_hopper(source) if mode == "compile" else interpret(source, calls)
        except Exception as error:
            yield f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    FOLDER = sys.argv[2]
    torch.cuda.get_device_properties = lambda _: SimpleNamespace(multi_processor_count=MULTIPROCESSORS)  # type: ignore
    torch.cuda.current_stream = lambda _: SimpleNamespace(cuda_stream=0)  # type: ignore
    for answer in answers(sys.argv[1], json.load(sys.stdin)):
        sys.stdout.write(json.dumps(answer) + "\n")
