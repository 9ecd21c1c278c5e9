"""Live pages: a stream of server-sent events that carries regions as they are, drawn from rows.

Each message holds the regions whose HTML differs from what this connection was last sent, as fragments that take the
place of the elements with their ids; its event id is the version it shows. Whoever connects gets a snapshot, unless the
page was drawn at the very version that stands now: so a reload, a dropped connection or a restart of the server neither
loses nor repeats anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from asgiref.sync import sync_to_async
from django.http import HttpRequest, StreamingHttpResponse

POLL_SECONDS = 0.5
KEEP_ALIVE_SECONDS = 15.0
RETRY_MS = 1000
"""After this long a browser connects again."""

Version = Callable[[], str]
Snapshot = Callable[[], Mapping[str, str]]


def stream(request: HttpRequest, version: Version, snapshot: Snapshot) -> StreamingHttpResponse:
    """The response; `version` is a cheap look at the rows, `snapshot` the regions' HTML by name."""
    known = request.headers.get("Last-Event-ID") or request.GET.get("since", "")
    response = StreamingHttpResponse(_messages(known, version, snapshot), content_type="text/event-stream")
    response["Cache-Control"] = "no-cache"
    response["X-Accel-Buffering"] = "no"  # nginx would wait for more
    return response


async def _messages(known: str, version: Version, snapshot: Snapshot) -> AsyncIterator[str]:
    look, draw = sync_to_async(version), sync_to_async(snapshot)
    sent: Mapping[str, str] = {}
    silent = 0.0
    yield f"retry: {RETRY_MS}\n\n"
    while True:
        now = await look()
        if now != known:
            regions = await draw()
            changed = [html for name, html in regions.items() if sent.get(name) != html]
            known, sent, silent = now, regions, 0.0
            if changed:
                yield message(now, "".join(changed))
        elif silent >= KEEP_ALIVE_SECONDS:
            silent = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(POLL_SECONDS)
        silent += POLL_SECONDS


def message(version: str, html: str) -> str:
    """One server-sent event."""
    lines = "".join(f"data: {line}\n" for line in html.splitlines())
    return f"id: {version}\nevent: regions\n{lines}\n"
