"""The pages and the supervisor, in one process:

python manage.py serve --port 8000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
import warnings
from collections.abc import Iterator
from typing import Any

import uvicorn
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from kernels.task import task_names
from teams import preparing
from teams.launch import new_run
from teams.management.commands.login_link import login_url
from teams.management.ready import bring_up_to_date
from teams.models import Run
from teams.supervisor.consumer import supervisor, working

HOST = "127.0.0.1"
PORT = 8000
TRIED_PORTS = 100
GRACE_SECONDS = 0.5
"""How long answers may take to end when everything stops; streams never end by themselves."""
DEMO_CANDIDATES = 60


class Command(BaseCommand):
    """Serve until interrupted."""

    help = "Serve the pages and carry runs on, until Ctrl-C. Starting again goes on with what was running."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Flags as in the README."""
        parser.add_argument("--port", type=int, help=f"default {PORT}, or the next one that is free")
        parser.add_argument(
            "--demo",
            action=argparse.BooleanOptionalAction,
            default=True,
            help="start a run of its own when there is none",
        )
        parser.add_argument(
            "--prepare",
            choices=preparing.EXTRAS,
            default="none",
            help="what to install for the judge if it is missing, while the pages are served",
        )

    def handle(self, **options: Any) -> None:
        """Open the port, bring the database up to date, serve."""
        listener = _listen(options["port"])
        port = listener.getsockname()[1]
        with listener, contextlib.suppress(KeyboardInterrupt):
            _log_to_file()
            # Two instances on one machine share a cookie jar: browsers do not tell ports apart.
            settings.SESSION_COOKIE_NAME = f"{settings.SESSION_COOKIE_NAME}_{port}"
            settings.CSRF_COOKIE_NAME = f"{settings.CSRF_COOKIE_NAME}_{port}"
            bring_up_to_date()
            if options["demo"] and not Run.objects.exists():
                new_run(task_names()[0], strategy=Run.Strategy.EVOLVING, candidates=DEMO_CANDIDATES, seed=1)
            if notice := preparing.notice(options["prepare"]):
                self.stderr.write(notice)
            asyncio.run(self._serve(listener, options["prepare"]))

    async def _serve(self, listener: socket.socket, extra: str) -> None:
        server = Server(uvicorn.Config("teams.asgi:application", **_QUIET), self._announce)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, server.end)
        async with preparing.judge(extra, then=supervisor.wake), working():
            await server.serve(sockets=[listener])

    async def _announce(self, port: int) -> None:
        link = await sync_to_async(login_url)(port)
        self.stdout.write(f"Regroup: {link} (works once)")
        self.stdout.flush()


_QUIET: dict[str, Any] = {
    "http": "h11",
    "ws": "none",
    "lifespan": "off",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "timeout_graceful_shutdown": 2,
}


class Server(uvicorn.Server):
    """uvicorn, but it leaves signals to us and says when it listens."""

    def __init__(self, config: uvicorn.Config, announce: Any) -> None:
        super().__init__(config)
        self._announce = announce

    def end(self) -> None:
        """Stop; the second time, at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        assert sockets is not None, "they are always given"
        await self._announce(sockets[0].getsockname()[1])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let answers end, then hang up: to a stream that is as if the browser had gone."""
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._hang_up)
        await super().shutdown(sockets)

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: uvicorn raises a signal again once it has stopped, and the supervisor would die of that."""
        yield


def _listen(wanted: int | None) -> socket.socket:
    """A listening socket on the wanted port, or else on the first free one from PORT on."""
    problem = None
    for port in [wanted] if wanted is not None else range(PORT, PORT + TRIED_PORTS):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()
        except (OSError, OverflowError) as error:
            listener.close()
            problem = f"cannot listen on {HOST}, port {port}: {getattr(error, 'strerror', None) or error}"
        else:
            return listener
    raise CommandError(f"{problem} (--port chooses another one)")


def _log_to_file() -> None:
    """Whatever is worth telling goes to a file, so that the address stays in sight on the terminal."""
    file = settings.HOME / "logs" / "serve.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(filename=file, level=logging.INFO, format=form, force=True)
    # Static files are read in pieces by a thread; they are small, so that is no loss.
    warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
