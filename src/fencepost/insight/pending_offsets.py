"""Group offsets that were committed in transactions that are still open."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from fencepost.client.errors import BrokerError
from fencepost.insight.cluster_view import HIDDEN, ClusterView, OpenTransaction
from fencepost.insight.internal_records import decode_record
from fencepost.internal_topic_names import CONSUMER_OFFSETS
from fencepost.topic_partition import TopicPartition

OFFSET_COMMIT_TYPES = (0, 1)


class PendingOffset(NamedTuple):
    group_id: str
    partition: TopicPartition
    offset: int
    producer_id: int

    def document(self) -> dict[str, Any]:
        return {
            "group": self.group_id,
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "offset": self.offset,
            "producer_id": self.producer_id,
        }


async def pending_offsets(view: ClusterView, opened: Iterable[OpenTransaction]) -> list[PendingOffset]:
    """The offsets that open transactions in __consumer_offsets would commit; the last one for each group and
    partition."""
    found: dict[tuple[str, TopicPartition, int], PendingOffset] = {}
    by_partition: dict[TopicPartition, dict[int, int]] = {}
    for each in opened:
        by_partition.setdefault(each.partition, {})[each.producer.producer_id] = each.start_offset
    offsets = await view.offsets(by_partition)
    for partition, starts in by_partition.items():
        async for batch in view.batches(partition, min(starts.values()), offsets[partition].high_watermark):
            header = batch.header
            if header.is_control or not header.is_transactional or header.producer_id not in starts:
                continue
            if header.base_offset < starts[header.producer_id]:
                continue
            for record in batch.records():
                decoded = decode_record(CONSUMER_OFFSETS, record)
                if decoded.key is None or decoded.value is None or decoded.key_type not in OFFSET_COMMIT_TYPES:
                    continue
                target = TopicPartition(decoded.key["topic"], decoded.key["partition"])
                pending = PendingOffset(
                    decoded.key["group"], target, decoded.value["offset"], header.producer_id
                )  # fmt: skip
                found[pending.group_id, target, header.producer_id] = pending
    return list(found.values())


async def pending_of_group(view: ClusterView, group_id: str) -> list[PendingOffset] | None:
    """None if the cluster hides __consumer_offsets."""
    try:
        partition = await view.coordinator_partition(CONSUMER_OFFSETS, group_id)
        opened, refused = await view.open_transactions([partition])
        if refused:
            return None
        return [each for each in await pending_offsets(view, opened) if each.group_id == group_id]
    except BrokerError as error:
        if error.code in HIDDEN:
            return None
        raise
