"""Where foreign code runs: bubblewrap, and what holds without it.

What it covers: no network, no processes but its own, a file system of read-only system files, the candidate's folder
and an empty /tmp, no environment, no capabilities, another user. What it does not: the kernel's own bugs, side
channels through shared caches. Without bubblewrap a process has a clean environment, rlimits, its own process group
and (see inside/confine.py) the system-call filter; the report then says `sandbox: none`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Literal

from kernels.task import BadInputError

Choice = Literal["auto", "required", "off"]
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", "TMPDIR": "/tmp",  # noqa: S108
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
    # Freed memory is kept: the page faults of every large allocation cost PyTorch a third of its time.
    "GLIBC_TUNABLES": ":".join(
        f"glibc.malloc.{name}" for name in ("mmap_threshold=4294967296", "trim_threshold=4294967296", "hugetlb=1")
    ),
}  # fmt: skip
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage"
"""malloc looks here whether it may ask for huge pages; without them equal processes differ by 2 % in speed."""
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", HUGE_PAGES)
ISOLATED = (
    "bwrap --unshare-all --die-with-parent --new-session --cap-drop ALL --uid 65534 --gid 65534 "
    "--proc /proc --dev /dev --tmpfs /tmp"
)
UNSHARED = "unshare --net --mount --ipc --pid --fork --kill-child --mount-proc"
"""No network, no view of other processes; files are as they are. For root, where bubblewrap is missing."""
GPU_PATHS = ("/sys", "/usr/local/nvidia", "/etc/ld.so.conf")
PROBE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4096)) == 0
"""
"""Does a process reach the GPU?"""


@dataclass(frozen=True)
class Sandbox:
    """The kind in force and why: `bubblewrap`, or `none` with the reason."""

    kind: Literal["bubblewrap", "unshare", "none"]
    reason: str = ""
    gpu: bool = False


@dataclass
class View:
    """What a process may see: read-only paths, writable paths, paths that look empty."""

    readonly: list[Path] = field(default_factory=list)
    writable: list[Path] = field(default_factory=list)
    hidden: list[Path] = field(default_factory=list)


def choose(choice: Choice) -> Sandbox:
    """The sandbox to use; `BadInputError` when one is required and none works."""
    if choice == "off":
        return Sandbox("none", "turned off")
    found = _bubblewrap()
    if choice == "required" and found.kind == "none":
        raise BadInputError(f"--sandbox required: {found.reason}; install bubblewrap or use --sandbox auto")
    return found


@cache
def _bubblewrap() -> Sandbox:
    """Try it once: many containers hold the program but do not let it make namespaces."""
    if shutil.which("bwrap") is None:
        return Sandbox("none", "bubblewrap (bwrap) is not installed")
    argv = command(["/bin/true"], Sandbox("bubblewrap"), View())
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        return Sandbox("none", f"bubblewrap does not work here: {done.stderr.strip()[:200]}")
    return Sandbox("bubblewrap")


def choose_for_gpu(choice: Choice) -> Sandbox:
    """The same for a process that works on an NVIDIA GPU; without bubblewrap, root can still have namespaces."""
    if choice == "off":
        return Sandbox("none", "turned off", gpu=True)
    found = _for_gpu()
    if choice == "required" and found.kind == "none":
        raise BadInputError(f"--sandbox required: {found.reason}; install bubblewrap or use --sandbox auto")
    return found


@cache
def _for_gpu() -> Sandbox:
    """Try which of them lets a process reach the device."""
    probe = [sys.executable, "-I", "-S", "-c", PROBE]
    reasons = []
    for kind in ("bubblewrap", "unshare"):
        box = Sandbox(kind, gpu=True)
        argv = command(probe, box, python_view(packages=True)[1])
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            reasons.append(f"{kind}: {error}")
            continue
        if done.returncode == 0:
            return box
        reasons.append(f"{kind}: {done.stderr.strip()[-200:]}")
    return Sandbox("none", "; ".join(reasons), gpu=True)


def command(argv: Sequence[str], sandbox: Sandbox, view: View) -> list[str]:
    """The command line that runs `argv` in this sandbox; paths inside are those outside."""
    if sandbox.kind == "none":
        return list(argv)
    if sandbox.kind == "unshare":
        hide = [f"mount -t tmpfs none {shlex.quote(str(path))}" for path in view.hidden]
        script = " && ".join([*hide, 'exec "$@"'])
        return [*UNSHARED.split(), "/bin/sh", "-c", script, "sh", *argv]
    options = ISOLATED.split()
    if sandbox.gpu:
        for device in sorted(Path("/dev").glob("nvidia*")):
            options += ["--dev-bind", str(device), str(device)]
        for path in GPU_PATHS:
            options += _system_path(Path(path))
    for path in SYSTEM:
        options += _system_path(Path(path))
    for flag, paths in (("--ro-bind", view.readonly), ("--bind", view.writable)):
        for path_ in paths:
            options += [flag, str(path_), str(path_)]
    for path_ in view.hidden:
        options += ["--tmpfs", str(path_)]
    return [*options, "--remount-ro", "/", "--", *argv]


def _system_path(path: Path) -> list[str]:
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    return ["--ro-bind", str(path), str(path)] if path.exists() else []


def python_view(*, packages: bool) -> tuple[str, View]:
    """An interpreter and what it needs: with this environment's packages (torch), or with the bare library."""
    base = Path(sys.base_prefix)
    view = View() if base == Path("/usr") else View(readonly=[base])
    if packages:
        view.readonly += [Path(p) for p in {sys.prefix, *_package_folders()} if Path(p).is_dir()]
        return sys.executable, view
    view.hidden += [p for p in base.glob("lib/python3*/site-packages") if p.is_dir()]
    view.hidden += [p for p in Path("/usr").glob("lib/python3*/dist-packages") if p.is_dir()]
    view.hidden += [p for p in Path("/usr").glob("local/lib/python3*/dist-packages") if p.is_dir()]
    return getattr(sys, "_base_executable", sys.executable), view


def _package_folders() -> list[str]:
    """Where torch was found, if that is neither the environment nor the system (PYTHONPATH, --target)."""
    return [p for p in sys.path if p and Path(p, "torch").is_dir()]


def start(
    argv: Sequence[str],
    sandbox: Sandbox,
    view: View,
    *,
    stderr: IO[bytes],
    stdout: IO[bytes] | int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
    environment: Mapping[str, str] = ENVIRONMENT,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `argv` in its own session with a clean environment and nothing to read or to print to."""
    return subprocess.Popen(
        command(argv, sandbox, view),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(pass_fds),
        env=dict(environment),
        start_new_session=True,
        cwd=cwd,
    )


def stop(process: subprocess.Popen[bytes]) -> int:
    """End the whole tree of `process`; its exit status as subprocess gives it."""
    for pid in [*descendants(process.pid), process.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return process.wait()


def descendants(pid: int) -> list[int]:
    """Processes that descend from `pid`, deepest first (bubblewrap ends those in its namespace by itself)."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [*descendants(child), child]
    return found
