"""Stage `build`: compile a candidate's C or CUDA files into the `kernel.so` that its kernel.py opens.

What nvcc makes is kept under a hash of sources, flags and compiler, so that a candidate is built once.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import sandbox
from benchmarks.candidate import Candidate
from benchmarks.paths import home
from benchmarks.sandbox import Sandbox, View
from benchmarks.worker import CandidateError

SECONDS = 30
DEFAULT_FLAGS = ("-O3", "-march=native")
ALLOWED_FLAG = re.compile(
    r"-(O[0-3sg]|Ofast|std=(c|gnu)\d\w|f(?!plugin|dump|profile|openmp|sanitize)[\w=-]+|m[\w=.,-]+|D\w+(=\w+)?|W[\w=-]+)"
)
ALLOWED_NVCC_FLAG = re.compile(
    r"-O[0-3]|-std=c\+\+\d\d|-lineinfo|-?-use_fast_math|-D\w+(=\w+)?|-gencode=arch=compute_\w+,code=\w+|-arch=sm_\w+|"
    r"--(ftz|prec-div|prec-sqrt|fmad|maxrregcount)=\w+|-maxrregcount=\d+|--?expt-(relaxed-constexpr|extended-lambda)"
)
NVCC_SECONDS = 180
MOST_NOTES = 12


@functools.cache
def compiler() -> str | None:
    """Path of the machine's C compiler: $CC, cc, gcc or clang; None when there is none."""
    names = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    return next((path for name in names if name and (path := shutil.which(name))), None)


@functools.cache
def compiler_version() -> str:
    """First line of `cc --version`, or `none`."""
    if (path := compiler()) is None:
        return "none"
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[0]


def build_c(candidate: Candidate, box: Sandbox) -> dict[str, Any]:
    """Build if there is something to build; what the compiler noted, for the profile. Errors: `CandidateError`."""
    sources = sorted(name for name in candidate.source.files if name.endswith(".c"))
    if not sources:
        return {}
    if (cc := compiler()) is None:
        raise CandidateError(
            "build_error", "no C compiler here ($CC, cc, gcc, clang): PyTorch candidates can be judged"
        )
    flags = read_flags(candidate, "CFLAGS", DEFAULT_FLAGS, ALLOWED_FLAG)
    notes = ["-fopt-info-vec-optimized"] if "gcc" in Path(cc).resolve().name else []
    argv = [cc, *flags, *notes, "-shared", "-fPIC", "-o", "kernel.so", *sources, "-lm"]
    code, said = _run(argv, candidate.folder, box, SECONDS)
    if code == -signal.SIGKILL:
        raise CandidateError("build_error", f"the compiler did not finish within {SECONDS} s")
    if code != 0 or not (candidate.folder / "kernel.so").is_file():
        raise CandidateError("build_error", "the compiler refused it:\n" + _first_errors(said))
    vectorised = [line for line in said.splitlines() if "vectorized" in line]
    return {
        "flags": flags,
        "vectorised": [_short(line) for line in vectorised[:MOST_NOTES]],
        "vectorised_loops": len(vectorised),
    }


def build_cuda(candidate: Candidate, box: Sandbox) -> dict[str, Any]:
    """The same for .cu files, by nvcc: seconds, and for each kernel registers, spills and shared memory."""
    sources = sorted(name for name in candidate.source.files if name.endswith(".cu"))
    if not sources:
        return {}
    if (compiler_path := nvcc()) is None:
        raise CandidateError("build_error", "no nvcc here: Triton and PyTorch candidates can be judged")
    flags = read_flags(candidate, "NVCC_FLAGS", default_nvcc_flags(), ALLOWED_NVCC_FLAG)
    key = hashlib.sha256(f"{candidate.source.sha256} {flags} {nvcc_version()}".encode()).hexdigest()[:24]
    kept, built = home() / "built" / key, candidate.folder / "kernel.so"
    if (kept / "kernel.so").is_file() and (kept / "notes.json").is_file():
        shutil.copy(kept / "kernel.so", built)
        return {**json.loads((kept / "notes.json").read_text()), "kept": True}
    argv = [str(compiler_path), *flags, "-Xptxas", "-v", "-shared", "-Xcompiler", "-fPIC", "-o", "kernel.so", *sources]
    begin = time.monotonic()
    code, said = _run(argv, candidate.folder, box, NVCC_SECONDS)
    if code == -signal.SIGKILL:
        raise CandidateError("build_error", f"nvcc did not finish within {NVCC_SECONDS} s")
    if code != 0 or not built.is_file():
        raise CandidateError("build_error", "nvcc refused it:\n" + _first_errors(said))
    notes = {"flags": flags, "seconds": round(time.monotonic() - begin, 2), "kernels": ptxas_report(said)}
    kept.mkdir(parents=True, exist_ok=True)
    shutil.copy(built, kept / "kernel.so.part")
    (kept / "notes.json").write_text(json.dumps(notes))
    (kept / "kernel.so.part").replace(kept / "kernel.so")
    return notes


def ptxas_report(said: str) -> list[dict[str, Any]]:
    """What `ptxas -v` says of each kernel: registers, bytes spilled and of static shared memory."""
    found: list[dict[str, Any]] = []
    for line in said.splitlines():
        if (entry := re.search(r"Compiling entry function '(\w+)'", line)) is not None:
            found.append({"kernel": entry[1], "registers": None, "spilled_bytes": 0, "shared_bytes": 0})
        elif found and (spills := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)) is not None:
            found[-1]["spilled_bytes"] = max(int(spills[1]), int(spills[2]))
        elif found and (used := re.search(r"Used (\d+) registers", line)) is not None:
            found[-1]["registers"] = int(used[1])
            shared = re.search(r"(\d+) bytes smem", line)
            found[-1]["shared_bytes"] = int(shared[1]) if shared else 0
    return found


def default_nvcc_flags() -> list[str]:
    """For the GPU that is here."""
    name = architecture().replace(".", "")
    return ["-O3", "-std=c++17", f"-gencode=arch=compute_{name},code=sm_{name}"]


@functools.cache
def architecture() -> str:
    """Of the GPU that is here, as compilers name it: `9.0a`, `8.0`."""
    import torch  # noqa: PLC0415

    major, minor = torch.cuda.get_device_capability()
    return f"{major}.{minor}" + ("a" if major >= 9 else "")


@functools.cache
def cuda_home() -> Path | None:
    """Where CUDA's compiler is installed: $CUDA_HOME, beside nvcc on the path, /usr/local/cuda; None if nowhere."""
    found = shutil.which("nvcc")
    places = [
        os.environ.get("CUDA_HOME", ""),
        str(Path(found).resolve().parents[1]) if found else "",
        "/usr/local/cuda",
    ]
    return next((Path(p) for p in places if p and (Path(p) / "bin" / "nvcc").is_file()), None)


def nvcc() -> Path | None:
    """CUDA's compiler."""
    root = cuda_home()
    return None if root is None else root / "bin" / "nvcc"


@functools.cache
def nvcc_version() -> str:
    """Last line but one of `nvcc --version`, or `none`."""
    if (path := nvcc()) is None:
        return "none"
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    return next((line.strip() for line in said.splitlines() if "release" in line), "unknown")


def read_flags(candidate: Candidate, name: str, default: Sequence[str], allowed: re.Pattern[str]) -> list[str]:
    """The literal list of this name in kernel.py, or the default; each flag must be a harmless one."""
    tree = ast.parse(candidate.source.files["kernel.py"])
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            try:
                flags = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError):
                flags = None
            if not isinstance(flags, (list, tuple)) or not all(isinstance(f, str) for f in flags):
                raise CandidateError("build_error", f"kernel.py line {node.lineno}: {name} must be a list of strings")
            for flag in flags:
                if not allowed.fullmatch(flag):
                    raise CandidateError(
                        "build_error",
                        f"kernel.py line {node.lineno}: flag {flag!r} is not allowed; -O, -f, -m, -D, -std and -W are",
                    )
            return list(flags)
    return list(default)


def _run(argv: list[str], folder: Path, box: Sandbox, seconds: float) -> tuple[int, str]:
    """Run the compiler; exit code (-9 for the time limit) and what it said, at most 1 MB of it."""
    with tempfile.TemporaryFile() as said:
        environment = {**sandbox.ENVIRONMENT, "TMPDIR": str(folder)}
        view = View(writable=[folder])
        process = sandbox.start(argv, box, view, stdout=said, stderr=said, cwd=folder, environment=environment)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            sandbox.stop(process)
            code = -signal.SIGKILL
        said.seek(0)
        return code, said.read(1 << 20).decode(errors="replace")


def _first_errors(said: str) -> str:
    lines = [line for line in said.splitlines() if "error" in line.lower()] or said.splitlines()
    return "\n".join(_short(line) for line in lines[:8])


def _short(line: str) -> str:
    return line.strip()[:300]
