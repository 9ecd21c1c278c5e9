"""What a process on a GPU sees around it: compilers, caches of its own, and which packages are hidden from it."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from benchmarks import build, sandbox

FOREIGN = ("flashinfer", "flash_mla", "vllm", "sglang", "fla")
"""Packages that a candidate must not see: finished kernels, and the baseline."""


def environment(cache: Path) -> dict[str, str]:
    """For a process on the device: compilers are found, and keep what they make in `cache`."""
    root = build.cuda_home()
    path = [str(Path(sys.executable).parent), *([str(root / "bin")] if root else []), sandbox.ENVIRONMENT["PATH"]]
    folder = str(cache)
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES") if name in os.environ}
    return {
        "PATH": ":".join(path), "LANG": "C.UTF-8", "HOME": folder, "TMPDIR": folder, "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "CUDA_CACHE_PATH": f"{folder}/ptx",
        "TRITON_CACHE_DIR": f"{folder}/triton", "TORCH_EXTENSIONS_DIR": f"{folder}/extensions",
        "FLASHINFER_WORKSPACE_BASE": folder, "FLASHINFER_CUDA_ARCH_LIST": build.architecture(),
        "TORCH_CUDA_ARCH_LIST": build.architecture(), "MAX_JOBS": "8", "CUDA_MODULE_LOADING": "LAZY",
        **({"CUDA_HOME": str(root)} if root else {}), **kept,
    }  # fmt: skip


def _package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def foreign_packages() -> list[Path]:
    """Folders of the packages that a candidate must not see."""
    return [folder for name in FOREIGN if (folder := _package_folder(name)) is not None]


def foreign_paths() -> list[str]:
    """Where FlashInfer is, if it does not lie beside torch."""
    here, torch = _package_folder("flashinfer"), _package_folder("torch")
    return [] if here is None or (torch and here.parent == torch.parent) else [str(here.parent)]


def driver_version() -> str:
    """Of the kernel's NVIDIA driver."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return "unknown"
    return next((word for word in text.split() if word[:1].isdigit() and "." in word), "unknown")
