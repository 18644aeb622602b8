"""From fetched bytes to records: what a reader sees, and where it goes on."""

import pytest

from fencepost.client.errors import CorruptRecords
from fencepost.client.fetching import AbortedTransaction, Fetched, read_fetched
from fencepost.client.kafka_types import IsolationLevel
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import ControlType, build_batch, control_batch

PARTITION = TopicPartition("purchases", 0)


def batch(base_offset: int, *values: bytes, **fields: int | bool) -> bytes:
    return bytes(build_batch([(1_000, None, value, ()) for value in values], base_offset=base_offset, **fields))  # type: ignore[arg-type]


def transactional(base_offset: int, producer_id: int, *values: bytes) -> bytes:
    return batch(base_offset, *values, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def marker(base_offset: int, producer_id: int, kind: ControlType) -> bytes:
    return bytes(control_batch(kind, 0, producer_id, 0, 1_000, base_offset=base_offset))


def read(data: bytes, offset: int = 0, aborted: tuple[tuple[int, int], ...] = (), *, committed: bool = True) -> Fetched:
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    return read_fetched(PARTITION, offset, data, level, [AbortedTransaction(first, pid) for first, pid in aborted])


def values(fetched: Fetched) -> list[bytes | None]:
    return [record.value for record in fetched.records]


def test_records_before_the_offset_asked_for_are_left_out_of_its_batch() -> None:
    fetched = read(batch(10, b"a", b"b", b"c"), offset=11)
    assert [(record.offset, record.value) for record in fetched.records] == [(11, b"b"), (12, b"c")]
    assert fetched.next_offset == 13


def test_a_batch_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    whole, cut = batch(0, b"a"), batch(1, b"b")
    for length in (5, 30, len(cut) - 1):
        fetched = read(whole + cut[:length])
        assert values(fetched) == [b"a"]
        assert fetched.next_offset == 1


def test_nothing_fetched_moves_nothing() -> None:
    assert read(b"", offset=7) == Fetched([], 7)
    assert read_fetched(PARTITION, 7, None, IsolationLevel.READ_COMMITTED, ()) == Fetched([], 7)


def test_markers_are_not_shown_but_are_passed() -> None:
    log = transactional(0, 5, b"a") + marker(1, 5, ControlType.COMMIT)
    assert values(read(log)) == [b"a"]
    assert read(log).next_offset == 2


def test_a_marker_that_compaction_has_emptied_is_passed() -> None:
    emptied = batch(1, producer_id=5, producer_epoch=0, transactional=True, control=True, last_offset_delta=0)
    fetched = read(transactional(0, 5, b"a") + emptied + batch(2, b"b"))
    assert (values(fetched), fetched.next_offset) == ([b"a", b"b"], 3)


def test_records_of_an_aborted_transaction_are_dropped_and_later_ones_of_the_same_producer_kept() -> None:
    log = (
        transactional(0, 5, b"aborted")
        + transactional(1, 6, b"other")
        + marker(2, 5, ControlType.ABORT)
        + transactional(3, 5, b"kept")
        + marker(4, 5, ControlType.COMMIT)
        + marker(5, 6, ControlType.COMMIT)
    )
    fetched = read(log, aborted=((0, 5),))
    assert values(fetched) == [b"other", b"kept"]
    assert fetched.next_offset == 6


def test_two_aborted_transactions_of_one_producer_in_any_order_of_the_list() -> None:
    log = (
        transactional(0, 5, b"first")
        + marker(1, 5, ControlType.ABORT)
        + transactional(2, 5, b"between")
        + marker(3, 5, ControlType.COMMIT)
        + transactional(4, 5, b"second")
        + marker(5, 5, ControlType.ABORT)
    )
    assert values(read(log, aborted=((4, 5), (0, 5)))) == [b"between"]


def test_a_transaction_that_began_before_the_fetched_offset_is_dropped_too() -> None:
    log = transactional(10, 5, b"aborted") + marker(11, 5, ControlType.ABORT)
    fetched = read(log, offset=10, aborted=((3, 5),))
    assert fetched == Fetched([], 12)


def test_records_outside_transactions_stay_when_their_producer_aborted() -> None:
    log = transactional(0, 5, b"aborted") + batch(1, b"plain", producer_id=5, producer_epoch=0, base_sequence=1)
    assert values(read(log, aborted=((0, 5),))) == [b"plain"]


def test_read_uncommitted_shows_everything_but_markers() -> None:
    log = transactional(0, 5, b"aborted") + marker(1, 5, ControlType.ABORT)
    assert values(read(log, aborted=((0, 5),), committed=False)) == [b"aborted"]


def test_a_flipped_bit_is_reported_with_its_place() -> None:
    damaged = bytearray(batch(0, b"a") + batch(1, b"b"))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecords, match="offset 1 of purchases-0"):
        read(bytes(damaged))
