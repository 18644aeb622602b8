"""`fencepost serve`: one broker in the foreground until SIGTERM or SIGINT."""

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from fencepost.shell.event_log import EventLog
from fencepost.shell.running_broker import CannotStart, RunningBroker, parse_listeners, reserve
from fencepost.wire.scram import FirstUser

if TYPE_CHECKING:
    from fencepost.shell.page_process import PageOptions

# Requests create no reference cycles, so young objects can be collected far less often than by default.
GC_THRESHOLDS = (20_000, 20, 20)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    data: Path
    listen: Sequence[str]
    advertise: Sequence[str] = ()
    settings: dict[str, str] = field(default_factory=dict)
    metrics: str | None = None
    page: "PageOptions | None" = None
    users: Sequence[FirstUser] = ()


def serve(options: ServeOptions) -> int:
    """Runs until a signal. Returns the exit status."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(options))
        except CannotStart as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


async def _serve(options: ServeOptions) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # `nohup` has SIGHUP ignored, and so it stays.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop.set)
    # Like the broker's own ports, reserved before touching anything in the directory.
    metrics_socket = None if options.metrics is None else reserve(parse_listeners([options.metrics])[0])
    page_socket = None if options.page is None else reserve(parse_listeners([options.page.listen])[0])
    broker = RunningBroker(options.data, options.settings, on_events=EventLog(sys.stderr).write)
    await broker.start(options.listen, options.advertise, options.users)
    gc.set_threshold(*GC_THRESHOLDS)
    metrics = None
    if metrics_socket is not None:
        # A broker without metrics starts sooner.
        from fencepost.shell.metrics import serve_metrics

        metrics = await serve_metrics(broker, metrics_socket)
    # As for the log: a broker does not end because nobody can read what it says.
    with contextlib.suppress(OSError):
        for host, port in broker.addresses:
            print(f"fencepost listening on {host}:{port}", flush=True)
    page = None
    if options.page is not None and page_socket is not None:
        # A broker without a page starts sooner.
        from fencepost.shell.page_process import PageProcess

        page = PageProcess(options.page, page_socket, broker.addresses[0])
    await stop.wait()
    if page is not None:
        await loop.run_in_executor(None, page.stop)
    if metrics is not None:
        metrics.close()
    await broker.stop()
