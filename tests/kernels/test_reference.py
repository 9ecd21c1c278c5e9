"""The reference against sums written out one by one, and the tolerance around it."""

import math
import re

import pytest
import torch

from kernels.mla_paged_decode.task import TASK
from kernels.mla_paged_decode.workloads import MlaWorkload

SMALL = MlaWorkload("small", 3, 7, (4, 0, 3), 3, 0.13, num_pages=9)


@pytest.fixture
def filled():
    tensors = {n: torch.zeros(s.shape, dtype=getattr(torch, s.dtype)) for n, s in TASK.tensors(SMALL).items()}
    source = TASK.source("cpu", 11)
    source.fill_plan(SMALL, tensors)
    source.fill(SMALL, tensors)
    return tensors


def by_hand(tensors, b, h):
    begin, end = tensors["kv_indptr"][b : b + 2].tolist()
    pages = tensors["kv_indices"][begin:end].tolist()
    logits = []
    for page in pages:
        nope = zip(tensors["q_nope"][b, h].tolist(), tensors["ckv_cache"][page, 0].tolist(), strict=True)
        rope = zip(tensors["q_pe"][b, h].tolist(), tensors["kpe_cache"][page, 0].tolist(), strict=True)
        logits.append(SMALL.sm_scale * math.fsum(q * k for q, k in (*nope, *rope)))
    total = math.fsum(math.exp(x) for x in logits)
    values = [tensors["ckv_cache"][page, 0].tolist() for page in pages]
    output = [math.fsum(math.exp(x) / total * v[d] for x, v in zip(logits, values, strict=True)) for d in range(512)]
    return output, math.log2(total)


def test_the_reference_equals_the_definition_summed_by_hand(filled):
    expected = TASK.reference(SMALL, filled, [0, 2])
    for i, b in enumerate((0, 2)):
        for h in (0, 7, 15):
            output, lse = by_hand(filled, b, h)
            assert expected["output"][i, h].tolist() == pytest.approx(output, abs=1e-12)
            assert expected["lse"][i, h].item() == pytest.approx(lse, abs=1e-12)


def test_an_empty_sequence_gives_zeros_and_minus_infinity(filled):
    expected = TASK.reference(SMALL, filled, [1])
    assert (expected["output"] == 0).all()
    assert (expected["lse"] == -math.inf).all()


def verdict(filled, change, baseline_rmse=0.0):
    items = [0, 1, 2]
    expected = TASK.reference(SMALL, filled, items)
    outputs = {"output": expected["output"].to(torch.bfloat16), "lse": expected["lse"].float()}
    change(outputs)
    return TASK.mismatch(SMALL, outputs, expected, items, baseline_rmse)


def set_to(name, index, value):
    def change(outputs):
        outputs[name][index] = value

    return change


def shift_by_6_thousandths(outputs):
    outputs["output"] += 0.006 * (outputs["output"].abs() < 0.9)


def test_an_exact_result_is_right(filled):
    assert verdict(filled, lambda outputs: None) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (set_to("output", (2, 3, 4), math.nan), r"output\[2, 3, 4\] \(sequence 2 has 3 keys\) is NaN"),
        (set_to("output", (0, 0, 0), 9.0), r"output\[0, 0, 0\] .* is 9, should be"),
        (set_to("output", (1, 5, 5), 0.5), r"sequence 1 has 0 keys\) is 0.5, should be 0"),
        (set_to("lse", (0, 2), 99.0), r"lse\[0, 2\] .* is 99"),
        (set_to("lse", (1, 2), 0.0), r"lse\[1, 2\] .* should be -inf"),
        (set_to("lse", (1, 2), math.nan), r"lse\[1, 2\] .* is NaN"),
        (set_to("lse", (1, 2), math.inf), r"lse\[1, 2\] .* is inf, should be -inf"),
        (shift_by_6_thousandths, "relative RMSE of the output is"),
    ],
)
def test_a_wrong_result_is_named_with_its_place(filled, change, said):
    wrong = verdict(filled, change)
    assert wrong is not None
    assert wrong.status == "wrong_result"
    assert re.search(said, wrong.message), wrong.message


def test_a_less_exact_baseline_widens_the_bound_on_rmse(filled):
    assert verdict(filled, shift_by_6_thousandths, baseline_rmse=0.02) is None
