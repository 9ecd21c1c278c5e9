"""Stage `build`: compile a candidate's C files into the `kernel.so` that its kernel.py opens."""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import sandbox
from benchmarks.candidate import Candidate
from benchmarks.sandbox import Sandbox, View
from benchmarks.worker import CandidateError

SECONDS = 30
DEFAULT_FLAGS = ("-O3", "-march=native")
ALLOWED_FLAG = re.compile(
    r"-(O[0-3sg]|Ofast|std=(c|gnu)\d\w|f(?!plugin|dump|profile|openmp|sanitize)[\w=-]+|m[\w=.,-]+|D\w+(=\w+)?|W[\w=-]+)"
)
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


def build(candidate: Candidate, box: Sandbox) -> dict[str, Any]:
    """Build if there is something to build; what the compiler noted, for the profile. Errors: `CandidateError`."""
    sources = sorted(name for name in candidate.source.files if name.endswith(".c"))
    if not sources:
        return {}
    if (cc := compiler()) is None:
        raise CandidateError(
            "build_error", "no C compiler here ($CC, cc, gcc, clang): PyTorch candidates can be judged"
        )
    flags = read_flags(candidate)
    notes = ["-fopt-info-vec-optimized"] if "gcc" in Path(cc).resolve().name else []
    argv = [cc, *flags, *notes, "-shared", "-fPIC", "-o", "kernel.so", *sources, "-lm"]
    code, said = _run(argv, candidate.folder, box)
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


def read_flags(candidate: Candidate) -> list[str]:
    """The literal list CFLAGS of kernel.py, or the default; each flag must be a harmless one."""
    tree = ast.parse(candidate.source.files["kernel.py"])
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "CFLAGS" for t in node.targets):
            try:
                flags = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError):
                flags = None
            if not isinstance(flags, (list, tuple)) or not all(isinstance(f, str) for f in flags):
                raise CandidateError("build_error", f"kernel.py line {node.lineno}: CFLAGS must be a list of strings")
            for flag in flags:
                if not ALLOWED_FLAG.fullmatch(flag):
                    raise CandidateError(
                        "build_error",
                        f"kernel.py line {node.lineno}: flag {flag!r} is not allowed; -O, -f, -m, -D, -std and -W are",
                    )
            return list(flags)
    return list(DEFAULT_FLAGS)


def _run(argv: list[str], folder: Path, box: Sandbox) -> tuple[int, str]:
    """Run the compiler; exit code (-9 for the time limit) and what it said, at most 1 MB of it."""
    with tempfile.TemporaryFile() as said:
        process = sandbox.start(argv, box, View(writable=[folder]), stderr=said, cwd=folder)
        try:
            code = process.wait(SECONDS)
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
