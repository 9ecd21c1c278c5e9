"""Exchange with flashinfer-bench: captured inputs, Traces, the whole way. (Solutions: test_solutions.py.)"""

import copy
import json
import random
import shutil
from array import array
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import build, candidate, cli
from benchmarks import report as reports
from benchmarks.interchange import dataset, trace
from benchmarks.paths import home
from benchmarks.report import RUN_ONLY, Report, Row, Timing
from kernels.mla_paged_decode.inputs import MlaSource
from kernels.mla_paged_decode.task import PUBLISHED
from kernels.mla_paged_decode.workloads import MlaWorkload, compact
from kernels.task import BadInputError, load_task
from tests.benchmarks.test_report import paths, values

TASK = load_task("mla_paged_decode")
KERNELS = TASK.folder
NAME = TASK.definition
REAL = Path(__file__).parents[3] / "shared" / "data" / "flashinfer_trace"
needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="no C compiler here")


def stored(tensors):
    """A safetensors file; each tensor is (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return len(text).to_bytes(8, "little") + text + data


def int32(numbers):
    return "I32", [len(numbers)], array("i", numbers).tobytes()


def captured_ids(workload):
    """Scattered, with pages shared by all sequences as a common prompt makes them."""
    rng = random.Random(workload.id)
    ids = rng.sample(range(1, workload.num_pages), workload.tokens)
    for begin in accumulate(workload.kv_lengths[:-1]):
        ids[begin] = ids[0]
    return ids


def trace_line(workload, blob):
    files = {n: {"type": "safetensors", "path": blob, "tensor_key": n} for n in ("kv_indptr", "kv_indices")}
    inputs = {n: {"type": "random"} for n in ("q_nope", "q_pe", "ckv_cache", "kpe_cache")}
    scale = {"sm_scale": {"type": "scalar", "value": 0.125}}
    given = {"axes": TASK.axes(workload), "inputs": {**inputs, **files, **scale}, "uuid": workload.id}
    return {"definition": NAME, "solution": None, "workload": given, "evaluation": None}


@pytest.fixture(scope="module")
def whole_folder(tmp_path_factory):
    """A folder as the public data set has it, with other pages."""
    folder = tmp_path_factory.mktemp("flashinfer-trace")
    for part in ("definitions/mla_paged", "workloads/mla_paged", "blob"):
        (folder / part).mkdir(parents=True)
    inputs = {n: {"shape": None, "dtype": "float32"} for n in TASK.entry[:-2]}
    definition = {"name": NAME, "inputs": inputs, "outputs": {n: {} for n in TASK.entry[-2:]}}
    (folder / "definitions" / "mla_paged" / f"{NAME}.json").write_text(json.dumps(definition))
    lines = []
    for workload in reversed(PUBLISHED):
        bounds = [0, *accumulate(workload.kv_lengths)]
        tensors = {"kv_indices": int32(captured_ids(workload)), "kv_indptr": int32(bounds)}
        (folder / "blob" / f"{workload.id}.safetensors").write_bytes(stored(tensors))
        lines.append(json.dumps(trace_line(workload, f"./blob/{workload.id}.safetensors")))
    (folder / "workloads" / "mla_paged" / f"{NAME}.jsonl").write_text("\n".join(lines) + "\n\n")
    return folder


@pytest.fixture
def folder(whole_folder, tmp_path):
    return Path(shutil.copytree(whole_folder, tmp_path / "trace"))


def workloads_file(folder):
    return folder / "workloads" / "mla_paged" / f"{NAME}.jsonl"


def change_line(folder, number, change):
    """Change what a line of the workloads (from 1) says."""
    lines = workloads_file(folder).read_text().split("\n")
    data = json.loads(lines[number - 1])
    change(data)
    lines[number - 1] = json.dumps(data)
    workloads_file(folder).write_text("\n".join(lines))


# Captured inputs


def test_captured_pages_are_the_ones_that_a_gpu_gets(whole_folder):
    task = dataset.with_captured_inputs(TASK, whole_folder)
    workloads = task.workloads("cuda")
    assert [w.id for w in workloads] == [w.id for w in PUBLISHED]
    workload = workloads[20]
    assert isinstance(workload, MlaWorkload)
    assert task.scalars(workload)["sm_scale"] == 0.125
    tensors = empty_tensors(task, workload, only=("kv_indptr", "kv_indices"))
    MlaSource("cpu", 3).fill_plan(workload, tensors)
    assert tensors["kv_indices"].tolist() == captured_ids(PUBLISHED[20])
    assert tensors["kv_indptr"].tolist() == [0, *accumulate(workload.kv_lengths)]


def empty_tensors(task, workload, only=None):
    specs = task.tensors(workload)
    return {n: torch.zeros(s.shape, dtype=getattr(torch, s.dtype)) for n, s in specs.items() if not only or n in only}


def test_on_a_cpu_captured_pages_lie_in_a_small_pool_whose_unused_pages_are_nan(whole_folder):
    task = dataset.with_captured_inputs(TASK, whole_folder)
    workload = task.workloads("cpu")[1]
    assert isinstance(workload, MlaWorkload)
    tensors = empty_tensors(task, workload)
    source = MlaSource("cpu", 3)
    source.fill_plan(workload, tensors)
    source.fill(workload, tensors)
    held = torch.zeros(workload.num_pages, dtype=torch.bool)
    held[tensors["kv_indices"].long()] = True
    assert workload.num_pages <= 2 * workload.tokens + 1
    assert (~held).any()
    for cache in ("ckv_cache", "kpe_cache"):
        assert torch.equal(tensors[cache].isnan().any(dim=(1, 2)), ~held)
    expected = task.reference(workload, tensors, [0])
    assert expected["output"].isfinite().all()


@given(st.lists(st.integers(0, 60) | st.integers(0, 2**31 - 1), min_size=1, max_size=60))
def test_a_compacted_pool_keeps_who_follows_whom_and_who_shares(ids):
    content, pages = compact(array("i", ids).tobytes())
    compacted = list(array("i", content))
    assert len(compacted) == len(ids)
    assert [a + 1 == b for a in compacted for b in compacted] == [a + 1 == b for a in ids for b in ids]
    assert [a < b for a in compacted for b in compacted] == [a < b for a in ids for b in ids]
    assert min(compacted) >= 0
    assert max(compacted) + 1 < pages <= 2 * len(set(ids)) + 1


def test_other_pages_are_other_inputs_and_the_same_pages_the_same(whole_folder, folder):
    first = dataset.with_captured_inputs(TASK, whole_folder).inputs
    assert first.startswith("captured, ")
    assert TASK.inputs == ""
    assert dataset.with_captured_inputs(TASK, folder).inputs == first
    workload = PUBLISHED[0]
    ids, bounds = [9, 8, 7, 6, 5, 4, 3, 2], [0, 8]
    (folder / "blob" / f"{workload.id}.safetensors").write_bytes(
        stored({"kv_indices": int32(ids), "kv_indptr": int32(bounds)})
    )
    assert dataset.with_captured_inputs(TASK, folder).inputs != first


@pytest.mark.skipif(not REAL.is_dir(), reason="the public data set's folder is not here")
def test_the_public_data_set_has_the_47_workloads_with_the_runs_that_are_published():
    task = dataset.with_captured_inputs(TASK, REAL)
    for device in ("cuda", "cpu"):
        for workload in task.workloads(device):
            assert isinstance(workload, MlaWorkload)
            ids = array("i", workload.kv_indices)
            assert 1 + sum(b != a + 1 for a, b in pairwise(ids)) == workload.contiguous_runs


def set_input(name, **changes):
    return lambda d: d["workload"]["inputs"][name].update(changes)


BLOB = f"./blob/{PUBLISHED[46].id}.safetensors"


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (1, lambda d: d.pop("workload"), "line 1: trace.workload: must be an object, not None"),
        (7, lambda d: d["workload"].update(uuid="x"), "line 7: trace.workload.uuid: x is none of the 47 of mla_paged"),
        (2, lambda d: d["workload"].update(uuid=PUBLISHED[46].id), "line 2: trace.workload.uuid: .* occurs twice"),
        (3, lambda d: d["workload"]["axes"].update(num_pages="many"), "line 3: trace.workload.axes.num_pages: must be"),
        (3, lambda d: d["workload"]["axes"].update(num_pages=10**12), r"line 3.*num_pages: must be from 1 to 4400000"),
        (3, lambda d: d["workload"]["axes"].update(num_pages=77), "line 3.*: kv_indices: .* are not pages of a pool"),
        (4, set_input("sm_scale", value="1"), "line 4: trace.workload.inputs.sm_scale.value: must be a pos"),
        (4, set_input("kv_indptr", type="random"), "line 4: .*kv_indptr.type: must be one of safetensors, not"),
        (4, set_input("kv_indptr", path="../x"), r"line 4: .*kv_indptr.path: must lie in the folder, not at \.\./x"),
        (4, set_input("kv_indptr", path="/etc/passwd"), "kv_indptr.path: must lie in the folder"),
        (4, set_input("kv_indices", path="./no"), "line 4: .*kv_indices.path: .*/no: no such file"),
        (4, set_input("kv_indices", path="./" + "x" * 400), "kv_indices.path: .*cannot be read: File name too long"),
        (4, set_input("kv_indices", tensor_key="k"), "line 4: .*kv_indices.tensor_key: k is not there; must be I32 of"),
        (4, set_input("kv_indices", tensor_key="kv_indptr"), r"kv_indptr is I32 of shape \[65\]; must be I32 of shape"),
        (17, set_input("kv_indptr", path=BLOB), r"line 17: .*kv_indptr is I32 of shape \[65\]; must be I32 of shape"),
        (2, set_input("kv_indptr", path=BLOB), "line 2: trace.workload: kv_indptr: its sequences' lengths are not"),
    ],
)  # fmt: skip
def test_a_workload_that_is_not_right_names_its_line_and_field(folder, number, change, message):
    change_line(folder, number, change)
    with pytest.raises(BadInputError, match=message) as error:
        dataset.with_captured_inputs(TASK, folder)
    assert str(workloads_file(folder)) in str(error.value)


def test_a_folder_that_lacks_something_says_what(folder, tmp_path):
    file = workloads_file(folder)
    file.write_text(file.read_text().split("\n", 1)[1])
    with pytest.raises(BadInputError, match=f"lacks 1 workloads of mla_paged_decode, the first is {PUBLISHED[46].id}"):
        dataset.with_captured_inputs(TASK, folder)
    file.write_text('\n\n{"definition": \n')
    with pytest.raises(BadInputError, match="jsonl line 3: cannot be read as JSON"):
        dataset.with_captured_inputs(TASK, folder)
    definition = folder / "definitions" / "mla_paged" / f"{NAME}.json"
    definition.write_text('{"inputs": {"x": {}}, "outputs": {}}')
    with pytest.raises(BadInputError, match="definition.inputs, outputs: must be q_nope, q_pe"):
        dataset.with_captured_inputs(TASK, folder)
    definition.unlink()
    with pytest.raises(BadInputError, match=r"must hold one definitions/\*/.*, not 0"):
        dataset.with_captured_inputs(TASK, folder)
    with pytest.raises(BadInputError, match="nowhere: no such folder"):
        dataset.with_captured_inputs(TASK, tmp_path / "nowhere")


LINE_PATHS = [p for p in paths(trace_line(PUBLISHED[46], BLOB)) if p]


@settings(max_examples=60)
@given(st.sampled_from(LINE_PATHS), values)
def test_whatever_stands_in_a_workload_it_is_read_or_refused_clearly(whole_folder, tmp_path_factory, path, value):
    folder = tmp_path_factory.mktemp("fuzz")
    for part in ("definitions", "blob"):
        (folder / part).symlink_to(whole_folder / part)
    workloads_file(folder).parent.mkdir(parents=True)
    shutil.copy(workloads_file(whole_folder), workloads_file(folder))
    change_line(folder, 1, lambda data: put(data, path, value))
    try:
        dataset.with_captured_inputs(TASK, folder)
    except BadInputError as error:
        assert "line 1" in str(error) or "lacks 1" in str(error)


def put(data, path, value):
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


# Traces


def make_report(statuses=("passed", "passed"), **changes):
    rows = []
    for workload, status in zip(PUBLISHED, statuses, strict=False):
        row = Row(workload.id, workload.batch_size, workload.tokens, status=status, rmse=1e-3, message=f"is {status}")
        if status == "passed":
            row.scopes[RUN_ONLY] = Timing("fa3", [10.0, 11.0, 30.0], [20.0, 33.0, 60.0])
        rows.append(row)
    conditions = {"device": "a gpu", "protocol": 1, "clock": "events", "workloads": "all"}
    candidate = {"name": "ours", "source_sha256": "0" * 64, "language": "cuda"}
    return Report(TASK.name, candidate, conditions, rows, environment={"torch": "2", "seed": 3}, **changes)


def written(tmp_path, report, name="t.jsonl"):
    trace.write_traces(report, tmp_path / name)
    return [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / name).read_text().splitlines()]


def test_a_row_becomes_a_trace_with_times_in_milliseconds(tmp_path):
    first, _ = written(tmp_path, make_report())
    assert first["definition"] == NAME
    assert first["solution"] == "ours"
    assert first["workload"]["uuid"] == PUBLISHED[0].id
    assert first["workload"]["axes"] == {
        "batch_size": 1, "num_pages": 989669, "len_indptr": 2, "num_kv_indices": 8,
    }  # fmt: skip
    assert list(first["workload"]["inputs"]) == list(TASK.entry[:-2])
    assert first["workload"]["inputs"]["sm_scale"] == {"type": "scalar", "value": PUBLISHED[0].sm_scale}
    evaluation = first["evaluation"]
    assert evaluation["performance"] == {"latency_ms": 0.011, "reference_latency_ms": 0.033, "speedup_factor": 2.0}
    assert evaluation["environment"]["hardware"] == "a gpu"
    assert evaluation["environment"]["libs"]["torch"] == "2"
    assert "seed" not in evaluation["environment"]["libs"]
    assert evaluation["correctness"]["extra"]["relative_rmse"] == 1e-3
    assert evaluation["correctness"]["max_relative_error"] == "NaN"
    assert evaluation["log"] == "run_only; reference: fa3"


@pytest.mark.parametrize(
    ("status", "theirs", "back"),
    [
        ("wrong_shape", "INCORRECT_SHAPE", "wrong_shape"),
        ("wrong_dtype", "INCORRECT_DTYPE", "wrong_dtype"),
        ("wrong_result", "INCORRECT_NUMERICAL", "wrong_result"),
        ("runtime_error", "RUNTIME_ERROR", "runtime_error"),
        ("timeout", "TIMEOUT", "timeout"),
    ],
)
def test_a_failure_has_the_parts_that_their_schema_asks_for_and_comes_back(tmp_path, status, theirs, back):
    _, failed = written(tmp_path, make_report(("passed", status)))
    evaluation = failed["evaluation"]
    assert evaluation["status"] == theirs
    assert evaluation["log"] == f"is {status}"
    assert ("correctness" in evaluation) == (theirs == "INCORRECT_NUMERICAL")
    assert "performance" not in evaluation
    assert [row.status for row in trace.read_report(str(tmp_path / "t.jsonl")).rows] == ["passed", back]


def test_nothing_of_a_cheat_has_passed_and_nothing_was_compiled_of_what_did_not_build(tmp_path):
    for cheat in (make_report(("passed", "cheated")), make_report(verdict="cheated", message="files changed")):
        lines = written(tmp_path, cheat)
        assert {line["evaluation"]["status"] for line in lines} == {"RUNTIME_ERROR"}
        assert all(line["evaluation"]["log"].startswith("cheated: ") for line in lines)
    lines = written(tmp_path, make_report(("not_run", "not_run"), verdict="build_error", message="no such header"))
    assert [line["evaluation"]["status"] for line in lines] == ["COMPILE_ERROR"] * 2
    again = trace.read_report(str(tmp_path / "t.jsonl"))
    assert (again.status, again.message) == ("build_error", "no such header")


def test_rows_without_a_time_are_left_out_and_said_to_be(tmp_path, capsys):
    report = make_report(("passed", "not_run", "passed"))
    report.rows[2].scopes.clear()
    report.write(tmp_path / "r.json")
    assert cli.main(["export-trace", str(tmp_path / "r.json"), "--out", str(tmp_path / "t.jsonl")]) == 0
    assert capsys.readouterr().out == "left out: 2 of 3 rows, which were not run or not timed\n"
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == 1
    with pytest.raises(BadInputError, match=r"ours \(partial\): none of its rows can be a Trace"):
        trace.write_traces(make_report(("not_run",)), tmp_path / "no.jsonl")
    with pytest.raises(BadInputError, match="ours: judge_error says nothing of the candidate: our fault"):
        trace.write_traces(make_report(verdict="judge_error", message="our fault"), tmp_path / "no.jsonl")
    unknown = make_report()
    unknown.rows[1].workload = "w"
    with pytest.raises(BadInputError, match="rows: w is no workload of mla_paged_decode"):
        trace.write_traces(unknown, tmp_path / "no.jsonl")
    assert not (tmp_path / "no.jsonl").exists()


def test_a_report_on_captured_inputs_keeps_their_records(tmp_path, whole_folder, folder):
    report = make_report()
    report.conditions["inputs"] = dataset.with_captured_inputs(TASK, whole_folder).inputs
    with pytest.raises(BadInputError, match="rests on inputs that a folder holds"):
        trace.write_traces(report, tmp_path / "t.jsonl")
    trace.write_traces(report, tmp_path / "t.jsonl", whole_folder)
    first = json.loads((tmp_path / "t.jsonl").read_text().splitlines()[0])
    blob = f"./blob/{PUBLISHED[0].id}.safetensors"
    assert first["workload"] == trace_line(PUBLISHED[0], blob)["workload"]
    change_line(folder, 1, set_input("sm_scale", value=0.5))
    for unlike, where in ((report, folder), (make_report(), whole_folder)):
        with pytest.raises(BadInputError, match="its inputs are captured, .*, not"):
            trace.write_traces(unlike, tmp_path / "t.jsonl", where)


def test_traces_come_back_as_a_report_that_is_compared_with_its_like_alone(tmp_path, capsys):
    written(tmp_path, make_report())
    faster = make_report()
    faster.candidate["name"] = "faster"
    for row in faster.rows:
        row.scopes[RUN_ONLY].candidate_us = [5.0, 5.5, 15.0]
    written(tmp_path, faster, "faster.jsonl")
    make_report().write(tmp_path / "r.json")
    first, second, ours = (str(tmp_path / name) for name in ("faster.jsonl", "t.jsonl", "r.json"))
    assert cli.main(["compare", first, second]) == 0
    assert capsys.readouterr().out.startswith("faster / ours: 2.000 (geometric mean of 2 common workloads")
    assert cli.main(["compare", first, ours]) == 2
    assert "source: flashinfer-bench Traces / None" in capsys.readouterr().err
    again = trace.read_report(second)
    assert again.summary() is not None
    assert again.ratios() == {row.workload: [pytest.approx(3.0)] for row in make_report().rows}
    reports.parse(json.loads(reports.dumps(make_report().to_json())))


def test_traces_of_another_clock_are_unlike(tmp_path, capsys):
    written(tmp_path, make_report())
    other = make_report()
    other.conditions["clock"] = "another"
    written(tmp_path, other, "other.jsonl")
    assert cli.main(["compare", str(tmp_path / "t.jsonl"), str(tmp_path / "other.jsonl")]) == 2
    assert "libraries: " in capsys.readouterr().err


def test_one_solution_of_a_file_is_chosen_by_name(tmp_path):
    lines = written(tmp_path, make_report())
    other = [{**copy.deepcopy(line), "solution": "b"} for line in lines]
    bare = {**lines[0], "solution": None, "evaluation": None}
    file = tmp_path / "all.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in (*lines, bare, *other)))
    assert trace.read_report(f"{file}::b").candidate["name"] == "b"
    for name in (str(file), f"{file}::c"):
        with pytest.raises(BadInputError, match="must be chosen, as in .*::NAME; it has results of b, ours"):
            trace.read_report(name)
    file.write_text("")
    with pytest.raises(BadInputError, match="it has results of none"):
        trace.read_report(str(file))


def in_evaluation(**changes):
    return lambda d: d["evaluation"].update(changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(definition="gemm"), "line 2: trace.definition: must be one of"),
        (lambda d: d.update(solution=3), "line 2: trace.solution: must be a string, not 3"),
        (lambda d: d.update(workload=None), "line 2: trace.workload: must be an object, not None"),
        (lambda d: d["workload"].update(uuid="x"), "line 2: trace.workload.uuid: x is no workload of this task"),
        (lambda d: d["workload"].update(uuid=PUBLISHED[0].id), "line 2: .*uuid: .* has a result of this solution"),
        (lambda d: d.update(evaluation=None), "line 2: trace.evaluation: must be an object, not None"),
        (in_evaluation(status="FINE"), "line 2: trace.evaluation.status: must be one of PASSED, INCORRECT_SHAPE"),
        (in_evaluation(performance=None), "line 2: trace.evaluation.performance: must be an object, not None"),
        (in_evaluation(log=3), "line 2: trace.evaluation.log: must be a string, not 3"),
        (lambda d: d["evaluation"]["performance"].update(latency_ms=0.0), "line 2: .*latency_ms: must be a positive"),
        (lambda d: d["evaluation"]["performance"].update(latency_ms=-1), "line 2: .*latency_ms: must be a positive"),
        (lambda d: d["evaluation"]["performance"].update(reference_latency_ms=[]), "reference_latency_ms: must be"),
        (lambda d: d["evaluation"]["environment"].update(libs={"torch": 2}), "libs.torch: must be a string"),
        (lambda d: d["evaluation"]["environment"].update(hardware="other"), "line 2: .*environment: .*is not"),
    ],
)  # fmt: skip
def test_a_trace_that_is_not_right_names_its_line_and_field(tmp_path, change, message):
    lines = written(tmp_path, make_report())
    change(lines[1])
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(BadInputError, match=message) as error:
        trace.read_report(str(file))
    assert str(file) in str(error.value)


def test_a_reference_that_was_not_timed_gives_no_ratio(tmp_path):
    lines = written(tmp_path, make_report())
    lines[0]["evaluation"]["performance"].update(reference_latency_ms=0.0, speedup_factor=0.0)
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    report = trace.read_report(str(tmp_path / "t.jsonl"))
    assert list(report.ratios()) == [PUBLISHED[1].id]
    assert report.summary() is None


@given(st.data(), values)
def test_whatever_stands_in_a_trace_it_is_read_or_refused_clearly(tmp_path_factory, data, value):
    folder = tmp_path_factory.mktemp("fuzz")
    lines = written(folder, make_report(("passed", "wrong_result")))
    put(lines[0], data.draw(st.sampled_from([p for p in paths(lines[0]) if p])), value)
    file = folder / "t.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    try:
        report = trace.read_report(f"{file}::ours")
    except BadInputError as error:
        assert str(file) in str(error)
    else:
        json.dumps(report.to_json(), allow_nan=False)


# The whole way


@needs_compiler
def test_a_candidate_goes_out_as_a_solution_and_is_judged_on_captured_inputs(tmp_path, capsys, folder):
    exported, judged, traces = tmp_path / "s.json", tmp_path / "r.json", tmp_path / "t.jsonl"
    assert cli.main(["export-solution", str(KERNELS / "c_blocked"), "--out", str(exported)]) == 0
    asked = ["judge", "mla_paged_decode", str(exported), "--trace", str(folder)]
    assert cli.main([*asked, "--workloads", "smoke", "--out", str(judged)]) == 0
    report = reports.read(judged)
    assert report.candidate["name"] == "c_blocked"
    assert report.candidate["source_sha256"] == candidate.read(KERNELS / "c_blocked").sha256
    assert report.conditions["inputs"] == dataset.with_captured_inputs(TASK, folder).inputs
    calibrations = [json.loads(file.read_text()) for file in (home() / "calibration").glob("*.json")]
    assert report.conditions["inputs"] in [calibration.get("inputs") for calibration in calibrations]
    assert cli.main(["export-trace", str(judged), "--trace", str(folder), "--out", str(traces)]) == 0
    capsys.readouterr()
    assert cli.main(["compare", str(traces), str(traces)]) == 0
    assert "1.000 (geometric mean of 6 common workloads" in capsys.readouterr().out
    change_line(folder, 4, set_input("kv_indptr", path="./no"))
    assert cli.main(asked) == 2
    assert "line 4: trace.workload.inputs.kv_indptr.path" in capsys.readouterr().err
