"""What the hosts of the CUDA and Triton MLA decode kernels decide and refuse, without a GPU."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "kernels" / "mla_paged_decode"
SHAPES = [(b, n) for b in (1, 2, 16, 31, 32, 33, 64, 65, 200, 1024) for n in (0, 1, 31, 33, 5000, 75145)]


def load(name: str) -> Any:
    if name == "triton_split_kv" and importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    spec = importlib.util.spec_from_file_location(f"host_{name}", FOLDER / name / "kernel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hopper() -> Any:
    return load("hopper_split_kv")


def constant(name: str, source: str) -> int:
    text = (FOLDER / "hopper_split_kv" / source).read_text(encoding="utf-8")
    found = re.search(rf"\b{name} = (\d+);", text)
    assert found is not None, f"{source} has no {name}"
    return int(found.group(1))


def test_host_and_device_agree_on_their_constants(hopper):
    assert constant("kLeastTokens", "schedule.cuh") == hopper.LEAST_TOKENS
    assert constant("kSegmentCost", "schedule.cuh") == hopper.SEGMENT_COST
    assert constant("kHeads", "params.cuh") == hopper.GROUP
    vectors, sums = constant("kSlotVectors", "exchange.cuh"), constant("kSlotSums", "exchange.cuh")
    assert vectors * 16 + sums * 4 == hopper.SLOT_BYTES


@pytest.mark.parametrize(("batch", "tokens"), SHAPES)
def test_every_sequence_finds_a_cta_and_every_part_a_slot(hopper, batch, tokens):
    for heads in hopper.HEADS:
        by_sequence, grid, slots = hopper.split(batch, heads, tokens, 132)
        sequences = batch * max(1, heads // 16)
        assert 1 <= grid <= 132
        if by_sequence:
            assert sequences <= 32
            # each sequence has at most one part below the least share, so the least share always makes do
            assert grid >= min(132, tokens * max(1, heads // 16) // hopper.LEAST_TOKENS)
            assert grid >= sequences or tokens == 0
            assert slots == grid
        else:
            assert slots == grid + sequences  # CTA + sequence numbers the segments


def test_host_and_device_agree_on_what_a_cluster_takes(hopper):
    assert constant("kMostSequences", "cluster_plan.cuh") == hopper.CLUSTER_SEQUENCES
    assert constant("kSlices", "cluster.cuh") == hopper.CLUSTER_SLICES
    tile, row = constant("kTile", "mla_decode.cu"), constant("kRowBytes", "params.cuh")
    assert tile * row // 4 == hopper.CLUSTER_INDICES, "indices wait where the second tile will be"


def test_clusters_serve_few_sequences_of_few_tokens(hopper):
    assert hopper.clusters_for(1, 16, 1008, 7) == 4, "one sequence: a quarter of the dimensions each"
    assert hopper.clusters_for(2, 16, 1008, 7) == 2
    assert hopper.clusters_for(16, 16, 17257, 7) == 7
    assert hopper.clusters_for(16, 16, 17257, 5) == 0, "too much for five"
    assert hopper.clusters_for(17, 16, 300, 7) == 0
    assert hopper.clusters_for(16, 32, 300, 7) == 0, "32 heads are two sequences"
    assert hopper.clusters_for(1, 16, 9000, 7) == 0
    assert hopper.clusters_for(1, 16, 1008, 3) == 0
    assert hopper.clusters_for(16, 16, 300, 0) == 0, "no room for any, on a GPU that is divided, say"


def test_few_sequences_get_one_segment_a_cta_and_many_are_laid_end_to_end(hopper):
    assert hopper.split(16, 16, 5057, 132) == (True, 132, 132)
    assert hopper.split(64, 16, 9945, 132) == (False, 132, 196)
    assert hopper.split(1, 16, 8, 132) == (True, 1, 1)
    assert hopper.split(16, 128, 5057, 132)[0] is False, "eight groups of heads are eight sequences"


def test_a_small_gpu_is_never_asked_for_more_ctas_than_it_has(hopper):
    assert hopper.split(16, 16, 100_000, 20) == (False, 20, 36)
    assert hopper.split(1, 16, 100_000, 20) == (True, 20, 20)


@pytest.mark.parametrize(("batch", "tokens"), SHAPES)
def test_the_guess_which_indices_are_needed_is_small_and_begins_in_range(hopper, batch, tokens):
    by_sequence, grid, _ = hopper.split(batch, 16, tokens, 132)
    count, begin, step = hopper.probable_indices(by_sequence, grid, batch, 16, tokens)
    assert count >= 0
    assert begin <= 0
    assert step * (grid - 1) <= tokens + batch * hopper.SEGMENT_COST + 200


def test_a_workspace_is_reused_and_a_larger_one_replaces_it_without_freeing_it(hopper):
    device = torch.device("cpu")
    small = hopper.workspace(device, 7, 0, True, 3)
    assert hopper.workspace(device, 7, 0, True, 2) is small
    large = hopper.workspace(device, 7, 0, True, 9)
    assert large is not small
    assert any(held is small for held in hopper._workspaces[(0, 7, 0, True)])
    assert (large[0] == 255).all()
    assert (large[1] == 0).all()


def test_streams_captures_and_ways_to_divide_share_no_workspace(hopper):
    device = torch.device("cpu")
    held = [
        hopper.workspace(device, *key, 1)[0].data_ptr()
        for key in ((11, 0, True), (12, 0, True), (11, 5, True), (11, 0, False))
    ]
    assert len(set(held)) == 4


def test_each_kernel_refuses_what_it_alone_cannot_read(hopper):
    def given(width: int = 512, heads: int = 16) -> list[torch.Tensor]:
        half = torch.bfloat16
        cache = torch.zeros(9, 1, width, dtype=half)[..., :512]
        return [torch.zeros(2, heads, n, dtype=half) for n in (512, 64)] + [cache, torch.zeros(9, 1, 64, dtype=half)]

    hopper.check(hopper.layout(*given(width=576)))
    with pytest.raises(ValueError, match="ckv_cache: rows must"):
        hopper.check(hopper.layout(*given(width=516)))
    with pytest.raises(ValueError, match="12 heads"):
        hopper.check(hopper.layout(*given(heads=12)))
    triton = load("triton_split_kv")
    triton.check(*given(width=516))
    with pytest.raises(ValueError, match="12 heads"):
        triton.check(*given(heads=12))


def test_triton_parts_fit_the_programs_that_are_resident():
    triton = load("triton_split_kv")
    for batch, tokens in SHAPES:
        cuts, programs, share = triton.split(batch, 16, tokens, 264)
        if cuts:
            assert programs <= 264
            assert tokens // share + batch <= 264
        else:
            assert programs == batch
