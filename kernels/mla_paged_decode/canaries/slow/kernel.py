"""Right, and never faster than two million cycles of the device: 1 ms at 2 GHz."""

import math

import torch

CYCLES = 2_000_000


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    torch.cuda._sleep(CYCLES)
    bounds = kv_indptr.tolist() if state is None else state
    for b, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        keys, rope = (cache[kv_indices[begin:end], 0].float() for cache in (ckv_cache, kpe_cache))
        logits = (q_nope[b].float() @ keys.T + q_pe[b].float() @ rope.T) * sm_scale
        lse[b] = torch.logsumexp(logits, dim=-1) / math.log(2)
        output[b] = torch.softmax(logits, dim=-1) @ keys


def plan(kv_indptr, kv_indices, batch_size, num_heads, device):
    return kv_indptr.tolist()
