"""The devices that runs are judged on, and whether they are here: seen without torch, which pages must not wait for."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

DEVICES = ("cpu", "cuda")
NVIDIA_SMI_SECONDS = 20.0
"""It takes this long where many GPUs wake up."""


def why_not(device: str) -> str:
    """Why nothing can be judged on this device here, in words; empty if it can."""
    if device != "cuda" or gpus():
        return ""
    tool = "nvidia-smi lists none" if shutil.which("nvidia-smi") else "there is no nvidia-smi"
    return f"no NVIDIA GPU is seen here ({tool})"


def gpus() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs of this machine; none where its driver's tool is missing or does not work."""
    program = shutil.which("nvidia-smi")
    try:
        return _listed(program) if program else ()
    except (OSError, subprocess.SubprocessError):
        return ()


@cache
def _listed(program: str) -> tuple[str, ...]:
    """Asked once: it takes a second, and GPUs do not come and go. A failure is not kept."""
    done = subprocess.run([program, "-L"], capture_output=True, text=True, check=True, timeout=NVIDIA_SMI_SECONDS)
    names = tuple(re.findall(r"^GPU \d+: (.+?)(?: \(UUID.*)?$", done.stdout, re.MULTILINE))
    if not names:
        raise subprocess.SubprocessError("it lists no GPU")
    return names
