"""The public face of the MLA decode kernels, where there is no GPU."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from kernels import nvcc
from kernels.mla_paged_decode import attention, decode
from kernels.mla_paged_decode.arguments import check
from kernels.mla_paged_decode.reference import attend

ROOT = Path(__file__).parents[2]
SCALE = 0.1352


def arguments(lengths: tuple[int, ...] = (5, 0, 40), heads: int = 16) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    batch, tokens = len(lengths), sum(lengths)

    def half(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=g).bfloat16()

    return {
        "q_nope": half(batch, heads, 512),
        "q_pe": half(batch, heads, 64),
        "ckv_cache": half(100, 1, 512),
        "kpe_cache": half(100, 1, 64),
        "kv_indptr": torch.tensor([0, *lengths]).cumsum(0).int(),
        "kv_indices": torch.randperm(100, generator=g)[: tokens + 3].int(),
    }


def outputs(heads: int = 16) -> dict[str, torch.Tensor]:
    return {"output": torch.empty(3, heads, 512, dtype=torch.bfloat16), "lse": torch.empty(3, heads)}


def test_it_is_right_and_empty_sequences_give_zeros():
    given = arguments()
    output, lse = decode(**given, sm_scale=SCALE)
    expected = attend(given, SCALE, [0, 1, 2])
    assert output.dtype == torch.bfloat16
    assert lse.dtype == torch.float32
    assert torch.allclose(output.double(), expected["output"], atol=1e-2)
    assert torch.allclose(lse.double(), expected["lse"], atol=1e-3)
    assert (output[1] == 0).all()
    assert (lse[1] == -math.inf).all()


def test_it_writes_where_it_is_told():
    held = outputs()
    output, lse = decode(**arguments(), sm_scale=SCALE, **held)
    assert output is held["output"]
    assert lse is held["lse"]
    assert not output.isnan().any()


WRONG = {
    "q_nope": lambda t: t[:, :, :500],
    "q_pe": lambda t: t[:1],
    "ckv_cache": lambda t: t.float(),
    "kpe_cache": lambda t: t[:3],
    "kv_indptr": lambda t: t[:2],
    "kv_indices": lambda t: t.long(),
    "output": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "lse": lambda t: t.double(),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_named(name):
    given = arguments() | outputs()
    check(**given)
    given[name] = WRONG[name](given[name])
    with pytest.raises(ValueError, match=f"^{name} must"):
        check(**given)


def test_flat_queries_and_caches_are_told_what_shape_is_meant():
    given = arguments() | outputs()
    with pytest.raises(ValueError, match="q_nope must be"):
        check(**given | {"q_nope": given["q_nope"].flatten()})
    with pytest.raises(ValueError, match="ckv_cache must be"):
        check(**given | {"ckv_cache": given["ckv_cache"][:, 0]})


def test_slices_of_one_wide_cache_are_accepted():
    given, wide = arguments(), torch.randn(100, 1, 576).bfloat16()
    given |= {"ckv_cache": wide[..., :512], "kpe_cache": wide[..., 512:]}
    decode(**given, sm_scale=SCALE)


def test_without_a_gpu_it_is_pytorch():
    assert attention.best_kernel(torch.device("cpu")) is attention.attend_in_pytorch


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0)])
def test_what_cannot_be_built_falls_back_with_a_warning(monkeypatch, capability):
    attention.best_kernel.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)

    class Unbuildable:
        HERE, NVCC_FLAGS = ROOT, ()

    def refuse(folder, flags):
        raise RuntimeError("nvcc could not build")

    def absent(name):
        if "hopper" in name:
            return Unbuildable
        raise ImportError("no triton")

    monkeypatch.setattr(importlib, "import_module", absent)
    monkeypatch.setattr(nvcc, "build", refuse)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert attention.best_kernel(torch.device("cuda", 0)) is attention.attend_in_pytorch
    assert len(told) == {(7, 5): 0, (8, 0): 1, (9, 0): 2}[capability]
    attention.best_kernel.cache_clear()


def test_naming_the_task_does_not_import_torch():
    code = "import sys, kernels.mla_paged_decode; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


def test_the_example_runs(capsys):
    from kernels.mla_paged_decode import example_decode

    example_decode.main("cpu")
    assert capsys.readouterr().out.strip() == "[4, 16, 512] torch.bfloat16 [4, 16] torch.float32"
