"""Committed offsets of the groups of one partition, and those that wait for their transaction to end.

Plain state with undo: every change returns how to take it back. Who may commit what is decided elsewhere.
"""

import dataclasses
from collections.abc import Callable, Iterator

from fencepost.coordinators.journal import CommittedOffset
from fencepost.topic_partition import TopicPartition

Undo = Callable[[], None]


@dataclasses.dataclass(frozen=True, slots=True)
class StoredOffset:
    position: int
    """Where in the log it was committed: of a plain and a transactional commit, the later one counts."""
    value: CommittedOffset


GroupOffsets = dict[TopicPartition, StoredOffset]


class OffsetStore:
    def __init__(self) -> None:
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[int, dict[str, GroupOffsets]] = {}

    def of_group(self, group_id: str) -> GroupOffsets:
        return self._committed.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        stored = self.of_group(group_id).get(TopicPartition(topic, partition))
        return stored.value if stored else None

    def groups(self) -> Iterator[tuple[str, GroupOffsets]]:
        yield from self._committed.items()

    def count(self) -> int:
        return sum(map(len, self._committed.values()))

    # Transactions that have not ended

    def has_open_transaction(self, group_id: str) -> bool:
        return any(group_id in groups for groups in self._pending.values())

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return any((topic, partition) in groups.get(group_id, ()) for groups in self._pending.values())

    def pending_of_group(self, group_id: str) -> list[TopicPartition]:
        found = dict.fromkeys(key for groups in self._pending.values() for key in groups.get(group_id, ()))
        return list(found)

    def pending_group_ids(self) -> list[str]:
        return list(dict.fromkeys(group_id for groups in self._pending.values() for group_id in groups))

    def pending_producer_ids(self) -> list[int]:
        return list(self._pending)

    # Changes

    def commit(self, group_id: str, key: TopicPartition, stored: StoredOffset) -> Undo:
        return _put(self._committed, group_id, key, stored)

    def commit_in_transaction(self, producer_id: int, group_id: str, key: TopicPartition, stored: StoredOffset) -> Undo:
        groups = self._pending.setdefault(producer_id, {})
        undo = _put(groups, group_id, key, stored)

        def take_back() -> None:
            undo()
            if not groups and self._pending.get(producer_id) is groups:
                del self._pending[producer_id]

        return take_back

    def remove(self, group_id: str, key: TopicPartition) -> Undo:
        """Forget an offset, and what open transactions would have made of it."""
        undos = [_put(self._committed, group_id, key, None)]
        undos.extend(
            # The group stays listed under the producer until its transaction ends.
            _put(groups, group_id, key, None, keep_empty=True)
            for groups in self._pending.values()
            if group_id in groups
        )

        def take_back() -> None:
            for undo in reversed(undos):
                undo()

        return take_back

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            if not committed:
                continue
            for key, stored in offsets.items():
                current = self.of_group(group_id).get(key)
                if current is None or stored.position > current.position:
                    self.commit(group_id, key, stored)


def _put(
    groups: dict[str, GroupOffsets],
    group_id: str,
    key: TopicPartition,
    stored: StoredOffset | None,
    keep_empty: bool = False,
) -> Undo:
    """Set or (None) remove one offset."""
    offsets = groups.get(group_id)
    previous = offsets.get(key) if offsets else None
    if stored is not None:
        groups.setdefault(group_id, {})[key] = stored
    elif offsets is not None:
        offsets.pop(key, None)
        if not offsets and not keep_empty:
            del groups[group_id]

    def take_back() -> None:
        _put(groups, group_id, key, previous)

    return take_back
