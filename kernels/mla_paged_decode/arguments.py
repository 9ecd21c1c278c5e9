"""What is wrong with the arguments of an MLA paged decode."""

from __future__ import annotations

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
    if q_nope.ndim != 3:
        raise ValueError(f"q_nope must be [batch, heads, {CKV}], not {list(q_nope.shape)}")
    if ckv_cache.ndim != 3:
        raise ValueError(f"ckv_cache must be [pages, 1, {CKV}], not {list(ckv_cache.shape)}")
    batch, heads, pages = q_nope.shape[0], q_nope.shape[1], ckv_cache.shape[0]
    expected = {
        "q_nope": (q_nope, (batch, heads, CKV), torch.bfloat16),
        "q_pe": (q_pe, (batch, heads, KPE), torch.bfloat16),
        "ckv_cache": (ckv_cache, (pages, 1, CKV), torch.bfloat16),
        "kpe_cache": (kpe_cache, (pages, 1, KPE), torch.bfloat16),
        "kv_indptr": (kv_indptr, (batch + 1,), torch.int32),
        "kv_indices": (kv_indices, (kv_indices.numel(),), torch.int32),
        "output": (output, (batch, heads, CKV), torch.bfloat16),
        "lse": (lse, (batch, heads), torch.float32),
    }
    for name, (tensor, shape, dtype) in expected.items():
        if tuple(tensor.shape) != shape or tensor.dtype != dtype:
            raise ValueError(f"{name} must be {list(shape)} {dtype}, not {list(tensor.shape)} {tensor.dtype}")
        if tensor.device != q_nope.device:
            raise ValueError(f"{name} is on {tensor.device}, q_nope on {q_nope.device}")
        whole = name in ("kv_indptr", "kv_indices", "output", "lse")
        if not (tensor.is_contiguous() if whole else tensor.stride(-1) == 1):
            raise ValueError(f"{name} must be contiguous" + ("" if whole else " in its last dimension"))
