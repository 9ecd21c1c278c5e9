"""The CUDA and Triton MLA decode kernels against float64, where there is a GPU.

`pytest tests/kernels/test_mla_gpu.py`, or without pytest `python tests/kernels/test_mla_gpu.py`.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from kernels import nvcc  # noqa: E402

FOLDER = ROOT / "kernels" / "mla_paged_decode"
SCALE = 0.1352337747812271
CKV, KPE = 512, 64

HAS_PYTEST = importlib.util.find_spec("pytest") is not None
if HAS_PYTEST:
    import pytest


def why_skipped(name: str) -> str | None:
    """Why this kernel cannot run here."""
    if not torch.cuda.is_available():
        return "no CUDA device"
    if name == "hopper_split_kv" and torch.cuda.get_device_capability() != (9, 0):
        return "made for compute capability 9.0"
    if name == "triton_split_kv" and importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    return None


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"test_{name}", FOLDER / name / "kernel.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if hasattr(module, "LIBRARY"):
        module.LIBRARY = nvcc.build(FOLDER / name, module.NVCC_FLAGS)
    return module


class Case:
    """Inputs on the GPU; pages that no sequence holds are NaN."""

    def __init__(
        self,
        lengths: list[int],
        heads: int = 16,
        pages: int | None = None,
        stale: int = 0,
        seed: int = 0,
        wide: bool = False,
        shared: bool = False,
        scale: float = SCALE,
        first_page: int = 0,
    ) -> None:
        g = torch.Generator("cuda").manual_seed(seed)
        tokens, self.scale, self.lengths = sum(lengths), scale, lengths
        pages = pages or tokens + 100
        draw = torch.randint if shared else None
        places = (
            draw(first_page, pages, (tokens,), generator=g, device="cuda")
            if draw
            else torch.randperm(pages - first_page, generator=g, device="cuda")[:tokens] + first_page
        )
        rest = torch.ones(pages, dtype=torch.bool, device="cuda")
        rest[places] = False
        tail = rest.nonzero()[:stale, 0]
        if wide:
            cache = torch.full((pages, 1, CKV + KPE), math.nan, device="cuda", dtype=torch.bfloat16)
            self.ckv, self.kpe = cache[..., :CKV], cache[..., CKV:]
        else:
            self.ckv = torch.full((pages, 1, CKV), math.nan, device="cuda", dtype=torch.bfloat16)
            self.kpe = torch.full((pages, 1, KPE), math.nan, device="cuda", dtype=torch.bfloat16)
        self.ckv[places] = torch.randn(tokens, 1, CKV, generator=g, device="cuda").bfloat16()
        self.kpe[places] = torch.randn(tokens, 1, KPE, generator=g, device="cuda").bfloat16()
        batch = len(lengths)
        self.indptr = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
        self.indices = torch.cat([places, tail]).int()
        self.q = torch.randn(batch, heads, CKV, generator=g, device="cuda").bfloat16()
        self.qp = torch.randn(batch, heads, KPE, generator=g, device="cuda").bfloat16()
        self.output, self.lse = torch.empty_like(self.q), torch.empty(batch, heads, device="cuda")

    def run(self, kernel: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.output.fill_(math.nan)
        self.lse.fill_(math.nan)
        self.launch(kernel)
        torch.cuda.synchronize()
        return self.output, self.lse

    def launch(self, kernel: Any) -> None:
        kernel.run(self.q, self.qp, self.ckv, self.kpe, self.indptr, self.indices, self.scale, self.output, self.lse)

    def expect_right(self) -> None:
        output, lse = torch.zeros_like(self.q, dtype=torch.float64), torch.full_like(self.lse, -math.inf).double()
        begin = int(self.indptr[0])
        for b, length in enumerate(self.lengths):
            pages = self.indices[begin : begin + length].long()
            begin += length
            if length:
                keys = self.ckv[pages, 0].double()
                logits = self.q[b].double() @ keys.T + self.qp[b].double() @ self.kpe[pages, 0].double().T
                logits *= self.scale
                lse[b] = torch.logsumexp(logits, -1) / math.log(2)
                output[b] = torch.softmax(logits, -1) @ keys
        error = (self.output.double() - output).abs()
        wrong = ~(error <= torch.clamp(1e-2 * output.abs(), min=1e-2))
        assert not wrong.any(), f"{int(wrong.sum())} elements wrong, first {wrong.nonzero()[0].tolist()}"
        rmse = (error.square().mean().sqrt() / output.square().mean().sqrt().clamp(min=1e-30)).item()
        assert rmse <= 5e-3, rmse
        off = ~((self.lse.double() == lse) | ((self.lse.double() - lse).abs() <= 5e-3))
        assert not off.any(), f"lse wrong at {off.nonzero()[0].tolist()}"


def holds(kernel: Any, case: Case, times: int = 3) -> None:
    for _ in range(times):
        case.run(kernel)
        case.expect_right()


def check_lengths_at_the_edges_of_tiles(kernel: Any) -> None:
    for length in (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 300, 4095, 4096, 4097, 9197):
        holds(kernel, Case([length], seed=length), 2)
    holds(kernel, Case([1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 2, 3, 500, 1000, 7, 5]))
    holds(kernel, Case([1] * 16))
    holds(kernel, Case([1] * 64))
    holds(kernel, Case([17] * 64))


def check_ragged_batches(kernel: Any) -> None:
    g = torch.Generator().manual_seed(1)
    holds(kernel, Case([9197] + [500] * 63))
    holds(kernel, Case([6, 9000] * 32, shared=True, pages=200_000))
    holds(kernel, Case([3000] * 5))
    holds(kernel, Case([20_000, 3]))
    for batch in (2, 3, 31, 32, 33, 66, 130, 131, 132, 133, 200):
        holds(kernel, Case(torch.randint(1, 900, (batch,), generator=g).tolist(), seed=batch), 2)


def check_a_batch_of_1024(kernel: Any) -> None:
    g = torch.Generator().manual_seed(2)
    holds(kernel, Case(torch.randint(0, 200, (1024,), generator=g).tolist()))


def check_empty_sequences(kernel: Any) -> None:
    for lengths in ([0], [0, 0], [0, 33, 0, 0, 100, 0], [0] * 70, [5] + [0] * 80 + [700], [0, 2000, 0]):
        holds(kernel, Case(lengths))


def check_repeated_and_shared_pages(kernel: Any) -> None:
    holds(kernel, Case([40, 70, 33, 900], shared=True, pages=50))


def check_kv_indices_longer_than_needed(kernel: Any) -> None:
    for lengths in ([3], [50, 65, 17], [300] * 40):
        holds(kernel, Case(lengths, stale=90))
    holds(kernel, Case([40], stale=5000, pages=6000))


def check_kv_indices_that_begin_anywhere(kernel: Any) -> None:
    for lengths in ([70], [50, 65, 17], [3000], [300] * 40):
        case = Case(lengths)
        case.indices = torch.cat([case.indices.new_zeros(5), case.indices])[1:]  # no multiple of 16 bytes
        case.indptr += 4
        holds(kernel, case)


def check_large_logits(kernel: Any) -> None:
    holds(kernel, Case([96, 200], scale=2.0))


def check_other_numbers_of_heads(kernel: Any) -> None:
    for heads in (8, 32, 64, 128):
        for lengths in ([77], [0, 5, 300, 64], [100] * 40):
            holds(kernel, Case(lengths, heads=heads), 2)


def check_slices_of_a_576_wide_cache(kernel: Any) -> None:
    holds(kernel, Case([129, 1000, 1], wide=True))


def check_a_cache_over_4_gib(kernel: Any) -> None:
    pages = 4_500_000
    holds(kernel, Case([500, 700], pages=pages, first_page=pages - 2000, wide=True), 1)


def check_the_same_bits_every_time(kernel: Any) -> None:
    for lengths in ([1000], [300, 2000, 5], [700] * 64):
        case = Case(lengths)
        first = [t.clone() for t in case.run(kernel)]
        for _ in range(20):
            for a, b in zip(first, case.run(kernel), strict=True):
                assert torch.equal(a, b)


def check_several_streams(kernel: Any) -> None:
    cases = [Case(lengths, seed=i) for i, lengths in enumerate(([900], [300] * 16, [200] * 64, [2000, 5]))]
    streams = [torch.cuda.Stream() for _ in cases]
    torch.cuda.synchronize()
    for _ in range(30):
        for stream, case in zip(streams, cases, strict=True):
            with torch.cuda.stream(stream):
                case.launch(kernel)
    torch.cuda.synchronize()
    for case in cases:
        case.expect_right()


def check_graph_capture(kernel: Any) -> None:
    cases = [Case([700], seed=1), Case([200] * 64, seed=2), Case([300, 20, 0], seed=3)]
    for case in cases:
        case.run(kernel)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for case in cases:
            case.launch(kernel)
            case.launch(kernel)
    for round_number in range(3):
        for case in cases:
            case.q.copy_(torch.randn_like(case.q.float()) * (1 + round_number))
            case.output.fill_(math.nan)
        graph.replay()
        torch.cuda.synchronize()
        for case in cases:
            case.expect_right()


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}
KERNELS = [name for name in ("hopper_split_kv", "triton_split_kv") if (FOLDER / name / "kernel.py").exists()]

if HAS_PYTEST:

    @pytest.mark.parametrize("name", KERNELS)
    @pytest.mark.parametrize("check", CHECKS)
    def test_on_the_gpu(name: str, check: str) -> None:
        reason = why_skipped(name)
        if reason:
            pytest.skip(reason)
        CHECKS[check](load(name))


def main() -> int:
    failures = 0
    for name in sys.argv[1:] or KERNELS:
        reason = why_skipped(name)
        if reason:
            print(f"skipped {name}: {reason}")  # noqa: T201
            continue
        kernel = load(name)
        for what, check in CHECKS.items():
            try:
                check(kernel)
                print(f"passed  {name}: {what}", flush=True)  # noqa: T201
            except Exception:
                failures += 1
                print(f"FAILED  {name}: {what}\n{traceback.format_exc(limit=-3)}", flush=True)  # noqa: T201
    return failures


if __name__ == "__main__":
    sys.exit(main())
