"""Preparing the judge: what it needs beyond the pages (torch) is installed while the pages are served already.

What is going on stands in a file of HOME, so that pages can show it and the supervisor starts no judge before its
time. The file counts only as long as the process lives that wrote it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path

from django.conf import settings
from django.utils import timezone
from packaging.requirements import Requirement

from teams.models.run import Owner
from teams.supervisor.judging import bound_to_us

log = logging.getLogger(__name__)
SIZES = {"cpu": "about 200 MB", "cuda": "several GB"}
EXTRAS = ("none", *SIZES)
LOOK_SECONDS = 3.0
"""How often it is looked whether somebody has installed by hand what is missing."""


@dataclass(frozen=True)
class Preparing:
    """What is being done so that the judge can run. `failed` says why it cannot; empty while there is hope."""

    text: str
    started: str
    failed: str
    log: str
    by: str

    @property
    def started_at(self) -> datetime:
        """When it began."""
        return datetime.fromisoformat(self.started)

    @property
    def last_line(self) -> str:
        """What the installer said last."""
        return _last_line(Path(self.log))


def state() -> Preparing | None:
    """What is going on; None when the judge can run, or when nobody is known to prepare it."""
    try:
        found = Preparing(**json.loads(_file().read_text()))
    except (OSError, ValueError, TypeError):
        return None
    owner = Owner.parse(found.by)
    return None if owner is None or owner.is_dead else found


def missing(extra: str) -> list[str]:
    """The extra's requirements that are not installed, or not wholly, as pip understands them."""
    importlib.invalidate_caches()
    texts = metadata.requires("regroup") or []
    return [f"{r.name}{r.specifier}" for r in map(Requirement, texts) if _is_of(r, extra) and not _is_here(r)]


def notice(extra: str) -> str:
    """What a person should know before a large download; empty if there is none."""
    if extra == "none" or not missing(extra):
        return ""
    return (
        f"The judge's packages ({', '.join(missing(extra))}: {SIZES[extra]}) are downloaded while the page is served.\n"
        "To avoid that: Ctrl-C, then REGROUP_EXTRAS=none ./start, and install by hand: "
        f"{Path(sys.executable).parent / 'pip'} install -e '.[{extra}]'"
    )


@contextlib.asynccontextmanager
async def judge(extra: str, *, then: Callable[[], None]) -> AsyncIterator[None]:
    """Within this, the judge is prepared beside whatever else is done; `then` is called when it can run."""
    task = asyncio.create_task(_prepare(extra, then))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        _file().unlink(missing_ok=True)


async def _prepare(extra: str, then: Callable[[], None]) -> None:
    wanted = "cpu" if extra == "none" else extra
    if missing(wanted):
        log_file = settings.HOME / "logs" / "preparing.log"
        log_file.parent.mkdir(parents=True, exist_ok=True)
        begun = Preparing(
            f"preparing the judge: installing {', '.join(missing(wanted))} ({SIZES[wanted]})",
            timezone.now().isoformat(), "", str(log_file), str(Owner.here()),
        )  # fmt: skip
        _write(begun)
        why = "is not installed" if extra == "none" else await _install(missing(wanted), log_file)
        while missing(wanted):
            _write(Preparing(**{**asdict(begun), "text": "the judge cannot run", "failed": f"{why}"}))
            await asyncio.sleep(LOOK_SECONDS)
    _file().unlink(missing_ok=True)
    then()


async def _install(requirements: list[str], log_file: Path) -> str:
    """Let pip install them; why it could not, if it could not."""
    argv = [sys.executable, "-m", "pip", "install", "--no-input", "--progress-bar=off", *requirements]
    with log_file.open("wb") as out:
        pip = await asyncio.create_subprocess_exec(
            *bound_to_us(argv), stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        try:
            code = await pip.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pip.pid, signal.SIGKILL)
            await pip.wait()
            raise
    log.info("pip ended with %d; see %s", code, log_file)
    return "" if code == 0 else f"{_last_line(log_file)} (see {log_file})"


def _is_of(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _is_here(requirement: Requirement) -> bool:
    """Is it installed to the end? pip writes the record of a package's files last."""
    try:
        found = metadata.distribution(requirement.name)
    except metadata.PackageNotFoundError:
        return False
    return found.read_text("RECORD") is not None and requirement.specifier.contains(found.version, prereleases=True)


def _file() -> Path:
    return settings.HOME / "preparing.json"


def _write(what: Preparing) -> None:
    new = _file().with_suffix(".new")
    new.write_text(json.dumps(asdict(what)))
    new.replace(_file())


def _last_line(file: Path) -> str:
    lines = file.read_text(errors="replace").splitlines() if file.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
