"""What is wrong with the arguments of an MLA paged decode."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

CKV, KPE = 512, 64
"""Dimensions of a token that are key and value, and those that carry its position."""


def check(
    q_nope: Tensor,
    q_pe: Tensor,
    ckv_cache: Tensor,
    kpe_cache: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    output: Tensor,
    lse: Tensor,
) -> None:
    """ValueError names the first argument whose shape, type, device or strides are not as `decode` says.

    From what the host knows: neither kv_indptr nor page ids are read.
    """
    tensors = (q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, output, lse)
    # What was seen before is not looked at again: a serving loop asks for every layer.
    _check(tuple((t.shape, t.stride(), t.dtype, t.device) for t in tensors))


@lru_cache(maxsize=256)
def _check(given: tuple[tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device], ...]) -> None:
    queries, caches, indices = given[0][0], given[2][0], given[5][0]
    if len(queries) != 3:
        raise ValueError(f"q_nope must be [batch, heads, {CKV}], not {list(queries)}")
    if len(caches) != 3:
        raise ValueError(f"ckv_cache must be [pages, 1, {CKV}], not {list(caches)}")
    batch, heads, pages = queries[0], queries[1], caches[0]
    expected = {
        "q_nope": ((batch, heads, CKV), torch.bfloat16),
        "q_pe": ((batch, heads, KPE), torch.bfloat16),
        "ckv_cache": ((pages, 1, CKV), torch.bfloat16),
        "kpe_cache": ((pages, 1, KPE), torch.bfloat16),
        "kv_indptr": ((batch + 1,), torch.int32),
        "kv_indices": ((indices.numel(),), torch.int32),
        "output": ((batch, heads, CKV), torch.bfloat16),
        "lse": ((batch, heads), torch.float32),
    }
    for (name, (shape, dtype)), (is_shape, stride, is_dtype, device) in zip(expected.items(), given, strict=True):
        if tuple(is_shape) != shape or is_dtype != dtype:
            raise ValueError(f"{name} must be {list(shape)} {dtype}, not {list(is_shape)} {is_dtype}")
        if device != given[0][3]:
            raise ValueError(f"{name} is on {device}, q_nope on {given[0][3]}")
        whole = name in ("kv_indptr", "kv_indices", "output", "lse")
        dense = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        if any(s != d for s, d, n in zip(stride, dense, shape, strict=True) if n > 1 and (whole or d == 1)):
            raise ValueError(f"{name} must be contiguous" + ("" if whole else " in its last dimension"))
