"""The background consumer on the channel `supervisor`: a message only wakes the loop.

Messages wait behind a busy handler, are lost when a worker dies and dropped when there are too many; so they carry
nothing, and the loop looks at the rows every second anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from asgiref.sync import async_to_sync
from channels.consumer import AsyncConsumer
from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer, get_channel_layer
from channels.worker import Worker

from teams.supervisor.loop import Supervisor

log = logging.getLogger(__name__)
CHANNEL = "supervisor"
supervisor = Supervisor()
"""The one of this process; it does nothing until it is started."""


class SupervisorConsumer(AsyncConsumer):
    """Starts the loop at the first message and wakes it at each."""

    async def wake(self, _: dict[str, Any]) -> None:
        """There may be something to do."""
        supervisor.start()
        supervisor.wake()


def wake_supervisor() -> None:
    """Say that there may be something to do; to nobody, if nobody listens."""
    try:
        async_to_sync(_layer().send)(CHANNEL, {"type": "wake"})
    except (ChannelFull, OSError):
        log.debug("nobody to wake; the loop looks by itself")


def _layer() -> BaseChannelLayer:
    layer = get_channel_layer()
    assert layer is not None, "CHANNEL_LAYERS has a default"
    return layer


@asynccontextmanager
async def working() -> AsyncIterator[None]:
    """Within this, a worker of this process listens on the channel and the loop runs."""
    from teams.asgi import application  # noqa: PLC0415

    layer = _layer()
    worker = Worker(application=application, channels=[CHANNEL], channel_layer=layer)
    task: asyncio.Future[None] = asyncio.ensure_future(worker.arun())  # type: ignore[no-untyped-call]
    await layer.send(CHANNEL, {"type": "wake"})
    try:
        yield
    finally:
        task.cancel()
        await asyncio.to_thread(supervisor.stop)
