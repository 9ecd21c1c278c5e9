"""What the parent needs of NVIDIA's driver beside torch: memory that other processes can map."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarks.arena import Place
from kernels.task import BadInputError, TensorSpec

if TYPE_CHECKING:
    from torch import Tensor


PAGE_BYTES = 2 << 20
"""Of a device's large pages. Memory that does not fill the last one is mapped in small ones, of which the device keeps
the addresses of too few at hand: scattered reads then take 30 times as long."""


CLOCK_RATE = 13  # CU_DEVICE_ATTRIBUTE_CLOCK_RATE, in kHz


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


def call(name: str, *arguments: Any) -> None:
    """Call the driver; RuntimeError with its words."""
    cuda = ctypes.CDLL("libcuda.so.1")
    if error := getattr(cuda, name)(*arguments):
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(error, ctypes.byref(text))
        raise RuntimeError(f"{name}: {(text.value or b'unknown error').decode()}")


def require_device() -> None:
    """`BadInputError` if torch sees no NVIDIA GPU."""
    import torch  # noqa: PLC0415 - slow, and only wanted here

    if not torch.cuda.is_available() or torch.version.hip is not None:
        raise BadInputError("--device cuda: torch sees no NVIDIA GPU here (nvidia-smi, and a torch built for CUDA?)")


def most_cycles_per_us() -> float:
    """The highest clock of the device's multiprocessors, in MHz."""
    value = ctypes.c_int()
    call("cuDeviceGetAttribute", ctypes.byref(value), CLOCK_RATE, 0)
    return value.value / 1e3


class DeviceArena:
    """Device memory of one allocation of its own, all bytes 0xff (NaN in every floating-point type) at first."""

    def __init__(self, size: int) -> None:
        import torch  # noqa: PLC0415

        torch.zeros(1, device="cuda")
        size = -(-size // PAGE_BYTES) * PAGE_BYTES
        address, handle = ctypes.c_uint64(), IpcHandle()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.size, self._address = size, address
        call("cuIpcGetMemHandle", ctypes.byref(handle), address)
        self.handle = ctypes.string_at(ctypes.byref(handle), ctypes.sizeof(handle)).hex()
        self.bytes: Tensor = torch.as_tensor(_Block(address.value, size), device="cuda")
        self.bytes.fill_(0xFF)

    def tensors(self, places: Mapping[str, Place]) -> dict[str, Tensor]:
        """Torch views of these places."""
        return {name: self._tensor(offset, spec) for name, (offset, spec) in places.items()}

    def _tensor(self, offset: int, spec: TensorSpec) -> Tensor:
        import torch  # noqa: PLC0415

        kind, count = getattr(torch, spec.dtype), math.prod(spec.shape)
        if count == 0:
            return torch.empty(spec.shape, dtype=kind, device="cuda")
        return self.bytes[offset : offset + count * kind.itemsize].view(kind).view(spec.shape)

    def close(self) -> None:
        """Give the memory back; its views are dead after this."""
        if self._address.value:
            call("cuMemFree_v2", self._address)
            self._address = ctypes.c_uint64(0)


class _Block:
    """A stretch of device memory as torch takes it in, by the CUDA array interface."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (size,), "typestr": "|u1", "strides": None, "version": 3,
        }  # fmt: skip


def sums(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """A sum over each tensor's bits: equal bits, equal sums."""
    import torch  # noqa: PLC0415

    found = {}
    for name, tensor in tensors.items():
        bits = tensor.reshape(-1).view(torch.uint8)
        whole = len(bits) // 8 * 8
        total = bits[:whole].view(torch.int64).sum() + bits[whole:].sum()
        found[name] = int(total)
    return found
