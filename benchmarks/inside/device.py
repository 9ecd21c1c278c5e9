"""A child's side of a GPU: the parent's memory mapped into it, and a clock of device events.

It calls the driver itself, through functions looked up before a candidate is loaded, so that what a candidate does to
torch's own events and streams changes nothing here. That is care, not proof: the candidate shares the process. The
proof is the parent's own clock over queued calls (audit.py).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import time
from collections.abc import Callable
from typing import Any

FLUSH_BYTES = 2 << 30
"""Written before every timed call: the second-level cache then holds nothing of use, and the write lasts (0.5 ms on an
H200) longer than the host takes to put a call behind it, and the parent to write what it is asked."""
GATE_BYTES = mmap.PAGESIZE
TIMED = 0  # the flags of an event with a time
LIMIT_PERSISTING = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
LAZY_PEER_ACCESS, HOST_REGISTER_DEVICEMAP, AT_LEAST = 1, 2, 0


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


class Block:
    """A stretch of device memory as torch takes it in, by the CUDA array interface."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (size,), "typestr": "|u1", "strides": None, "version": 3,
        }  # fmt: skip


class Memory:
    """A shared stretch of device memory; tensors in it are views."""

    def __init__(self, address: int, size: int) -> None:
        import torch  # noqa: PLC0415 - this folder is on the path of processes that have no torch

        self._torch = torch
        self._bytes = torch.as_tensor(Block(address, size), device="cuda")

    def tensor(self, offset: int, shape: tuple[int, ...], dtype: str) -> Any:
        """A torch tensor at this byte offset."""
        kind, count = getattr(self._torch, dtype), 1
        for n in shape:
            count *= n
        if count == 0:
            return self._torch.empty(shape, dtype=kind, device="cuda")
        return self._bytes[offset : offset + count * kind.itemsize].view(kind).view(shape)


class Clock:
    """Times calls on the default stream, and holds queued calls back behind a gate that the parent opens."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import torch  # noqa: PLC0415

        torch.zeros(1, device="cuda")  # makes the context that all the driver's functions work in
        torch.cuda.synchronize()
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._now = time.perf_counter_ns
        self._start, self._end = ctypes.c_void_p(), ctypes.c_void_p()
        for event in (self._start, self._end):
            self._do("cuEventCreate", ctypes.byref(event), TIMED)
        flush = ctypes.c_uint64()
        self._do("cuMemAlloc_v2", ctypes.byref(flush), ctypes.c_size_t(FLUSH_BYTES))
        self._flush_at = flush
        self._open_gate(settings["gate"])
        self._functions = {
            name: getattr(self._cuda, name)
            for name in (
                "cuMemsetD32Async", "cuEventRecord", "cuCtxSynchronize", "cuEventElapsedTime", "cuStreamWaitValue32_v2",
                "cuCtxSetLimit", "cuCtxResetPersistingL2Cache",
            )
        }  # fmt: skip
        self._everywhere = getattr(self._cuda, "cuCtxRecordEvent", None)
        self._context = ctypes.c_void_p()
        self._do("cuCtxGetCurrent", ctypes.byref(self._context))
        self._round = 0

    def _open_gate(self, descriptor: int) -> None:
        self._page = mmap.mmap(descriptor, GATE_BYTES)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        self._do("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(GATE_BYTES), HOST_REGISTER_DEVICEMAP)
        gate = ctypes.c_uint64()
        self._do("cuMemHostGetDevicePointer_v2", ctypes.byref(gate), ctypes.c_void_p(address), 0)
        self._gate = gate

    def _do(self, name: str, *arguments: Any) -> None:
        function = self.__dict__.get("_functions", {}).get(name) or getattr(self._cuda, name)
        if error := function(*arguments):
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(error, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'unknown error').decode()}")

    def open(self, handle: str, size: int) -> Memory:
        """Map memory that the parent made, by its handle in hexadecimal."""
        shared, address = IpcHandle(), ctypes.c_uint64()
        ctypes.memmove(ctypes.byref(shared), bytes.fromhex(handle), ctypes.sizeof(shared))
        self._do("cuIpcOpenMemHandle_v2", ctypes.byref(address), shared, LAZY_PEER_ACCESS)
        return Memory(address.value, size)

    def wait(self) -> None:
        """Until all streams are done; errors of launches come up here."""
        self._do("cuCtxSynchronize")

    def flush(self) -> None:
        """Empty the second-level cache of anything of use, what was asked to stay there included."""
        self._do("cuCtxSetLimit", LIMIT_PERSISTING, ctypes.c_size_t(0))
        self._do("cuCtxResetPersistingL2Cache")
        self._do("cuMemsetD32Async", self._flush_at, 0, ctypes.c_size_t(FLUSH_BYTES // 4), None)

    def time(self, call: Callable[[], None], ask: Callable[[], None] | None = None) -> float:
        """Device time of a call on a cold cache (us), all streams included. With `ask`, the call waits behind the flush
        and a gate; `ask` is to have the gate opened, at best while the flush lasts, so that the device never idles."""
        self.flush()
        if ask is not None:
            self.close_gate()
            ask()
        self._do("cuEventRecord", self._start, None)
        call()
        self._record_end()
        self.wait()
        ms = ctypes.c_float()
        self._do("cuEventElapsedTime", ctypes.byref(ms), self._start, self._end)
        return ms.value * 1e3

    def _record_end(self) -> None:
        """After everything that any stream holds, where the driver can say that; else after the default stream."""
        if self._everywhere is not None and self._everywhere(self._context, self._end) == 0:
            return
        self._do("cuEventRecord", self._end, None)

    def time_wall(self, call: Callable[[], None], ask: Callable[[], None]) -> float:
        """Host time of a call on a cold cache, from an idle device to an idle device (us)."""
        self.flush()
        self.wait()
        self._round += 1
        ask()
        while struct.unpack_from("I", self._page)[0] < self._round:
            pass
        begin = self._now()
        call()
        self.wait()
        return (self._now() - begin) / 1e3

    def close_gate(self) -> None:
        """What follows on the default stream waits until the parent writes the next number into the shared page."""
        self._round += 1
        self._do("cuStreamWaitValue32_v2", None, self._gate, self._round, AT_LEAST)
