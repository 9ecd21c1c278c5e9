"""Carry a run on from a terminal, and show how it goes."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from asgiref.sync import sync_to_async

from teams import outline
from teams.models import Run
from teams.supervisor.consumer import working

POLL_SECONDS = 1.0
LOG_SECONDS = 15.0
"""Where the output is no terminal, a line at most this often."""


async def watch(number: int, out: Any, head: str = "") -> None:
    """Carry the run on (or see who does) and show a line, after `head`, until it has ended."""
    shown = Line(out)
    async with working():
        while True:
            run = await sync_to_async(Run.objects.select_related("team", "best", "origin").get)(pk=number)
            shown.show(head + await sync_to_async(outline.progress_line)(run))
            if run.has_ended:
                break
            await asyncio.sleep(POLL_SECONDS)
    shown.end()


class Line:
    """A line that replaces itself on a terminal, and elsewhere is written when it has changed, now and then."""

    def __init__(self, out: Any) -> None:
        self._out, self._last, self._at = out, "", 0.0
        self._live = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Show the text if it is new and due."""
        if text == self._last or (not self._live and time.monotonic() - self._at < LOG_SECONDS):
            return
        self._last, self._at = text, time.monotonic()
        self._out.write(f"\r\033[K{text}" if self._live else text, ending="" if self._live else "\n")
        self._out.flush()

    def end(self) -> None:
        """Leave the line."""
        if self._live:
            self._out.write("")
