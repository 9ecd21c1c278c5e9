"""A report that was measured elsewhere becomes a run that is shown like any other, marked imported."""

import csv
import io
import json
from functools import cache

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from benchmarks.report import SCOPES
from kernels.task import BadInputError
from teams import importing, workspace
from teams.models import Candidate, Event, Import, Report, Run, WorkloadResult
from tests.processes import ROOT
from tests.teams.conftest import cuda_report, files_agree

COMMITTED = ROOT / "benchmarks/results/intel-f6m207-1thread-mla_paged_decode-c_blocked.json"
TABLES = (Run, Import, Candidate, Report, WorkloadResult, Event)


@cache
def on_a_gpu(verified=True):
    return json.dumps(cuda_report(verified).to_json()).encode()


def imported(content, **more):
    return importing.import_report(content, "r.json", actor="ada", **more)


def run_of(content, **more):
    run, new = imported(content, **more)
    assert new
    run.refresh_from_db()
    return run


def counts():
    return [model.objects.count() for model in TABLES]


@pytest.fixture
def visitor(client, db):
    client.force_login(User.objects.create(username="ada"))
    return client


@pytest.fixture
def example():
    return json.loads(COMMITTED.read_text())


def test_a_committed_report_becomes_a_run_with_the_figures_of_its_rounds(db, home, example):
    said = example["summary"]["scopes"]["run_only"]
    run = run_of(COMMITTED.read_bytes(), name="  first   pass ")
    assert (run.state, run.strategy, run.device, run.language) == ("imported", "", "cpu", "c")
    assert (run.origin.name, run.origin.file_name, run.origin.actor) == ("first pass", "r.json", "ada")
    best = run.best
    assert (best.wins, best.verified, best.workloads) == (said["wins"], True, 47)
    assert best.geomean == pytest.approx(said["geomean"])
    assert [best.interval_lo, best.interval_hi] == pytest.approx(said["interval_95"])
    assert best.conditions == example["conditions"]
    stored = {row.workload: row.speedup for row in best.rows.all()}
    assert stored == {row["workload"]: row["scopes"]["run_only"]["speedup"] for row in example["rows"]}
    assert workspace.imported_file(run).read_bytes() == COMMITTED.read_bytes()
    files_agree(run)
    workspace.imported_file(run).write_text("{}")
    assert workspace.disagreements(run) == ["imported.json is missing or has another hash"]


def test_nobody_carries_an_imported_run_on(db, home, supervisor, judge):
    run = run_of(COMMITTED.read_bytes())
    assert run.has_ended
    assert not supervisor.advance_all()
    assert judge.asked == []


def test_the_same_file_again_changes_nothing_whatever_it_is_called(db, home):
    run = run_of(COMMITTED.read_bytes())
    before = counts()
    again, new = imported(COMMITTED.read_bytes(), name="other name")
    assert (again, new) == (run, False)
    assert counts() == before


def test_each_scope_of_a_report_has_its_rows_and_figures(db, home):
    said = json.loads(on_a_gpu())["summary"]["scopes"]
    run = run_of(on_a_gpu())
    assert (run.device, run.language) == ("cuda", "triton")
    assert run.best.geomean == said["run_only"]["geomean"]
    assert set(run.best.scopes) == set(SCOPES)
    for scope in SCOPES:
        assert run.best.scopes[scope]["geomean"] == said[scope]["geomean"]
        assert run.best.rows.filter(scope=scope).count() == 47
    assert [row.scope for row in run.best.main_rows()] == ["run_only"] * 47


def damaged(change):
    def apply(data):
        change(data)
        return json.dumps(data).encode()

    return apply


def row(number, **values):
    return damaged(lambda data: data["rows"][number].update(values))


def two_rows():
    said = cuda_report()
    said.rows = said.rows[:2]
    return json.dumps(said.to_json()).encode()


def verified_and_wrong():
    said = cuda_report()
    said.rows[0].status = "wrong_result"
    return json.dumps(said.to_json()).encode()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda _: b"", "cannot be read as JSON"),
        (lambda data: json.dumps(data).encode()[:-9], "cannot be read as JSON"),
        (lambda _: b"\xff\xfe{", "cannot be read as text"),
        (lambda _: b'"\\ud800"', "cannot be read as text"),
        (lambda _: b"[" * 50 + b"]" * 50, "holds objects more than 12 deep"),
        (lambda _: b"[" * 90000, "cannot be read as JSON"),
        (lambda _: b" " * (importing.MOST_BYTES + 1), "is larger than 2 MB"),
        (lambda _: b"[]", "report: must be an object"),
        (lambda _: b"{}", "report.protocol: must be a whole number"),
        (damaged(lambda data: data.update(protocol=2)), "protocol is 2"),
        (damaged(lambda data: data.update(task="../x")), "task: no task '../x'"),
        (damaged(lambda data: data["summary"]["scopes"]["run_only"].update(geomean=9.0)), "scopes.run_only.geomean"),
        (damaged(lambda data: data["candidate"].update(source_sha256="../../x")), "candidate.source_sha256: must be"),
        (damaged(lambda data: data["candidate"].update(language="basic")), "candidate.language: must be one of"),
        (damaged(lambda data: data["conditions"].pop("device")), "conditions.device: must be a string"),
        (damaged(lambda data: data["conditions"].update(baseline_versions={"x": "1"})), "conditions.baseline_versions"),
        (damaged(lambda data: data["conditions"].update(baseline_versions=7)), "baseline_versions: names no"),
        (row(3, workload="x" * 300), "rows[3].workload: 'xxx"),
        (row(3, tokens=10**30), "rows[3]: batch 1 with 1000000000000000000000000000000 tokens is not"),
        (row(3, status="wrong_result"), "status is passed, but the rows say failed"),
        (lambda _: two_rows(), "conditions.workloads: says all, but rows has 2 of 47"),
        (lambda _: verified_and_wrong(), "verified: is true, but the status is failed"),
    ],
)  # fmt: skip
def test_a_damaged_or_foreign_file_is_named_with_what_is_wrong_and_nothing_is_written(db, home, example, damage, said):
    before = counts()
    with pytest.raises(BadInputError, match="^r.json: ") as problem:
        imported(damage(example))
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)
    assert counts() == before
    assert not (home / "runs").exists()


def test_what_a_report_tells_besides_may_be_anything_and_breaks_no_page(db, home, example, visitor):
    example |= {"profile": {"advice": 7}, "findings": [1, {"message": "<b>odd</b>"}], "environment": {"a": [1, {}]}}
    example["candidate"]["name"] = ""
    run = run_of(json.dumps(example).encode())
    page = visitor.get(reverse("run", args=[run.pk])).content.decode()
    assert "&lt;b&gt;odd&lt;/b&gt;" in page
    assert "a kernel without a name" in page


def test_the_command_imports_says_so_the_second_time_and_ends_in_one_line_of_words(db, home, tmp_path, capsys):
    call_command("import_report", str(COMMITTED), "--name", "ours")
    call_command("import_report", str(COMMITTED))
    first, second = capsys.readouterr().out.splitlines()
    assert f"run {Run.objects.get().pk}: ours, imported from {COMMITTED}" == first
    assert "is here already, as run" in second
    assert "nothing has changed" in second
    (tmp_path / "bad.json").write_text('{"protocol": 1}')
    for path, said in ((tmp_path / "bad.json", r"bad\.json: report\."), (tmp_path / "none.json", "No such file")):
        with pytest.raises(CommandError, match=said) as problem:
            call_command("import_report", str(path))
        assert problem.value.returncode == 1
        assert "\n" not in str(problem.value)
    assert Run.objects.count() == 1


def test_show_prints_an_imported_run(db, home, capsys):
    run = run_of(on_a_gpu(), name="from afar")
    call_command("show", str(run.pk))
    told = capsys.readouterr().out
    assert "from afar" in told
    assert run.origin.sha256 in told
    assert f"{run.best.geomean:.3f}x" in told
    call_command("show")
    assert capsys.readouterr().out == f"run {run.pk} imported · from afar · {run.best.geomean:.3f}x · verified\n"
    assert sum(line.endswith("#") for line in told.splitlines()) == 47, "one line a workload, whatever its scopes"


def test_its_page_has_figures_rows_scopes_and_origin_and_nothing_to_steer(visitor, home):
    run = run_of(on_a_gpu())
    page = visitor.get(reverse("run", args=[run.pk])).content.decode()
    assert page.count("<tr data-workload=") == 47
    assert f"{run.best.geomean:.2f}×" in page
    assert "verified where it was measured" in page
    for scope in ("plan_and_run", "plan_amortised"):
        assert f"<b>{run.best.scopes[scope]['geomean']:.2f}×</b> {scope}" in page
    for told in (run.origin.sha256, "r.json", "by ada", "NVIDIA H200", "flashinfer 0.6.13", "python -m benchmarks aa"):
        assert told in page
    assert "imported</span>" in page
    for absent in ('id="controls"', 'id="team"', 'id="plot"', "plotly-basic", "Pause", "PyTorch", "CPU"):
        assert absent not in page
    stream = reverse("run_stream", args=[run.pk])
    assert stream in page


def test_a_report_that_failed_shows_how_far_it_came_and_no_mean(visitor, home):
    said = cuda_report(verified=False)
    said.rows[0].status, said.rows[0].message, said.rows[0].scopes = "wrong_result", "output[0] is 1 not 2", {}
    run = run_of(json.dumps(said.to_json()).encode())
    page = visitor.get(reverse("run", args=[run.pk])).content.decode()
    assert "wrong: 46 of 47 workloads passed" in page
    assert "output[0] is 1 not 2" in page
    assert "geometric mean of" not in page


def test_its_csv_has_a_line_for_each_workload_and_scope(visitor, home):
    run = run_of(on_a_gpu())
    lines = list(csv.DictReader(io.StringIO(visitor.get(reverse("speedups", args=[run.pk])).content.decode())))
    assert len(lines) == 3 * 47
    assert {(line["strategy"], line["device"], line["protocol"]) for line in lines} == {
        ("imported", "NVIDIA H200", "1")
    }
    stored = {(r.workload, r.scope): r.speedup for r in run.best.rows.all()}
    assert {(line["workload"], line["scope"]): float(line["speedup"]) for line in lines} == stored


def test_the_list_marks_imported_runs_and_those_that_are_not_verified_and_costs_no_more_for_many(visitor, home):
    def listed():
        with CaptureQueriesContext(connection) as captured:
            page = visitor.get(reverse("runs")).content.decode()
        return page, len(captured)

    run_of(COMMITTED.read_bytes(), name="the first")
    page, queries = listed()
    assert "the first, cpu" in page
    assert "not verified" not in page
    unverified = run_of(on_a_gpu(verified=False))
    assert unverified.best is None
    page, more_queries = listed()
    assert "not verified" in page
    assert f"{unverified.shown.geomean:.2f}×" in page
    assert page.count('<span class="state imported">') == 2
    assert more_queries == queries


def upload(content, name="up.json"):
    return {"report": SimpleUploadedFile(name, content), "name": "mine"}


def test_the_form_imports_and_says_in_itself_what_is_wrong(visitor, home):
    address = reverse("import_report")
    refused = visitor.post(address, upload(b"{}"))
    assert refused.status_code == 400
    page = refused.content.decode()
    assert "up.json: report.protocol: must be a whole number" in page
    assert 'value="mine"' in page
    assert '<details class="card import" open>' in page
    for content, said in ((b"", "up.json: cannot be read"), (b" " * (3 << 20), "up.json: is larger than 2 MB")):
        assert said in visitor.post(address, upload(content)).content.decode()
    assert "report: choose a file" in visitor.post(address, {"name": "mine"}).content.decode()
    assert "report: choose a file" in visitor.post(address, {"report": "{}"}).content.decode()
    assert not Run.objects.exists()

    done = visitor.post(address, upload(COMMITTED.read_bytes()))
    run = Run.objects.get()
    assert done["Location"] == reverse("run", args=[run.pk])
    assert (run.origin.name, run.origin.file_name, run.origin.actor) == ("mine", "up.json", "ada")
    again = visitor.post(address, upload(COMMITTED.read_bytes()), follow=True)
    assert f"This report is here already, as run {run.pk}" in again.content.decode()
    assert Run.objects.count() == 1
    assert visitor.get(address)["Location"] == reverse("runs")


def test_the_form_needs_a_login_and_its_token(db, home):
    client = Client(enforce_csrf_checks=True)
    address = reverse("import_report")
    client.force_login(User.objects.create(username="ada"))
    assert client.post(address, upload(COMMITTED.read_bytes())).status_code == 403
    stranger = Client().post(address, upload(COMMITTED.read_bytes()))
    assert stranger["Location"].startswith("/login/")
    assert not Run.objects.exists()
