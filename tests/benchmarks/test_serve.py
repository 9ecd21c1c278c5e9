"""One warm judge, asked in lines of JSON."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import report as reports
from benchmarks import serve
from kernels.task import load_task

TASK = load_task("mla_paged_decode")
GOOD = str(TASK.baselines("cpu")["pytorch_matmul"])


def ask(bench, *lines):
    answers: list[dict[str, object]] = []
    serve.serve(bench, lines, answers.append, serve.Progress(answers.append))
    return answers


def test_candidates_are_judged_one_after_another_and_a_crash_ends_only_its_own(bench, tmp_path):
    bad = tmp_path / "bad"
    bad.mkdir()
    names = ", ".join(TASK.entry)
    (bad / "kernel.py").write_text(f"def run({names}, state=None):\n    __import__('ctypes').string_at(0)\n")
    requests = [
        {"id": i, "path": path, "out": str(tmp_path / f"{i}.json"), "workloads": "7cd78cb9"}
        for i, path in enumerate((GOOD, str(bad), GOOD))
    ]
    answers = ask(bench, *(json.dumps(request) for request in requests))
    assert [a["status"] for a in answers if "status" in a] == ["passed", "failed", "passed"]
    assert [reports.read(tmp_path / f"{i}.json").status for i in range(3)] == ["passed", "failed", "passed"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "a request must be one line of JSON"),
        ("[]", "a request must be an object"),
        ('{"id": 3}', "path: must be a string"),
        ('{"path": "/no/where", "out": "/tmp/x"}', "/no/where: no such candidate folder"),
        ('{"path": "x", "out": "y", "workloads": 3}', "workloads: must be a string"),
        ('{"path": "x", "out": "y", "workloads": "zzz"}', "'zzz' begins 0 workload ids"),
        ('{"path": "x", "out": "y", "stop_below": -1}', "stop_below: must be a positive number or null"),
    ],
)
def test_a_request_that_is_not_understood_gets_an_answer_and_the_next_is_served(bench, line, said):
    answers = ask(bench, line, "{")
    assert said in answers[0]["error"]
    assert len(answers) == 2


@given(st.text(max_size=60))
def test_any_line_gets_exactly_one_answer(text):
    answers = ask(None, text)
    assert len(answers) == 1
    assert "error" in answers[0]


def test_it_ends_when_its_input_does(tmp_path):
    argv = [sys.executable, "-m", "benchmarks", "serve", "mla_paged_decode"]
    request = json.dumps({"id": 1, "path": str(tmp_path), "out": str(tmp_path / "r.json")})
    done = subprocess.run(argv, input=request + "\n", capture_output=True, text=True, check=True, timeout=60)
    assert "holds no kernel.py" in json.loads(done.stdout)["error"]
