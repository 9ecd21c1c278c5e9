"""Memory that the parent owns and the children map: inputs sealed against their writing, outputs for each of them.

Inputs lie in one memory file with the seal F_SEAL_FUTURE_WRITE: the mapping made here stays writable, every later one,
in whatever process, is read-only for good. So a candidate cannot change an input, and the parent can, between calls.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import random
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kernels.task import TensorSpec

if TYPE_CHECKING:
    from torch import Tensor

SEAL_FUTURE_WRITE = 0x10
ITEM_BYTES = {"bfloat16": 2, "float32": 4, "int32": 4}
ALIGN = 256
"""Bytes that every tensor is aligned to, as torch's own allocators do at least."""
SLACK = 1 << 20
"""Bytes by which a call's tensors are moved about, so that addresses change from call to call."""

Place = tuple[int, TensorSpec]


class Arena:
    """A shared memory file and this process's mapping of it."""

    def __init__(self, size: int, *, sealed: bool) -> None:
        self.size = size
        self.descriptor = os.memfd_create("regroup", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, size)
        self._map = mmap.mmap(self.descriptor, size)
        if sealed:
            seals = SEAL_FUTURE_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)

    def tensors(self, places: Mapping[str, Place]) -> dict[str, Tensor]:
        """Torch views of these places."""
        return {name: self._tensor(offset, spec) for name, (offset, spec) in places.items()}

    def _tensor(self, offset: int, spec: TensorSpec) -> Tensor:
        import torch  # noqa: PLC0415 - a second that building and screening need not wait for

        dtype, count = getattr(torch, spec.dtype), math.prod(spec.shape)
        if count == 0:
            return torch.empty(spec.shape, dtype=dtype)
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=offset).view(spec.shape)

    def close(self) -> None:
        """Give the memory back (views made of it keep it until they go)."""
        os.close(self.descriptor)


def size_of(spec: TensorSpec) -> int:
    """Bytes of a tensor."""
    return math.prod(spec.shape) * ITEM_BYTES[spec.dtype]


def place(
    specs: Mapping[str, TensorSpec], rng: random.Random, *, base: int = 0, slack: int = SLACK
) -> dict[str, Place]:
    """Lay tensors one after another, from a random start and with random gaps; within `room_for` them, from `base`."""
    at, places = base + ALIGN * rng.randrange(slack // ALIGN), {}
    for name, spec in specs.items():
        places[name] = (at, spec)
        at += -(-size_of(spec) // ALIGN) * ALIGN + ALIGN * rng.randrange(1, 16)
    return places


def room_for(layouts: Iterable[Mapping[str, TensorSpec]]) -> int:
    """Bytes that the largest of these layouts can take."""
    largest = max(sum(-(-size_of(s) // ALIGN) * ALIGN + 16 * ALIGN for s in specs.values()) for specs in layouts)
    return -(-(largest + SLACK) // mmap.PAGESIZE) * mmap.PAGESIZE
