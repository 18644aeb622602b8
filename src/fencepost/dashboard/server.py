"""Serves a page on a socket until a signal, or until the process that started it ends."""

import asyncio
import os
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

import uvicorn

from fencepost.dashboard.app import DashboardApp
from fencepost.dashboard.connections import GivingWay
from fencepost.dashboard.page_context import Page
from fencepost.dashboard.request_checks import ANY_ADDRESS

LINGER_SECONDS = 1
"""Time for pending answers at the end."""
BACKLOG = 256
"""Backlog of the socket, and how many connections are accepted at a time before idle ones are closed."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    host: str
    """As given: 0.0.0.0 means every interface."""
    token: str | None = None
    allowed_hosts: Iterable[str] = ()
    parent_fd: int | None = None
    """One end of a pipe; the other end closes when the parent process ends."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: DashboardApp, line: str) -> None:
        super().__init__(config)
        self._app = app
        self._line = line

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(self._line, file=sys.stderr, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Streams never end by themselves: without this the server would wait for them.
        self._app.subscriptions.close()
        await super().shutdown(sockets)


def page_url(host: str, port: int, token: str | None) -> str:
    name = socket.gethostname() if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"#token={quote(token, safe='')}" if token else "")


async def serve_page(page: Page, bound: socket.socket, options: ServerOptions) -> None:
    port = bound.getsockname()[1]
    app = DashboardApp(page, options.host, port, options.token, options.allowed_hosts)
    config = uvicorn.Config(
        app.asgi,
        http=GivingWay,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=LINGER_SECONDS,
    )
    server = _Server(config, app, f"page at {page_url(options.host, port, options.token)}")
    if options.parent_fd is not None:
        _end_with_parent(server, options.parent_fd)
    await server.serve(sockets=[bound])


def _end_with_parent(server: uvicorn.Server, parent_fd: int) -> None:
    loop = asyncio.get_running_loop()

    def gone() -> None:
        if os.read(parent_fd, 1):
            return
        loop.remove_reader(parent_fd)
        server.should_exit = True
        # There is nothing to wait for: the broker that it showed has ended.
        loop.call_later(3 * LINGER_SECONDS, os._exit, 0)

    os.set_blocking(parent_fd, False)
    loop.add_reader(parent_fd, gone)
