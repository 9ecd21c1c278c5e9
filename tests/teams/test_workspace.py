"""Files of a run: whole or not at all, and the same as the rows."""

import json

import pytest
from django.core.management import CommandError, call_command

from benchmarks.candidate import Source
from teams import workspace
from tests.teams.conftest import files_agree


def test_a_run_leaves_its_teams_turns_candidates_and_records_as_plain_text(new, carry):
    run = carry(new(candidates=40))
    root = workspace.root(run)
    team = json.loads((root / "teams" / "001" / "team.json").read_text())
    assert [role["key"] for role in team["roles"]] == ["architect", "tuner"]
    turn = json.loads((root / "turns" / "0001.json").read_text())
    assert turn["role"] == "architect"
    assert turn["handover"]["candidates"] == len(turn["candidates"])
    kinds = {path.parent.name for path in (root / "records").rglob("*.md")}
    assert kinds >= {"experiments", "failures", "techniques"}
    index = (root / "INDEX.md").read_text()
    assert f"Best verified: candidate {run.best.candidate.number}" in index
    assert len(index.splitlines()) < 40
    source = workspace.source_folder(run, run.best.candidate.source_sha256)
    assert {p.name for p in source.iterdir()} == {"kernel.py", "kernel.c"}
    files_agree(run)


def test_files_that_are_lost_come_back_from_rows(new, carry):
    run = carry(new(candidates=20))
    root = workspace.root(run)
    for path in (root / "INDEX.md", root / "teams" / "001" / "team.json", next((root / "records").rglob("*.md"))):
        path.unlink()
    assert len(workspace.disagreements(run)) == 2
    workspace.write_from_rows(run)
    files_agree(run)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "kernel.c").write_text("int x;"), "another hash"),
        (lambda folder: [p.unlink() for p in folder.iterdir()] + [folder.rmdir()], "has no files"),
        (lambda folder: (folder.parent / "report.json").unlink(), "report of candidate 2 has no file"),
        (lambda folder: (folder.parents[2] / "records" / "x.md").write_text("x"), "records/x.md has no row"),
    ],
)
def test_what_differs_is_named(new, carry, spoil, said):
    run = carry(new(candidates=5))
    spoil(workspace.source_folder(run, run.candidates.get(number=2).source_sha256))
    found = workspace.disagreements(run)
    assert len(found) == 1
    assert said in found[0]


def test_a_source_is_stored_once_and_a_half_written_one_never_stands_under_its_hash(new):
    run, source = new(), Source("x", {"kernel.py": b"a", "inner/more.c": b"b"})
    workspace.put_source(run, source)
    folder = workspace.source_folder(run, source.sha256)
    before = folder.stat().st_ino
    workspace.put_source(run, source)
    assert folder.stat().st_ino == before
    assert (folder / "inner" / "more.c").read_bytes() == b"b"
    assert [p.name for p in folder.parent.iterdir()] == ["source"]


def test_check_workspace_names_what_differs_and_repairs_what_rows_hold(new, carry, capsys):
    run = carry(new(candidates=8))
    root, source = workspace.root(run), workspace.source_folder(run, run.candidates.get(number=2).source_sha256)
    call_command("check_workspace", run.pk)
    assert capsys.readouterr().out == f"run {run.pk}: files and rows agree\n"
    (root / "teams" / "001" / "team.json").write_bytes(b"\xff")
    (root / "records" / "mine.md").write_text("a stranger's")
    (source / "kernel.c").write_text("int x;")
    with pytest.raises(CommandError, match="another hash") as error:
        call_command("check_workspace", run.pk)
    assert len(str(error.value).splitlines()) == 3
    call_command("check_workspace", run.pk, "--repair")
    assert "files and rows agree" in capsys.readouterr().out
    assert (root / "strangers" / "records" / "mine.md").read_text() == "a stranger's", "nothing is lost"
    files_agree(run)


def test_check_workspace_says_what_cannot_be_made_again(new, carry):
    run = carry(new(candidates=3))
    (workspace.source_folder(run, run.candidates.get(number=2).source_sha256).parent / "report.json").unlink()
    with pytest.raises(CommandError, match="report of candidate 2 has no file"):
        call_command("check_workspace", run.pk, "--repair")
    with pytest.raises(CommandError, match="there is no run 77"):
        call_command("check_workspace", 77)
