"""The process that hosts kernels: maps the shared memory, confines itself, then loads and calls as it is told.

    python -I benchmarks/inside SETTINGS       (a JSON object; see `main`)

This folder is all of the judge that a candidate can see, read-only; it imports nothing of the rest. Nothing that the
process says after it has loaded a candidate is believed.

Messages on the socket, one JSON object a packet: `load` a folder into a slot, `prepare` a call (its addresses and
what plan() may see), and then the single byte `g`: go. Contents are written between `prepare` and `g`, so that nothing
done earlier can be of use. Answers: `{"ok": …}`, the byte `d` (done), or `{"error": STATUS, "message": …}`.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import socket
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confine
import views

MESSAGE_BYTES = 1 << 16


class Refused(Exception):  # noqa: N818 - the candidate is refused; nothing went wrong here
    """A candidate does not keep the contract; `status` is the protocol's word."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Host:
    """The kernels of one process and the call that is prepared."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.torch = settings["torch"]
        self.inputs = views.Memory(settings["inputs"], settings["input_bytes"], writable=False)
        self.outputs = views.Memory(settings["outputs"], settings["output_bytes"], writable=True)
        self.kernels: dict[str, Any] = {}
        self.call: Callable[[], None] | None = None

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

    def prepare(self, message: dict[str, Any]) -> dict[str, Any]:
        """Lay out the arguments of the next call, and let plan() see what it may."""
        module = self.kernels[message["slot"]]
        values: dict[str, Any] = dict(message["scalars"])
        for name, where, offset, shape, dtype in message["tensors"]:
            memory = self.outputs if where == "outputs" else self.inputs
            make = memory.tensor if self.torch else memory.view
            values[name] = make(offset, tuple(shape), dtype)
        if callable(getattr(module, "plan", None)):
            plan_values = {**values, "device": self.settings["device"]}
            values["state"] = module.plan(*(plan_values[name] for name in message["plan_entry"]))
        arguments = [values[name] for name in message["entry"]]
        if "state" in values:
            arguments.append(values["state"])
        outputs = [values[name] for name in message["outputs"]]

        def call() -> None:
            returned = module.run(*arguments)
            if returned is not None:
                adopt(returned, outputs, message["outputs"])

        self.call = call
        return {}

    def run(self) -> None:
        """Make the prepared call, once."""
        call, self.call = self.call, None
        assert call is not None, "go before prepare"
        call()


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


def answer(host: Host, packet: bytes) -> bytes:
    """Do what one packet says; whatever a candidate throws becomes an answer."""
    step = "run"
    try:
        if packet == b"g":
            host.run()
            return b"d"
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
    if settings["torch"]:
        import torch  # noqa: PLC0415 - before the filter: its import starts helpers of its own

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
    host = Host(settings)
    confine.limit(settings["memory_bytes"], settings["cpu_seconds"])
    filtered = confine.refuse_helpers()
    channel.send(json.dumps({"ok": {"filtered": filtered, "threads": confine.threads()}}).encode())
    while packet := channel.recv(MESSAGE_BYTES):
        channel.send(answer(host, packet))
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
