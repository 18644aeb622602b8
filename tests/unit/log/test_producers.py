"""What a partition accepts from its producers: Kafka's rules, one scenario each."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.log.producers import CorruptSnapshot, Origin, ProducerStateManager, read_snapshot
from fencepost.wire.batch import SEQUENCE_MAX, BatchHeader, ControlType, build_batch, control_batch, read_header
from fencepost.wire.errors import ErrorCode, KafkaError
from tests.peers import java
from tests.peers.markers import Ends

unhurried = settings(deadline=None)
PID = 1000
NOW = 1_700_000_000_000
DAY = 86_400_000


def batch(sequence: int, count: int = 1, *, epoch: int = 0, pid: int = PID, transactional: bool = False) -> BatchHeader:
    records = [(NOW, b"k", b"v", ())] * count
    return read_header(
        build_batch(records, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=transactional)
    )


def at_sequence(header: BatchHeader, sequence: int) -> BatchHeader:
    return header._replace(base_sequence=sequence)


class Partition:
    """A log reduced to its end offset around the producer state."""

    def __init__(self, **options) -> None:
        self.state = ProducerStateManager("orders-0", DAY, **options)
        self.end = 0

    def append(self, header: BatchHeader, *, origin=Origin.CLIENT, guard=None, timestamp: int = NOW):
        """The offset it got; or, of a duplicate, what was remembered."""
        known = self.state.check_append(header, origin, guard)
        if known is not None:
            return known
        first = self.end
        self.end += header.last_offset_delta + 1
        self.state.update(header, first, self.end - 1, timestamp)
        return first

    def verify(
        self, sequence: int = 0, epoch: int = 0, *, tv2: bool = True, pid: int = PID, now: int = NOW, name: str = "tx"
    ):
        return self.state.maybe_start_verification(name, pid, sequence, epoch, tv2, now)

    def begin(self, sequence: int = 0, epoch: int = 0, pid: int = PID):
        """A verified first batch of a transaction."""
        guard = self.verify(sequence, epoch, tv2=False, pid=pid)
        appended = self.append(batch(sequence, epoch=epoch, pid=pid, transactional=True), guard=guard)
        self.state.verified(pid, "tx")
        return appended

    def mark(self, kind=ControlType.COMMIT, epoch=0, *, coordinator_epoch=0, version=0, pid=PID, timestamp=NOW):
        ends = Ends(pid, epoch, coordinator_epoch, transaction_version=version)
        self.state.check_marker(ends)
        marker = control_batch(kind, coordinator_epoch, pid, epoch, timestamp, base_offset=self.end)
        self.end += 1
        return self.state.apply_control(read_header(marker), kind, coordinator_epoch, self.end - 1)

    def refusal(self, *arguments, **options) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            self.append(*arguments, **options)
        assert "orders-0" in refused.value.message
        assert str(PID) in refused.value.message
        return refused.value.code

    def marker_refusal(self, *arguments, **options) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            self.mark(*arguments, **options)
        return refused.value.code

    @property
    def entry(self):
        return self.state.last_entry(PID)


class TestIdempotence:
    def test_sequences_in_a_row_are_accepted(self):
        partition = Partition()
        assert partition.append(batch(0, 3)) == 0
        assert partition.append(batch(3, 2)) == 3
        assert partition.append(batch(5)) == 5
        assert partition.entry.last_sequence == 5
        assert partition.entry.last_data_offset == 5

    def test_any_of_the_last_five_batches_sent_again_is_answered_with_its_first_offset_and_time(self):
        partition = Partition()
        for index in range(6):
            partition.append(batch(index * 2, 2), timestamp=NOW + index)
        for index in range(1, 6):
            known = partition.append(batch(index * 2, 2))
            assert (known.first_offset, known.last_offset, known.timestamp) == (index * 2, index * 2 + 1, NOW + index)
            assert (known.first_sequence, known.last_sequence) == (index * 2, index * 2 + 1)
        assert partition.refusal(batch(0, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert partition.end == 12

    def test_a_batch_that_only_overlaps_a_known_one_is_out_of_order(self):
        partition = Partition()
        partition.append(batch(0, 4))
        assert partition.refusal(batch(0, 3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert partition.refusal(batch(1, 3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert partition.refusal(batch(0, 5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_a_gap_is_out_of_order_and_changes_nothing(self):
        partition = Partition()
        partition.append(batch(0))
        assert partition.refusal(batch(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert partition.append(batch(1)) == 1

    def test_a_producer_nobody_knows_has_an_epoch_that_can_be(self):
        """As in Kafka. Below -1 there is none, and whatever came next would have fenced it."""
        partition = Partition()
        for epoch in (-2, -32768):
            assert partition.refusal(batch(0, epoch=epoch)) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert partition.entry is None

    def test_a_producer_nobody_knows_may_begin_anywhere(self):
        partition = Partition()
        assert partition.append(batch(77)) == 0
        assert partition.refusal(batch(79)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_sequences_wrap_from_the_largest_to_zero(self):
        partition = Partition()
        partition.append(at_sequence(batch(0, 2), SEQUENCE_MAX - 1))
        assert partition.entry.last_sequence == SEQUENCE_MAX
        assert partition.append(batch(0, 2)) == 2
        known = partition.append(at_sequence(batch(0, 2), SEQUENCE_MAX - 1))
        assert known.first_offset == 0

    def test_a_batch_may_wrap_in_its_middle(self):
        partition = Partition()
        across = at_sequence(batch(0, 4), SEQUENCE_MAX - 1)
        partition.append(across)
        assert partition.entry.last_sequence == 1
        assert partition.append(across).first_sequence == SEQUENCE_MAX - 1
        assert partition.append(batch(2)) == 4

    def test_a_new_epoch_begins_at_zero_and_forgets_the_old_batches(self):
        partition = Partition()
        partition.append(batch(0))
        partition.append(batch(1))
        assert partition.refusal(batch(2, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert partition.append(batch(0, epoch=1)) == 2
        assert len(partition.entry.batches) == 1
        assert partition.refusal(batch(1, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_batch_without_a_producer_leaves_no_trace(self):
        partition = Partition()
        plain = read_header(build_batch([(NOW, b"k", b"v", ())]))
        assert partition.append(plain) == 0
        assert partition.append(plain) == 1
        assert partition.state.is_empty
        assert partition.state.map_end_offset == 2

    def test_a_coordinator_sends_no_sequences_but_must_be_of_the_current_epoch(self):
        partition = Partition(verification_enabled=False)
        commit = at_sequence(batch(0, epoch=3, transactional=True), -1)
        partition.append(commit, origin=Origin.COORDINATOR)
        assert partition.append(commit, origin=Origin.COORDINATOR) == 1
        stale = commit._replace(producer_epoch=2)
        assert partition.refusal(stale, origin=Origin.COORDINATOR) == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_replication_is_followed_whatever_it_says(self):
        partition = Partition()
        partition.append(batch(0, epoch=5))
        partition.append(batch(9, epoch=2, transactional=True), origin=Origin.REPLICATION)
        assert partition.entry.producer_epoch == 2
        assert partition.entry.has_open_transaction


class TestTransactions:
    def test_the_first_batch_opens_the_transaction_and_the_marker_ends_it(self):
        partition = Partition()
        partition.append(batch(0, pid=1))
        assert partition.begin() == 1
        partition.append(batch(1, transactional=True))
        assert partition.entry.current_txn_first_offset == 1
        assert partition.state.first_undecided_offset() == 1
        done = partition.mark(ControlType.ABORT)
        assert done == (PID, 1, 3, True, 4)
        assert not partition.entry.has_open_transaction
        assert partition.state.first_undecided_offset() is None

    def test_readers_wait_until_the_marker_is_below_the_high_watermark(self):
        partition = Partition()
        partition.begin()
        partition.mark()
        assert partition.state.first_unstable_offset(high_watermark=1, log_start_offset=0) == 0
        assert partition.state.first_unstable_offset(high_watermark=2, log_start_offset=0) is None

    def test_the_first_unstable_offset_is_never_below_the_log_start(self):
        partition = Partition()
        partition.begin()
        assert partition.state.first_unstable_offset(high_watermark=1, log_start_offset=1) == 1

    def test_an_aborted_transaction_records_where_the_next_open_one_begins(self):
        partition = Partition()
        partition.begin(pid=1)
        partition.begin(pid=2)
        assert partition.mark(ControlType.ABORT, pid=2).last_stable_offset == 0
        partition.begin(1, pid=2)
        assert partition.mark(ControlType.ABORT, pid=1).last_stable_offset == 3

    def test_a_plain_batch_inside_a_transaction_is_an_invalid_state(self):
        partition = Partition()
        partition.begin()
        assert partition.refusal(batch(1)) == ErrorCode.INVALID_TXN_STATE

    def test_a_transaction_needs_the_guard_of_its_own_verification(self):
        partition = Partition()
        first = batch(0, transactional=True)
        assert partition.refusal(first) == ErrorCode.INVALID_TXN_STATE
        stale = partition.verify()
        partition.mark(epoch=1)  # a marker ends the verification too
        fresh = partition.verify(epoch=1)
        assert fresh is not stale
        later = batch(0, epoch=1, transactional=True)
        assert partition.refusal(later, guard=stale) == ErrorCode.INVALID_TXN_STATE
        assert partition.append(later, guard=fresh) == 1

    def test_a_stale_epoch_is_told_so_before_it_is_asked_for_a_guard(self):
        partition = Partition()
        partition.append(batch(0, epoch=4))
        assert partition.refusal(batch(0, epoch=3, transactional=True)) == ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(KafkaError) as refused:
            partition.verify(epoch=3)
        assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_an_open_transaction_needs_no_verification(self):
        partition = Partition()
        partition.begin()
        assert partition.verify(1) is None
        assert partition.state.verification_entry(PID) is None
        assert partition.verify(0, epoch=1) is not None

    def test_an_open_transaction_is_no_answer_to_another_transactional_id(self):
        partition = Partition()
        partition.begin()
        assert partition.verify(1, name="other") is not None
        # Asking is harmless: nothing of the open transaction changes, and its own next batch goes in.
        assert partition.state.verification_entry(PID) is None
        assert partition.verify(1) is None
        assert partition.append(batch(1, transactional=True)) == 1

    def test_whose_an_open_transaction_is_is_in_no_snapshot(self):
        partition = Partition()
        partition.begin()
        partition.state.load_snapshot(partition.state.take_snapshot(), 0, NOW)
        guard = partition.verify(1)
        assert guard is not None
        assert partition.append(batch(1, transactional=True), guard=guard) == 1

    def test_a_marker_that_overtakes_the_answer_about_an_open_transaction_leaves_it_closed(self):
        partition = Partition()
        partition.begin()
        guard = partition.verify(1, name="other")
        partition.mark()
        assert partition.refusal(batch(1, transactional=True), guard=guard) == ErrorCode.INVALID_TXN_STATE

    def test_requests_that_wait_share_one_guard_and_the_lowest_sequence_goes_first(self):
        partition = Partition()
        guard = partition.verify(5, tv2=False)
        assert partition.verify(3, tv2=False) is guard
        high, low = (batch(sequence, transactional=True) for sequence in (5, 3))
        assert partition.refusal(high, guard=guard) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert partition.append(low, guard=guard) == 0

    def test_a_higher_epoch_starts_the_lowest_sequence_over(self):
        partition = Partition()
        partition.verify(3, epoch=0)
        partition.verify(8, epoch=1)
        partition.verify(2, epoch=0)
        entry = partition.state.verification_entry(PID)
        assert (entry.epoch, entry.lowest_sequence) == (1, 8)

    def test_a_producer_that_bumps_epochs_begins_at_zero_when_nothing_is_known(self):
        partition = Partition()
        guard = partition.verify(2, tv2=True)
        header = batch(2, transactional=True)
        assert partition.refusal(header, guard=guard) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_a_marker_with_a_raised_epoch_leaves_the_verification_of_the_next_transaction(self):
        partition = Partition()
        partition.begin(epoch=0)
        guard = partition.verify(0, epoch=1)
        partition.mark(epoch=1, version=2)
        assert partition.append(batch(0, epoch=1, transactional=True), guard=guard) == 2

    def test_verification_can_be_off(self):
        partition = Partition(verification_enabled=False)
        assert partition.append(batch(0, transactional=True)) == 0

    def test_sequences_go_on_over_transactions_of_one_epoch_and_restart_with_a_raised_one(self):
        partition = Partition()
        partition.begin(0)
        partition.mark(epoch=0)
        assert partition.begin(1) == 2
        partition.mark(epoch=1, version=2)
        guard = partition.verify(1, epoch=1, tv2=False)
        header = batch(1, epoch=1, transactional=True)
        assert partition.refusal(header, guard=guard) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class TestMarkers:
    def test_before_version_two_the_epoch_may_stay_but_not_fall(self):
        partition = Partition()
        partition.begin(epoch=2)
        assert partition.marker_refusal(epoch=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        partition.mark(epoch=2)
        assert partition.mark(epoch=2) is None
        assert partition.mark(epoch=3) is None

    def test_from_version_two_on_the_epoch_must_rise_while_a_transaction_is_open(self):
        partition = Partition()
        partition.begin(epoch=2)
        assert partition.marker_refusal(epoch=2, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert partition.mark(epoch=3, version=2) is not None

    def test_a_marker_sent_twice_is_written_twice_and_changes_nothing(self):
        partition = Partition()
        partition.begin(epoch=2)
        partition.mark(epoch=3, version=2)
        assert partition.mark(epoch=3, version=2) is None
        assert partition.marker_refusal(epoch=2, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_the_last_epoch_of_all_cannot_rise(self):
        partition = Partition()
        partition.begin(epoch=32767)
        assert partition.mark(epoch=32767, version=2) is not None

    def test_an_old_coordinator_is_fenced(self):
        partition = Partition()
        partition.begin()
        partition.mark(coordinator_epoch=5)
        partition.begin(1)
        assert partition.marker_refusal(coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert partition.mark(coordinator_epoch=5) is not None

    def test_a_marker_for_a_producer_nobody_knows_sets_its_epoch(self):
        partition = Partition()
        assert partition.mark(epoch=7, coordinator_epoch=2) is None
        assert (partition.entry.producer_epoch, partition.entry.coordinator_epoch) == (7, 2)
        assert partition.refusal(batch(0, epoch=6)) == ErrorCode.INVALID_PRODUCER_EPOCH


class TestExpiry:
    def test_an_idle_producer_is_forgotten_on_the_day(self):
        partition = Partition()
        partition.append(batch(0), timestamp=NOW)
        assert partition.state.remove_expired(NOW + DAY - 1) == 0
        assert partition.state.remove_expired(NOW + DAY) == 1
        assert partition.append(batch(55)) == 1

    def test_an_open_transaction_is_never_forgotten(self):
        partition = Partition()
        partition.begin()
        assert partition.state.remove_expired(NOW + 100 * DAY) == 0

    def test_a_verification_that_came_to_nothing_is_dropped(self):
        partition = Partition()
        partition.verify(now=NOW)
        partition.state.remove_expired(NOW + DAY)
        assert partition.state.verification_entry(PID) is None

    def test_a_transaction_is_late_when_even_five_minutes_more_have_passed(self):
        partition = Partition()
        assert not partition.state.has_late_transaction(NOW, 900_000)
        partition.begin()
        assert not partition.state.has_late_transaction(NOW + 900_000 + 300_000, 900_000)
        assert partition.state.has_late_transaction(NOW + 900_000 + 300_001, 900_000)


def reloaded(partition: Partition, now: int = NOW) -> Partition:
    again = Partition()
    content = partition.state.take_snapshot()
    again.state.adopt_snapshot(partition.end, content, 0, now)
    again.end = partition.end
    return again


class TestSnapshots:
    def test_the_newest_batch_and_the_open_transaction_survive(self):
        partition = Partition()
        partition.append(batch(0, pid=1))
        partition.append(batch(1, 3, pid=1))
        partition.begin(epoch=4)
        again = reloaded(partition)
        assert again.append(batch(1, 3, pid=1)).first_offset == 1
        assert again.append(batch(4, pid=1)) == 5
        assert again.entry.current_txn_first_offset == 4
        assert again.state.first_undecided_offset() == 4
        assert again.mark(ControlType.ABORT, epoch=4).first_offset == 4

    def test_a_producer_known_only_by_its_marker_keeps_its_epoch(self):
        partition = Partition()
        partition.mark(epoch=3, coordinator_epoch=9)
        again = reloaded(partition)
        assert (again.entry.producer_epoch, again.entry.coordinator_epoch) == (3, 9)
        assert not again.entry.batches

    def test_expired_producers_are_not_loaded(self):
        partition = Partition()
        partition.append(batch(0))
        assert reloaded(partition, NOW + DAY).state.is_empty

    @unhurried
    @given(st.data())
    def test_a_damaged_snapshot_is_refused_and_nothing_is_lost(self, data):
        partition = Partition()
        partition.append(batch(0))
        partition.begin(pid=2)
        content = bytearray(partition.state.take_snapshot())
        if data.draw(st.booleans()):
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        with pytest.raises(CorruptSnapshot):
            partition.state.load_snapshot(bytes(content), 0, NOW)
        assert len(partition.state.producers) == 2

    def test_the_bytes_are_those_of_kafkas_format(self):
        partition = Partition()
        partition.append(batch(0, 2))
        content = partition.state.take_snapshot()
        assert len(content) == 2 + 4 + 4 + 46
        assert content[:2].hex() == "0001"
        assert content[6:].hex() == (
            "00000001" "00000000000003e8" "0000" "00000001" "0000000000000001" "00000001"
            "0000018bcfe56800" "ffffffff" "ffffffffffffffff"
        )  # fmt: skip

    def test_kafkas_dump_tool_reads_it(self, tmp_path):
        partition = Partition()
        partition.append(batch(0, 2))
        partition.begin(pid=77, epoch=6)
        partition.mark(pid=5, epoch=2, coordinator_epoch=3)
        file = tmp_path / f"{partition.end:020}.snapshot"
        file.write_bytes(partition.state.take_snapshot())
        printed = java.dump_log(file)
        closed = "currentTxnFirstOffset: OptionalLong.empty"
        assert f"producerId: 1000 producerEpoch: 0 coordinatorEpoch: -1 {closed}" in printed
        assert "producerId: 77 producerEpoch: 6 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[2]" in printed
        assert "producerId: 5 producerEpoch: 2 coordinatorEpoch: 3" in printed

    def test_a_snapshot_of_nothing_is_a_snapshot(self):
        assert read_snapshot(Partition().state.take_snapshot()) == []


class TestReplay:
    def test_replaying_the_log_gives_the_state_that_wrote_it(self):
        live, log = Partition(), bytearray()

        def put(content: bytearray, apply) -> None:
            content[:8] = live.end.to_bytes(8, "big")
            log.extend(content)
            apply(read_header(content))

        def data(pid: int, sequence: int, **options) -> bytearray:
            record = (NOW + sequence, b"k", b"v", ())
            return build_batch([record], producer_id=pid, producer_epoch=0, base_sequence=sequence, **options)

        for sequence in range(8):
            put(data(1, sequence), lambda header: live.append(header, timestamp=header.max_timestamp))
        for pid in (2, 3):
            put(data(pid, 0, transactional=True), lambda h: live.append(h, guard=live.verify(pid=h.producer_id)))
        put(
            control_batch(ControlType.ABORT, 4, 2, 1, NOW),
            lambda _: live.mark(ControlType.ABORT, 1, pid=2, coordinator_epoch=4),
        )

        again = ProducerStateManager("orders-0", DAY)
        position, completed = 0, []
        while position < len(log):
            header = read_header(log, position)
            completed.append(again.replay_batch(log, position, header))
            position += header.size_bytes
        assert completed[-1] == (2, 8, 10, True, 9)
        assert again.take_snapshot() == live.state.take_snapshot()
        assert list(again.last_entry(1).batches) == list(live.state.last_entry(1).batches)
        assert again.map_end_offset == live.end

    def test_an_emptied_marker_says_nothing(self):
        state = ProducerStateManager("orders-0", DAY)
        empty = read_header(control_batch(ControlType.COMMIT, 0, PID, 0, NOW))._replace(record_count=0)
        assert state.replay_batch(b"", 0, empty) is None
        assert state.is_empty

    def test_a_snapshot_says_up_to_where_it_reaches(self):
        partition = Partition()
        partition.append(batch(0))
        again = reloaded(partition)
        assert (again.state.map_end_offset, again.state.snapshot_offset) == (1, 1)

    def test_starting_afresh_forgets_everything(self):
        partition = Partition()
        partition.begin()
        partition.state.truncate_fully_and_start_at(500)
        assert partition.state.is_empty
        assert partition.state.map_end_offset == 500
