"""Tensors over the parent's shared memory, as torch tensors or, where torch is not let in, as plain views."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

SIZES = {"bfloat16": 2, "float32": 4, "int32": 4}


class View:
    """What a C kernel needs of a tensor, by torch's names: `data_ptr()`, `shape`, `stride()`, `dtype`, `numel()`."""

    __slots__ = ("_address", "dtype", "shape")

    def __init__(self, address: int, shape: tuple[int, ...], dtype: str) -> None:
        self._address, self.shape, self.dtype = address, shape, dtype

    def data_ptr(self) -> int:
        """Address of the first element."""
        return self._address

    def size(self, dim: int | None = None) -> Any:
        """The shape, or one of its numbers."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for n in self.shape:
            count *= n
        return count

    def element_size(self) -> int:
        """Bytes of an element."""
        return SIZES[self.dtype]

    def stride(self, dim: int | None = None) -> Any:
        """Distances between neighbours in elements, all of them or one; views are always contiguous."""
        strides, step = [], 1
        for n in reversed(self.shape):
            strides.append(step)
            step *= n
        return tuple(reversed(strides)) if dim is None else tuple(reversed(strides))[dim]

    def is_contiguous(self) -> bool:
        """Always true."""
        return True


class Memory:
    """One shared mapping; the inputs' is sealed by the parent, so that nobody here can write it."""

    def __init__(self, descriptor: int, size: int, *, writable: bool) -> None:
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE  # no page faults within a timed call
        self._map = mmap.mmap(descriptor, size, flags=flags, prot=access)
        libc = ctypes.CDLL(None, use_errno=True)
        if writable:
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        else:  # ctypes takes no read-only buffer: map once more for the address
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
            self.address = int(libc.mmap(None, size, access, flags, descriptor, 0))

    def view(self, offset: int, shape: tuple[int, ...], dtype: str) -> View:
        """A plain view at this byte offset."""
        return View(self.address + offset, shape, dtype)

    def tensor(self, offset: int, shape: tuple[int, ...], dtype: str) -> Any:
        """A torch tensor at this byte offset."""
        import torch  # noqa: PLC0415 - only a process that hosts PyTorch programs may load it

        count = 1
        for n in shape:
            count *= n
        kind = getattr(torch, dtype)
        if count == 0:
            return torch.empty(shape, dtype=kind)
        return torch.frombuffer(self._map, dtype=kind, count=count, offset=offset).view(shape)
