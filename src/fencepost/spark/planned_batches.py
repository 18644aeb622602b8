"""What Spark has planned for a batch, as its offset log says: where every source ends, with a digest of all of it.

The digest covers sources that are not Kafka as well, and is the same for the same offsets in any order and format of
the log. Where a first batch began is left out: what counts is where it ends.
"""

import dataclasses
import functools
import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

from fencepost.spark.checkpoint import Checkpoint, parse_offsets, source_lines
from fencepost.spark.commit_records import Positions
from fencepost.spark.errors import NotSupported
from fencepost.spark.source_offsets import STARTS, starts_of
from fencepost.topic_partition import TopicPartition

_log = logging.getLogger("fencepost.spark")

DIGEST_CHARACTERS = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Planned:
    offsets: Positions
    digest: str
    planned_ms: int = 0
    starts: Positions = dataclasses.field(default_factory=dict)
    """Where the batch begins, as far as the log says; elsewhere it is where the batch before has ended."""


NOTHING_PLANNED = Planned({}, "")
"""A batch without a stream: there is nothing to compare."""


def planned(text: str, *, reads_kafka: bool = False) -> Planned:
    """Raises for a text that is not an offset log, and as `parse_offsets` for one that is not understood."""
    offsets = parse_offsets(text, reads_kafka=reads_kafka)
    lines = text.splitlines()
    sources = sorted(_canonical(line) for line in source_lines(text))
    digest = hashlib.sha256("\n".join(sources).encode()).hexdigest()[:DIGEST_CHARACTERS] if sources else ""
    return Planned(offsets, digest, _planned_ms(lines[1] if len(lines) > 1 else ""), _starts(source_lines(text)))


def _starts(lines: Iterable[str]) -> Positions:
    """Of all sources; the smaller where two read one partition, as with their ends."""
    merged: dict[TopicPartition, int] = {}
    for line in lines:
        held = _parsed(line)
        for partition, offset in (starts_of(held) if isinstance(held, dict) else {}).items():
            merged[partition] = min(offset, merged.get(partition, offset))
    return merged


def _canonical(line: str) -> str:
    """A source's offset with its keys in order."""
    held = _parsed(line)
    if held is None:
        return line
    if isinstance(held, dict):
        held = {name: value for name, value in held.items() if not name.startswith(STARTS)}
    return json.dumps(held, sort_keys=True, separators=(",", ":"))


def _parsed(line: str) -> Any:
    """None if it is no JSON."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _planned_ms(line: str) -> int:
    try:
        held: Any = json.loads(line)
        return int(held["batchTimestampMs"])
    except (ValueError, TypeError, KeyError):
        return 0


def plans_of(checkpoint: Checkpoint) -> Callable[[int], Planned | None]:
    """What a checkpoint says about batches, each read once; None for what cannot be read."""

    @functools.cache
    def plan(batch_id: int) -> Planned | None:
        try:
            return planned(checkpoint.offset_log(batch_id), reads_kafka=checkpoint.reads_kafka)
        except NotSupported:
            raise  # Before data moves.
        except Exception as error:  # Hadoop's file systems raise errors of Java.
            _log.info("offsets/%d of the checkpoint cannot be read: %s", batch_id, error)
            return None

    return plan
