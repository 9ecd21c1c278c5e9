"""`./start`: one line, one process, nothing left behind."""

import signal
import socket
import subprocess
import time

import pytest

from tests.pages.served import Served, free_port
from tests.processes import ROOT, environment, judges_of, rows


def wait_for(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.2)
    return found


def verdicts(home):
    return rows(home, "select count(*) from teams_event where kind='verdict'")[0][0]


def test_it_says_one_line_with_the_address_and_a_login_link(server):
    assert server.said.read_text() == f"Regroup: {server.login_link} (works once)\n"
    assert server.login_link.startswith(f"http://127.0.0.1:{server.port}/login/")
    assert rows(server.home, "select count(*) from teams_run") == [(0,)], "--no-demo starts no run"


@pytest.mark.parametrize("arguments", [[]])
def test_an_empty_database_gets_a_demo_run_and_ctrl_c_leaves_nothing(server):
    assert rows(server.home, "select strategy, seed from teams_run") == [("evolving", 1)]
    assert rows(server.home, "select amount, unit from teams_ledgerentry where kind='grant'") == [(60, "candidates")]
    wait_for(lambda: judges_of(server.home))
    wait_for(lambda: verdicts(server.home) > 1)
    assert server.stop() < 5
    assert server.process.returncode == 0
    assert len(server.family) > 1, "the judge and the processes that it hosts"
    assert server.left_over() == []
    assert rows(server.home, "select owner from teams_run") == [("",)]
    server.start_again()
    before = verdicts(server.home)
    wait_for(lambda: verdicts(server.home) > before)
    assert rows(server.home, "select count(*) from teams_run") == [(1,)], "a second start has something to go on with"


@pytest.mark.parametrize("arguments", [[]])
def test_killed_and_started_again_it_goes_on(server):
    wait_for(lambda: verdicts(server.home) > 1)
    server.kill9()
    assert server.left_over() == [], "the judge dies with the supervisor"
    before = verdicts(server.home)
    server.start_again()
    wait_for(lambda: verdicts(server.home) > before)
    numbers = [n for (n,) in rows(server.home, "select number from teams_event order by id")]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_ways_of_being_asked_to_stop(server, number):
    assert server.stop(number) < 5
    assert server.process.returncode == 0
    assert server.left_over() == []


def test_an_open_stream_does_not_hold_up_the_end(page, server, problems):
    with page.expect_request("**/runs/stream*"):
        page.goto("/")
    page.wait_for_timeout(500)
    assert server.stop() < 5
    assert server.left_over() == []
    assert server.said.read_text().count("\n") == 1
    assert "Traceback" not in (server.home / "logs" / "serve.log").read_text()
    problems.clear()


def test_a_taken_port_that_was_asked_for_is_an_error_that_says_so(home):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        argv = ["./start", "--port", str(port), "--no-demo"]
        done = subprocess.run(
            argv, cwd=ROOT, env=environment(home), capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_port_it_takes_the_next_that_is_free(home):
    from teams.management.commands import serve

    with serve._listen(None) as first, serve._listen(None) as second:
        assert serve.PORT <= first.getsockname()[1] < second.getsockname()[1]


def test_two_instances_run_side_by_side(server, tmp_path):
    other_home = tmp_path / "other"
    other_home.mkdir()
    other = Served(other_home, "--no-demo", port=free_port())
    try:
        cookies = [one.get("/login/" + one.login_link.rpartition("/")[2])[1]["Set-Cookie"] for one in (server, other)]
    finally:
        other.stop()
    assert cookies[0].partition("=")[0] != cookies[1].partition("=")[0]
