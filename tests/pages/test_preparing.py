"""What the judge needs is installed while pages are served, and the supervisor waits for it."""

import asyncio
import os
import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from teams import preparing
from teams.models.run import Owner


@pytest.fixture
def home(settings, tmp_path):
    settings.HOME = tmp_path
    return tmp_path


@pytest.fixture
def needs(monkeypatch):
    """Say what the project's extras require."""

    def say(*requirements):
        monkeypatch.setattr(metadata, "requires", lambda _: list(requirements))

    return say


def is_ready(_, ready):
    return ready


async def seen_until(condition, extra, seconds=60):
    """States that showed while preparing, until the condition holds; and how often the judge was called ready."""
    states: list[preparing.Preparing] = []
    ready: list[bool] = []
    async with preparing.judge(extra, then=lambda: ready.append(True)):
        deadline = time.monotonic() + seconds
        while not condition(states, ready):
            assert time.monotonic() < deadline, states
            await asyncio.sleep(0.02)
            if (now := preparing.state()) is not None and now not in states:
                states.append(now)
    assert preparing.state() is None, "it ends with the one who did it"
    return states, ready


def test_nothing_is_prepared_where_all_is_there(home, needs):
    needs('pytest>=1; extra == "cpu"', 'not-wanted-here; extra == "cuda"', "neither-extra")
    assert preparing.missing("cpu") == []
    assert preparing.notice("cpu") == ""
    states, ready = asyncio.run(seen_until(is_ready, "cpu"))
    assert (states, ready) == ([], [True])


def test_a_failed_install_shows_pips_last_words_and_where_the_log_is(home, needs):
    needs('regroup-test-nowhere==1.0; extra == "cpu"')
    assert "about 200 MB" in preparing.notice("cpu")
    assert "REGROUP_EXTRAS=none ./start" in preparing.notice("cpu")

    states, ready = asyncio.run(seen_until(lambda states, _: states and states[-1].failed, "cpu"))
    assert ready == []
    assert states[0].text == "preparing the judge: installing regroup-test-nowhere==1.0 (about 200 MB)"
    assert states[0].failed == ""
    assert states[-1].failed.startswith("ERROR: ")
    assert "regroup-test-nowhere==1.0" in states[-1].failed
    assert Path(states[-1].log).is_file()


def test_what_is_installed_by_hand_is_noticed(home, needs, monkeypatch):
    monkeypatch.setattr(preparing, "LOOK_SECONDS", 0.05)
    needs('regroup-test-nowhere==1.0; extra == "cpu"')
    began = time.monotonic()

    def later(_, ready):
        if time.monotonic() - began > 0.3:
            needs('pytest>=1; extra == "cpu"')
        return ready

    states, ready = asyncio.run(seen_until(later, "none"))
    assert ready == [True]
    assert "left out as was asked (REGROUP_EXTRAS)" in states[-1].failed


def test_an_install_that_is_interrupted_leaves_no_pip(home, needs, monkeypatch):
    started = []

    async def interrupted():
        original = asyncio.create_subprocess_exec

        async def watched(*_, **more):
            started.append(await original("/bin/sleep", "60", **more))
            return started[0]

        monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
        async with preparing.judge("cpu", then=lambda: None):
            while not started:
                await asyncio.sleep(0.01)

    needs('regroup-test-nowhere==1.0; extra == "cpu"')
    asyncio.run(interrupted())
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)


def test_where_a_gpu_is_wanted_torch_for_a_cpu_alone_is_replaced(home, needs, monkeypatch):
    needs('torch==2.13.0; extra == "cpu"', 'torch==2.13.0; extra == "cuda"', 'pytest>=1; extra == "cuda"')
    installed = home / "torch-2.13.0+cpu.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n")
    (installed / "RECORD").write_text("")
    monkeypatch.syspath_prepend(home)
    assert preparing.missing("cpu") == []
    assert preparing.missing("cuda") == ["torch==2.13.0"]
    assert "pip uninstall -y torch; " in preparing.notice("cuda")
    asked = []
    original = asyncio.create_subprocess_exec

    async def watched(*argv, **more):
        asked.append(argv[argv.index("--disable-pip-version-check") + 1 :])
        return await original("/bin/true", **more)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    assert asyncio.run(preparing._install("cuda", home / "log")) == ""
    assert asked == [("--no-deps", "--force-reinstall", "torch==2.13.0"), ("torch==2.13.0",)]


def test_what_a_dead_process_left_counts_no_more(home, needs):
    now = preparing._begin("cpu")
    assert preparing.state() == now
    preparing._write(replace(now, by=str(replace(Owner.here(), started=1))))
    assert preparing.state() is None
    preparing._file().write_text("{half")
    assert preparing.state() is None


def test_the_supervisor_starts_no_judge_meanwhile(home, db):
    from teams.launch import new_run
    from teams.supervisor.loop import Supervisor
    from tests.teams.conftest import ReadyJudge

    made = []

    def make(*arguments):
        made.append(ReadyJudge(*arguments))
        return made[-1]

    run, supervisor = new_run("mla_paged_decode", candidates=2), Supervisor(make)
    preparing._begin("cpu")
    for _ in range(5):
        supervisor.advance(run)
    assert run.reports.waiting().exists()
    assert made == []
    preparing._clear()
    supervisor.advance(run)
    assert len(made) == 1
