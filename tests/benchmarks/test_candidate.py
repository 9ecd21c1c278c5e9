"""Reading, screening and building a candidate."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import build, candidate, sandbox
from benchmarks.candidate import Source
from benchmarks.screen import screen
from benchmarks.worker import CandidateError
from kernels.task import BadInputError, load_task

TASK = load_task("mla_paged_decode")
SIGNATURE = "def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):\n"


def write(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def test_a_candidate_is_its_sources_and_their_hash_depends_on_nothing_else(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = candidate.read(write(tmp_path / "a", kernel__py="x = 1\n", kernel__c="int x;\n", kernel__so=b"\0\1"))
    second = candidate.read(write(tmp_path / "b", kernel__py="x = 1\n", kernel__c="int x;\n") / "kernel.py")
    assert first.sha256 == second.sha256
    assert set(first.files) == {"kernel.py", "kernel.c"}
    assert first.language == "c"
    other = candidate.read(write(tmp_path / "b", kernel__c="int y;\n"))
    assert other.sha256 != first.sha256


@pytest.mark.parametrize(
    ("files", "language"),
    [
        ({"kernel.py": b""}, "pytorch"),
        ({"kernel.py": b"import triton\n"}, "triton"),
        ({"kernel.py": b"", "a.c": b""}, "c"),
        ({"kernel.py": b"", "a.cu": b"", "a.c": b""}, "cuda"),
    ],
)
def test_the_language_is_told_by_the_files(files, language):
    assert Source("x", files).language == language


def test_what_cannot_be_a_candidate_is_refused_by_name(tmp_path):
    with pytest.raises(BadInputError, match="nowhere: no such candidate folder"):
        candidate.read(tmp_path / "nowhere")
    with pytest.raises(BadInputError, match="holds no kernel.py"):
        candidate.read(tmp_path)
    write(tmp_path, kernel__py=b"\xff\xfe")
    with pytest.raises(BadInputError, match=r"kernel.py: is not UTF-8 text \(byte 0\)"):
        candidate.read(tmp_path)
    write(tmp_path, kernel__py="x = 1\n" * 300_000)
    with pytest.raises(BadInputError, match="more than 64 files or 1 MiB"):
        candidate.read(tmp_path)
    (tmp_path / "kernel.py").unlink()
    (tmp_path / "kernel.py").symlink_to("/etc/passwd")
    with pytest.raises(BadInputError, match="kernel.py: is a symbolic link"):
        candidate.read(tmp_path)
    (tmp_path / "kernel.py").unlink()
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(BadInputError, match="pipe.py: is not a plain file"):
        candidate.read(tmp_path)


@given(st.dictionaries(st.text("ab/.", min_size=1, max_size=6), st.binary(max_size=20), max_size=4))
def test_any_folder_is_read_or_refused_clearly(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("fuzz")
    for name, content in files.items():
        path = folder / name.strip("/")
        try:
            path.resolve().relative_to(folder)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".py").write_bytes(content)
        except (OSError, ValueError):
            continue
    try:
        candidate.read(folder)
    except BadInputError as error:
        assert str(folder) in str(error)


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("def run(:\n", "kernel.py line 1: is not Python"),
        ("x = 1\n", "kernel.py: defines no function run(q_nope, q_pe"),
        ("def run(a, b):\n    pass\n", "kernel.py line 1: run takes 2 arguments, the contract is run(q_nope"),
        ("import flashinfer\n" + SIGNATURE + "    pass\n", "kernel.py line 1: imports flashinfer: the baseline"),
        (SIGNATURE + "    __import__('subprocess')\n", "kernel.py line 2: imports subprocess: other processes"),
        (SIGNATURE + "    import benchmarks.judge\n", "imports benchmarks: the judge's side"),
        ("\0", "is not Python"),
    ],
)
def test_a_screened_candidate_is_told_why(kernel, said):
    assert said in (screen(Source("x", {"kernel.py": kernel.encode()}), TASK, "cpu") or "")


def test_an_honest_kernel_passes_the_screen_and_a_gpu_kernel_is_sent_to_a_gpu():
    assert screen(Source("x", {"kernel.py": (SIGNATURE + "    pass\n").encode()}), TASK, "cpu") is None
    cuda = Source("x", {"kernel.py": (SIGNATURE + "    pass\n").encode(), "a.cu": b""})
    assert screen(cuda, TASK, "cpu") == "a cuda candidate runs on cuda, not on cpu"


def test_a_c_candidate_may_not_start_threads_or_let_torch_compute():
    files = {"kernel.py": (SIGNATURE + "    pass\n").encode(), "a.c": b"int f(void)\n{ return fork(); }\n"}
    assert "a.c line 2: calls fork" in (screen(Source("x", files), TASK, "cpu") or "")
    files = {"kernel.py": ("import torch\n" + SIGNATURE + "    pass\n").encode(), "a.c": b""}
    assert "imports torch: computing outside the C code" in (screen(Source("x", files), TASK, "cpu") or "")


@given(st.binary(max_size=120))
def test_any_kernel_py_is_screened_without_an_error(content):
    screen(Source("x", {"kernel.py": content, "a.c": b""}), TASK, "cpu")


needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="no C compiler here")


def build_c(tmp_path, c, python="", choice="auto"):
    source = Source("x", {"kernel.py": python.encode(), "kernel.c": c.encode()})
    laid = candidate.lay_out(source, tmp_path / "laid")
    return build.build_c(laid, sandbox.choose(choice)), laid


@needs_compiler
def test_c_files_become_the_library_that_kernel_py_opens(tmp_path):
    loop = "void f(float *x) { for (int i = 0; i < 1024; i++) x[i] *= 2; }"
    notes, laid = build_c(tmp_path, loop, 'CFLAGS = ["-O3", "-ffast-math"]')
    assert (laid.folder / "kernel.so").is_file()
    assert notes["flags"] == ["-O3", "-ffast-math"]


@needs_compiler
def test_a_build_error_shows_the_compilers_own_words(tmp_path):
    with pytest.raises(CandidateError, match=r"kernel\.c:1:\d+: error") as error:
        build_c(tmp_path, "int f( { }")
    assert error.value.status == "build_error"


@needs_compiler
@pytest.mark.parametrize(
    "flags",
    [
        '["-fplugin=/tmp/x.so"]',
        '["-include", "/etc/passwd"]',
        '["-o", "/tmp/x"]',
        '"-O3"',
        "[3]",
        "f()",
        '["-wrapper"]',
    ],
)
def test_flags_that_could_do_more_than_compile_are_refused(tmp_path, flags):
    with pytest.raises(CandidateError, match=r"kernel.py line 1: (flag .* is not allowed|CFLAGS must be a list)"):
        build_c(tmp_path, "int x;", f"CFLAGS = {flags}")


@needs_compiler
def test_the_compiler_sees_none_of_this_machines_files(tmp_path):
    if sandbox.choose("auto").kind == "none":
        pytest.skip("no bubblewrap here")
    with pytest.raises(CandidateError, match="No such file"):
        build_c(tmp_path, f'#include "{__file__}"\n')


@needs_compiler
def test_a_compiler_that_does_not_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "SECONDS", 0.001)
    with pytest.raises(CandidateError, match="did not finish within"):
        build_c(tmp_path, "int x;")
