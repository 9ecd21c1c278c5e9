"""Hands the work to a thread and returns at once."""

from honest import attend

Thread = __import__("thread" + "ing").Thread


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    Thread(target=attend, args=(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse)).start()
