"""Options that several commands share, and the parsers of their values."""

import datetime
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fencepost.client.fetching import Position

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
INT16_MAX, INT32_MAX, INT64_MAX = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1
"""What fits into the fields of Kafka's requests."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
SetConfig = Annotated[
    list[str], typer.Option("--config", "--set", metavar="NAME=VALUE", help="A setting to change; can be repeated.")
]
UnsetConfig = Annotated[
    list[str],
    typer.Option(
        "--delete-config", "--unset", metavar="NAME", help="A setting to reset to its default. Can be repeated."
    ),
]


def parse_assignments(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parses a list of NAME=VALUE."""
    values = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        values[name.strip()] = value.strip()
    return values


def parse_datetime(text: str, option: str) -> int:
    """Milliseconds since 1970, from such a number or an ISO date; a date without a zone is UTC, as in Kafka's tools."""
    if text.isascii() and text.isdigit() and int(text) <= INT64_MAX:
        return int(text)
    try:
        parsed = datetime.datetime.fromisoformat(text)
        return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is neither milliseconds since 1970 nor a date like 2026-03-01T12:00:00", param_hint=option
        ) from None


def parse_position(text: str, option: str = "--from") -> "Position":
    """Parses earliest, latest, an offset, or @ and a time."""
    from fencepost.client.fetching import AtTimestamp
    from fencepost.client.kafka_types import Reset

    if text in ("earliest", "latest"):
        return Reset.EARLIEST if text == "earliest" else Reset.LATEST
    if text.startswith("@"):
        return AtTimestamp(parse_datetime(text[1:], option))
    if text.isascii() and text.isdigit() and int(text) <= INT64_MAX:
        return int(text)
    raise typer.BadParameter(f"{text!r} is not one of earliest, latest, OFFSET, @TIME", param_hint=option)


def parse_topic_partitions(text: str, option: str = "--topic") -> tuple[str, list[int] | None]:
    """Parses TOPIC or TOPIC:0,1,2 as Kafka's tools do; None means every partition."""
    topic, separator, listed = text.partition(":")
    if not separator:
        return topic, None
    numbers = [number.strip() for number in listed.split(",")]
    if not topic or not all(number.isascii() and number.isdigit() for number in numbers):
        raise typer.BadParameter(f"{text!r} is neither TOPIC nor TOPIC:0,1,2", param_hint=option)
    return topic, [int(number) for number in numbers]
