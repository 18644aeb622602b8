"""A controller in a process of its own: its directory, its log, its socket, and its end."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from fencepost.config import broker_config
from fencepost.log.side_files import (
    CorruptSideFile,
    MetaProperties,
    encode_uuid,
    read_meta_properties,
    write_meta_properties,
)
from fencepost.metadata.controller.features import SUPPORTED
from fencepost.metadata.controller.kept_log import KeptLog
from fencepost.metadata.controller.machine import Controller
from fencepost.metadata.controller.service import (
    LISTENER,
    ControllerService,
    Endpoint,
    bootstrap_records,
    registration_record,
)
from fencepost.metadata.controller.state import ControllerSettings
from fencepost.metadata.features import KRAFT_VERSION
from fencepost.metadata.records import UnreadableMetadata
from fencepost.shell.controller_server import ControllerServer
from fencepost.shell.directory_lock import DirectoryInUse, DirectoryLock
from fencepost.shell.disk import RealDisk
from fencepost.shell.flusher import ThreadedFlusher
from fencepost.shell.ports import RealClock, RealRandomness
from fencepost.shell.running_broker import CannotStart, Listener, reserve

SYNC_THREADS = 1


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    data: Path
    host: str
    port: int
    node_id: int
    cluster_id: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    levels: Mapping[str, int] = field(default_factory=dict)
    """Of features, in a new cluster; the newest where nothing is said."""


def run_controller(options: ControllerOptions) -> None:
    """Until a signal says stop. Raises CannotStart."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options))


async def _run(options: ControllerOptions) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # Found out before anything in the directory is touched.
    bound = reserve(Listener(LISTENER, options.host, options.port))
    endpoint = Endpoint(options.host, bound.getsockname()[1])
    lock = _locked(options.data)
    disk = RealDisk()
    flusher = ThreadedFlusher(loop, SYNC_THREADS)
    try:
        log = KeptLog(disk, flusher, str(options.data))
        properties = _properties(disk, options)
        controller = Controller(
            ControllerSettings(
                options.node_id,
                properties.cluster_id,
                broker_config(options.settings),
                static=options.settings,
            ),
            RealRandomness(),
        )
        for offset, records in log.load():
            controller.take(records, offset)
        controller.skip_to(log.end_offset)
        clock = RealClock()
        service = ControllerService(
            controller,
            log,
            node_id=options.node_id,
            cluster_id=properties.cluster_id,
            epoch=log.begin(options.node_id),
            endpoint=endpoint,
        )
        config = broker_config(options.settings)
        levels = [(name, options.levels.get(name, high)) for name, (_, high) in SUPPORTED.items()]
        service.begin(bootstrap_records(levels, config.min_insync_replicas), clock.wall_ms())
        service.register_itself(
            registration_record(options.node_id, RealRandomness().random_bytes(16), endpoint),
            clock.wall_ms(),
        )
        # Sessions go by a clock that is never set; the records' timestamps mean nothing to anybody.
        server = ControllerServer(service, clock.monotonic_ms, stop.set)
        await server.start(bound)
        print(
            f"fencepost controller {options.node_id} of cluster {properties.cluster_id} listening on "
            f"{endpoint.host}:{endpoint.port}",
            flush=True,
        )
        await stop.wait()
        await server.stop()
        if service.failure is not None:
            print(f"error: the metadata log could not be synced: {service.failure}", file=sys.stderr)
    except (CorruptSideFile, UnreadableMetadata) as error:
        raise CannotStart(str(error)) from None
    finally:
        flusher.close()
        disk.close_all()
        lock.release()


def _locked(data: Path) -> DirectoryLock:
    try:
        data.mkdir(parents=True, exist_ok=True)
        return DirectoryLock(data)
    except OSError as error:
        raise CannotStart(f"cannot use the data directory {data}: {error.strerror}") from None
    except DirectoryInUse:
        raise CannotStart(f"the data directory {data} is in use by another process") from None


def _properties(disk: RealDisk, options: ControllerOptions) -> MetaProperties:
    known = read_meta_properties(disk, str(options.data))
    if known is None:
        made = MetaProperties(options.cluster_id or encode_uuid(_new_id()), options.node_id, encode_uuid(_new_id()))
        write_meta_properties(disk, str(options.data), made)
        return made
    if options.cluster_id not in (None, known.cluster_id):
        raise CannotStart(f"{options.data} belongs to cluster {known.cluster_id}")
    if known.node_id != options.node_id:
        raise CannotStart(f"{options.data} belongs to node {known.node_id}")
    return known


def _new_id() -> bytes:
    """Never written with a dash at its beginning."""
    made = bytearray(os.urandom(16))
    made[0] &= 0x7F
    return bytes(made)


def parse_levels(texts: Sequence[str]) -> dict[str, int]:
    """NAME=LEVEL each. Raises CannotStart."""
    levels = {}
    for text in texts:
        name, _, level = text.partition("=")
        low, high = SUPPORTED.get(name, (0, -1))
        if name == KRAFT_VERSION or not level.isdigit() or not low <= int(level) <= high:
            known = ", ".join(
                f"{each}={low}-{high}" for each, (low, high) in SUPPORTED.items() if each != KRAFT_VERSION
            )
            raise CannotStart(f"--feature {text} cannot be; there are {known}")
        levels[name] = int(level)
    return levels
