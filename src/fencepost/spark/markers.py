"""The record that a committed batch leaves in its group: the offsets where it ended, and a marker in their metadata.

The marker says which query wrote which batch under which term, who that was and when, and holds a digest of what
Spark's checkpoint says about every source of the batch. The term counts how often another writer was allowed to take
over (`adopt=`), so that a writer that was replaced finds out. The digest is the authority on where the batch ended: it
also holds for sources whose offsets cannot be in the group. `decisions` compares it. Pure.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from fencepost.client.kafka_types import CommittedOffset
from fencepost.topic_partition import TopicPartition

POSITIONS_BYTES_MAX = 3_000
"""Of positions inside a marker: brokers take 4,096 bytes of metadata (`offset.metadata.max.bytes`)."""

Positions = Mapping[TopicPartition, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Marker:
    term: int
    batch_id: int
    query_id: str
    digest: str = ""
    """Empty in markers of the first version, and where no source has offsets: then positions are all there is."""
    writer: str = ""
    committed_ms: int = 0
    positions: tuple[tuple[TopicPartition, int], ...] | None = None
    """Where the inputs ended, if the offsets that carry the marker do not say; empty if they did not fit."""
    is_yielded: bool = False
    """Whoever fenced the writer of this batch has found that it was not its turn, and has given way."""

    def text(self) -> str:
        held: dict[str, Any] = {"term": self.term, "query": self.query_id, "batch": self.batch_id}
        if self.digest:
            held["digest"] = self.digest
        if self.writer:
            held |= {"writer": self.writer, "at": self.committed_ms}
        if self.positions is not None:
            held["positions"] = nested(dict(self.positions))
        if self.is_yielded:
            held["yielded"] = True
        return json.dumps(held, separators=(",", ":"))

    def on(self, offsets: Positions) -> dict[TopicPartition, CommittedOffset]:
        """The offsets of a batch, each with the marker."""
        text = self.text()
        return {partition: CommittedOffset(offset, metadata=text) for partition, offset in offsets.items()}

    def with_positions(self, positions: Positions) -> "Marker":
        """For inputs of another cluster. The digest stays when there is no room for them."""
        fits = len(json.dumps(nested(positions), separators=(",", ":"))) <= POSITIONS_BYTES_MAX
        return dataclasses.replace(self, positions=tuple(sorted(positions.items())) if fits else ())

    @property
    def is_of(self) -> tuple[int, int, str, str]:
        """What makes it the same batch, whoever has committed it again."""
        return self.term, self.batch_id, self.query_id, self.digest


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A marker with the offsets that carry it."""

    marker: Marker
    offsets: Positions

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where the inputs of the batch ended, as far as the group knows."""
        return dict(self.offsets if self.marker.positions is None else self.marker.positions)


def parse(text: str) -> Marker | None:
    """Metadata of other origin is nobody's marker."""
    try:
        found = json.loads(text)
        held = found.get("positions")
        return Marker(
            int(found["term"]),
            int(found["batch"]),
            str(found["query"]),
            str(found.get("digest", "")),
            str(found.get("writer", "")),
            int(found.get("at", 0)),
            None if held is None else tuple(sorted(_flat(held).items())),
            bool(found.get("yielded", False)),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def newest(committed: Mapping[TopicPartition, CommittedOffset]) -> Record | None:
    """A batch marks all its partitions at once; older markers are those of partitions it no longer reads."""
    marked = {at: marker for at, offset in committed.items() if (marker := parse(offset.metadata)) is not None}
    if not marked:
        return None
    last = max(marked.values(), key=lambda marker: (marker.term, marker.batch_id, marker.query_id, marker.committed_ms))
    return Record(last, {at: committed[at].offset for at, marker in marked.items() if marker.is_of == last.is_of})


def nested(positions: Positions) -> dict[str, dict[str, int]]:
    """As in Spark's `startingOffsets`."""
    held: dict[str, dict[str, int]] = {}
    for partition in sorted(positions):
        held.setdefault(partition.topic, {})[str(partition.partition)] = positions[partition]
    return held


def _flat(held: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, int(at)): int(offset) for topic, of in held.items() for at, offset in of.items()}
