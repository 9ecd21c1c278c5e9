"""A report that was measured elsewhere becomes a run of its own: shown like any other, and marked imported.

The judge's reader believes no file: it computes the means anew from the rounds. Here it is besides made sure that the
report is about a task and workloads that are known, so that pages can show it beside others.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, get_args

from django.db import transaction
from django.utils import timezone

from benchmarks import fields
from benchmarks import report as reports
from benchmarks.candidate import Language
from kernels.task import BadInputError, Task, load_task
from teams import reported, workspace
from teams.devices import DEVICES
from teams.models import Import, Report, Run, WorkloadResult

MOST_BYTES = 2 << 20
"""A report of 47 workloads has about 30 kB on a CPU and 200 kB on a GPU."""
MOST_DEPTH = 12
"""Objects within objects; a report has 5."""
NAME_CHARACTERS = 100


def import_report(content: bytes, file_name: str, *, actor: str, name: str = "") -> tuple[Run, bool]:
    """The run of this file, and whether it was made now: a file that is there already changes nothing.

    `name` is what people will call it (the candidate's name, if nothing is said). A file that will not do is a
    `BadInputError` that names it and the field; then nothing is written.
    """
    name = " ".join(name.split())
    if len(name) > NAME_CHARACTERS:
        raise BadInputError(f"name: at most {NAME_CHARACTERS} characters, not {len(name)}")
    sha256 = hashlib.sha256(content).hexdigest()
    if (known := _known(sha256)) is not None:
        return known, False
    data = _read(content, file_name)
    try:
        found = reports.parse(data)
        task = _task(found)
        device = _device(task, found)
        _check(task, device, found)
    except BadInputError as error:
        raise BadInputError(f"{file_name}: {error}") from None
    with transaction.atomic():
        if (known := _known(sha256)) is not None:  # somebody was faster
            return known, False
        run = _store(task, device, found)
        run.origin = Import.objects.create(
            run=run,
            name=name or run.candidates.get().title,
            file_name=Path(file_name).name.encode(errors="replace").decode()[:255],
            sha256=sha256,
            actor=actor,
            report={key: value for key, value in data.items() if key != "rows"},
        )
        run.record("imported", file=run.origin.file_name, actor=actor)
        workspace.put_text(workspace.imported_file(run), content.decode())
    return run, True


def _known(sha256: str) -> Run | None:
    return Run.objects.filter(origin__sha256=sha256).select_related("origin").first()


def _read(content: bytes, file_name: str) -> Any:
    """The JSON value in a file; `BadInputError` if there is none, or if it holds what a database cannot."""
    if len(content) > MOST_BYTES:
        raise BadInputError(f"{file_name}: is larger than {MOST_BYTES >> 20} MB, which no report is")
    try:
        data = fields.loads(content.decode(), file_name)
        if _is_deeper(data, MOST_DEPTH):
            raise BadInputError(f"{file_name}: holds objects more than {MOST_DEPTH} deep")
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise BadInputError(f"{file_name}: cannot be read as text: {error}") from None
    return data


def _is_deeper(value: Any, most: int) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(most == 0 or _is_deeper(child, most - 1) for child in children)


def _task(found: reports.Report) -> Task:
    try:
        return load_task(found.task)
    except BadInputError as error:
        raise BadInputError(f"task: {error}") from None


def _device(task: Task, found: reports.Report) -> str:
    """The kind of device, which a report does not name, by the baselines that there are on it."""
    versions = found.conditions.get("baseline_versions")
    named = set(versions) if isinstance(versions, dict) else set()
    device = next((device for device in DEVICES if named & set(task.baselines(device))), None)
    if device is None:
        raise BadInputError(f"conditions.baseline_versions: names no baseline of {task.name}")
    return device


def _check(task: Task, device: str, found: reports.Report) -> None:
    """What the reader leaves open, since the judge's own reports need it not."""
    candidate, conditions = fields.Fields(found.candidate, "candidate"), fields.Fields(found.conditions, "conditions")
    if not re.fullmatch(r"([0-9a-f]{64})?", candidate.get("source_sha256", str)):
        raise BadInputError("candidate.source_sha256: must be a hash of 64 digits, or empty for the baseline itself")
    candidate.one_of("language", get_args(Language))
    conditions.get("device", str)
    if found.verified and found.status != "passed":
        raise BadInputError(f"verified: is true, but the status is {found.status}")
    workloads = {w.id: w for w in task.workloads(device)}
    for i, row in enumerate(found.rows):
        known = workloads.get(row.workload)
        if known is None:
            raise BadInputError(f"rows[{i}].workload: {row.workload[:60]!r} is no workload of {task.name}")
        if (row.batch_size, row.tokens) != (known.batch_size, known.tokens):
            raise BadInputError(
                f"rows[{i}]: batch {row.batch_size} with {row.tokens} tokens is not workload {row.workload}, "
                f"which is batch {known.batch_size} with {known.tokens}"
            )
    if conditions.data.get("workloads") == "all" and len(found.rows) != len(workloads):
        raise BadInputError(f"conditions.workloads: says all, but rows has {len(found.rows)} of {len(workloads)}")


def _store(task: Task, device: str, found: reports.Report) -> Run:
    """Rows like those of a run that was carried on here: one candidate, one verdict."""
    language = found.candidate["language"]
    run = Run.objects.create(
        task=task.name, strategy="", agents="", device=device, language=language, seed=0, state=Run.State.IMPORTED
    )
    candidate = run.candidates.create(
        number=1,
        source_sha256=found.candidate["source_sha256"],
        title=found.candidate["name"][:NAME_CHARACTERS] or "a kernel without a name",
        language=language,
    )
    report = run.reports.create(
        candidate=candidate,
        state=Report.State.DONE,
        given_at=timezone.now(),
        at_candidate=1,
        **reported.figures(task, found),
    )
    WorkloadResult.objects.bulk_create(reported.rows(report, found))
    if report.verified and report.geomean is not None:
        run.best = report
        run.save(update_fields=["best"])
    return run
