"""Tensors in files: what a file holds, and files that are damaged."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import safetensors
from kernels.task import BadInputError
from tests.benchmarks.test_interchange import int32, stored

GOOD = stored({"a": int32([1, 2, 3]), "s": ("F32", [], b"\0\0\0\0")})


def test_tensors_come_out_of_a_file_as_they_went_in(tmp_path):
    (tmp_path / "x").write_bytes(GOOD)
    tensors = safetensors.read(tmp_path / "x")
    assert tensors["a"] == safetensors.Stored("I32", (3,), array("i", [1, 2, 3]).tobytes())
    assert tensors["s"] == safetensors.Stored("F32", (), b"\0\0\0\0")
    assert len(tensors) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no whole file"),
        (GOOD[:40], "is no whole file"),
        (GOOD[:-1], r"header.s.data_offsets: \(12, 16\) is no part of the 15 bytes of data"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer, not the data: git lfs"),
        (b"\2" + bytes(7) + b"\xff\xfe", "its header is not text"),
        (b"\2" + bytes(7) + b"[]", r"header: must be an object, not \[\]"),
        (GOOD.replace(b"I32", b"I99"), "header.a.dtype: must be one of BOOL, U8"),
        (GOOD.replace(b"[3]", b"[4]"), r"header.a.data_offsets: \(0, 12\) does not hold I32 of shape \(4,\)"),
        (GOOD.replace(b"[3]", b"[-]"), "header: cannot be read as JSON"),
        (GOOD.replace(b"[0, 12]", b"[true1]"), "cannot be read as JSON"),
        (GOOD.replace(b"[0, 12]", b"[0, -2]"), "header.a.data_offsets: must be whole numbers from 0 up"),
        (GOOD.replace(b"[0, 12]", b"[12, 0]"), "header.a.data_offsets: .* is no part of"),
    ],
)
def test_a_damaged_tensor_file_says_what_is_wrong(tmp_path, content, message):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(BadInputError, match=message) as error:
        safetensors.read(tmp_path / "x")
    assert str(tmp_path / "x") in str(error.value)


@given(st.integers(0, len(GOOD) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_any_bytes_are_tensors_or_refused_clearly(tmp_path_factory, at, put_in, left_out):
    file = tmp_path_factory.mktemp("fuzz") / "x"
    file.write_bytes(GOOD[:at] + put_in + GOOD[at + left_out :])
    try:
        tensors = safetensors.read(file)
    except BadInputError as error:
        assert str(file) in str(error)
    else:
        assert all(isinstance(t.data, bytes) for t in tensors.values())
