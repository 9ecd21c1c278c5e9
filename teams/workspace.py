"""The shared file system of a run: what teams leave for later ones to read, as plain text.

    RUN/INDEX.md                         where the work stands, in a page
    RUN/teams/NNN/team.json              a team as it was installed
    RUN/turns/NNNN.json                  brief and hand-over of a turn
    RUN/candidates/HASH/source/          the files of a candidate
    RUN/candidates/HASH/report.json      the judge's first verdict
    RUN/candidates/HASH/verified.json    its second measurement
    RUN/records/{experiments,failures,techniques,questions}/NNNN.md
    RUN/imported.json                    instead of all this, in a run that was imported: the report, as it came

Every file appears whole or not at all. Sources and reports are there before the rows that speak of them; the other
files are written from rows, so `write_from_rows` can make them anew at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings

from benchmarks.candidate import Source
from kernels.task import load_task

if TYPE_CHECKING:
    from teams.models import Candidate, Record, Report, Run, Team, Turn

FOLDERS = {"experiment": "experiments", "failure": "failures", "technique": "techniques", "question": "questions"}
RECENT = 12
"""Records that the index names."""


def root(run: Run) -> Path:
    """The folder of a run."""
    return Path(settings.HOME) / "runs" / f"{run.pk:06d}"


def source_folder(run: Run, source_sha256: str) -> Path:
    """Where the files of a candidate lie."""
    return root(run) / "candidates" / source_sha256 / "source"


def report_file(report: Report) -> Path:
    """Where the judge writes this report."""
    name = "verified.json" if report.is_verification else "report.json"
    return root(report.run) / "candidates" / report.candidate.source_sha256 / name


def imported_file(run: Run) -> Path:
    """Where the report lies that an imported run was made from."""
    return root(run) / "imported.json"


def put_source(run: Run, source: Source) -> None:
    """Store a candidate's files under their hash; once they are there nothing changes them."""
    target = source_folder(run, source.sha256)
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix="part-", dir=target.parent))
    for name, content in source.files.items():
        (part / name).parent.mkdir(parents=True, exist_ok=True)
        (part / name).write_bytes(content)
    part.chmod(0o755)
    try:
        part.rename(target)
    except OSError:
        shutil.rmtree(part)  # somebody else was first, with the same files
        if not target.is_dir():
            raise


def put_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(prefix=".part-", dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(part).chmod(0o644)
    Path(part).replace(path)


def write_from_rows(run: Run) -> None:
    """Write what is missing of teams, turns, records and the index."""
    for team in run.teams.all():
        _once(root(run) / "teams" / f"{team.number:03d}" / "team.json", lambda team=team: _team(team))
    for turn in run.turns.filter(ended_at__isnull=False).select_related("team", "role"):
        _once(root(run) / "turns" / f"{turn.number:04d}.json", lambda turn=turn: _turn(turn))
    for record in run.records.all():
        _put_if_new(record_file(record), _record(record))
    _put_if_new(root(run) / "INDEX.md", _index(run))


def record_file(record: Record) -> Path:
    """Where a record's text lies."""
    return root(record.run) / "records" / FOLDERS[record.kind] / f"{record.number:04d}.md"


def disagreements(run: Run) -> list[str]:
    """Where files and rows differ, in words; empty when they agree."""
    if run.is_imported:
        file = imported_file(run)
        same = file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == run.origin.sha256
        return [] if same else [f"{file.name} is missing or has another hash"]
    found = [d for candidate in run.candidates.all() for d in _candidate_disagreements(candidate)]
    expected = _expected(run)
    for path, text in expected.items():
        if not _holds(path, text):
            found.append(f"{path.relative_to(root(run))} is missing or differs from its row")
    return found + [f"{p.relative_to(root(run))} has no row" for p in _strangers(run, expected)]


def repair(run: Run) -> list[str]:
    """Make files agree with rows where rows suffice, and say what was done: texts are written again, programs that
    moves describe rendered again, and what has no row moved to `strangers/`. Reports cannot be made again."""
    done, expected = [], _expected(run)
    for path, text in expected.items():
        if not _holds(path, text):
            put_text(path, text)
            done.append(f"wrote {path.relative_to(root(run))}")
    for path in _strangers(run, expected):
        aside = root(run) / "strangers" / path.relative_to(root(run))
        aside.parent.mkdir(parents=True, exist_ok=True)
        path.replace(aside)
        done.append(f"moved {path.relative_to(root(run))} to {aside.relative_to(root(run))}")
    for candidate in run.candidates.all():
        if _candidate_disagreements(candidate) and (source := _rendered(candidate)) is not None:
            folder = source_folder(run, source.sha256)
            if folder.is_dir() and _hash_of(folder) != source.sha256:
                shutil.rmtree(folder)
            if not folder.is_dir():
                put_source(run, source)
                done.append(f"wrote the files of candidate {candidate.number} from its moves")
    return done


def _expected(run: Run) -> dict[Path, str]:
    """The texts that rows make, by file."""
    expected = {record_file(r): _record(r) for r in run.records.all()}
    expected |= {root(run) / "teams" / f"{t.number:03d}" / "team.json": _team(t) for t in run.teams.all()}
    ended = run.turns.filter(ended_at__isnull=False)
    return expected | {root(run) / "turns" / f"{t.number:04d}.json": _turn(t) for t in ended}


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _strangers(run: Run, expected: Mapping[Path, str]) -> list[Path]:
    here = {p for name in ("records", "teams", "turns") for p in (root(run) / name).rglob("*") if p.is_file()}
    return sorted(here - expected.keys())


def _rendered(candidate: Candidate) -> Source | None:
    """A candidate's program from its moves, if it comes out as it was."""
    if not candidate.design:
        return None
    space = load_task(candidate.run.task).space(candidate.run.language)
    source = Source("candidate", space.render(candidate.design))
    return source if source.sha256 == candidate.source_sha256 else None


def _hash_of(folder: Path) -> str:
    return Source(
        "", {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    ).sha256


def _candidate_disagreements(candidate: Candidate) -> list[str]:
    folder = source_folder(candidate.run, candidate.source_sha256)
    name = f"candidate {candidate.number}"
    if not folder.is_dir():
        return [f"{name} has no files"]
    found = [] if _hash_of(folder) == candidate.source_sha256 else [f"the files of {name} have another hash"]
    for report in candidate.reports.filter(state="done"):
        if not report_file(report).is_file():
            found.append(f"the report of {name} has no file")
    return found


def _once(path: Path, text: Any) -> None:
    if not path.is_file():
        put_text(path, text())


def _put_if_new(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        put_text(path, text)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def _team(team: Team) -> str:
    return _json({"team": team.number, "decided_by": team.decided_by, **team.design().to_json()})


def _turn(turn: Turn) -> str:
    return _json(
        {
            "turn": turn.number,
            "team": turn.team.number,
            "role": turn.role.key,
            "state": turn.state,
            "brief": turn.brief,
            "handover": turn.handover,
            "candidates": list(turn.candidates.values_list("number", flat=True)),
        }
    )


def _record(record: Record) -> str:
    evidence = ", ".join(f"report {pk}" for pk in record.evidence) or "none"
    return f"# {record.title}\n\n{record.state} · by {record.author} · evidence: {evidence}\n\n{record.body}\n"


def _index(run: Run) -> str:
    lines = [f"# {run}", "", f"State: {run.state} {run.state_reason}".rstrip()]
    if run.best is not None:
        lines.append(f"Best verified: candidate {run.best.candidate.number}, {run.best.geomean:.3f}x the baseline.")
    if run.team is not None:
        lines.append(f"Team {run.team.number}: " + ", ".join(role.title for role in run.team.roles.all()))
    lines += ["", "## Latest records", ""]
    for record in run.records.order_by("-number")[:RECENT]:
        lines.append(f"- [{record.title}]({record_file(record).relative_to(root(run))}) ({record.kind})")
    return "\n".join(lines) + "\n"
