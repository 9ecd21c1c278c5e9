"""The process that hosts kernels: maps the shared memory, confines itself, then loads and calls as it is told.

    python -I benchmarks/inside SETTINGS       (a JSON object; see `main`)

This folder is all of the judge that a candidate can see, read-only; it imports nothing of the rest. Nothing that the
process says after it has loaded a candidate is believed.

Messages on the socket, one JSON object a packet: `load` a folder into a slot, `confine` the process for good (where
that was not done at the start), `prepare` a call (its addresses and what plan() may see), `queue` many calls, `look`
which kernels the prepared call runs; and single bytes: `g` make the prepared call; on a GPU, after some calls of a
decoy, `t` time it or `w` time all of it, and `q` make the queued calls: these three are put behind a gate, and `e` says
so. Contents are written between `prepare` and `g`, or `e` and the opening of the gate, so that nothing done earlier can
be of use. Answers: `{"ok": …}`, the byte `d` (done; on a GPU eight bytes may follow, microseconds), or `{"error":
STATUS, "message": …}`.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import socket
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confine
import views

MESSAGE_BYTES = 1 << 17
HEAT = 2
"""After one call the first timed one still varies by 2 us, after two it does not."""


class Refused(Exception):  # noqa: N818 - the candidate is refused; nothing went wrong here
    """A candidate does not keep the contract; `status` is the protocol's word."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Host:
    """The kernels of one process and the call that is prepared."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.inputs, self.outputs, self.clock = open_memory(settings)
        self.kernels: dict[str, Any] = {}
        self.call: Callable[[], None] | None = None
        self.decoy: Callable[[], None] | None = None
        self.queued: list[Callable[[], None]] = []
        self._now = time.perf_counter_ns  # as it was before a candidate could change it

    def load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Import `folder`/kernel.py as the kernel of `slot`."""
        path = Path(message["folder"]) / "kernel.py"
        spec = importlib.util.spec_from_file_location(f"kernel_{message['slot']}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, message["folder"])
        spec.loader.exec_module(module)
        sys.path.remove(message["folder"])
        if not callable(getattr(module, "run", None)):
            raise Refused("build_error", "kernel.py does not define a function run")
        self.kernels[message["slot"]] = module
        return {"plan": callable(getattr(module, "plan", None))}

    def confine(self, message: dict[str, Any]) -> dict[str, Any]:
        """Start no process from here on, nor open a socket."""
        return {"filtered": confine.refuse_helpers(threads_too=False)}

    def prepare(self, message: dict[str, Any]) -> dict[str, Any]:
        """Lay out the arguments of the next call, and let plan() see what it may; how long that took (us)."""
        module = self.kernels[message["slot"]]
        self.message, self.module = message, module
        values = {**message["scalars"], **self._tensors([where[2] for where in message["tensors"]])}
        answer = {}
        if callable(getattr(module, "plan", None)):
            plan_values = {**values, "device": self.settings["device"]}
            arguments = [plan_values[name] for name in message["plan_entry"]]
            begin = self._now()
            values["state"] = module.plan(*arguments)
            self._wait()
            answer["plan_us"] = (self._now() - begin) / 1e3
        self.state = values.get("state")
        self.call = self._bound(values)
        self.decoy = None
        if message["decoy"]:
            offsets = [message["decoy"].get(name, offset) for name, _, offset, *_ in message["tensors"]]
            self.decoy = self._bound({**values, **self._tensors(offsets)})
        return answer

    def queue(self, message: dict[str, Any]) -> dict[str, Any]:
        """Lay out more calls like the one that was prepared, at other addresses; they share its plan."""
        with_state = {"state": self.state} if "state" in self.__dict__ and self.state is not None else {}
        numbers = self.message["scalars"]
        self.queued = [self._bound({**numbers, **self._tensors(o), **with_state}) for o in message["calls"]]
        return {}

    def look(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Which kernels the prepared call runs."""
        import look  # noqa: PLC0415

        call, self.call = self.call, None
        assert call is not None, "look before prepare"
        return look.kernels(call)

    def run(self) -> bytes:
        """Make the prepared call, once; what to answer."""
        call, self.call = self.call, None
        assert call is not None, "go before prepare"
        if self.clock is None:
            call()
            return b"d"
        return b"d" + struct.pack("d", self.clock.time(call))

    def run_timed(self, channel: socket.socket, *, wall: bool) -> bytes:
        """Call the decoy, then measure the prepared call, once; its inputs come when the gate is opened."""
        call, self.call = self.call, None
        assert call is not None, "go before prepare"
        assert self.clock is not None, "no gate without a device's clock"
        assert self.decoy is not None, "no decoy was prepared"
        for _ in range(HEAT):
            self.clock.time(self.decoy)
        measure = self.clock.time_wall if wall else self.clock.time
        return b"d" + struct.pack("d", measure(call, lambda: _say_waiting(channel)))

    def run_queue(self, channel: socket.socket) -> bytes:
        """Put the queued calls behind the gate, say so, wait until all are done."""
        calls, self.queued = self.queued, []
        assert self.clock is not None, "no gate without a device's clock"
        self.clock.close_gate()
        for call in calls:
            call()
        _say_waiting(channel)
        self.clock.wait()
        return b"d"

    def _wait(self) -> None:
        if self.clock is not None:
            self.clock.wait()

    def _tensors(self, offsets: list[int]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for (name, where, _, shape, dtype), offset in zip(self.message["tensors"], offsets, strict=True):
            memory = self.outputs if where == "outputs" else self.inputs
            make = memory.tensor if self.settings["torch"] else memory.view
            values[name] = make(offset, tuple(shape), dtype)
        return values

    def _bound(self, values: dict[str, Any]) -> Callable[[], None]:
        """run() with its arguments."""
        run, names = self.module.run, self.message["outputs"]
        arguments = [values[name] for name in self.message["entry"]]
        if "state" in values:
            arguments.append(values["state"])
        outputs = [values[name] for name in names]

        def call() -> None:
            returned = run(*arguments)
            if returned is not None:
                adopt(returned, outputs, names)

        return call


def _say_waiting(channel: socket.socket) -> None:
    channel.send(b"e")


def open_memory(settings: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Inputs, outputs and, on a GPU, the clock."""
    if settings["device"] == "cuda":
        import device  # noqa: PLC0415

        clock = device.Clock(settings)
        return (
            clock.open(settings["inputs"], settings["input_bytes"]),
            clock.open(settings["outputs"], settings["output_bytes"]),
            clock,
        )
    inputs = views.Memory(settings["inputs"], settings["input_bytes"], writable=False)
    return inputs, views.Memory(settings["outputs"], settings["output_bytes"], writable=True), None


def adopt(returned: Any, outputs: list[Any], names: list[str]) -> None:
    """Take a kernel that returns its outputs instead of writing them: same number, shapes and types."""
    values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if len(values) != len(outputs):
        raise Refused(
            "wrong_shape", f"run returned {len(values)} values; write into the arguments or return {', '.join(names)}"
        )
    for name, value, output in zip(names, values, outputs, strict=True):
        if not hasattr(output, "copy_") or type(value) is not type(output):
            raise Refused("wrong_dtype", f"run returned {type(value).__name__} for {name}, not {type(output).__name__}")
        if tuple(value.shape) != tuple(output.shape):
            raise Refused("wrong_shape", f"{name} has shape {list(value.shape)}, should be {list(output.shape)}")
        if value.dtype != output.dtype:
            raise Refused("wrong_dtype", f"{name} has dtype {value.dtype}, should be {output.dtype}")
        output.copy_(value)


def explain(error: BaseException) -> str:
    """The error as the kernel's author wants it: its own frames, from kernel.py inwards, then the message."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).parent != Path(__file__).parent]
    own = [f for f in frames if "<frozen" not in f.filename][-3:]
    where = "".join(f"{Path(f.filename).name} line {f.lineno}: {f.line}\n" for f in own)
    return (where + f"{type(error).__name__}: {error}")[:4000]


def answer(host: Host, packet: bytes, channel: socket.socket) -> bytes:
    """Do what one packet says; whatever a candidate throws becomes an answer."""
    step = "run"
    try:
        if packet == b"g":
            return host.run()
        if packet in (b"t", b"w"):
            return host.run_timed(channel, wall=packet == b"w")
        if packet == b"q":
            return host.run_queue(channel)
        message = json.loads(packet)
        step = message["do"]
        return json.dumps({"ok": getattr(host, step)(message)}).encode()
    except Refused as refused:
        return json.dumps({"error": refused.status, "message": str(refused)}).encode()
    except BaseException as error:
        status = "build_error" if step == "load" else "runtime_error"
        return json.dumps({"error": status, "message": explain(error)}).encode()


def main(settings: dict[str, Any]) -> None:
    """Serve until the parent hangs up."""
    faulthandler.enable()
    warnings.filterwarnings("ignore", message="The given buffer is not writable")
    channel = socket.socket(fileno=settings["socket"])
    sys.path += settings.get("paths", [])
    if settings["torch"]:
        import torch  # noqa: PLC0415 - before the filter: its import starts helpers of its own

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
    host = Host(settings)
    confine.limit(settings)
    hello: dict[str, Any] = {"filtered": False, "threads": None}
    if settings["device"] == "cpu":  # on a GPU compilers must run first: see `confine`
        hello = {"filtered": confine.refuse_helpers(threads_too=True), "threads": confine.threads()}
    channel.send(json.dumps({"ok": hello}).encode())
    while packet := channel.recv(MESSAGE_BYTES):
        channel.send(answer(host, packet, channel))
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
