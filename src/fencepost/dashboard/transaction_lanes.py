"""The history of a transactional id as lanes: its coordinator, each partition, its epochs. Pure: facts in, a document
out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fencepost.insight.causes import Cause
from fencepost.insight.explanation import client_of
from fencepost.insight.partition_scan import PartitionTransaction
from fencepost.insight.pending_offsets import PendingOffset
from fencepost.insight.state_changes import StateChange
from fencepost.topic_partition import TopicPartition


def lanes(
    changes: Sequence[StateChange],
    written: Iterable[PartitionTransaction],
    causes: list[Cause] | None,
    pending: Iterable[PendingOffset],
    leaders: Mapping[TopicPartition, int | None],
) -> dict[str, Any]:
    return {
        "coordinator": [
            {
                "time_ms": change.timestamp_ms,
                "state": change.state,
                "epoch": change.producer_epoch,
                "offset": change.offset,
            }
            for change in changes
        ],
        "partitions": _partitions(written, leaders),
        "groups": [each.document() for each in pending],
        "causes": None if causes is None else [cause.document() for cause in causes],
        "epochs": epochs(changes, causes),
    }


def _partitions(
    written: Iterable[PartitionTransaction], leaders: Mapping[TopicPartition, int | None]
) -> list[dict[str, Any]]:
    spans: dict[TopicPartition, list[PartitionTransaction]] = {}
    for each in written:
        spans.setdefault(each.partition, []).append(each)
    return [
        {
            "topic": at.topic,
            "partition": at.partition,
            "leader": leaders.get(at),
            "spans": [_span(each) for each in sorted(spans[at], key=lambda each: each.first_offset)],
        }
        for at in sorted(spans)
    ]


def _span(each: PartitionTransaction) -> dict[str, Any]:
    marker = each.marker
    return {
        "first_offset": each.first_offset,
        "last_offset": each.last_offset,
        "records": each.record_count,
        "from_ms": each.first_timestamp_ms,
        "to_ms": each.last_timestamp_ms,
        "end": None if marker is None else marker.kind,
        "marker_offset": None if marker is None else marker.offset,
        "marker_ms": None if marker is None else marker.timestamp_ms,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
    }


def epochs(changes: Iterable[StateChange], causes: list[Cause] | None) -> list[dict[str, Any]]:
    """Each producer id and epoch, with the time it was first seen and its client, if recorded."""
    first_seen: dict[tuple[int, int], int] = {}
    for change in changes:
        if change.state is not None and change.producer_id >= 0:
            first_seen.setdefault((change.producer_id, change.producer_epoch), change.timestamp_ms)
    return [
        {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "from_ms": from_ms,
            "client": client_of([each for each in causes or () if each.concerns(producer_id)], epoch),
        }
        for (producer_id, epoch), from_ms in sorted(first_seen.items(), key=lambda each: each[1])
    ]
