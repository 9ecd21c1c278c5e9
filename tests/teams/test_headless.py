"""The real command with the real judge: a whole run, and one that is killed again and again."""

import json
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.processes import ROOT, calibrate, environment, judges_of, manage, rows


@pytest.fixture
def home(tmp_path):
    """A database of its own, and this machine's calibration if there is one."""
    calibrate(tmp_path)
    return tmp_path


def check_whole(home, candidates):
    """Nothing lost, nothing twice: events, ledger, reports, files."""
    numbers = [n for (n,) in rows(home, "select number from teams_event order by id")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert rows(home, "select last_event from teams_run") == [(len(numbers),)]
    judged = rows(home, "select candidate_id from teams_report where state='done' and not is_verification")
    assert len(judged) == len(set(judged)) == candidates
    told = rows(home, "select json_extract(data, '$.candidate') from teams_event where kind='verdict'")
    assert len(told) == len(set(told)) == candidates
    booked = dict(rows(home, "select kind, sum(amount) from teams_ledgerentry where unit='candidates' group by kind"))
    assert booked == {"grant": candidates, "reserve": candidates, "spend": candidates}
    code = (
        "import django; django.setup()\n"
        "from teams import workspace\nfrom teams.models import Run\n"
        "print(workspace.disagreements(Run.objects.get()))"
    )
    variables = {**environment(home), "DJANGO_SETTINGS_MODULE": "teams.settings"}
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def run_killed(home, kills, candidates, seed):
    """Start a run, kill it at random moments, go on with it each time, and let it end."""
    rng = random.Random(seed)
    arguments = ["mla_paged_decode", "--candidates", candidates, "--set", "verify_from=100"]
    reached = []
    for _ in range(kills):
        process = manage(home, "run", *arguments, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.5, 9.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if rows(home, "select count(*) from teams_run")[0][0]:
            arguments = ["--resume", "1"]
            reached.append(rows(home, "select last_event from teams_run")[0][0])
    process = manage(home, "run", *arguments, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, problems = process.communicate(timeout=400)
    assert process.returncode == 0, problems
    return json.loads(out), reached


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_loses_nothing(home):
    result, _ = run_killed(home, kills=3, candidates=6, seed=1)
    assert (result["state"], result["candidates"], result["verified"]) == ("done", 6, True)
    assert result["workloads"] == 47
    check_whole(home, 6)
    assert judges_of(home) == [], "no judge outlives its supervisor"


@pytest.mark.slow
def test_a_run_that_is_killed_twenty_times_goes_on_and_loses_nothing(home):
    result, reached = run_killed(home, kills=20, candidates=40, seed=time.time_ns())
    assert (result["state"], result["candidates"], result["verified"]) == ("done", 40, True)
    assert len(set(reached)) > 5, "it got on between the kills"
    check_whole(home, 40)


def test_an_interrupted_run_says_how_to_go_on_and_leaves_no_judge(home):
    process = manage(
        home, "run", "mla_paged_decode", "--candidates", 30, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not judges_of(home) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; go on with --resume 1" in said
    assert "Traceback" not in said
    assert judges_of(home) == []
    assert rows(home, "select owner from teams_run") == [("",)]
