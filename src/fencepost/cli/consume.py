"""`fencepost consume`: prints records: their values, further fields on request, or JSON lines."""

import base64
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, reach
from fencepost.cli.options import parse_position
from fencepost.cli.output import run_async
from fencepost.terminal_text import json_text

if TYPE_CHECKING:
    from fencepost.client.fetching import Position
    from fencepost.client.kafka_types import ConsumedRecord

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

EPILOG = """\
\b
Examples:
  fencepost consume purchases                                   all records up to the end, then stop
  fencepost consume purchases --from latest --follow            only new records, until interrupted
  fencepost consume purchases --from @2026-03-01T12:00:00Z --max-messages 10 --print-key --print-offset
  fencepost consume purchases --json | jq .value

A JSON line has topic, partition, offset, timestamp, timestamp_type, key, value and headers. Bytes that are not UTF-8
text appear in base64 under key_base64 or value_base64 instead.
"""

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    start: Annotated[
        str, typer.Option("--from", metavar="POSITION", help="earliest, latest, an OFFSET, or @TIME (ISO date or ms).")
    ] = "earliest",
    partition: Annotated[
        list[int], typer.Option(min=0, metavar="N", help="Only this partition. Can be repeated.")
    ] = [],  # noqa: B006
    follow: Annotated[bool, typer.Option("--follow", help="Keep reading new records until interrupted.")] = False,
    max_messages: Annotated[int | None, typer.Option(min=0, metavar="N", help="Stop after N records.")] = None,
    isolation_level: Annotated[
        str,
        typer.Option(
            metavar="LEVEL", help="read_uncommitted, or read_committed to leave out open and aborted transactions."
        ),
    ] = "read_uncommitted",
    print_key: Annotated[bool, typer.Option("--print-key", help="Print the key before the value.")] = False,
    print_partition: Annotated[bool, typer.Option("--print-partition")] = False,
    print_offset: Annotated[bool, typer.Option("--print-offset")] = False,
    print_timestamp: Annotated[bool, typer.Option("--print-timestamp")] = False,
    print_headers: Annotated[bool, typer.Option("--print-headers")] = False,
    separator: Annotated[
        str, typer.Option(metavar="TEXT", help="Separator of the printed fields.", show_default="tab")
    ] = "\t",
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document per record and line.")] = False,
) -> None:
    """Read records up to the current end of the log, or keep following it."""
    if isolation_level not in ISOLATION_LEVELS:
        raise typer.BadParameter(
            f"{isolation_level!r} is not one of {', '.join(ISOLATION_LEVELS)}", param_hint="--isolation-level"
        )
    position = parse_position(start)
    as_line = line_renderer(
        separator,
        timestamp=print_timestamp,
        partition=print_partition,
        offset=print_offset,
        headers=print_headers,
        key=print_key,
    )
    run_async(
        _consume(
            reach(bootstrap_server, command_config, profile),
            topic,
            partition,
            position,
            follow=follow,
            max_messages=max_messages,
            isolation_level=ISOLATION_LEVELS.index(isolation_level),
            render=json_line if as_json else as_line,
        )
    )


async def _consume(
    reached: tuple[str, dict[str, Any]],
    topic: str,
    partitions: Sequence[int],
    position: "Position",
    *,
    follow: bool,
    max_messages: int | None,
    isolation_level: int,
    render: "Callable[[ConsumedRecord], bytes]",
) -> None:
    from fencepost.client.fetching import AsyncPartitionReader
    from fencepost.client.kafka_types import IsolationLevel
    from fencepost.topic_partition import TopicPartition

    servers, settings = reached
    async with AsyncPartitionReader(servers, isolation_level=IsolationLevel(isolation_level), **settings) as reader:
        if partitions:
            await reader.assign({TopicPartition(topic, at): position for at in partitions})
        else:
            await reader.assign_topic(topic, position)
        left = max_messages
        if left == 0:
            return
        output = sys.stdout.buffer
        async for portion in reader.batches(follow=follow):
            taken = portion if left is None else portion[:left]
            output.write(b"".join(map(render, taken)))
            output.flush()
            if left is not None:
                left -= len(taken)
                if left == 0:
                    return


def line_renderer(
    separator: str, *, timestamp: bool, partition: bool, offset: bool, headers: bool, key: bool
) -> "Callable[[ConsumedRecord], bytes]":
    between = separator.encode()

    def render(record: "ConsumedRecord") -> bytes:
        parts: list[bytes] = []
        if timestamp:
            parts.append(f"{record.timestamp_type}:{record.timestamp_ms}".encode())
        if partition:
            parts.append(f"Partition:{record.partition}".encode())
        if offset:
            parts.append(f"Offset:{record.offset}".encode())
        if headers:
            shown = (name.encode() + b":" + (b"null" if value is None else value) for name, value in record.headers)
            parts.append(b",".join(shown) or b"NO_HEADERS")
        if key:
            parts.append(b"null" if record.key is None else record.key)
        parts.append(b"null" if record.value is None else record.value)
        return between.join(parts) + b"\n"

    return render


def json_line(record: "ConsumedRecord") -> bytes:
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"name": name, **_text("value", value)} for name, value in record.headers],
    }
    return json_text(document, separators=(",", ":")).encode() + b"\n"


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
