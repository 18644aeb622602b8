"""Follows __transaction_state: reads new changes with one Fetch for all its partitions.

Keeps its positions while a broker is unavailable. If it cannot keep up, it skips changes and reports how many.
"""

import dataclasses

from fencepost.client.errors import BrokerError, ClientError
from fencepost.insight.cluster_view import HIDDEN, ClusterView, FetchedStretch
from fencepost.insight.state_changes import StateChange, read_state_change
from fencepost.internal_topic_names import TRANSACTION_STATE
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import ErrorCode

FIRST_READ_OFFSETS = 500
"""How much of the past of each partition is read at the start."""
ROUNDS_MAX = 4
ROUND_MAX_BYTES = 2 * 1024 * 1024


class TransactionStateHidden(Exception):
    """The cluster does not allow reading __transaction_state."""


@dataclasses.dataclass(frozen=True, slots=True)
class Followed:
    changes: list[tuple[StateChange, bool]]
    """Ordered by time and within each partition; with a flag for changes after the start of the tail."""
    skipped_offsets: int = 0
    is_other_log: bool = False
    """A partition no longer has what was read before: the log was truncated or created again."""


class StateTail:
    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._positions: dict[TopicPartition, int] = {}
        self._live_from: dict[TopicPartition, int] = {}

    @property
    def has_begun(self) -> bool:
        return bool(self._positions)

    async def begin(self, *, is_new: bool = False) -> bool:
        """Starts near the end of every partition. Returns False if the topic does not exist or is hidden.

        `is_new`: the topic did not exist before, so everything in it is new.
        """
        try:
            topics = await self._view.list_topics()
            partitions = [
                TopicPartition(topic.name, number)
                for topic in topics
                if topic.name == TRANSACTION_STATE
                for number in topic.partitions
            ]
            offsets = await self._view.offsets(partitions)
        except BrokerError as error:
            if error.code in HIDDEN:
                raise TransactionStateHidden from None
            raise
        for at, found in offsets.items():
            self._positions[at] = max(found.log_start_offset, found.high_watermark - FIRST_READ_OFFSETS)
            self._live_from[at] = self._positions[at] if is_new else found.high_watermark
        return bool(partitions)

    async def read(self) -> Followed:
        """Reads the new changes, as far as that is possible in a short time."""
        changes: list[tuple[StateChange, bool]] = []
        is_other_log = False
        behind: dict[TopicPartition, int] = {}
        try:
            for _ in range(ROUNDS_MAX):
                answers = await self._view.fetch_many(self._positions, ROUND_MAX_BYTES)
                behind = {}
                for at, stretch in answers.items():
                    if isinstance(stretch, BrokerError):
                        is_other_log |= await self._refused(at, stretch)
                        continue
                    changes += self._take(at, stretch)
                    if self._positions[at] < stretch.offsets.high_watermark:
                        behind[at] = stretch.offsets.high_watermark
                if not behind:
                    break
        except (ClientError, TransactionStateHidden):
            # The changes read so far are returned: the positions are already past them.
            if not changes and not is_other_log:
                raise
            behind = {}
        skipped = sum(end - self._positions[at] for at, end in behind.items())
        self._positions.update(behind)
        return Followed(_in_order(changes), skipped, is_other_log)

    def _take(self, at: TopicPartition, stretch: FetchedStretch) -> list[tuple[StateChange, bool]]:
        position = self._positions[at]
        found = []
        for batch in stretch.batches:
            if not batch.header.is_control:
                for record in batch.records():
                    change = read_state_change(record) if record.offset >= position else None
                    if change is not None:
                        found.append((change, record.offset >= self._live_from[at]))
            self._positions[at] = batch.header.next_offset
        return found

    async def _refused(self, at: TopicPartition, error: BrokerError) -> bool:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            if error.code in HIDDEN and not error.is_retriable:
                raise TransactionStateHidden
            raise error
        offsets = (await self._view.offsets([at]))[at]
        self._positions[at] = max(offsets.log_start_offset, offsets.high_watermark - FIRST_READ_OFFSETS)
        return True


def _in_order(changes: list[tuple[StateChange, bool]]) -> list[tuple[StateChange, bool]]:
    """Sorted by time, but the changes of an id keep their order even if the broker's clock jumped."""
    latest: dict[str, int] = {}
    keyed = []
    for each in changes:
        change = each[0]
        time_ms = latest[change.transactional_id] = max(
            change.timestamp_ms, latest.get(change.transactional_id, change.timestamp_ms)
        )
        keyed.append((time_ms, each))
    return [each for _, each in sorted(keyed, key=lambda pair: pair[0])]
