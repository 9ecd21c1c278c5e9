"""What takes the place of FlashInfer's BatchMLAPagedAttentionWrapper.

With FlashInfer a serving loop plans once a step, which waits for the device, and runs once a layer:

    wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(torch.empty(128 << 20, dtype=torch.int8, device="cuda"))
    wrapper.plan(qo_indptr, kv_indptr, kv_indices, kv_lens, 16, 512, 64, 1, False, scale, q.dtype, ckv_cache.dtype)
    output, lse = wrapper.run(q_nope, q_pe, ckv_cache, kpe_cache, return_lse=True)

Here there is nothing to plan and no workspace to give; `python -m kernels.mla_paged_decode.example_decode` runs this.
"""

import torch

from kernels.mla_paged_decode import decode


def main(device: str = "cuda" if torch.cuda.is_available() else "cpu") -> None:
    """Four sequences of 16 heads, their pages scattered over a cache of 1,000; prints the shapes of the result."""
    lengths = torch.tensor([100, 7, 300, 64])
    shapes = ((4, 16, 512), (4, 16, 64), (1000, 1, 512), (1000, 1, 64))
    q_nope, q_pe, ckv_cache, kpe_cache = (torch.randn(s, dtype=torch.bfloat16, device=device) for s in shapes)
    kv_indptr = torch.cat([torch.zeros(1), lengths.cumsum(0)]).int().to(device)
    kv_indices = torch.randperm(1000)[: int(lengths.sum())].int().to(device)

    output, lse = decode(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale=0.1352)
    print(list(output.shape), output.dtype, list(lse.shape), lse.dtype)  # noqa: T201


if __name__ == "__main__":
    main()
