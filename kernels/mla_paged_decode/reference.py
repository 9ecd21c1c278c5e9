"""The right answer in float64, and how far from it an output may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kernels.mla_paged_decode.workloads import CKV, HEADS
from kernels.task import Mismatch

ABSOLUTE = RELATIVE = 1e-2
"""An element of the output fails when it is off by more than the larger of the two (flashinfer-bench's rule)."""
RMSE = 5e-3
"""Bound of the relative RMSE of the output; bf16 rounding of an exact result alone gives 1.7e-3."""
LSE = 5e-3
"""Bound of the absolute error of lse (base 2)."""


def attend(tensors: Mapping[str, Tensor], sm_scale: float, sequences: Sequence[int]) -> dict[str, Tensor]:
    """Float64 `output` [n, 16, 512] and `lse` [n, 16] of these sequences; an empty one gives 0 and -inf."""
    bounds = tensors["kv_indptr"].tolist()
    device = tensors["q_nope"].device
    output = torch.zeros(len(sequences), HEADS, CKV, dtype=torch.float64, device=device)
    lse = torch.full((len(sequences), HEADS), -math.inf, dtype=torch.float64, device=device)
    for i, b in enumerate(sequences):
        pages = tensors["kv_indices"][bounds[b] : bounds[b + 1]].long()
        if len(pages) == 0:
            continue
        keys = tensors["ckv_cache"][:, 0].index_select(0, pages).double()
        logits = keys @ tensors["q_nope"][b].double().T
        logits += tensors["kpe_cache"][:, 0].index_select(0, pages).double() @ tensors["q_pe"][b].double().T
        logits = logits.T * sm_scale
        lse[i] = torch.logsumexp(logits, dim=-1) / math.log(2)
        output[i] = torch.softmax(logits, dim=-1) @ keys
    return {"output": output, "lse": lse}


def relative_rmse(output: Tensor, expected: Tensor) -> float:
    """Root mean square of the error over that of the reference; 0 when both are 0."""
    error = (output.double() - expected).square().mean().sqrt().item()
    size = expected.square().mean().sqrt().item()
    return error / size if size > 0 else error


def mismatch(
    outputs: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    sequences: Sequence[int],
    lengths: Sequence[int],
    baseline_rmse: float,
) -> Mismatch | None:
    """None if right, else the first thing wrong: NaN, an element, lse, then the error as a whole."""
    output, lse = outputs["output"].double(), outputs["lse"].double()

    def place(bad: Tensor) -> str:
        i, *rest = (int(x) for x in bad.nonzero()[0])
        b = sequences[i]
        return f"[{', '.join(map(str, (b, *rest)))}] (sequence {b} has {lengths[b]} keys)"

    for name, value in (("output", output), ("lse", lse)):
        bad = value.isnan()
        if bad.any():
            return _wrong(
                f"{name}{place(bad)} is NaN, with {int(bad.sum())} more like it: an element left "
                "unwritten (outputs hold NaN before a call), an unused page read (they hold NaN), or 0/0"
            )
    error = (output - expected["output"]).abs()
    bad = error > torch.clamp(RELATIVE * expected["output"].abs(), min=ABSOLUTE)
    if bad.any():
        return _wrong(
            f"output{place(bad)} is {output[bad][0].item():.5g}, should be "
            f"{expected['output'][bad][0].item():.5g}; {int(bad.sum()):,} of {bad.numel():,} "
            f"elements are off by more than max({ABSOLUTE:g}, {RELATIVE:g} * |reference|)"
        )
    bad = (lse != expected["lse"]) & ~((lse - expected["lse"]).abs() <= LSE)
    if bad.any():
        return _wrong(
            f"lse{place(bad)} is {lse[bad][0].item():.6g}, should be "
            f"{expected['lse'][bad][0].item():.6g} (base 2, within {LSE:g}; -inf when empty)"
        )
    rmse, limit = relative_rmse(output, expected["output"]), max(RMSE, 2 * baseline_rmse)
    if rmse > limit:
        return _wrong(f"relative RMSE of the output is {rmse:.2e}, allowed is {limit:.2e}")
    return None


def _wrong(message: str) -> Mismatch:
    return Mismatch("wrong_result", message)
