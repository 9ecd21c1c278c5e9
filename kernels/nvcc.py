"""CUDA C++ for those who use a kernel of ours: built once for each version of its sources, kept, loaded with ctypes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path


def build(folder: Path, flags: Sequence[str]) -> Path:
    """The shared library made of the .cu files in `folder`, in torch's folder for extensions.

    RuntimeError with nvcc's words if it cannot be built; OSError if there is no nvcc.
    """
    # here, since it is slow to import and not needed once the kernel is built
    from torch.utils.cpp_extension import CUDA_HOME  # noqa: PLC0415

    files = sorted(p for p in folder.iterdir() if p.suffix in (".cu", ".cuh", ".h"))
    key = hashlib.sha256(b"\0".join(p.name.encode() + b"\0" + p.read_bytes() for p in files) + repr(flags).encode())
    default = Path.home() / ".cache" / "torch_extensions"
    kept = Path(os.environ.get("TORCH_EXTENSIONS_DIR", default)) / f"regroup_{folder.name}"
    library = kept / f"{key.hexdigest()[:16]}.so"
    if library.exists():
        return library
    kept.mkdir(parents=True, exist_ok=True)
    nvcc = Path(CUDA_HOME) / "bin" / "nvcc" if CUDA_HOME else Path("nvcc")
    sources = [str(p) for p in files if p.suffix == ".cu"]
    with tempfile.TemporaryDirectory(dir=kept) as scratch:
        built = Path(scratch) / "kernel.so"
        argv = [str(nvcc), *flags, "-shared", "-Xcompiler", "-fPIC", "-o", str(built), *sources]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"nvcc could not build {', '.join(sources)}:\n{done.stdout}{done.stderr}")
        built.replace(library)
    return library
