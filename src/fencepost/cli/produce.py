"""`fencepost produce`: writes the lines of standard input or a file as records."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, reach
from fencepost.cli.options import parse_assignments
from fencepost.cli.output import CommandFailed, print_json, run_async, say

if TYPE_CHECKING:
    from fencepost.client.kafka_types import RecordMetadata

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

EPILOG = """\
\b
Examples:
  seq 1000 | fencepost produce numbers
  echo 'alice:one book' | fencepost produce purchases --key-separator :
  fencepost produce purchases --file purchases.txt --compression zstd --header source=import
"""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CHUNK_BYTES = 256 * 1024
PORTIONS_AHEAD = 4


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Read this file instead of standard input.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Text that separates the key from the value in a line. Default: lines have no key."
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Partition to write to. Default: by the key as in Java's client, or spread evenly."
        ),
    ] = None,
    header: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="A header for every record. Can be repeated.")
    ] = [],  # noqa: B006
    compression: Annotated[str, typer.Option(metavar="CODEC", help=f"One of {', '.join(CODECS)}.")] = "none",
    null_marker: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A key or value equal to this text becomes null.")
    ] = None,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as one JSON document.")] = False,
) -> None:
    """Write one record per line. Records are acknowledged by all in-sync replicas, and written once even when
    retried."""
    if compression not in CODECS:
        raise typer.BadParameter(f"{compression!r} is not one of {', '.join(CODECS)}", param_hint="--compression")
    if key_separator == "":
        raise typer.BadParameter("the separator must not be empty", param_hint="--key-separator")
    headers = [(name, value.encode()) for name, value in parse_assignments(header, "--header").items()]
    splitter = LineSplitter(key_separator, null_marker)
    try:
        descriptor = os.open(file, os.O_RDONLY) if file is not None else sys.stdin.fileno()
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}") from None
    reached = reach(bootstrap_server, command_config, profile)
    written = run_async(_produce(reached, topic, descriptor, splitter, partition, headers, CODECS.index(compression)))
    document = {
        "topic": topic,
        "records": written.records,
        "bytes": written.bytes,
        "partitions": [
            {"partition": at, "first_offset": first, "last_offset": last}
            for at, (first, last) in sorted(written.offsets.items())
        ],
    }
    if as_json:
        print_json(document)
    elif sys.stderr.isatty():
        say(f"wrote {written.records} records to {topic}", is_error=True)


class LineSplitter:
    """Splits a line into key and value."""

    def __init__(self, key_separator: str | None, null_marker: str | None) -> None:
        self._separator = None if key_separator is None else key_separator.encode()
        self._null = None if null_marker is None else null_marker.encode()

    def split(self, line: bytes, number: int) -> tuple[bytes | None, bytes | None]:
        if self._separator is None:
            return None, self._nulled(line)
        key, separator, value = line.partition(self._separator)
        if not separator:
            shown = line[:40].decode(errors="replace")
            raise CommandFailed(
                f"line {number} has no key separator {self._separator.decode()!r}: {shown!r}",
                "earlier lines were written; correct this one or choose another --key-separator",
            )
        return self._nulled(key), self._nulled(value)

    def _nulled(self, text: bytes) -> bytes | None:
        return None if self._null is not None and text == self._null else text


class Written:
    """Counts what has been acknowledged so far."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.offsets: dict[int, tuple[int, int]] = {}

    def add(self, acknowledged: "RecordMetadata") -> None:
        at, offset = acknowledged.partition, acknowledged.offset
        self.records += 1
        first, last = self.offsets.get(at, (offset, offset))
        self.offsets[at] = (min(first, offset), max(last, offset))


class LineCutter:
    """Splits chunks of bytes into lines, without the line ends. The last line need not have one."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line.removesuffix(b"\r") for line in lines]

    def finish(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        return [rest.removesuffix(b"\r")] if rest else []


def read_portions(descriptor: int, give: Callable[[list[bytes]], None]) -> None:
    """Reads to the end and passes on whole lines as they arrive. An empty list marks the end."""
    cutter = LineCutter()
    while chunk := os.read(descriptor, CHUNK_BYTES):
        lines = cutter.feed(chunk)
        if lines:
            give(lines)
    last = cutter.finish()
    if last:
        give(last)
    give([])


async def _produce(
    reached: tuple[str, dict[str, Any]],
    topic: str,
    descriptor: int,
    splitter: LineSplitter,
    partition: int | None,
    headers: list[tuple[str, bytes]],
    codec: int,
) -> Written:
    import asyncio
    import collections
    import threading

    from fencepost.client.producer import AsyncProducer
    from fencepost.wire.compression import Codec

    written = Written()
    servers, settings = reached
    loop = asyncio.get_running_loop()
    portions: asyncio.Queue[list[bytes]] = asyncio.Queue(maxsize=PORTIONS_AHEAD)
    pending: collections.deque[asyncio.Future[RecordMetadata]] = collections.deque()

    def give(lines: list[bytes]) -> None:
        asyncio.run_coroutine_threadsafe(portions.put(lines), loop).result()

    def collect() -> None:
        """Counts acknowledgements. The first failure ends the command."""
        while pending and pending[0].done():
            written.add(pending.popleft().result())

    is_typed = os.isatty(descriptor)
    if is_typed:
        say("type one record per line; press Ctrl-D to finish", is_error=True)
    with _Progress(descriptor, is_typed) as advance:
        async with AsyncProducer(
            servers, compression=Codec(codec), linger_ms=0 if is_typed else 5, **settings
        ) as producer:
            # A thread, because an event loop cannot wait for a file; a daemon, because input from a terminal may never
            # end.
            threading.Thread(target=read_portions, args=(descriptor, give), daemon=True).start()
            number = 0
            while portion := await portions.get():
                for line in portion:
                    number += 1
                    key, value = splitter.split(line, number)
                    written.bytes += len(line)
                    pending.append(await producer.send(topic, value, key=key, headers=headers, partition=partition))
                advance(len(portion), sum(map(len, portion)) + len(portion))
                collect()
            await producer.flush()
            collect()
    return written


class _Progress:
    """A progress bar on standard error, if that is a terminal and the input is not: bytes of a file or records of a
    pipe."""

    def __init__(self, descriptor: int, is_typed: bool) -> None:
        self._descriptor = descriptor
        self._is_shown = sys.stderr.isatty() and not is_typed
        self._bar: Any = None
        self._task: Any = None
        self._in_bytes = False

    def __enter__(self) -> "_Progress":
        if not self._is_shown:
            return self
        import stat

        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        about = os.fstat(self._descriptor)
        self._in_bytes = stat.S_ISREG(about.st_mode)
        columns = (
            (BarColumn(), DownloadColumn(), TimeRemainingColumn())
            if self._in_bytes
            else (TextColumn("{task.completed:,.0f} records"),)
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("produce", total=about.st_size if self._in_bytes else None)
        self._bar.start()
        return self

    def __call__(self, records: int, size_bytes: int) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, size_bytes if self._in_bytes else records)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
