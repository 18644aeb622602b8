"""The record that a committed batch leaves in its group: the offsets where it ended, and a marker in their metadata.

The marker says which query wrote which batch under which term, who that was and when, and holds a digest of what
Spark's checkpoint says about every source of the batch. The term counts how often another writer was allowed to take
over (`adopt=`), so that a writer that was replaced finds out. The digest is the authority on where the batch ended: it
also holds for sources whose offsets cannot be in the group. `batch_decisions` compares it.

A cluster that deletes a topic deletes the group's offsets of it. So a copy of the marker is on a partition of an output
topic, with the input offsets and the ids of the input topics inside. Its offset is -1, which every tool takes for
"nothing committed", so that it is nobody's lag. Pure.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from fencepost.client.kafka_types import CommittedOffset
from fencepost.topic_partition import TopicPartition

POSITIONS_BYTES_MAX = 3_000
"""Of positions and topic ids inside a marker: brokers take 4,096 bytes of metadata (`offset.metadata.max.bytes`)."""
NO_OFFSET = -1

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
    topic_ids: tuple[tuple[str, str], ...] = ()
    """Of the input topics, as far as they were known and fit: a topic that was made again has another."""

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
        if self.topic_ids:
            held["topics"] = dict(self.topic_ids)
        return json.dumps(held, separators=(",", ":"))

    @property
    def brief(self) -> "Marker":
        """Without what the offsets beside it, or a copy, say as well."""
        return dataclasses.replace(self, positions=None, topic_ids=())

    def with_inputs(self, positions: Positions, topic_ids: Mapping[str, str]) -> "Marker":
        """Where the inputs ended, and what they were. The digest stays when there is no room for them."""
        room = POSITIONS_BYTES_MAX - len(json.dumps(nested(positions), separators=(",", ":")))
        fits = room >= 0
        ids_fit = fits and len(json.dumps(topic_ids, separators=(",", ":"))) <= room
        return dataclasses.replace(
            self,
            positions=tuple(sorted(positions.items())) if fits else (),
            topic_ids=tuple(sorted(topic_ids.items())) if ids_fit else (),
        )

    @property
    def is_of(self) -> tuple[int, int, str, str]:
        """What makes it the same batch, whoever has committed it again."""
        return self.term, self.batch_id, self.query_id, self.digest


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A marker with the offsets that carry it."""

    marker: Marker
    offsets: Positions
    copy_at: TopicPartition | None = None
    """The partition of an output whose entry holds the whole marker: deleting an input does not take it along."""

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where the inputs of the batch ended, as far as the group knows."""
        return dict(self.offsets if self.marker.positions is None else self.marker.positions)

    def entries(self) -> dict[TopicPartition, CommittedOffset]:
        """As the group holds it."""
        whole = self.marker.text()
        if self.copy_at is None:
            return {partition: CommittedOffset(offset, metadata=whole) for partition, offset in self.offsets.items()}
        brief = self.marker.brief.text()
        beside = {partition: CommittedOffset(offset, metadata=brief) for partition, offset in self.offsets.items()}
        return {**beside, self.copy_at: CommittedOffset(NO_OFFSET, metadata=whole)}


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
            tuple(sorted((str(topic), str(known)) for topic, known in found.get("topics", {}).items())),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def newest(committed: Mapping[TopicPartition, CommittedOffset]) -> Record | None:
    """A batch marks all its partitions at once; older markers are those of partitions it no longer reads."""
    marked = {at: marker for at, offset in committed.items() if (marker := parse(offset.metadata)) is not None}
    if not marked:
        return None
    last = max(marked.values(), key=lambda marker: (marker.term, marker.batch_id, marker.query_id, marker.committed_ms))
    same = {at: marker for at, marker in marked.items() if marker.is_of == last.is_of}
    copies = [at for at in same if committed[at].offset < 0]
    whole = same[copies[0]] if copies else last
    offsets = {at: committed[at].offset for at in same if at not in copies}
    return Record(whole, offsets, copies[0] if copies else None)


def nested(positions: Positions) -> dict[str, dict[str, int]]:
    """As in Spark's `startingOffsets`."""
    held: dict[str, dict[str, int]] = {}
    for partition in sorted(positions):
        held.setdefault(partition.topic, {})[str(partition.partition)] = positions[partition]
    return held


def _flat(held: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, int(at)): int(offset) for topic, of in held.items() for at, offset in of.items()}
