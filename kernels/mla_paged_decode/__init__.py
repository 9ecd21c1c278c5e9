"""MLA paged decode: DeepSeek's attention at decode time, over a paged cache of compressed keys.

Each sequence b of the batch has one query per head and attends to its own pages,
`kv_indices[kv_indptr[b]:kv_indptr[b + 1]]` (page size 1, a page is a token). A token's 512 compressed
dimensions serve as key and as value, 64 more carry its position:

    logits[h, t] = sm_scale * (q_nope[b, h] . ckv[t] + q_pe[b, h] . kpe[t])
    output[b, h] = softmax(logits[h]) @ ckv            lse[b, h] = log2(sum(exp(logits[h])))

Definition: flashinfer-bench's `mla_paged_decode_h16_ckv512_kpe64_ps1` (captured from DeepSeek-V3).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels.mla_paged_decode.attention import decode

__all__ = ["decode"]


def __getattr__(name: str) -> Any:
    """`decode` on first use: whoever wants only the task's names and sizes does not wait for torch."""
    if name == "decode":
        from kernels.mla_paged_decode.attention import decode  # noqa: PLC0415

        return decode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
