"""Simulated readers: read_committed, read_uncommitted, and one that reads everything at the end."""

from collections.abc import Callable
from typing import Any

from fencepost.history.operations import READ_COMMITTED, READ_UNCOMMITTED
from fencepost.simulation.client_journal import ClientJournal, partition_name
from fencepost.simulation.clients import RETRIABLE, RETRY_MS, ClientProcess, Request, Sleep, Steps
from fencepost.simulation.requests import FETCH_BYTES, fetch, offset_fetch
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import ControlType, iterate_headers, read_marker, verify_crc
from fencepost.wire.errors import ErrorCode
from fencepost.wire.records import Record, read_records

RECORD_BYTES_MAX = 1 << 20
POLL_WAIT_MS = 150
FINAL_TRIES_MAX = 400


class CorruptBatch(Exception):
    """A received batch has a wrong checksum: the broker must never send one."""


def committed_records(data: Any, from_offset: int, *, is_committed: bool) -> tuple[list[tuple[int, str]], int]:
    """The records that a consumer passes to its application from one fetched partition, and its next offset."""
    aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
    view = memoryview(data.records or b"")
    records: list[tuple[int, str]] = []
    skipped: set[int] = set()
    next_offset = from_offset
    for position, header in iterate_headers(view):
        if not verify_crc(view, position, header):
            raise CorruptBatch(f"at offset {header.base_offset}")
        next_offset = header.next_offset
        batch = view[position : position + header.size_bytes]
        if is_committed:
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None and marker.control_type == ControlType.ABORT:
                    skipped.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in skipped:
                continue
        elif header.is_control:
            continue
        for record in read_records(batch, RECORD_BYTES_MAX):
            if record.offset >= from_offset:
                records.append((record.offset, _text(record)))
    return records, next_offset


def read_to_the_end(
    key: TopicPartition, start: int, ask: Callable[[int], Request], problems: list[str], *, is_committed: bool
) -> Steps[tuple[list[tuple[int, str]], Any]]:
    """Every record from an offset on, and the last answer, which had no more; None with what went wrong instead."""
    offset = start
    found: list[tuple[int, str]] = []
    for _ in range(FINAL_TRIES_MAX):
        answer = yield ask(offset)
        if answer is None:
            yield Sleep(RETRY_MS)
            continue
        data = answer.responses[0].partitions[0]
        if data.error_code:
            problems.append(f"the final read of {key} at {offset}: {ErrorCode(data.error_code).name}")
            return found, None
        try:
            records, next_offset = committed_records(data, offset, is_committed=is_committed)
        except CorruptBatch as error:
            problems.append(f"the final read of {key}: corrupt {error}")
            return found, None
        found += records
        if next_offset == offset:
            return found, data
        offset = next_offset
    problems.append(f"the final read of {key} does not end")
    return found, None


def _text(record: Record) -> str:
    """The value, as the history has it; of a tombstone what its header says."""
    if record.value is None and record.headers:
        return (record.headers[0][1] or b"").decode()
    return (record.value or b"").decode()


class Reader(ClientProcess):
    """Follows some partitions, and begins again at the start now and then."""

    def __init__(
        self, *arguments: Any, partitions: list[TopicPartition], is_committed: bool, journal: ClientJournal
    ) -> None:
        super().__init__(*arguments)
        self.partitions = partitions
        self.is_committed = is_committed
        self.journal = journal

    def run(self) -> Steps[None]:
        offsets = dict.fromkeys(self.partitions, 0)
        isolation = READ_COMMITTED if self.is_committed else READ_UNCOMMITTED
        self.journal.recorder.assign(self.name)
        while True:
            operation = self.journal.recorder.poll(self.name, isolation)
            wait_ms = self.source.choice((0, POLL_WAIT_MS, 3 * POLL_WAIT_MS))
            answer = yield fetch(
                offsets,
                is_committed=self.is_committed,
                max_wait_ms=wait_ms,
                max_bytes=self.source.choice((300, FETCH_BYTES)),
            )
            polled: dict[str, list[tuple[int, str]]] = {}
            for topic in () if answer is None else answer.responses:
                for data in topic.partitions:
                    self._take(offsets, TopicPartition(topic.topic, data.partition_index), data, polled)
            if polled:
                operation.polled(polled)
            operation.ok()
            yield Sleep(self.source.choice((20, 120, 350)))
            if self.source.random() < 0.004:
                offsets = dict.fromkeys(self.partitions, 0)
                self.journal.recorder.assign(self.name)

    def _take(
        self,
        offsets: dict[TopicPartition, int],
        key: TopicPartition,
        data: Any,
        polled: dict[str, list[tuple[int, str]]],
    ) -> None:
        if data.error_code:
            if data.error_code not in RETRIABLE:
                name = ErrorCode(data.error_code).name
                self.journal.wonder(f"{self.name} reads {key} at {offsets[key]}: {name}")
            return
        try:
            records, next_offset = committed_records(data, offsets[key], is_committed=self.is_committed)
        except CorruptBatch as error:
            self.journal.wonder(f"{self.name} was served a corrupt batch of {key} {error}")
            return
        if records:
            polled[partition_name(key)] = records
        offsets[key] = next_offset


class FinalReader(ClientProcess):
    """Reads everything from the start until it has reached every end, and asks for the groups' positions."""

    def __init__(
        self,
        *arguments: Any,
        partitions: list[TopicPartition],
        groups: list[tuple[str, TopicPartition]],
        journal: ClientJournal,
    ) -> None:
        super().__init__(*arguments)
        self.partitions = partitions
        self.groups = groups
        self.journal = journal
        self.committed: dict[TopicPartition, list[tuple[int, str]]] = {key: [] for key in partitions}
        self.uncommitted: dict[TopicPartition, list[tuple[int, str]]] = {key: [] for key in partitions}
        self.positions: dict[tuple[str, TopicPartition], int] = {}
        self.problems: list[str] = []
        self.is_done = False

    def run(self) -> Steps[None]:
        for group, key in self.groups:
            yield from self._position(group, key)
        names = [partition_name(key) for key in self.partitions]
        for found, is_committed, isolation in (
            (self.committed, True, READ_COMMITTED),
            (self.uncommitted, False, READ_UNCOMMITTED),
        ):
            operation = self.journal.recorder.final_read(self.name, names, isolation)
            for key in self.partitions:
                found[key] = yield from self._read(key, is_committed)
            operation.polled({partition_name(key): records for key, records in found.items()})
            operation.ok()
        self.is_done = True

    def _position(self, group: str, key: TopicPartition) -> Steps[None]:
        operation = self.journal.recorder.fetch_offsets(self.name)
        for _ in range(FINAL_TRIES_MAX):
            answer = yield offset_fetch(group, key)
            if answer is not None:
                (fetched,) = answer.groups
                code = fetched.error_code or fetched.topics[0].partitions[0].error_code
                if not code:
                    offset = fetched.topics[0].partitions[0].committed_offset
                    self.positions[group, key] = offset
                    operation.fetched(group, {partition_name(key): offset if offset >= 0 else None})
                    operation.ok()
                    return
            yield Sleep(RETRY_MS)
        operation.info()
        self.problems.append(f"no position of {group} in {key}: {None if answer is None else answer.groups}")

    def _read(self, key: TopicPartition, is_committed: bool) -> Steps[list[tuple[int, str]]]:
        def ask(offset: int) -> Request:
            return fetch({key: offset}, is_committed=is_committed, max_wait_ms=0, max_bytes=1 << 20)

        found, last = yield from read_to_the_end(key, 0, ask, self.problems, is_committed=is_committed)
        if last is not None and last.last_stable_offset != last.high_watermark:
            self.problems.append(
                f"{key} is undecided at the end: last stable offset {last.last_stable_offset}, "
                f"high watermark {last.high_watermark}"
            )
        return found
