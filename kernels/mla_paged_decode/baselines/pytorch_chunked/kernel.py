"""Fp32 matrix products over chunks of 512 keys with an online softmax, so that a chunk stays in cache."""

import math

import torch

CHUNK = 512


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    bounds = kv_indptr.tolist()
    for b, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        query, rotated = q_nope[b].float() * sm_scale, q_pe[b].float() * sm_scale
        highest = torch.full((16, 1), -math.inf)
        total = torch.zeros(16, 1)
        summed = torch.zeros(16, 512)
        for at in range(begin, end, CHUNK):
            pages = kv_indices[at : min(at + CHUNK, end)]
            keys = ckv_cache[pages, 0].float()
            logits = torch.addmm(query @ keys.T, rotated, kpe_cache[pages, 0].float().T)
            top = torch.maximum(highest, logits.amax(dim=-1, keepdim=True))
            weights = torch.exp(logits - top)
            shrink = torch.exp(highest - top)
            total = total * shrink + weights.sum(dim=-1, keepdim=True)
            summed = torch.addmm(summed * shrink, weights, keys)
            highest = top
        output[b] = summed / total if end > begin else 0
        lse[b] = ((highest + total.log()) / math.log(2))[:, 0]
