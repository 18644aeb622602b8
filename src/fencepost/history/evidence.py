"""The evidence of a history for every partition: who tried to write a value, who read it where, and what follows.

Two rules of inference come from Jepsen. A read of one value of a transaction proves that the transaction was
committed, so that all its other values must be readable; this holds for transactions of unknown outcome as well. And a
poll depends on the writer of the highest offset it returned (see `cycles.py`).
"""

from collections.abc import Iterator

from fencepost.history.operations import READ_COMMITTED, Operation, Outcome, Send, Value
from fencepost.history.reading import History


class Entry:
    """An offset as seen by readers."""

    __slots__ = ("committed_by", "committed_place", "offset", "place", "read_by", "send", "value")

    def __init__(self, offset: int, value: Value, read_by: Operation, place: int) -> None:
        self.offset = offset
        self.value = value
        self.read_by = read_by
        """The first to read it, at whatever isolation level, and when."""
        self.place = place
        self.committed_by: Operation | None = None
        """The first to read it at read_committed, and when."""
        self.committed_place = place
        self.send: Send | None = None
        """The attempt that wrote it, if it is unique."""


class PartitionEvidence:
    __slots__ = ("acknowledged", "attempts", "conflicts", "entries", "misread", "name", "thinned_below")

    def __init__(self, name: str, thinned_below: int = 0) -> None:
        self.name = name
        self.thinned_below = thinned_below
        """Records below this offset may have been deleted or compacted."""
        self.attempts: dict[Value, Send] = {}
        """The last attempt to send each value; `Send.earlier` leads to the others."""
        self.acknowledged: dict[int, Send] = {}
        self.entries: dict[int, Entry] = {}
        self.conflicts: dict[int, dict[tuple[Value, Value], tuple[Operation, Operation]]] = {}
        """By offset, two contradicting values, and the operations that reported them."""
        self.misread: list[tuple[Entry, Send]] = []
        """Values read at an offset other than the acknowledged one."""

    def tries(self, value: Value) -> Iterator[Send]:
        send = self.attempts.get(value)
        while send is not None:
            yield send
            send = send.earlier

    def dispute(self, offset: int, values: tuple[Value, Value], by: tuple[Operation, Operation]) -> None:
        self.conflicts.setdefault(offset, {}).setdefault(values, by)

    def may_be_gone(self, offset: int | None) -> bool:
        """Whether what is at this offset, or at an unknown one, may have been deleted."""
        return offset < self.thinned_below if offset is not None else self.thinned_below > 0

    def visible_offsets(self, isolation: str) -> list[int]:
        """Offsets at which a reader of this isolation level must be given something."""
        if isolation == READ_COMMITTED:
            found = {offset for offset, entry in self.entries.items() if entry.committed_by is not None}
            found.update(offset for offset, send in self.acknowledged.items() if send.operation.is_committed)
        else:
            found = {*self.entries, *self.acknowledged}
        return sorted(found)


class Evidence:
    def __init__(self, history: History) -> None:
        self.history = history
        self.partitions: dict[str, PartitionEvidence] = {}
        for operation in history.operations:
            for send in operation.sends:
                self._take_send(send)
        self._take_polls()
        for partition in self.partitions.values():
            _resolve(partition)

    def partition(self, name: str) -> PartitionEvidence:
        found = self.partitions.get(name)
        if found is None:
            found = self.partitions[name] = PartitionEvidence(name, self.history.thinned.get(name, 0))
        return found

    def _take_send(self, send: Send) -> None:
        partition = self.partition(send.partition)
        send.follow(partition.attempts.get(send.value))
        partition.attempts[send.value] = send
        if send.offset is None:
            return
        other = partition.acknowledged.setdefault(send.offset, send)
        if other is not send:
            partition.dispute(send.offset, (other.value, send.value), (other.operation, send.operation))

    def _take_polls(self) -> None:
        for place, operation, poll in self.history.polls:
            is_committed = operation.isolation == READ_COMMITTED
            for name, pairs in poll.items():
                partition = self.partition(name)
                entries = partition.entries
                for offset, value in pairs:
                    entry = entries.get(offset)  # type: ignore[arg-type]
                    if entry is None:
                        assert isinstance(offset, int)
                        entry = entries[offset] = Entry(offset, value, operation, place)
                    elif entry.value != value:
                        partition.dispute(entry.offset, (entry.value, value), (entry.read_by, operation))
                        continue
                    if is_committed and entry.committed_by is None:
                        entry.committed_by = operation
                        entry.committed_place = place


def _resolve(partition: PartitionEvidence) -> None:
    """Finds the attempt that wrote every entry, and records what reading it proves."""
    acknowledged = partition.acknowledged
    # What was read at read_committed first: it says more about who wrote it.
    for offset, entry in sorted(partition.entries.items(), key=lambda pair: pair[1].committed_by is None):
        told = acknowledged.get(offset)
        if told is not None:
            if told.value == entry.value:
                entry.send = told
            else:
                partition.dispute(offset, (told.value, entry.value), (told.operation, entry.read_by))
        if entry.send is None:
            entry.send = _only_attempt(partition, entry)
        send = entry.send
        if send is None:
            continue
        if send.offset is None:
            send.offset = offset
        operation = send.operation
        reader = entry.committed_by
        if reader is not None and reader is not operation:
            operation.prove(reader)


def _only_attempt(partition: PartitionEvidence, entry: Entry) -> Send | None:
    attempts = [each for each in partition.tries(entry.value) if each.operation.invoked < entry.place]
    candidates = [each for each in attempts if each.offset is None]
    if entry.committed_by is not None:
        candidates = [each for each in candidates if each.operation.outcome is not Outcome.FAIL] or candidates
    if candidates:
        return candidates[0] if len(candidates) == 1 else None
    for send in attempts:
        assert send.offset is not None
        other = partition.entries.get(send.offset)
        if other is None or other.value != entry.value:
            partition.misread.append((entry, send))
            return send
    return None
