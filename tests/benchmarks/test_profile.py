"""What the kernels that ran say of a candidate."""

from typing import Any

import pytest

from benchmarks import profile

OWN = {"name": "mla_decode(Params)", "us": 8.0}
FILL = {"name": "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)", "us": 2.0}
GEMM: dict[str, Any] = {"name": "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", "us": 20.0}
BASELINE = {"name": "void flashinfer::mla::hopper::BatchMLAPageAttentionHopperKernel<KTraits>(Params)", "us": 9.0}


@pytest.mark.parametrize("language", ["cuda", "triton"])
def test_a_candidate_computes_in_its_own_kernels(language):
    assert profile.foreign([OWN, FILL], language) is None
    why = profile.foreign([OWN, GEMM], language)
    assert why is not None
    assert "71% of its time" in why
    assert GEMM["name"] in why


def test_one_in_pytorch_may_use_all_of_it_but_no_finished_kernel():
    assert profile.foreign([GEMM, FILL], "pytorch") is None
    assert "finished kernel" in (profile.foreign([GEMM, BASELINE], "pytorch") or "")


def test_nothing_that_ran_is_nothing_foreign():
    assert profile.foreign([], "triton") is None
