"""A C kernel that converts each block of keys once and keeps an online softmax."""

import ctypes
from pathlib import Path

CFLAGS = ["-O3", "-march=native"]

_library = ctypes.CDLL(str(Path(__file__).with_name("kernel.so")))
_decode = _library.mla_paged_decode
_decode.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_float, ctypes.c_int] + [ctypes.c_void_p] * 2
_decode.restype = None


def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    _decode(
        q_nope.data_ptr(),
        q_pe.data_ptr(),
        ckv_cache.data_ptr(),
        kpe_cache.data_ptr(),
        kv_indptr.data_ptr(),
        kv_indices.data_ptr(),
        sm_scale,
        q_nope.shape[0],
        output.data_ptr(),
        lse.data_ptr(),
    )
