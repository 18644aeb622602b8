"""The groups of one partition of __consumer_offsets: the state machine that the runtime replays records into."""

from collections.abc import Callable

from fencepost.coordinators.group import Group
from fencepost.coordinators.journal import Entry, GroupEntry, OffsetEntry
from fencepost.coordinators.offsets import OffsetStore, StoredOffset
from fencepost.ports import Now
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
        self._is_loaded = False
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded

    # What the runtime calls

    def replay(self, position: int, producer_id: int, entry: Entry) -> Undo:
        if isinstance(entry, OffsetEntry):
            return self._replay_offset(position, producer_id, entry)
        return self._replay_group(entry)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed)

    def loaded(self, now: Now) -> None:
        self._is_loaded = True
        self._on_loaded(self, now)

    def unloaded(self) -> None:
        self._on_unloaded(self)

    def _replay_offset(self, position: int, producer_id: int, entry: OffsetEntry) -> Undo:
        key = TopicPartition(entry.topic, entry.partition)
        if entry.value is None:
            return self.offsets.remove(entry.group_id, key)
        # A commit without a membership creates a simple group, which is Empty and has no protocol type.
        created = None
        if entry.group_id not in self.groups:
            created = self.groups[entry.group_id] = Group(
                entry.group_id, self.partition, entry.value.commit_timestamp_ms
            )
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
            if self.groups.get(simple_group.group_id) is simple_group:
                del self.groups[simple_group.group_id]

        return take_back

    def _replay_group(self, entry: GroupEntry) -> Undo:
        previous = self.groups.get(entry.group_id)
        if entry.value is None:
            self.groups.pop(entry.group_id, None)
        elif previous is not None and self._is_loaded:
            return previous.replay(entry.value)
        else:
            # While loading, the last record of a group says everything: those before it may have been compacted away.
            self.groups[entry.group_id] = Group.from_record(entry.group_id, self.partition, entry.value)

        def take_back() -> None:
            if previous is None:
                self.groups.pop(entry.group_id, None)
            else:
                self.groups[entry.group_id] = previous

        return take_back
