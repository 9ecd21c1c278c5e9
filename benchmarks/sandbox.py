"""Where foreign code runs: bubblewrap, and what holds without it.

What it covers: no network, no processes but its own, a file system of read-only system files, the candidate's folder
and an empty /tmp, no environment, no capabilities, another user. What it does not: the kernel's own bugs, side
channels through shared caches. Without bubblewrap a process has a clean environment, rlimits, its own process group
and (see inside/confine.py) the system-call filter; the report then says `sandbox: none`.
"""

from __future__ import annotations

import os
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


@dataclass(frozen=True)
class Sandbox:
    """The kind in force and why: `bubblewrap`, or `none` with the reason."""

    kind: Literal["bubblewrap", "none"]
    reason: str = ""


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


def command(argv: Sequence[str], sandbox: Sandbox, view: View) -> list[str]:
    """The command line that runs `argv` in this sandbox; paths inside are those outside."""
    if sandbox.kind == "none":
        return list(argv)
    options = ISOLATED.split()
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
    pass_fds: Sequence[int] = (),
    environment: Mapping[str, str] = ENVIRONMENT,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `argv` in its own session with a clean environment and nothing to read or to print to."""
    return subprocess.Popen(
        command(argv, sandbox, view),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
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
