"""Preparing the judge: what it needs beyond the pages (torch) is installed while the pages are served already.

What is going on stands in a file of HOME, so that pages can show it and the supervisor starts no judge before its
time. The file counts only as long as the process lives that wrote it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import IO

from django.conf import settings
from django.utils import timezone
from packaging.requirements import Requirement

from teams.models.run import Owner
from teams.supervisor.judging import bound_to_us

SIZES = {"cpu": "about 200 MB", "cuda": "several GB"}
EXTRAS = ("none", *SIZES)
NOT_WANTED = "left out as was asked (REGROUP_EXTRAS); once they are installed the judge starts by itself"
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
"""Where torch for the CPU alone lies: the usual index has, for Linux, the one that brings several GB for GPUs."""
CPU_BUILD = "+cpu"
"""How the version of torch for the CPU alone ends."""
QUIETLY = ("--no-input", "--progress-bar=off", "--disable-pip-version-check")
LOOK_SECONDS = 3.0
"""How often it is looked whether somebody has installed by hand what is missing."""


@dataclass(frozen=True)
class Preparing:
    """What is being done so that the judge can run. `failed` says why it cannot, and is empty while there is hope;
    `log` is the path of what the installer says, empty if it was not started."""

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
    return [f"{r.name}{r.specifier}" for r in map(Requirement, texts) if _is_of(r, extra) and not _is_here(r, extra)]


def notice(extra: str) -> str:
    """What a person should know before a large download; empty if there is none."""
    if extra == "none" or not missing(extra):
        return ""
    return (
        f"The judge's packages ({', '.join(missing(extra))}: {SIZES[extra]}) are downloaded while the page is served.\n"
        f"To avoid that: Ctrl-C, then REGROUP_EXTRAS=none ./start, and install by hand: {_by_hand(extra)}"
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
        _clear()


async def _prepare(extra: str, then: Callable[[], None]) -> None:
    """Install what is missing; what cannot be, or shall not, is waited for: somebody may do it by hand."""
    wanted = "cpu" if extra == "none" else extra
    while state() is not None and missing(wanted):
        await asyncio.sleep(LOOK_SECONDS)  # another process of this home is at it
    if missing(wanted):
        now = _begin(wanted)
        if extra == "none":
            now, why = replace(now, log=""), f"{NOT_WANTED}: {_by_hand(wanted)}"
        else:
            why = await _install(wanted, Path(now.log))
        while missing(wanted):
            _write(replace(now, text=f"the judge cannot run: {', '.join(missing(wanted))} missing", failed=why))
            await asyncio.sleep(LOOK_SECONDS)
    _clear()
    then()


def _begin(extra: str) -> Preparing:
    """What is going on from now on, written down."""
    log_file = settings.HOME / "logs" / "preparing.log"
    log_file.parent.mkdir(parents=True, exist_ok=True)
    log_file.write_text("")
    text = f"preparing the judge: installing {', '.join(missing(extra))} ({SIZES[extra]})"
    now = Preparing(text, timezone.now().isoformat(), "", str(log_file), str(Owner.here()))
    _write(now)
    return now


async def _install(extra: str, log_file: Path) -> str:
    """Let pip install what is missing; why it could not, if it could not."""
    wanted = missing(extra)
    steps = [wanted]
    if torch := [text for text in wanted if text.startswith("torch=")]:
        # On a CPU only torch itself from its own index; where that cannot be reached, pip goes on with the usual one.
        # On a GPU the build for a CPU may be there, which pip takes for the same version.
        how = {"cpu": ["--retries=1", f"--extra-index-url={CPU_WHEELS}"], "cuda": ["--force-reinstall"]}
        steps = [["--no-deps", *how[extra], *torch], wanted]
    with log_file.open("wb") as out:
        for arguments in steps:
            if await _pip(arguments, out):
                return _complaint(log_file)
    return ""


async def _pip(arguments: list[str], out: IO[bytes]) -> int:
    argv = [sys.executable, "-m", "pip", "install", *QUIETLY, *arguments]
    pip = await asyncio.create_subprocess_exec(
        *bound_to_us(argv), stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
    )
    try:
        return await pip.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pip.pid, signal.SIGKILL)
        await pip.wait()
        raise


def _by_hand(extra: str) -> str:
    pip = Path(sys.executable).parent / "pip"
    is_build_for_cpu = _is_here(Requirement("torch"), "cpu") and not _is_here(Requirement("torch"), extra)
    first = f"{pip} uninstall -y torch; " if is_build_for_cpu else ""
    return f"{first}{pip} install -e '.[{extra}]'"


def _complaint(log_file: Path) -> str:
    """The line that says what went wrong: pip's first error; or else what it said last."""
    errors = (line for line in log_file.read_text(errors="replace").splitlines() if line.startswith("ERROR:"))
    return next(errors, None) or _last_line(log_file)


def _is_of(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _is_here(requirement: Requirement, extra: str) -> bool:
    """Is it installed to the end (pip writes the record of a package's files last), and not a build for a CPU alone
    where a GPU is wanted?"""
    try:
        found = metadata.distribution(requirement.name)
    except metadata.PackageNotFoundError:
        return False
    if extra == "cuda" and found.version.endswith(CPU_BUILD):
        return False
    return found.read_text("RECORD") is not None and requirement.specifier.contains(found.version, prereleases=True)


def _file() -> Path:
    return settings.HOME / "preparing.json"


def _clear() -> None:
    """Nothing is going on any more, as far as this process is concerned."""
    found = state()
    if found is None or found.by == str(Owner.here()):
        _file().unlink(missing_ok=True)


def _write(what: Preparing) -> None:
    new = _file().with_suffix(".new")
    new.write_text(json.dumps(asdict(what)))
    new.replace(_file())


def _last_line(file: Path) -> str:
    lines = file.read_text(errors="replace").splitlines() if file.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
