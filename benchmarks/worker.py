"""The parent's side of a child: starts it, tells it what to do, reads its clock, ends it.

The clock is the kernel's account of the child's CPU time, read from here; its process id comes with each message from
the kernel too (SCM_CREDENTIALS), not from the child.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks import sandbox
from benchmarks.arena import Place
from benchmarks.candidate import Candidate
from benchmarks.sandbox import Sandbox
from kernels.task import Task, Workload

if TYPE_CHECKING:
    from torch import Tensor

INSIDE = Path(__file__).parent / "inside"
START_SECONDS = 120
"""Importing torch from a cold disk on a loaded machine took 20 s."""
LOAD_SECONDS = 20
DEATH_SECONDS = 10
MESSAGE_BYTES = 1 << 16
SETTLED = ("S", "D", "Z", "X", "gone")
OUT_OF_TURN = "the kernel spoke to the judge in its host's place"
EXCUSES = ("build_error", "runtime_error", "wrong_shape", "wrong_dtype")
"""Statuses that a child may report of itself; all others are for the parent to find."""


class CandidateError(Exception):
    """The candidate did something wrong: a status of the protocol and a sentence for its author."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class JudgeError(Exception):
    """We did something wrong; charged to nobody."""


@dataclass(frozen=True)
class Done:
    """The end of a call, and what the child says of its time (0: it has no clock)."""

    us: float

    @classmethod
    def read(cls, packet: bytes) -> Done | None:
        """From the byte `d`, which eight bytes of a number may follow; None if the packet is something else."""
        if packet == b"d":
            return cls(0.0)
        if packet[:1] != b"d" or len(packet) != 9:
            return None
        us = float(struct.unpack("d", packet[1:])[0])
        return cls(us) if 0 < us < 1e12 else None


class Memory(Protocol):
    """Memory that the parent owns and a child maps."""

    def tensors(self, places: Mapping[str, Place]) -> dict[str, Tensor]:
        """Torch views of these places."""

    def close(self) -> None:
        """Give it back."""


@dataclass(frozen=True)
class Setup:
    """What a worker is started with: the settings that `inside` reads, the memory of its outputs, whether torch is let
    in, paths that it sees and writes, descriptors that it inherits, the core that it keeps to, its environment."""

    settings: Mapping[str, Any]
    outputs: Memory
    torch: bool
    visible: Sequence[Path]
    writable: Sequence[Path] = ()
    hidden: Sequence[Path] = ()
    descriptors: Sequence[int] = ()
    gate: int | None = None
    """Of a page that holds queued calls back, shared with the child."""
    cpu: int | None = None
    load_seconds: float = LOAD_SECONDS
    environment: Mapping[str, str] = field(default_factory=lambda: sandbox.ENVIRONMENT)
    foreign_libraries: Sequence[str] = ()
    """Parts of names of libraries that must not be mapped."""


class Worker:
    """One sandboxed process. After a `CandidateError` of crash or time limit it is gone: `alive` is False."""

    def __init__(self, box: Sandbox, setup: Setup, *, cwd: Path) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket, self._setup, self.outputs = ours, setup, setup.outputs
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        settings = {**setup.settings, "socket": theirs.fileno()}
        python, view = sandbox.python_view(packages=setup.torch)
        view.readonly += [INSIDE, *setup.visible]
        view.writable += setup.writable
        view.hidden += setup.hidden
        argv = [python, "-I", *([] if setup.torch else ["-S"]), str(INSIDE), json.dumps(settings)]
        fds = [theirs.fileno(), *setup.descriptors]
        self._process = sandbox.start(
            argv, box, view, stderr=self._stderr, pass_fds=fds, cwd=cwd, environment=setup.environment
        )
        theirs.close()
        self.alive, self.pid, self.filtered = True, 0, False
        self._threads: int | None = 1
        """As many threads as it may have; None while that is open."""
        self._gate = None if setup.gate is None else mmap.mmap(setup.gate, mmap.PAGESIZE)
        self._gates_opened = 0

    def ready(self) -> None:
        """Wait until it is up; `JudgeError` with its last words if it does not come up."""
        if self.pid:
            return
        try:
            hello = self._receive(START_SECONDS)
        except CandidateError as error:
            raise JudgeError(f"the process for kernels did not start: {error.message}") from None
        self.filtered, self._threads = hello["filtered"], hello["threads"]
        if self._setup.cpu is not None:  # one core for all of a bench's children: their caches stay theirs
            os.sched_setaffinity(self.pid, {self._setup.cpu})

    def load(self, slot: str, folder: Path) -> None:
        """Import folder/kernel.py under this name."""
        self.ready()
        self.ask({"do": "load", "slot": slot, "folder": str(folder)}, self._setup.load_seconds)
        self._look_around()

    def prepare(
        self,
        slot: str,
        task: Task,
        workload: Workload,
        inputs: Mapping[str, Place],
        outputs: Mapping[str, Place],
        decoy: Mapping[str, Place] | None = None,
    ) -> Any:
        """Announce a call: addresses, numbers, and through plan() the contents of `plan` tensors; the answer. `decoy`:
        what lies elsewhere in the calls that warm a timed one up."""
        tensors = [
            (name, where, offset, spec.shape, spec.dtype)
            for where, places in (("inputs", inputs), ("outputs", outputs))
            for name, (offset, spec) in places.items()
        ]
        message = {
            "do": "prepare",
            "slot": slot,
            "tensors": tensors,
            "scalars": task.scalars(workload),
            "entry": task.entry,
            "plan_entry": task.plan_entry,
            "outputs": list(outputs),
            "decoy": {name: offset for name, (offset, _) in (decoy or {}).items()},
        }
        return self.ask(message, self._setup.load_seconds)

    def confine(self) -> None:
        """From here on it may start no process, and no thread that it does not have yet."""
        self.filtered = bool(self.ask({"do": "confine"}, LOAD_SECONDS)["filtered"])
        self._threads = self._count_threads()

    def cpu_ns(self) -> int:
        """CPU time that the process has used, all its threads, living and ended."""
        try:
            return time.clock_gettime_ns(((~self.pid) << 3) | 2)
        except OSError:
            raise self._death() from None

    def settle(self) -> None:
        """Wait until it blocks for the next message: only then has the kernel booked all its CPU time (a running
        process is booked at the clock's ticks, 4 ms late)."""
        for _ in range(200):
            if self._state() in SETTLED:
                return
            time.sleep(20e-6)

    def go(self) -> None:
        """Let it make the prepared call."""
        self._send(b"g")

    def finish(self, cpu_limit_s: float) -> float:
        """Wait for the call's end; the limit is in CPU seconds, or ten times as long asleep. What the child says of
        the call's microseconds, 0 where it has no clock."""
        done = self._receive(10 * cpu_limit_s, cpu_limit_s)
        if not isinstance(done, Done):
            raise self._kill("cheated", OUT_OF_TURN)
        return done.us

    def ask_queue(self, calls: Sequence[Sequence[int]]) -> None:
        """Announce calls like the prepared one: the offsets of their tensors, inputs first, in the same order."""
        self.ask({"do": "queue", "calls": calls}, LOAD_SECONDS)

    def look(self, seconds: float) -> Any:
        """Have it make the prepared call under a profiler; what it says of the kernels that ran."""
        return self.ask({"do": "look"}, seconds)

    def enqueue(self, how: bytes, seconds: float) -> bool:
        """Have it put calls behind its gate (`t`, `w`, `q`: see inside); False if it waits for one instead of going on.
        `CandidateError` if it answers something else."""
        self._send(how)
        packet = self._wait(seconds, None, kill=False)
        if packet not in (b"e", b""):
            raise self._unexpected(packet)
        return packet == b"e"

    def open_gate(self) -> None:
        """Let them go."""
        assert self._gate is not None
        self._gates_opened += 1
        self._gate[:4] = struct.pack("I", self._gates_opened)

    def finish_queue(self, seconds: float) -> None:
        """Wait until all queued calls are done."""
        packet = self._wait(seconds, None)
        if packet == b"e":
            packet = self._wait(seconds, None)
        if packet != b"d":
            raise self._unexpected(packet)

    def _unexpected(self, packet: bytes) -> CandidateError:
        """What an answer means that is not the one waited for."""
        try:
            self._understand(packet)
        except CandidateError as error:
            return error
        return self._kill("cheated", OUT_OF_TURN)

    def check_alone(self) -> None:
        """`CandidateError` if the process has gained threads or children, or a library that computes for it."""
        self._look_around()

    def close(self) -> None:
        """End it."""
        self.alive = False
        self._socket.close()
        sandbox.stop(self._process)
        self._stderr.close()

    def ask(self, message: Mapping[str, Any], seconds: float) -> Any:
        """Send a message and return the answer."""
        self._send(json.dumps(message).encode())
        if isinstance(answer := self._receive(seconds, seconds), Done):
            raise self._kill("cheated", OUT_OF_TURN)
        return answer

    def _send(self, packet: bytes) -> None:
        """Nothing may be waiting to be read: who speaks without being asked is not our program."""
        self._socket.setblocking(False)
        try:
            early = self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            early = b""
        except ConnectionError:
            raise self._death() from None
        if early:
            raise self._kill("cheated", OUT_OF_TURN)
        try:
            self._socket.send(packet)
        except (BrokenPipeError, ConnectionError):
            raise self._death() from None

    def _receive(self, seconds: float, cpu_seconds: float | None = None) -> Any:
        """The answer's content, or `Done`. Errors and deaths come as `CandidateError`."""
        return self._understand(self._wait(seconds, cpu_seconds))

    def _understand(self, packet: bytes) -> Any:
        if not packet:
            raise self._death()
        if (done := Done.read(packet)) is not None:
            return done
        try:
            answer = json.loads(packet)
            if "error" not in answer:
                return answer["ok"]
            status, message = str(answer["error"]), str(answer["message"])
        except (ValueError, KeyError, TypeError):
            raise self._kill("cheated", OUT_OF_TURN) from None
        if status not in EXCUSES:
            raise self._kill("cheated", OUT_OF_TURN)
        raise CandidateError(status, message)

    def _wait(self, seconds: float, cpu_seconds: float | None, *, kill: bool = True) -> bytes:
        """The next packet, empty if it has hung up, or, where that is not to end it, if time is up."""
        deadline = time.monotonic() + seconds
        cpu_deadline = self.cpu_ns() + cpu_seconds * 1e9 if cpu_seconds and self.pid else float("inf")
        self._socket.settimeout(0.05)
        while True:
            try:
                packet, extra, _, _ = self._socket.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(12))
            except TimeoutError:
                busy = self.pid > 0 and self.cpu_ns() > cpu_deadline
                if not kill and time.monotonic() > deadline:
                    return b""
                if busy or time.monotonic() > deadline:
                    raise self._kill("timeout", self._too_long(seconds, cpu_seconds if busy else None)) from None
                continue
            except ConnectionError:
                return b""
            return packet if not packet or self._sent_by(extra) else b"?"

    def _sent_by(self, extra: Sequence[tuple[int, int, bytes]]) -> bool:
        """Take the sender's process id from the kernel at the first message, insist on it after that."""
        pid = next(
            struct.unpack("3i", data)[0]
            for level, kind, data in extra
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)
        )
        self.pid = self.pid or pid
        return bool(pid == self.pid)

    @staticmethod
    def _too_long(seconds: float, cpu_seconds: float | None) -> str:
        if cpu_seconds is None:
            return f"no answer within {seconds:.0f} s, most of them asleep: does it wait for something?"
        return f"still running after {cpu_seconds:.1f} s of CPU time: an endless loop, or far too slow"

    def _state(self) -> str:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "gone"

    def _count_threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    def _look_around(self) -> None:
        try:
            threads, children = self._count_threads(), sandbox.descendants(self.pid)
            mapped = Path(f"/proc/{self.pid}/maps").read_text() if self._setup.foreign_libraries else ""
        except OSError:
            return  # it has ended: the next message will say so
        if (self._threads is not None and threads > self._threads) or children:
            raise self._kill("cheated", "the kernel started a thread or a process; a kernel runs in one thread")
        for library in self._setup.foreign_libraries:
            if library in mapped:
                raise self._kill("cheated", f"the candidate loaded {library}; it must compute by itself")

    def _kill(self, status: str, message: str) -> CandidateError:
        self.close()
        return CandidateError(status, message)

    def _death(self) -> CandidateError:
        """What the end of the process says: refused system call, crash, or its own exit."""
        try:
            code = self._process.wait(DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            return self._kill("cheated", "the kernel closed the channel to the judge")
        number = -code if code < 0 else code - 128  # bubblewrap passes signals on as a shell does
        self._stderr.seek(0)
        last_words = self._stderr.read()[-2000:].decode(errors="replace").strip()
        self.close()
        if number == signal.SIGSYS:
            return CandidateError(
                "cheated",
                "the kernel tried to start a thread, a process or a program, or to open a "
                "socket; it runs alone, in one thread",
            )
        if number in (signal.SIGXCPU, signal.SIGKILL):
            return CandidateError("runtime_error", "the process was killed: too much memory or CPU time")
        if number > 0 and number in signal.valid_signals():
            hint = " (inputs are read-only)" if number in (signal.SIGSEGV, signal.SIGBUS) else ""
            return CandidateError("runtime_error", f"crashed with {signal.Signals(number).name}{hint}\n{last_words}")
        return CandidateError("runtime_error", f"the process ended with status {code}\n{last_words}")


def inside_sha256() -> str:
    """Hash of the program that hosts candidates: names and contents of all its files."""
    digest = hashlib.sha256()
    for file in sorted(p for p in INSIDE.iterdir() if p.is_file()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def load(worker: Worker, slot: str, candidate: Candidate) -> None:
    """Load a built candidate; a crash on import is a build error."""
    try:
        worker.load(slot, candidate.folder)
    except CandidateError as error:
        if error.status == "runtime_error":
            raise CandidateError("build_error", f"on import: {error.message}") from None
        raise
