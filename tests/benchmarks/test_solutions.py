"""flashinfer-bench's Solutions: theirs judged here, ours handed in there, and files that are none."""

import copy
import importlib
import json
import shutil
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import candidate, cli
from benchmarks.candidate import Source
from benchmarks.interchange import solution
from benchmarks.judge import judge
from kernels.mla_paged_decode import reference
from kernels.mla_paged_decode.inputs import MlaSource
from kernels.mla_paged_decode.workloads import MlaWorkload
from kernels.task import BadInputError
from tests.benchmarks.test_interchange import KERNELS, NAME, TASK, empty_tensors, needs_compiler, put
from tests.benchmarks.test_report import paths, values

HELPER = """
import torch

def attend(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale):
    output = torch.zeros_like(q_nope)
    lse = torch.full(q_nope.shape[:2], float("-inf"))
    bounds = kv_indptr.tolist()
    for b in range(len(q_nope)):
        pages = kv_indices[bounds[b]:bounds[b + 1]].long()
        if len(pages):
            keys, rope = ckv_cache[pages, 0].float(), kpe_cache[pages, 0].float()
            scores = sm_scale * (q_nope[b].float() @ keys.T + q_pe[b].float() @ rope.T)
            lse[b] = torch.logsumexp(scores, -1) / 0.6931471805599453
            output[b] = (torch.softmax(scores, -1) @ keys).to(output.dtype)
    return output, lse
"""
RETURNS = "from .parts.helper import attend\n\ndef main(*arguments):\n    return attend(*arguments)\n"
PASSES = """
from .parts.helper import attend

def main(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse):
    found = attend(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale)
    output.copy_(found[0])
    lse.copy_(found[1])
    return "not for us"
"""


def theirs(main=RETURNS, file="kernel.py", **changes):
    spec = {"language": "python", "target_hardware": ["cuda"], "entry_point": f"{file}::main"}
    style = {"destination_passing_style": main is PASSES}
    return {
        "name": "their_kernel", "definition": NAME, "author": "someone", "spec": {**spec, **style, **changes},
        "sources": [{"path": file, "content": main}, {"path": "parts/helper.py", "content": HELPER}],
    }  # fmt: skip


def read(tmp_path, data):
    file = tmp_path / "solution.json"
    file.write_text(json.dumps(data))
    return solution.read_candidate(file, TASK)


def small_call():
    """A workload, its tensors on this machine, and the right outputs."""
    workload = MlaWorkload("small", 3, 90, (40, 0, 50), 9, 0.13, num_pages=99)
    tensors = empty_tensors(TASK, workload)
    source = MlaSource("cpu", 11)
    source.fill_plan(workload, tensors)
    source.fill(workload, tensors)
    return workload, tensors, reference.attend(tensors, 0.13, [0, 1, 2])


def check_run(run, returns=False):
    workload, tensors, expected = small_call()
    arguments = [{**tensors, "sm_scale": 0.13}[name] for name in TASK.entry]
    returned = run(*arguments)
    outputs = dict(zip(("output", "lse"), returned, strict=True)) if returns else tensors
    assert returns or returned is None
    assert TASK.mismatch(workload, outputs, expected, [0, 1, 2], 0.0) is None


def imported(folder, name, monkeypatch):
    """A module of a folder, as whoever runs it would import it."""
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    try:
        return importlib.import_module(name)
    finally:
        for module in set(sys.modules) - before:
            if module.split(".")[0] in (name.split(".")[0], "solution"):
                del sys.modules[module]


@pytest.mark.parametrize("file", ["kernel.py", "main.py", "src/deep/main-1.py"])
@pytest.mark.parametrize("main", [RETURNS, PASSES])
def test_their_entry_point_is_called_as_it_wants_to_be(tmp_path, monkeypatch, main, file):
    deeper = main.replace("from .", f"from .{'.' * file.count('/')}")
    source = read(tmp_path, theirs(deeper, file, destination_passing_style=main is PASSES))
    assert source.name == "their_kernel"
    assert source.language == "pytorch"
    candidate.lay_out(source, tmp_path / "laid")
    check_run(imported(tmp_path / "laid", "kernel", monkeypatch).run, returns=main is RETURNS)


def test_a_triton_solution_is_for_a_gpu_and_destinations_are_passed_unless_it_says_otherwise(tmp_path):
    data = theirs(language="triton")
    assert read(tmp_path, data).language == "triton"
    del data["spec"]["destination_passing_style"]
    assert (
        b"_entry(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse)"
        in (read(tmp_path, data).files["kernel.py"])
    )


def test_their_solution_is_judged_like_any_candidate(tmp_path, bench):
    workloads = [w for w in bench.workloads if w.id.startswith(TASK.smoke[0])]
    right = judge(bench, read(tmp_path, theirs()), workloads)
    assert (right.status, right.message, right.holdouts[-1]["message"]) == ("passed", "", "")
    assert right.candidate["name"] == "their_kernel"
    wrong = theirs()
    wrong["sources"][1]["content"] = HELPER.replace("sm_scale *", "2 * sm_scale *")
    assert judge(bench, read(tmp_path, wrong), workloads).status == "failed"
    forbidden = theirs("import flashinfer\n" + RETURNS)
    report = judge(bench, read(tmp_path, forbidden), workloads)
    assert report.status == "screened_out"
    assert report.message.startswith("solution/kernel.py line 1: imports flashinfer: the baseline")


def export(tmp_path, source):
    solution.write_solution(source, TASK, tmp_path / "exported.json")
    return json.loads((tmp_path / "exported.json").read_text())


@pytest.mark.parametrize("name", ["c_blocked", "triton_split_kv", "hopper_split_kv", "baselines/pytorch_matmul"])
def test_a_candidate_comes_back_from_its_solution_as_it_was(tmp_path, name):
    source = candidate.read(KERNELS / name)
    data = export(tmp_path, source)
    again = solution.read_candidate(tmp_path / "exported.json", TASK)
    assert (again.name, again.sha256, again.language) == (source.name, source.sha256, source.language)
    assert data["definition"] == NAME
    assert data["spec"]["language"] == ("triton" if name == "triton_split_kv" else "python")
    assert all(file["content"] for file in data["sources"])
    for file in data["sources"]:
        if file["path"].endswith(".py"):
            compile(file["content"], file["path"], "exec")


def as_package(tmp_path, data):
    """Write a Solution's sources where flashinfer-bench does: in a package of its own."""
    for file in data["sources"]:
        path = tmp_path / "package_1" / file["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["content"])
    return tmp_path


@needs_compiler
def test_an_exported_c_kernel_compiles_itself_and_is_right(tmp_path, monkeypatch):
    data = export(tmp_path, candidate.read(KERNELS / "c_blocked"))
    module = imported(as_package(tmp_path, data), "package_1.regroup_entry", monkeypatch)
    check_run(module.run)
    assert [p.name for p in (tmp_path / "package_1").glob("*.so")] == ["kernel.so"]


PLANS = """
from helper import attend

def plan(kv_indptr, kv_indices, batch_size, num_heads, device):
    assert (batch_size, num_heads, device) == (3, 16, "cpu")
    return kv_indptr.clone()

def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, output, lse, state=None):
    return attend(q_nope, q_pe, ckv_cache, kpe_cache, state, kv_indices, sm_scale)
"""


def test_an_exported_kernel_plans_in_its_call_and_what_it_returns_is_copied(tmp_path, monkeypatch):
    data = export(tmp_path, Source("plans", {"kernel.py": PLANS.encode(), "helper.py": HELPER.encode()}))
    check_run(imported(as_package(tmp_path, data), "package_1.regroup_entry", monkeypatch).run)


def test_an_exported_cuda_kernel_is_compiled_with_the_flags_that_the_judge_would_use(tmp_path, monkeypatch):
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text('#!/bin/sh\necho "$@" > said; while [ "$1" != -o ]; do shift; done; cp said "$2"\n')
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(nvcc.parent), prepend=":")
    signature = f"def run({', '.join(TASK.entry)}, state=None):\n    pass\n"
    for flags in ('NVCC_FLAGS = ["-O2", "-arch=sm_90a"]\n', ""):
        source = Source("k", {"kernel.py": (flags + signature).encode(), "a.cu": b"int x;"})
        data = export(tmp_path, source)
        shutil.rmtree(tmp_path / "package_1", ignore_errors=True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
        imported(as_package(tmp_path, data), "package_1.regroup_entry", monkeypatch)
        said = (tmp_path / "package_1" / "kernel.so").read_text().split()
        wanted = ["-O2", "-arch=sm_90a"] if flags else ["-O3", "-std=c++17", "-arch=sm_90a"]
        assert said[:2] == ["-Xcompiler", "-fPIC"]
        assert said[2 : 2 + len(wanted)] == wanted
        assert said[-1] == "a.cu"


def test_what_the_judge_would_not_build_is_not_exported(tmp_path):
    with pytest.raises(BadInputError, match="x: kernel.py: defines no function run"):
        solution.write_solution(Source("x", {"kernel.py": b"x = 1\n"}), TASK, tmp_path / "x.json")
    bad = b'CFLAGS = ["-fplugin=x"]\nfrom a import run\n'
    with pytest.raises(BadInputError, match="x: kernel.py line 1: flag '-fplugin=x' is not allowed"):
        solution.write_solution(Source("x", {"kernel.py": bad, "a.c": b"int x;"}), TASK, tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("name"), "solution.name: must be a string, not None"),
        (lambda d: d.update(name="\ud800"), "solution.name: must be text"),
        (lambda d: d.update(definition="gemm"), f"solution.definition: must be one of {NAME}, not 'gemm'"),
        (lambda d: d.update(spec=[]), r"solution.spec: must be an object, not \[\]"),
        (lambda d: d["spec"].update(language="cuda"), "solution.spec.language: cuda cannot be judged here, python and"),
        (lambda d: d["spec"].update(language="rust"), "solution.spec.language: must be one of python, triton, cpp"),
        (lambda d: d["spec"].update(entry_point="kernel.py"), "solution.spec.entry_point: must be FILE.py::FUNCTION"),
        (lambda d: d["spec"].update(entry_point="a.py::f"), "solution.spec.entry_point: must be FILE.py::FUNCTION"),
        (lambda d: d["spec"].update(entry_point="kernel.py::a::b"), "solution.spec.entry_point: must be FILE.py"),
        (lambda d: d["spec"].update(destination_passing_style=1), "destination_passing_style: must be true or false"),
        (lambda d: d.update(sources={}), "solution.sources: must be a list"),
        (lambda d: d["sources"].append(3), r"solution.sources\[2\]: must be an object, not 3"),
        (lambda d: d["sources"][1].update(path="../x.py"), r"solution.sources\[1\].path: must be a relative"),
        (lambda d: d["sources"][1].update(path="/x.py"), r"solution.sources\[1\].path: must be a relative"),
        (lambda d: d["sources"][1].update(path="x\0.py"), r"solution.sources\[1\].path: must be a relative"),
        (lambda d: d["sources"][1].update(path="x" * 200 + ".py"), r"solution.sources\[1\].path: must be a relative"),
        (lambda d: d["sources"][1].update(path="x.so"), r"sources\[1\].path: .* ends in .py, .c, .*not 'x.so'"),
        (lambda d: d["sources"][1].update(path="./kernel.py"), r"solution.sources\[1\].path: kernel.py occurs twice"),
        (lambda d: d["sources"][1].update(path="kernel.py/x.py"), "solution.sources: kernel.py is a file and a folder"),
        (lambda d: d["sources"][1].update(content=""), r"solution.sources\[1\].content: must be text, not ''"),
        (lambda d: d["sources"][1].update(content="x" * (1 << 20)), "solution.sources: more than 64 files or 1 MiB"),
    ],
)  # fmt: skip
def test_a_solution_that_is_not_right_names_its_field(tmp_path, change, message):
    data = theirs()
    change(data)
    with pytest.raises(BadInputError, match=message) as error:
        read(tmp_path, data)
    assert str(tmp_path / "solution.json") in str(error.value)


@given(st.sampled_from([p for p in paths(theirs()) if p]), values)
def test_whatever_stands_in_a_solution_it_is_laid_out_or_refused_clearly(tmp_path_factory, path, value):
    data, folder = copy.deepcopy(theirs()), tmp_path_factory.mktemp("fuzz")
    put(data, path, value)
    try:
        source = read(folder, data)
    except BadInputError as error:
        named = ("solution", "cannot be read as JSON: ")  # the field; or the number that JSON does not know
        assert str(error).startswith(tuple(f"{folder / 'solution.json'}: {word}" for word in named))
    else:
        candidate.lay_out(source, folder / "laid")
        compile(source.files["kernel.py"], "kernel.py", "exec")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"name": NaN}', b"3", b'"\xc3"'])
def test_a_file_that_is_no_solution_is_refused_by_name(tmp_path, capsys, content):
    file = tmp_path / "x.json"
    file.write_bytes(content)
    assert cli.main(["judge", "mla_paged_decode", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {file}: ")
