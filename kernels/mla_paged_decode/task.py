"""TASK: MLA paged decode as the judge sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from kernels.mla_paged_decode import workloads
from kernels.mla_paged_decode.workloads import CKV, HEADS, KPE, MlaWorkload
from kernels.task import Captured, Mismatch, Source, Task, TensorSpec, Workload

if TYPE_CHECKING:
    from torch import Tensor

    from kernels.space import Space

# Whoever asks only for names and sizes (the pages do) must not wait for torch: what computes is imported on use.
# ruff: noqa: PLC0415

HERE = Path(__file__).parent
PUBLISHED = workloads.published(HERE / "workloads.json")
STARTS = {"c": "c_naive", "pytorch": "baselines/pytorch_matmul", "triton": "triton_naive"}


class MlaPagedDecode(Task):
    """16 heads, 512 + 64 dimensions, page size 1."""

    name = "mla_paged_decode"
    title = "MLA paged decode"
    definition = "mla_paged_decode_h16_ckv512_kpe64_ps1"
    entry = ("q_nope", "q_pe", "ckv_cache", "kpe_cache", "kv_indptr", "kv_indices", "sm_scale", "output", "lse")
    plan_entry = ("kv_indptr", "kv_indices", "batch_size", "num_heads", "device")
    plan_values: ClassVar = {
        "batch_size": "q_nope.shape[0]",
        "num_heads": "q_nope.shape[1]",
        "device": "q_nope.device.type",
    }
    smoke = ("7cd78cb9", "e6bef587", "a128f96f", "5e86857b", "373074ba", "45be562f")

    def __init__(self, published: Sequence[MlaWorkload] = PUBLISHED, inputs: str = "") -> None:
        self._published, self.inputs = published, inputs

    def workloads(self, device: str) -> tuple[MlaWorkload, ...]:
        return tuple(w.on(device) for w in self._published)

    def captured(self, found: Mapping[str, Captured], inputs: str) -> Task:
        return MlaPagedDecode([workloads.with_pages(w, found[w.id]) for w in self._published], inputs)

    def axes(self, workload: Workload) -> dict[str, int]:
        return workloads.axes(_mla(workload))

    def holdouts(self, device: str, seed: int) -> tuple[MlaWorkload, ...]:
        small = workloads.holdouts(seed, PUBLISHED[0].sm_scale)
        return small if device == "cpu" else (*small, workloads.vast_holdout(seed, PUBLISHED[0].sm_scale))

    def tensors(self, workload: Workload) -> dict[str, TensorSpec]:
        return workloads.tensors(_mla(workload))

    def scalars(self, workload: Workload) -> dict[str, float]:
        return {"sm_scale": _mla(workload).sm_scale, "batch_size": workload.batch_size, "num_heads": HEADS}

    def source(self, device: str, seed: int) -> Source:
        from kernels.mla_paged_decode.inputs import MlaSource

        return MlaSource(device, seed)

    def items(self, workload: Workload) -> Sequence[int]:
        return _mla(workload).kv_lengths

    def reference(self, workload: Workload, tensors: Mapping[str, Tensor], items: Sequence[int]) -> dict[str, Tensor]:
        from kernels.mla_paged_decode import reference

        return reference.attend(tensors, _mla(workload).sm_scale, items)

    def mismatch(
        self,
        workload: Workload,
        outputs: Mapping[str, Tensor],
        expected: Mapping[str, Tensor],
        items: Sequence[int],
        baseline_rmse: float,
    ) -> Mismatch | None:
        from kernels.mla_paged_decode import reference

        lengths = _mla(workload).kv_lengths
        return reference.mismatch(outputs, expected, items, lengths, baseline_rmse)

    def rmse(self, outputs: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
        from kernels.mla_paged_decode import reference

        return reference.relative_rmse(outputs["output"], expected["output"])

    def bytes_moved(self, workload: Workload) -> int:
        keys = workload.tokens * ((CKV + KPE) * 2 + 4)
        rows = workload.batch_size * HEADS
        return keys + rows * ((CKV + KPE) * 2 + CKV * 2 + 4)

    def flops(self, workload: Workload) -> int:
        return 2 * workload.tokens * HEADS * (CKV + KPE + CKV)

    def baselines(self, device: str) -> dict[str, Path]:
        prefix = "pytorch" if device == "cpu" else "flashinfer"
        return {p.name: p for p in sorted((HERE / "baselines").glob(f"{prefix}_*"))}

    def canaries(self, device: str) -> dict[str, Path]:
        names = ("wrong", "slow") if device == "cuda" else ("wrong",)
        return {name: HERE / "canaries" / name for name in names}

    def floor(self, device: str) -> Path | None:
        return HERE / "baselines" / ("floor_c" if device == "cpu" else "floor_triton")

    def start(self, language: str) -> Path:
        return HERE / STARTS[language]

    def space(self, language: str) -> Space:
        from kernels.mla_paged_decode.space import space

        return space(language)


def _mla(workload: Workload) -> MlaWorkload:
    assert isinstance(workload, MlaWorkload)
    return workload


TASK: Task = MlaPagedDecode()
