"""Limits that a process lays on itself before it loads foreign code; none can be taken back.

Rlimits bound memory, files and CPU seconds. A seccomp filter ends the process at the first attempt to start a thread
or a process, to run a program, to open a socket or to look into another process. The parent learns of it by SIGSYS.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 1, 38, 22, 2
ALLOW, KILL_PROCESS = 0x7FFF0000, 0x80000000
LOAD_WORD, JUMP_EQUAL, JUMP_GREATER_EQUAL, RETURN = 0x20, 0x15, 0x35, 0x06
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


def limit(memory_bytes: int, cpu_seconds: int) -> None:
    """Bound this process: address space, CPU, 64 KB of files, no core dump; it dies with its parent."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for what, value in (
        (resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, 1 << 16), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 64),
    ):  # fmt: skip
        resource.setrlimit(what, (value, value))


def refuse_helpers() -> bool:
    """Install the filter; False where the kernel or the machine offers none."""
    if platform.machine() not in MACHINES:
        return False
    program = assemble(*MACHINES[platform.machine()])
    libc = ctypes.CDLL(None, use_errno=True)
    fprog = SockFprog(len(program) // 8, program)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(fprog), 0, 0) == 0)


def assemble(column: int, architecture: int) -> bytes:
    """The filter as BPF: another architecture or a refused number ends the process, all else is allowed."""
    numbers = [row[column] for row in REFUSED.values() if row[column] is not None]

    def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("=HBBI", code, if_true, if_false, value)

    steps = [step(LOAD_WORD, 4), step(JUMP_EQUAL, architecture, 1, 0), step(RETURN, KILL_PROCESS), step(LOAD_WORD, 0)]
    left = len(numbers) + 1
    steps.append(step(JUMP_GREATER_EQUAL, X32_ABI, left, 0))
    for i, number in enumerate(numbers):
        steps.append(step(JUMP_EQUAL, number, left - 1 - i, 0))  # type: ignore[arg-type]
    return b"".join([*steps, step(RETURN, ALLOW), step(RETURN, KILL_PROCESS)])


def threads() -> int:
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - pathlib is not worth an import in the child
