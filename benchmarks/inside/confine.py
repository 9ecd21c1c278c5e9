"""Limits that a process lays on itself before it loads foreign code; none can be taken back.

Rlimits bound memory, files and CPU seconds. A seccomp filter ends the process at the first attempt to start a process
(on a CPU also a thread; a GPU's driver has threads of its own), to run a program, to open a socket or to look into
another process. The parent learns of it by SIGSYS.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
from typing import Any

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 1, 38, 22, 2
ALLOW, KILL_PROCESS, NO_SUCH_CALL = 0x7FFF0000, 0x80000000, 0x00050000 | 38  # ENOSYS
LOAD_WORD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
FIRST_ARGUMENT = 16
CLONE_THREAD = 0x10000
X32_ABI = 0x40000000
"""System calls of the x32 interface are numbered from here; they would slip past the list."""

# name: (x86_64, aarch64); None where the architecture lacks it
REFUSED = {
    "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "clone3": (435, 435),
    "execve": (59, 221), "execveat": (322, 281),
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kill": (62, 129), "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425), "bpf": (321, 280), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "keyctl": (250, 219),
    "setsid": (112, 157), "prlimit64": (302, 261), "sched_setaffinity": (203, 122),
}  # fmt: skip
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


class SockFprog(ctypes.Structure):
    """struct sock_fprog of <linux/filter.h>."""

    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def limit(settings: dict[str, Any]) -> None:
    """Bound this process: address space (where that is given), CPU, files, no core dump; it dies with its parent."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for what, value in (
        (resource.RLIMIT_AS, settings["memory_bytes"]), (resource.RLIMIT_CPU, settings["cpu_seconds"]),
        (resource.RLIMIT_FSIZE, settings["file_bytes"]), (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, settings["files"]),
    ):  # fmt: skip
        if value is not None:
            resource.setrlimit(what, (value, value))


def refuse_helpers(*, threads_too: bool) -> bool:
    """Install the filter; False where the kernel or the machine offers none."""
    if platform.machine() not in MACHINES:
        return False
    program = assemble(*MACHINES[platform.machine()], threads_too=threads_too)
    libc = ctypes.CDLL(None, use_errno=True)
    fprog = SockFprog(len(program) // 8, program)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(fprog), 0, 0) == 0)


def assemble(column: int, architecture: int, *, threads_too: bool) -> bytes:
    """The filter as BPF: another architecture or a refused number ends the process, all else is allowed.

    Where threads are allowed, `clone3` does not exist (its flags are out of a filter's sight, and the C library then
    takes `clone`), and `clone` may only make threads.
    """

    def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("=HBBI", code, if_true, if_false, value)

    steps = [step(LOAD_WORD, 4), step(JUMP_EQUAL, architecture, 1, 0), step(RETURN, KILL_PROCESS), step(LOAD_WORD, 0)]
    refused = dict(REFUSED)
    if not threads_too:
        clone, clone3 = refused.pop("clone")[column], refused.pop("clone3")[column]
        assert clone is not None
        assert clone3 is not None
        steps += [step(JUMP_EQUAL, clone3, 0, 1), step(RETURN, NO_SUCH_CALL)]
        steps += [step(JUMP_EQUAL, clone, 0, 4), step(LOAD_WORD, FIRST_ARGUMENT), step(JUMP_ANY_BIT, CLONE_THREAD, 1)]
        steps += [step(RETURN, KILL_PROCESS), step(RETURN, ALLOW)]
    numbers = [row[column] for row in refused.values() if row[column] is not None]
    left = len(numbers) + 1
    steps.append(step(JUMP_GREATER_EQUAL, X32_ABI, left, 0))
    for i, number in enumerate(numbers):
        steps.append(step(JUMP_EQUAL, number, left - 1 - i, 0))  # type: ignore[arg-type]
    return b"".join([*steps, step(RETURN, ALLOW), step(RETURN, KILL_PROCESS)])


def threads() -> int:
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - pathlib is not worth an import in the child
