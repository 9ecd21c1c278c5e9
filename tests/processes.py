"""The real commands as child processes, and what they leave behind."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def environment(home):
    """The environment of a command whose data lie in `home`."""
    return {**os.environ, "REGROUP_HOME": str(home), "REGROUP_SECRET": "x" * 50}


def manage(home, *arguments, **more):
    return subprocess.Popen(
        [sys.executable, "manage.py", *map(str, arguments)], cwd=ROOT, env=environment(home), text=True, **more
    )


def calibrate(home):
    """Give a new home this machine's calibration, if there is one: it takes half a minute."""
    calibration = Path(os.environ.get("REGROUP_HOME") or ROOT / "var") / "calibration"
    (home / "calibration").mkdir()
    for file in calibration.glob("*.json") if calibration.is_dir() else ():
        (home / "calibration" / file.name).write_bytes(file.read_bytes())


def rows(home, query):
    with sqlite3.connect(home / "regroup.sqlite3", timeout=20) as database:
        return database.execute(query).fetchall()


def judges_of(home):
    """Process ids of the judges that belong to this home."""
    return [pid for pid, argv in _processes_of(home) if b"benchmarks\0serve" in argv]


def processes_of(home):
    """Process ids of everything that was started with this home, ourselves apart."""
    return [pid for pid, _ in _processes_of(home) if pid != str(os.getpid())]


def family(pid):
    """Process ids of a process's children, theirs, and so on."""
    try:
        children = [c for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]
    except OSError:
        return []
    return [*children, *(grandchild for child in children for grandchild in family(child))]


def _processes_of(home):
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            argv, variables = ((process / name).read_bytes() for name in ("cmdline", "environ"))
        except OSError:
            continue
        if f"REGROUP_HOME={home}".encode() in variables.split(b"\0"):
            found.append((process.name, argv))
    return found
