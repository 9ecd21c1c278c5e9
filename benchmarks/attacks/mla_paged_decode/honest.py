"""What an honest PyTorch candidate computes; the attacks do this where they do anything at all."""

import math

import torch


def attend(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, every=1, bounds=None):
    bounds = bounds or kv_indptr.tolist()
    for b, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        if begin == end:
            output[b] = 0
            lse[b] = -math.inf
            continue
        pages = kv_indices[begin:end:every]
        keys = ckv_cache[pages, 0].float()
        logits = q_nope[b].float() @ keys.T
        logits.addmm_(q_pe[b].float(), kpe_cache[pages, 0].float().T).mul_(sm_scale)
        lse[b] = torch.logsumexp(logits, dim=-1) / math.log(2)
        output[b] = torch.softmax(logits, dim=-1) @ keys
