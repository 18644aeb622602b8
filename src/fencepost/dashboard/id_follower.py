"""Everything that the cluster knows about one transactional id. Later updates read only what is new."""

from fencepost.client.errors import BrokerError
from fencepost.client.kafka_types import TransactionDescription
from fencepost.insight.cluster_view import HIDDEN, ClusterView
from fencepost.insight.partition_scan import PartitionScan, PartitionTransaction
from fencepost.insight.state_changes import StateChange, read_state_change
from fencepost.internal_topic_names import TRANSACTION_STATE
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import ErrorCode

FIRST_READ_OFFSETS = 50_000
"""Per partition, at the first update."""
NEXT_READ_OFFSETS = 20_000
CHANGES_MAX = 200
SPANS_MAX = 100
"""Per partition."""


class IdFollower:
    def __init__(self, view: ClusterView, transactional_id: str) -> None:
        self._view = view
        self._transactional_id = transactional_id
        self.changes: list[StateChange] = []
        self.is_hidden = False
        """The cluster does not show __transaction_state."""
        self.is_truncated = False
        """Older records were not read, or were dropped."""
        self._scans: dict[TopicPartition, PartitionScan] = {}
        self._state_position: int | None = None
        self._producer_ids: set[int] = set()

    async def update(self, description: TransactionDescription) -> None:
        await self._read_changes()
        self._producer_ids |= {change.producer_id for change in self.changes} | {description.producer_id}
        touched = {at for change in self.changes for at in change.partitions} | set(description.partitions)
        there = {topic.name: topic.partitions for topic in await self._view.list_topics()}
        for at in sorted(at for at in touched if at.partition in there.get(at.topic, {})):
            await self._read_partition(at)
        # The states are read last, so that the picture never shows records without their transaction.
        await self._read_changes()

    def written(self) -> list[PartitionTransaction]:
        """Its transactions in each partition, ended ones first."""
        return [each for scan in self._scans.values() for each in scan.of_producers(self._producer_ids)]

    async def _read_changes(self) -> None:
        try:
            at = await self._view.coordinator_partition(TRANSACTION_STATE, self._transactional_id)
            start, end = await self._stretch(at, self._state_position)
            async for batch in self._view.batches(at, start, end):
                self._state_position = batch.header.next_offset
                if batch.header.is_control:
                    continue
                for record in batch.records():
                    # Most records belong to other ids and are not decoded.
                    if record.key is None or self._transactional_id.encode() not in record.key:
                        continue
                    change = read_state_change(record)
                    if change is not None and change.transactional_id == self._transactional_id:
                        self.changes.append(change)
        except BrokerError as error:
            if error.code not in HIDDEN:
                raise
            self.is_hidden = True
        if len(self.changes) > CHANGES_MAX:
            del self.changes[:-CHANGES_MAX]
            self.is_truncated = True

    async def _read_partition(self, at: TopicPartition) -> None:
        scan = self._scans.get(at)
        start, end = await self._stretch(at, None if scan is None else scan.next_offset)
        if scan is None or start < scan.next_offset:
            scan = self._scans[at] = PartitionScan(at, start)
        async for batch in self._view.batches(at, start, end):
            scan.feed(batch.header, batch.marker())
        self.is_truncated |= scan.forget_ended(self._producer_ids, SPANS_MAX)

    async def _stretch(self, at: TopicPartition, position: int | None) -> tuple[int, int]:
        """The range to read now. Starts again if the log is shorter than before."""
        offsets = (await self._view.offsets([at]))[at]
        end = offsets.high_watermark
        is_new = position is None or position > end
        start = max(offsets.log_start_offset, end - (FIRST_READ_OFFSETS if is_new else NEXT_READ_OFFSETS))
        if position is not None and not is_new:
            self.is_truncated |= start > position
            start = max(start, position)
        else:
            self.is_truncated |= start > offsets.log_start_offset
        return start, end


def is_gone(error: BrokerError) -> bool:
    return error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
