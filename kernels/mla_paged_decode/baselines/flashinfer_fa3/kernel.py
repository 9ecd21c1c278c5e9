"""FlashInfer's wrapper for MLA over a paged cache, backend fa3."""

import torch
from flashinfer.mla import BatchMLAPagedAttentionWrapper

WORKSPACE_BYTES = 128 << 20
_wrappers = {}
_bounds = {}


def plan(kv_indptr, kv_indices, batch_size, num_heads, device):
    if device not in _wrappers:
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.int8, device=device)
        _wrappers[device] = BatchMLAPagedAttentionWrapper(workspace, backend="fa3")
    if batch_size not in _bounds:  # one query a sequence: always the same
        _bounds[batch_size] = torch.arange(batch_size + 1, dtype=torch.int32, device=device)
    wrapper = _wrappers[device]
    lengths = kv_indptr[1:] - kv_indptr[:-1]
    wrapper.plan(
        _bounds[batch_size], kv_indptr, kv_indices, lengths, num_heads, 512, 64, 1, False, 1.0, torch.bfloat16,
        torch.bfloat16,
    )  # fmt: skip
    return wrapper


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    state._sm_scale = sm_scale  # plan() is not told it, and only keeps it for run()
    state.run(q_nope, q_pe, ckv_cache, kpe_cache, out=output, lse=lse, return_lse=True)
