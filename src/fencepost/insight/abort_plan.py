"""What aborting a transaction would change: which records vanish and what readers see afterwards."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from fencepost.insight.cluster_view import ClusterView, OpenTransaction
from fencepost.insight.pending_offsets import PendingOffset, pending_offsets
from fencepost.internal_topic_names import CONSUMER_OFFSETS
from fencepost.topic_partition import TopicPartition


@dataclasses.dataclass(frozen=True, slots=True)
class AbortEffect:
    """The effect in one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    vanishing_records: int
    """Records of the transaction, which read_committed consumers will never get."""
    visible_records: int
    """Records of others after it, which read_committed consumers get immediately."""
    last_stable_offset: int
    next_last_stable_offset: int
    held_by: int | None
    """The producer id that holds up the readers next."""
    vanishing_offsets: tuple[PendingOffset, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "start_offset": self.start_offset,
            "vanishing_records": self.vanishing_records,
            "visible_records": self.visible_records,
            "last_stable_offset": self.last_stable_offset,
            "next_last_stable_offset": self.next_last_stable_offset,
            "held_by_producer_id": self.held_by,
            "vanishing_offsets": [each.document() for each in self.vanishing_offsets],
        }


async def plan_abort(view: ClusterView, opened: Iterable[OpenTransaction]) -> list[AbortEffect]:
    listed = list(opened)
    offsets = await view.offsets({each.partition for each in listed})
    effects = []
    for each in listed:
        at = offsets[each.partition]
        producer = each.producer
        scan = await view.scan(each.partition, at.last_stable_offset, at.high_watermark)
        own = scan.open.get(producer.producer_id)
        others = [open_.first_offset for pid, open_ in scan.open.items() if pid != producer.producer_id]
        held_until = min(others, default=at.high_watermark)
        holder = next((pid for pid, open_ in scan.open.items() if open_.first_offset == held_until), None)
        pending: list[PendingOffset] = []
        if each.partition.topic == CONSUMER_OFFSETS:
            pending = await pending_offsets(view, [each])
        effects.append(
            AbortEffect(
                each.partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                each.start_offset,
                0 if own is None else own.record_count,
                scan.records_decided_below(held_until),
                at.last_stable_offset,
                held_until,
                holder if others else None,
                tuple(pending),
            )
        )
    return effects
