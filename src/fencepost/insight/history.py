"""The life of a transactional id as one timeline: states that survive, causes, what was written and how it ended."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from fencepost.client.errors import BrokerError
from fencepost.insight.causes import Cause
from fencepost.insight.cluster_view import HIDDEN, ClusterView
from fencepost.insight.partition_scan import PartitionTransaction
from fencepost.insight.state_changes import StateChange, read_state_change
from fencepost.internal_topic_names import TRANSACTION_STATE
from fencepost.topic_partition import TopicPartition

SCANNED_OFFSETS_MAX = 200_000
"""Of a partition: what was written longer ago than that is not counted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Moment:
    time_ms: int
    kind: str
    """state, cause or records"""
    text: str
    facts: dict[str, Any]

    def document(self) -> dict[str, Any]:
        return {"time_ms": self.time_ms, "kind": self.kind, "text": self.text, **self.facts}


async def state_history(view: ClusterView, transactional_id: str) -> list[StateChange] | None:
    """What survives in __transaction_state of an id, oldest first; None where the cluster hides that topic."""
    try:
        partition = await view.coordinator_partition(TRANSACTION_STATE, transactional_id)
        offsets = (await view.offsets([partition]))[partition]
        found = []
        async for batch in view.batches(partition, offsets.log_start_offset, offsets.high_watermark):
            if batch.header.is_control:
                continue
            changes = (read_state_change(record) for record in batch.records())
            found += [change for change in changes if change and change.transactional_id == transactional_id]
        return found
    except BrokerError as error:
        if error.code in HIDDEN:
            return None
        raise


async def written_by(
    view: ClusterView, producer_ids: set[int], partitions: Iterable[TopicPartition]
) -> list[PartitionTransaction]:
    """The transactions of some producers in some partitions, as far back as is worth reading."""
    wanted = list(partitions)
    offsets = await view.offsets(wanted)
    found: list[PartitionTransaction] = []
    for at in wanted:
        start = max(offsets[at].log_start_offset, offsets[at].high_watermark - SCANNED_OFFSETS_MAX)
        scan = await view.scan(at, start, offsets[at].high_watermark)
        found += [each for each in [*scan.ended, *scan.open.values()] if each.producer_id in producer_ids]
    return found


def timeline(
    changes: Iterable[StateChange], causes: Iterable[Cause], written: Iterable[PartitionTransaction]
) -> list[Moment]:
    moments = [_of_change(change) for change in changes]
    moments += [Moment(cause.time_ms, "cause", cause.text(), {"event": cause.event}) for cause in causes]
    moments += [_of_records(each) for each in written]
    order = {"state": 0, "records": 1, "cause": 2}
    return sorted(moments, key=lambda moment: (moment.time_ms, order[moment.kind]))


def _of_change(change: StateChange) -> Moment:
    if change.state is None:
        return Moment(change.timestamp_ms, "state", "expired: the id is forgotten", {"state": None})
    text = f"{change.state}, producer {change.producer_id} epoch {change.producer_epoch}"
    if change.partitions:
        text += f", in {', '.join(map(str, change.partitions))}"
    return Moment(change.timestamp_ms, "state", text, change.document())


def _of_records(each: PartitionTransaction) -> Moment:
    records = f"{each.record_count} records in {each.partition} from {each.first_offset}, epoch {each.producer_epoch}"
    if each.marker is None:
        return Moment(each.last_timestamp_ms, "records", f"{records}: open", each.document())
    end = f"{each.marker.kind} at {each.marker.offset}, epoch {each.marker.producer_epoch}"
    return Moment(each.marker.timestamp_ms, "records", f"{records}: {end}", each.document())
