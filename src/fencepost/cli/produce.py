"""`fencepost produce`: lines of standard input or a file become records."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, parse_assignments
from fencepost.cli.output import CommandFailed, print_json, run_async

if TYPE_CHECKING:
    from fencepost.client.values import RecordMetadata

EPILOG = """\
\b
Examples:
  seq 1000 | fencepost produce numbers
  echo 'alice:one book' | fencepost produce purchases --key-separator :
  fencepost produce purchases --file purchases.txt --compression zstd --header source=import
"""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKNOWLEDGEMENTS_CHECKED_EVERY = 10_000


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Read this instead of standard input.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Each line is key, this text, value. Default: a value, no key.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Default: by the key as Java's client, or spread.")
    ] = None,
    header: Annotated[list[str], typer.Option(metavar="NAME=VALUE", help="On every record; several times.")] = [],  # noqa: B006
    compression: Annotated[str, typer.Option(metavar="CODEC", help=f"One of {', '.join(CODECS)}.")] = "none",
    null_marker: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A key or value that is just this text becomes null.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as one JSON document.")] = False,
) -> None:
    """Write one record per line. Each record is acknowledged by all replicas, and written once even when retried."""
    if compression not in CODECS:
        raise typer.BadParameter(f"{compression!r} is none of {', '.join(CODECS)}", param_hint="--compression")
    if key_separator == "":
        raise typer.BadParameter("the separator is empty", param_hint="--key-separator")
    headers = [(name, value.encode()) for name, value in parse_assignments(header, "--header").items()]
    splitter = LineSplitter(key_separator, null_marker)
    try:
        source = open(file, "rb") if file is not None else sys.stdin.buffer  # noqa: SIM115 - closed below
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}") from None
    try:
        written = run_async(
            _produce(bootstrap_server, topic, source, splitter, partition, headers, CODECS.index(compression))
        )
    finally:
        if file is not None:
            source.close()
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
        typer.echo(f"wrote {written.records} records to {topic}", err=True)


class LineSplitter:
    """From a line to key and value."""

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
    """What has been acknowledged so far."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.offsets: dict[int, tuple[int, int]] = {}

    def add(self, acknowledged: "RecordMetadata") -> None:
        at, offset = acknowledged.partition, acknowledged.offset
        self.records += 1
        first, last = self.offsets.get(at, (offset, offset))
        self.offsets[at] = (min(first, offset), max(last, offset))


def lines_of(source: IO[bytes]) -> Iterator[bytes]:
    """Lines without their ends; the last may lack one."""
    for line in source:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


async def _produce(
    bootstrap_server: str,
    topic: str,
    source: IO[bytes],
    splitter: LineSplitter,
    partition: int | None,
    headers: list[tuple[str, bytes]],
    codec: int,
) -> Written:
    import asyncio

    from fencepost.client.producer import AsyncProducer
    from fencepost.wire.compression import Codec

    written = Written()
    # A person who types wants each line sent; a file wants full batches.
    is_typed = source.isatty()
    loop = asyncio.get_running_loop()
    lines = lines_of(source)
    pending: list[Any] = []

    def collect() -> None:
        for future in pending:
            written.add(future.result())
        pending.clear()

    with _Progress(source, is_typed) as advance:
        async with AsyncProducer(
            bootstrap_server, compression=Codec(codec), linger_ms=0 if is_typed else 5
        ) as producer:
            number = 0
            while True:
                # Reading a terminal or a slow pipe must not hold up what is on its way.
                portion = await loop.run_in_executor(None, _portion, lines, 1 if is_typed else 1_000)
                if not portion:
                    break
                for line in portion:
                    number += 1
                    key, value = splitter.split(line, number)
                    written.bytes += len(line)
                    pending.append(await producer.send(topic, value, key=key, headers=headers, partition=partition))
                advance(len(portion), sum(map(len, portion)) + len(portion))
                if is_typed or len(pending) >= ACKNOWLEDGEMENTS_CHECKED_EVERY:
                    await producer.flush()
                    collect()
            await producer.flush()
            collect()
    return written


def _portion(lines: Iterator[bytes], count_max: int) -> list[bytes]:
    portion: list[bytes] = []
    for line in lines:
        portion.append(line)
        if len(portion) >= count_max:
            break
    return portion


class _Progress:
    """A bar on standard error when that is a terminal and nobody types: bytes of a file, or records of a pipe."""

    def __init__(self, source: IO[bytes], is_typed: bool) -> None:
        self._source = source
        self._is_shown = sys.stderr.isatty() and not is_typed
        self._bar: Any = None
        self._task: Any = None
        self._in_bytes = False

    def __enter__(self) -> "_Progress":
        if not self._is_shown:
            return self
        import os
        import stat

        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        about = os.fstat(self._source.fileno())
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
