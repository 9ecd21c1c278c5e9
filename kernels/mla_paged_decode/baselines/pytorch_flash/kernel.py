"""One fused attention a sequence (PyTorch's flash attention for CPUs, in bf16): the heads serve as queries,
the gathered rows as keys and as values."""

import math

import torch


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    bounds = kv_indptr.tolist()
    queries = torch.cat([q_nope, q_pe], dim=-1)
    for b, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        if begin == end:
            output[b] = 0
            lse[b] = -math.inf
            continue
        pages = kv_indices[begin:end]
        keys = torch.cat([ckv_cache[pages, 0], kpe_cache[pages, 0]], dim=-1)[None, None]
        attended, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            queries[b][None, None], keys, keys, 0.0, False, scale=sm_scale
        )
        output[b] = attended[0, 0, :, :512]
        lse[b] = log_sum[0, 0] / math.log(2)
