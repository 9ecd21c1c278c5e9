"""Tensors in safetensors files: eight bytes with the header's length, a JSON header, the data.

Format: https://github.com/huggingface/safetensors#format. The package of that name is not needed: it wants numpy or
torch to hand tensors over, and here their bytes are enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from benchmarks import fields
from benchmarks.fields import Fields, shown
from kernels.task import BadInputError

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
MOST_BYTES = 1 << 28
LFS = b"version https://git-lfs"


@dataclass(frozen=True)
class Stored:
    """One tensor: element type by the format's name (`I32`), shape, and its bytes, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def read(path: Path) -> dict[str, Stored]:
    """All tensors of a file by name; `BadInputError` names the file and what is wrong in it."""
    content = _content(path)
    begin = 8 + int.from_bytes(content[:8], "little")
    if not 8 < begin <= len(content):
        what = "is a Git LFS pointer, not the data: git lfs pull" if content.startswith(LFS) else "is no whole file"
        raise BadInputError(f"{path}: {what} (safetensors: 8 bytes with the header's length, the header, the data)")
    try:
        header = content[8:begin].decode()
    except UnicodeDecodeError:
        raise BadInputError(f"{path}: its header is not text") from None
    table = Fields(fields.loads(header, f"{path}: header"), f"{path}: header")
    data = content[begin:]
    return {name: _tensor(table.inside(name), data) for name in table.data if name != "__metadata__"}


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise BadInputError(f"{path}: no such file")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise BadInputError(f"{path}: is larger than {MOST_BYTES >> 20} MiB")
    return content


def _tensor(entry: Fields, data: bytes) -> Stored:
    dtype = entry.one_of("dtype", tuple(ITEM_BYTES))
    shape, offsets = _sizes(entry, "shape"), _sizes(entry, "data_offsets")
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= len(data):
        raise BadInputError(f"{entry.where}.data_offsets: {offsets} is no part of the {len(data)} bytes of data")
    if offsets[1] - offsets[0] != math.prod(shape) * ITEM_BYTES[dtype]:
        raise BadInputError(f"{entry.where}.data_offsets: {offsets} does not hold {dtype} of shape {shape}")
    return Stored(dtype, shape, data[slice(*offsets)])


def _sizes(entry: Fields, key: str) -> tuple[int, ...]:
    values = entry.get(key, list)
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 48 for n in values):
        raise BadInputError(f"{entry.where}.{key}: must be whole numbers from 0 up, not {shown(values)}")
    return tuple(values)
