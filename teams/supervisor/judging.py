"""The judge as a process of its own: asked through its standard input, answered by files.

Requests and answers are lines of JSON (see benchmarks/serve.py). What counts is the report's file: an answer only
wakes the supervisor. The process dies with the one that started it, whichever way that ends.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from django.conf import settings

log = logging.getLogger(__name__)
QUEUE = 2
"""Requests that the process holds at a time, so that it need not wait for us between two."""


def bound_to_us(argv: list[str]) -> list[str]:
    """The command, started so that it dies with the thread that starts it (where the machine has setpriv)."""
    setpriv = shutil.which("setpriv")
    return argv if setpriv is None else [setpriv, "--pdeathsig", "KILL", *argv]


class JudgeProcess:
    """A warm judge of one task on one device. `on_answer` is called from another thread whenever it says something."""

    def __init__(self, task: str, device: str, on_answer: Callable[[], None]) -> None:
        self.task, self.device = task, device
        self.progress: dict[int, str] = {}
        self.errors: dict[int, str] = {}
        self._on_answer = on_answer
        self._asked: set[int] = set()
        self._lock = threading.Lock()
        argv = bound_to_us([sys.executable, "-m", "benchmarks", "serve", task, "--device", device])
        log_file = settings.HOME / "logs" / f"judge-{task}-{device}.log"
        log_file.parent.mkdir(parents=True, exist_ok=True)
        self._log = log_file.open("ab")
        self.log_file = log_file
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "REGROUP_HOME": str(settings.HOME)},
            start_new_session=True,
            text=True,
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    @property
    def alive(self) -> bool:
        """Is the process there?"""
        return self._process.poll() is None

    @property
    def has_room(self) -> bool:
        """Would a request be taken without waiting behind many others?"""
        with self._lock:
            return len(self._asked) < QUEUE

    def holds(self, request: int) -> bool:
        """Has this request been asked and not been answered?"""
        with self._lock:
            return request in self._asked

    def ask(self, request: int, message: dict[str, Any]) -> None:
        """Send a request; if the process has just died it is simply not answered."""
        with self._lock:
            self._asked.add(request)
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": request, **message}) + "\n")
            self._process.stdin.flush()
        except OSError:
            log.warning("the judge of %s on %s has ended", self.task, self.device)

    def close(self) -> None:
        """End the process and the candidates that it hosts (their sandboxes die with it)."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _listen(self, answers: IO[str]) -> None:
        for line in answers:
            try:
                answer = json.loads(line)
            except ValueError:
                log.warning("the judge said %r", line[:200])
                continue
            self._take(answer)
            self._on_answer()
        with self._lock:
            self._asked.clear()
        self._on_answer()

    def _take(self, answer: dict[str, Any]) -> None:
        request = answer.get("id")
        if not isinstance(request, int):
            return
        with self._lock:
            if "progress" in answer:
                self.progress[request] = str(answer["progress"])
                return
            if "error" in answer:
                self.errors[request] = str(answer["error"])
            self.progress.pop(request, None)
            self._asked.discard(request)
