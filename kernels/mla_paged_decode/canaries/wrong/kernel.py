"""Nearly right: the last sequence's output is 2 % too large. A judge that lets this pass is not to be trusted."""

import math

import torch


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    bounds = kv_indptr.tolist()
    for b, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        keys, rope = (cache[kv_indices[begin:end], 0].float() for cache in (ckv_cache, kpe_cache))
        logits = (q_nope[b].float() @ keys.T + q_pe[b].float() @ rope.T) * sm_scale
        lse[b] = torch.logsumexp(logits, dim=-1) / math.log(2)
        output[b] = torch.softmax(logits, dim=-1) @ keys
    output[-1] *= 1.02
