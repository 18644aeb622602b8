"""The groups of one partition of __consumer_offsets: the state machine that the runtime replays records into."""

from collections.abc import Callable

from fencepost.coordinators.context import Now
from fencepost.coordinators.group import Group
from fencepost.coordinators.journal import Entry, GroupEntry, OffsetEntry
from fencepost.coordinators.offsets import OffsetStore, StoredOffset
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import NO_PRODUCER_ID

Undo = Callable[[], None]


class GroupShard:
    def __init__(
        self,
        partition: int,
        on_loaded: Callable[["GroupShard", Now], None],
        on_unloaded: Callable[["GroupShard"], None],
    ) -> None:
        self.partition = partition
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded

    def create_group(self, group_id: str, wall_ms: int | None) -> Group:
        group = Group(group_id, self.partition, wall_ms)
        self.groups[group_id] = group
        return group

    def forget_group(self, group: Group) -> None:
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    # What the runtime calls

    def replay(self, position: int, producer_id: int, entry: Entry) -> Undo:
        if isinstance(entry, OffsetEntry):
            return self._replay_offset(position, producer_id, entry)
        return self._replay_group(entry)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed)

    def loaded(self, now: Now) -> None:
        self._on_loaded(self, now)

    def unloaded(self) -> None:
        self._on_unloaded(self)

    def _replay_offset(self, position: int, producer_id: int, entry: OffsetEntry) -> Undo:
        key = TopicPartition(entry.topic, entry.partition)
        if entry.value is None:
            return self.offsets.remove(entry.group_id, key)
        # Whoever commits without joining still has a group: a simple one, Empty and without a protocol type.
        created = None
        if entry.group_id not in self.groups:
            created = self.create_group(entry.group_id, entry.value.commit_timestamp_ms)
        stored = StoredOffset(position, entry.value)
        if producer_id == NO_PRODUCER_ID:
            undo = self.offsets.commit(entry.group_id, key, stored)
        else:
            undo = self.offsets.commit_in_transaction(producer_id, entry.group_id, key, stored)
        if created is None:
            return undo
        simple_group = created

        def take_back() -> None:
            undo()
            self.forget_group(simple_group)

        return take_back

    def _replay_group(self, entry: GroupEntry) -> Undo:
        previous = self.groups.get(entry.group_id)
        if entry.value is None:
            self.groups.pop(entry.group_id, None)
        else:
            self.groups[entry.group_id] = Group.from_record(entry.group_id, self.partition, entry.value)

        def take_back() -> None:
            if previous is None:
                self.groups.pop(entry.group_id, None)
            else:
                self.groups[entry.group_id] = previous

        return take_back
