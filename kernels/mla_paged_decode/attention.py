"""MLA paged decode for use: the fastest kernel here that the device runs, behind one function."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from kernels import nvcc
from kernels.mla_paged_decode.arguments import check

Run = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, float, Tensor, Tensor], None]


def decode(
    q_nope: Tensor,
    q_pe: Tensor,
    ckv_cache: Tensor,
    kpe_cache: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    sm_scale: float,
    output: Tensor | None = None,
    lse: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend with each sequence's one query to its own pages of a compressed cache; return (output, lse).

    Shapes and types, with B sequences and H heads (8, 16, 32, 64 or 128 on a GPU), all on one device:

    - q_nope [B, H, 512] and q_pe [B, H, 64], bfloat16: the query, without and with its position, already multiplied
      into the compressed space.
    - ckv_cache [pages, 1, 512] and kpe_cache [pages, 1, 64], bfloat16: a page is one token. The 512 dimensions are key
      and value. Slices of one 576-wide cache will do: only the last dimension must be contiguous, and on Hopper every
      row must begin at a multiple of 16 bytes.
    - kv_indptr [B + 1] and kv_indices, int32: sequence b has pages kv_indices[kv_indptr[b]:kv_indptr[b + 1]].
      kv_indices may be longer than kv_indptr[B]. Page ids are not checked: one that is no page reads other memory.
    - sm_scale: what scores are multiplied by, for DeepSeek-V3 1 / sqrt(192) times YaRN's correction.
    - output [B, H, 512] bfloat16 and lse [B, H] float32: where to write, allocated if left out. lse is the logarithm
      to base 2 of the softmax's sum. An empty sequence gives 0 and -inf.

    There is no plan. On a GPU the call neither waits for the device nor reads kv_indptr on the host, works on the
    current stream, and can be captured in a CUDA graph once it has been called before; the first call compiles.

    ValueError names the argument that is wrong. RuntimeError is what a launch that failed says.

    As flashinfer-bench's `mla_paged_decode_h16_ckv512_kpe64_ps1` defines it. NOTES.md beside this file says how
    fast it is, and `example_decode.py` how it takes the place of FlashInfer's wrapper.
    """
    if output is None:
        output = q_nope.new_empty(q_nope.shape)
    if lse is None:
        lse = q_nope.new_empty(q_nope.shape[:2], dtype=torch.float32)
    check(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, output, lse)
    best_kernel(q_nope.device)(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse)
    return output, lse


@cache
def best_kernel(device: torch.device) -> Run:
    """The `run` that decode uses on a device: CUDA C++ on Hopper, Triton on other NVIDIA GPUs, else PyTorch.

    What is missing to build or import the better one is told in a RuntimeWarning, once.
    """
    if device.type == "cuda" and torch.version.hip is None:
        capability = torch.cuda.get_device_capability(device)
        if capability == (9, 0):
            try:
                hopper: Any = importlib.import_module("kernels.mla_paged_decode.hopper_split_kv.kernel")
                hopper.LIBRARY = nvcc.build(hopper.HERE, hopper.NVCC_FLAGS)
                hopper.load()
            except (OSError, RuntimeError) as why:  # no nvcc, or one that is too old
                warnings.warn(f"the CUDA kernel cannot be built, Triton's is used: {why}", RuntimeWarning, stacklevel=3)
            else:
                return hopper.run  # type: ignore[no-any-return]
        if capability >= (8, 0):
            try:
                triton = importlib.import_module("kernels.mla_paged_decode.triton_split_kv.kernel")
            except ImportError as why:
                warnings.warn(f"Triton is missing, PyTorch is used: {why}", RuntimeWarning, stacklevel=3)
            else:
                return triton.run  # type: ignore[no-any-return]
    return attend_in_pytorch


def attend_in_pytorch(
    q_nope: Tensor,
    q_pe: Tensor,
    ckv_cache: Tensor,
    kpe_cache: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    sm_scale: float,
    output: Tensor,
    lse: Tensor,
) -> None:
    """The same in fp32 with PyTorch, on any device and for any number of heads; it reads kv_indptr on the host."""
    bounds = kv_indptr.tolist()
    output.zero_()
    lse.fill_(-math.inf)
    for b in range(q_nope.shape[0]):
        pages = kv_indices[bounds[b] : bounds[b + 1]].long()
        if len(pages) == 0:
            continue
        keys = ckv_cache[pages, 0].float()
        logits = q_nope[b].float() @ keys.T + q_pe[b].float() @ kpe_cache[pages, 0].float().T
        logits *= sm_scale
        lse[b] = torch.logsumexp(logits, dim=-1) / math.log(2)
        output[b] = torch.softmax(logits, dim=-1) @ keys
