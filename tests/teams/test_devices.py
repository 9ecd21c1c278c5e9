"""Runs on a GPU: where one is seen they are judged on it, elsewhere it is said why not."""

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.urls import reverse

from benchmarks import report as reports
from teams import devices
from teams.models import Run
from teams.supervisor.loop import Supervisor
from tests.teams.conftest import files_agree


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Put an `nvidia-smi` that answers so on the path, in place of the machine's own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def put(text, status=0):
        (folder / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {status}\n")
        (folder / "nvidia-smi").chmod(0o755)

    return put


H200 = "GPU 0: NVIDIA H200 (UUID: GPU-5c1a)\nGPU 1: NVIDIA H200 (UUID: GPU-77aa)\n  MIG 1g.18gb Device 0: (UUID: M)"


def test_gpus_are_those_that_the_driver_lists(smi):
    smi(H200)
    assert devices.gpus() == ("NVIDIA H200", "NVIDIA H200")
    assert devices.why_not("cuda") == devices.why_not("cpu") == ""


@pytest.mark.parametrize("answer", [("NVIDIA-SMI has failed because it could not reach the driver", 9), ("", 0)])
def test_a_driver_that_lists_none_is_asked_again_the_next_time(smi, answer):
    smi(*answer)
    assert devices.why_not("cuda") == "no NVIDIA GPU is seen here (nvidia-smi lists none)"
    smi(H200)
    assert devices.why_not("cuda") == ""


@pytest.fixture
def no_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


def test_without_a_gpu_a_run_on_it_is_refused_in_one_line(db, home, no_gpu):
    said = "device: cuda cannot be used: no NVIDIA GPU is seen here (there is no nvidia-smi)"
    with pytest.raises(CommandError) as problem:
        call_command("run", "mla_paged_decode", "--device", "cuda")
    assert str(problem.value) == said
    with pytest.raises(CommandError, match="device: 'tpu' is not one of cpu, cuda"):
        call_command("run", "mla_paged_decode", "--device", "tpu")
    assert not Run.objects.exists()


FORM = {"task": "mla_paged_decode", "strategy": "single", "agents": "builtin", "candidates": "3", "seed": "1"}


def test_the_form_offers_the_gpu_where_there_is_one_and_says_why_not_elsewhere(client, db, home, no_gpu, monkeypatch):
    client.force_login(User.objects.create(username="ada"))
    page = client.get(reverse("new_run")).content.decode()
    assert '<option value="cuda" disabled>' in page
    assert "no NVIDIA GPU is seen here" in page
    refused = client.post(reverse("new_run"), {**FORM, "device": "cuda"})
    assert refused.status_code == 400
    assert "device: cuda cannot be used" in refused.content.decode()
    assert not Run.objects.exists()

    monkeypatch.setattr(devices, "gpus", lambda: ("NVIDIA H200",))
    page = client.get(reverse("new_run")).content.decode()
    assert '<option value="cuda">cuda: NVIDIA H200</option>' in page
    assert "cannot be chosen" not in page
    client.post(reverse("new_run"), {**FORM, "device": "cuda"})
    assert Run.objects.get().device == "cuda"


def test_a_run_on_a_gpu_is_judged_there_and_its_page_speaks_of_its_scopes_and_clock(new, judge, client, monkeypatch):
    monkeypatch.setattr(devices, "gpus", lambda: ("NVIDIA H200",))
    asked = []

    def make(task, device, on_answer):
        asked.append((task, device))
        return judge

    supervisor, run = Supervisor(make), new(device="cuda", strategy="single", candidates=2)
    while not run.has_ended:
        supervisor.advance(run)
        run.refresh_from_db()
    assert asked == [("mla_paged_decode", "cuda")]
    assert run.state == "done"
    assert set(run.best.scopes) == set(reports.SCOPES)
    assert (run.best.rows.count(), run.best.main_rows().count()) == (3 * 47, 47)
    assert run.best.geomean == run.best.scopes["run_only"]["geomean"] > run.best.scopes["plan_and_run"]["geomean"]
    files_agree(run)

    client.force_login(User.objects.create(username="ada"))
    page = client.get(reverse("run", args=[run.pk])).content.decode()
    assert page.count("<tr data-workload=") == 47
    assert "plan_and_run" in page
    assert "time on the device with cold caches" in page
    assert "flashinfer_fa2" in page
    assert "CPU time" not in page
