"""One warm judge, asked in lines of JSON."""

import json
import socket
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import report as reports
from benchmarks import serve
from kernels.task import BadInputError, load_task

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


def test_a_claim_on_a_few_workloads_is_verified_on_more(bench, tmp_path):
    claim, out = tmp_path / "claim.json", tmp_path / "verified.json"
    first = {"id": 1, "path": GOOD, "out": str(claim), "workloads": "7cd78cb9"}
    second = {"id": 2, "path": GOOD, "out": str(out), "workloads": "7cd78cb9,00cb2bc2", "claim": str(claim)}
    host = bench.baseline_side("pytorch_matmul").worker
    answers = ask(bench, json.dumps(first), json.dumps(second))
    assert [a["status"] for a in answers if "status" in a] == ["passed", "passed"]
    assert (reports.read(claim).verified, reports.read(out).verified) == (False, True)
    assert len(reports.read(out).rows) == 2
    assert not host.alive, "the baselines have a fresh process too"


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
        ('{"path": "x", "out": "y", "claim": 7}', "claim: must be the path of a report or null"),
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


def test_over_a_socket_one_connection_follows_another_and_a_broken_one_ends_alone(tmp_path):
    path = tmp_path / "judge"
    argv = [sys.executable, "-m", "benchmarks", "serve", "mla_paged_decode", "--socket", str(path)]

    def ask_once(request):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, connection.makefile("rw") as lines:
            connection.connect(str(path))
            lines.write(request + "\n")
            lines.flush()
            return json.loads(lines.readline())

    with subprocess.Popen(argv) as judge:
        try:
            wait_for(path.is_socket)
            assert path.stat().st_mode & 0o777 == 0o600, "for its owner alone"
            assert "path: must be" in ask_once('{"id": 1}')["error"]
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hasty:
                hasty.connect(str(path))
                hasty.sendall(b'{"id": 2}\n' * 50)  # and is gone before the answers come
            assert "path: must be" in ask_once('{"id": 3}')["error"]
            second = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
            assert (second.returncode, second.stderr) == (2, f"error: --socket {path}: a judge listens there already\n")
        finally:
            judge.terminate()
        assert judge.wait(30) == 0
    assert not path.exists()


def test_a_socket_that_a_dead_judge_left_behind_is_taken_over(tmp_path):
    path = tmp_path / "judge"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    with serve.listening(path) as listener:
        assert listener.getsockname() == str(path)


def test_a_socket_where_a_file_lies_is_refused_in_words(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(BadInputError, match=f"--socket {path}: Address already in use"), serve.listening(path):
        pass
    assert path.read_text() == "mine"


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
