"""A log against a model of it: whatever is appended, cut, rolled, deleted, and however often the power goes.

What must hold: reads give back what was appended; after a power cut everything below the synced offset is there and the
log is a prefix of what was appended; indexes, leader epochs, aborted transactions and producer state are what a scan of
the batches says.
"""

import dataclasses
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.peers.markers import append_marker

from fencepost.config import TopicConfig
from fencepost.log.indexes import OffsetIndex
from fencepost.log.open_transactions import AbortedTransaction
from fencepost.log.partition_log import Checkpoints, LogLimits, PartitionLog
from fencepost.log.producers import ProducerStateManager
from fencepost.simulation.disk import PowerCut, SimulatedDisk
from fencepost.wire.batch import BatchHeader, ControlType, build_batch, read_header
from fencepost.wire.errors import ErrorCode, KafkaError

NOW_MS = 1_700_000_000_000
DIRECTORY = "/data/purchases-0"
CONFIG = TopicConfig(segment_bytes=3_000, index_interval_bytes=300)
LIMITS = LogLimits(transaction_verification_enabled=False)
COORDINATOR_EPOCH = 3
IDEMPOTENT_PRODUCERS = (100, 101)
TRANSACTIONAL_PRODUCERS = (200, 201)


@dataclasses.dataclass
class Written:
    header: BatchHeader
    content: bytes


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.disk.make_directory("/data")
        self.disk.sync_directory("/")
        self.batches: list[Written] = []
        self.synced_offset = 0
        self.log_start_offset = 0
        self.leader_epoch = 0
        self.value = 0

    @initialize()
    def start(self) -> None:
        self.open(clean=False, recovery_point=0)

    def open(self, *, clean: bool, recovery_point: int) -> None:
        self.log = PartitionLog.open(
            self.disk, DIRECTORY, "purchases", 0, bytes(range(16)), CONFIG, NOW_MS,
            Checkpoints(clean, recovery_point, self.log_start_offset), limits=LIMITS,
        )  # fmt: skip

    # The model

    @property
    def end_offset(self) -> int:
        return max(self.batches[-1].header.next_offset if self.batches else 0, self.log_start_offset)

    def replayed(self) -> tuple[ProducerStateManager, list[AbortedTransaction]]:
        """What a scan of everything says of producers and aborted transactions."""
        producers = ProducerStateManager("purchases-0", LIMITS.producer_id_expiration_ms, verification_enabled=False)
        aborted = []
        for batch in self.batches:
            completed = producers.replay_batch(batch.content, 0, batch.header)
            if completed is not None and completed.is_aborted:
                aborted.append(
                    AbortedTransaction(
                        completed.producer_id,
                        completed.first_offset,
                        completed.last_offset,
                        completed.last_stable_offset,
                    )
                )
        return producers, aborted

    def remember(self, content: bytes) -> None:
        self.batches.append(Written(read_header(content), content))

    # Appending

    def records(self, count: int, size: int, age_ms: int) -> list[tuple[int, bytes, bytes, tuple[()]]]:
        self.value += 1
        return [(NOW_MS - age_ms + at, b"key-%d" % at, b"%d" % self.value * size, ()) for at in range(count)]

    def append(self, batch: bytearray) -> None:
        end_offset = self.end_offset
        appended = self.log.append_as_leader(batch, leader_epoch=self.leader_epoch, now_ms=NOW_MS)
        assert appended.first_offset == end_offset
        assert not appended.duplicate
        self.remember(bytes(batch))

    @rule(count=st.integers(1, 4), size=st.integers(0, 200), age_ms=st.integers(0, 50))
    def append_plain(self, count: int, size: int, age_ms: int) -> None:
        self.append(build_batch(self.records(count, size, age_ms)))

    def next_sequence(self, producer_id: int) -> int:
        entry = self.replayed()[0].last_entry(producer_id)
        return entry.next_sequence if entry is not None else 0

    @rule(producer_id=st.sampled_from(IDEMPOTENT_PRODUCERS), count=st.integers(1, 3), size=st.integers(0, 100))
    def append_idempotent(self, producer_id: int, count: int, size: int) -> None:
        sequence = self.next_sequence(producer_id)
        self.append(
            build_batch(self.records(count, size, 0), producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        )

    @rule(producer_id=st.sampled_from(TRANSACTIONAL_PRODUCERS), count=st.integers(1, 3))
    def append_transactional(self, producer_id: int, count: int) -> None:
        sequence = self.next_sequence(producer_id)
        self.append(
            build_batch(
                self.records(count, 20, 0),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
        )

    @rule(
        producer_id=st.sampled_from(TRANSACTIONAL_PRODUCERS),
        kind=st.sampled_from([ControlType.ABORT, ControlType.COMMIT]),
    )
    def end_transaction(self, producer_id: int, kind: ControlType) -> None:
        end_offset = self.end_offset
        appended = append_marker(
            self.log,
            kind,
            producer_id,
            0,
            COORDINATOR_EPOCH,
            transaction_version=1,
            leader_epoch=self.leader_epoch,
            now_ms=NOW_MS,
        )
        assert appended == end_offset
        read = self.log.read(end_offset, 10_000)
        self.remember(bytes(read.records))

    @rule(producer_id=st.sampled_from(IDEMPOTENT_PRODUCERS))
    def retry_the_last_batch(self, producer_id: int) -> None:
        sent = [batch for batch in self.batches if batch.header.producer_id == producer_id]
        if not sent:
            return
        last = sent[-1]
        retry = bytearray(last.content)
        retry[0:8] = bytes(8)
        appended = self.log.append_as_leader(retry, leader_epoch=self.leader_epoch, now_ms=NOW_MS)
        assert appended.duplicate
        assert (appended.first_offset, appended.last_offset) == (last.header.base_offset, last.header.last_offset)

    @rule()
    def append_to_a_full_disk(self) -> None:
        before = repr(self.log)
        state = self.log.producers.take_snapshot()
        self.disk.capacity_bytes = 0
        batch = build_batch(self.records(2, 50, 0), producer_id=300, producer_epoch=0, base_sequence=0)
        with pytest.raises(KafkaError) as refusal:
            self.log.append_as_leader(batch, leader_epoch=self.leader_epoch, now_ms=NOW_MS)
        self.disk.capacity_bytes = None
        assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert repr(self.log) == before
        assert self.log.producers.take_snapshot() == state

    @rule()
    def elect(self) -> None:
        self.leader_epoch += 1

    # Durability

    @rule()
    def sync(self) -> None:
        self.log.flush()
        self.synced_offset = self.log.synced_offset
        assert self.synced_offset == self.log.log_end_offset
        self.log.advance_high_watermark(self.synced_offset)

    @rule()
    def flush_side_files(self) -> None:
        self.log.flush_side_files()

    @rule(
        mode=st.sampled_from(PowerCut),
        seed=st.integers(0, 2**32),
        syncs=st.one_of(st.none(), st.integers(0, 5)),
        checkpointed=st.booleans(),
    )
    def lose_power(self, mode: PowerCut, seed: int, syncs: int | None, checkpointed: bool) -> None:
        """Perhaps in the middle of a group commit: some of the files are synced and nobody was told."""
        recovery_point = self.synced_offset if checkpointed else 0
        request = self.log.take_unsynced() if syncs is not None else None
        for file in request.files[:syncs] if request is not None else ():
            file.sync()
        self.disk.power_cut(mode, random.Random(seed))
        self.open(clean=False, recovery_point=recovery_point)
        end_offset = self.log.log_end_offset
        assert end_offset >= self.synced_offset, f"lost what was synced: {end_offset} < {self.synced_offset}"
        self.batches = [batch for batch in self.batches if batch.header.next_offset <= end_offset]
        if mode is PowerCut.LOSE_NOTHING:
            assert end_offset == self.end_offset
        self.after_restart()

    @rule()
    def stop_cleanly(self) -> None:
        self.log.close()
        self.disk.power_cut(PowerCut.LOSE_ALL)
        self.open(clean=True, recovery_point=0)
        assert self.log.log_end_offset == self.end_offset
        self.after_restart()

    def after_restart(self) -> None:
        self.synced_offset = self.log.log_end_offset
        assert self.log.synced_offset == self.synced_offset
        self.leader_epoch = max(self.leader_epoch, self.log.leader_epoch)

    # Shortening

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, self.log.high_watermark))
        assert self.log.delete_records_before(offset) == offset
        self.log_start_offset = offset

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, self.end_offset))
        self.log.truncate_to(offset, NOW_MS)
        self.batches = [batch for batch in self.batches if batch.header.next_offset <= offset]
        self.synced_offset = min(self.synced_offset, self.log.log_end_offset)

    # Reading

    @rule(data=st.data(), max_bytes=st.integers(0, 5_000), at_least_one_batch=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, at_least_one_batch: bool) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, self.end_offset))
        bound = data.draw(st.sampled_from([self.end_offset, self.log.high_watermark, self.log.last_stable_offset]))
        result = self.log.read(offset, max_bytes, upper_bound=bound, at_least_one_batch=at_least_one_batch)
        wanted = [b for b in self.batches if b.header.last_offset >= offset and b.header.next_offset <= bound]
        expected = b"".join(batch.content for batch in wanted)
        got = bytes(result.records)
        assert expected.startswith(got)
        if wanted and at_least_one_batch:
            assert len(got) >= len(wanted[0].content)
        if len(got) > max_bytes:
            assert at_least_one_batch
            assert got == wanted[0].content
        if got:
            assert result.next_offset >= offset
            assert got == b"".join(b.content for b in wanted if b.header.next_offset <= result.next_offset)

    @rule(data=st.data())
    def read_to_the_end(self, data: st.DataObject) -> None:
        max_bytes = data.draw(st.integers(1, 2_000))
        offset = self.log.log_start_offset
        parts = []
        while offset < self.end_offset:
            result = self.log.read(offset, max_bytes)
            assert result.records
            parts.append(bytes(result.records))
            offset = result.next_offset
        expected = [b.content for b in self.batches if b.header.last_offset >= self.log.log_start_offset]
        assert b"".join(parts) == b"".join(expected)

    @rule(age_ms=st.integers(-10, 60))
    def look_up_a_time(self, age_ms: int) -> None:
        timestamp = NOW_MS - age_ms
        found = self.log.offset_for_timestamp(timestamp)
        expected = None
        for batch in self.batches:
            header = batch.header
            if header.max_timestamp < timestamp:
                continue
            # Records of a batch are a millisecond apart.
            for at in range(header.record_count):
                offset = header.base_offset + at
                if header.base_timestamp + at >= timestamp and offset >= self.log.log_start_offset and expected is None:
                    expected = (header.base_timestamp + at, offset)
        assert (None if found is None else (found.timestamp, found.offset)) == expected

    # What always holds

    @invariant()
    def nothing_is_out_of_place(self) -> None:
        log = self.log
        log.check_invariants()
        assert log.log_end_offset == self.end_offset
        assert log.log_start_offset == self.log_start_offset
        first_segment = log.segments[0].base_offset
        producers, aborted = self.replayed()
        assert set(log.producers.producers) == set(producers.producers)
        for producer_id, expected in producers.producers.items():
            entry = log.producers.producers[producer_id]
            assert entry.producer_epoch == expected.producer_epoch
            assert entry.coordinator_epoch == expected.coordinator_epoch
            assert entry.current_txn_first_offset == expected.current_txn_first_offset
            assert entry.last_timestamp == expected.last_timestamp
            assert entry.next_sequence == expected.next_sequence
            # Of a window that begins in deleted segments, the rest is known after a restart.
            window = [batch for batch in expected.batches if batch[1] >= first_segment]
            assert list(entry.batches)[-len(window) :] == window if window else True
        unstable = producers.first_unstable_offset(log.high_watermark, log.log_start_offset)
        assert log.last_stable_offset == min(log.high_watermark, log.high_watermark if unstable is None else unstable)
        kept = [entry for entry in aborted if entry.last_offset >= first_segment]
        assert [entry for segment in log.segments for entry in segment.aborted.entries()] == kept

    @invariant()
    def indexes_and_epochs_are_what_a_scan_says(self) -> None:
        for segment in self.log.segments:
            index, since, largest = OffsetIndex(), 0, (-1, -1)
            batches = {}
            for found in segment.batches():
                header = found.header
                largest = max(largest, (header.max_timestamp, -header.last_offset))
                batches[header.last_offset] = header
                if since > CONFIG.index_interval_bytes:
                    index.relative_offsets.append(header.last_offset - segment.base_offset)
                    index.positions.append(found.position)
                    since = 0
                since += header.size_bytes
                if header.base_offset >= self.log.log_start_offset:
                    assert self.log.epochs.epoch_of(header.base_offset) == header.partition_leader_epoch
            assert segment.offset_index.encode() == index.encode()
            assert segment.max_timestamp == largest[0]
            for timestamp, relative in zip(
                segment.time_index.timestamps, segment.time_index.relative_offsets, strict=True
            ):
                assert batches[segment.base_offset + relative].max_timestamp == timestamp


LogMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
TestLogModel = LogMachine.TestCase
