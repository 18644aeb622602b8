"""The bytes of __transaction_state are Kafka's own."""

from typing import Any

import pytest

from fencepost.coordinators.journal import UnknownRecordType
from fencepost.coordinators.transactions.transaction_journal import TransactionJournal
from fencepost.coordinators.transactions.transaction_metadata import TransactionEntry, TransactionRecord
from fencepost.coordinators.transactions.transaction_states import PERSISTED, TransactionState
from fencepost.wire.errors import MalformedMessage

EXAMPLE = TransactionRecord(
    producer_id=1000,
    producer_epoch=0,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({("out", 0), ("out", 1)}),
    start_timestamp_ms=1_700_000_000_000,
    last_update_timestamp_ms=1_700_000_000_005,
    previous_producer_id=1000,
    client_transaction_version=2,
)


def test_the_worked_example_of_apache_kafka() -> None:
    record = TransactionJournal(lambda: 2).encode_entry(TransactionEntry("tx-1", EXAMPLE))
    assert record.key.hex() == "0000000474782d31"
    assert record.value is not None
    assert record.value.hex() == (
        "000100000000000003e800000000ea600102046f7574030000000000000001000000018bcfe56805"
        "0000018bcfe5680002000800000000000003e802020002"
    )


@pytest.mark.parametrize("state", sorted(PERSISTED))
def test_what_is_written_can_be_read(state: TransactionState) -> None:
    is_at_rest = state in (TransactionState.EMPTY, TransactionState.COMPLETE_ABORT, TransactionState.COMPLETE_COMMIT)
    record = TransactionRecord(
        2**40,
        32767,
        2**31 - 1,
        state,
        frozenset() if is_at_rest else frozenset({("b", 7), ("a", 2), ("a", 11), ("ü" * 200, 0)}),
        -1 if state is TransactionState.EMPTY else 5,
        6,
        previous_producer_id=2**40 - 1,
        next_producer_id=2**40 + 1,
        next_producer_epoch=3,
        client_transaction_version=2,
    )
    journal = TransactionJournal(lambda: 2)
    entry = TransactionEntry("täx", record)
    assert journal.decode_entry(*journal.encode_entry(entry)) == entry


def test_before_the_feature_the_old_version_is_written_without_tags_and_both_are_read() -> None:
    old, new = TransactionJournal(lambda: 0), TransactionJournal(lambda: 1)
    record = old.encode_entry(TransactionEntry("tx", EXAMPLE))
    assert record.value is not None
    assert record.value[:2] == b"\x00\x00"
    read = new.decode_entry(*record).record
    assert read is not None
    assert (read.previous_producer_id, read.client_transaction_version) == (-1, 0)
    assert read.partitions == EXAMPLE.partitions
    assert new.encode_entry(TransactionEntry("tx", EXAMPLE)).value[:2] == b"\x00\x01"  # type: ignore[index]


def test_a_tombstone_has_no_value() -> None:
    journal = TransactionJournal(lambda: 2)
    record = journal.encode_entry(TransactionEntry("tx", None))
    assert record.value is None
    assert journal.decode_entry(*record) == TransactionEntry("tx", None)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (b"\x00\x01\x00\x02tx", b"", UnknownRecordType),
        (b"\x00\x00\x00\x02tx", b"\x00\x02", UnknownRecordType),
        (b"\x00\x00\x00\x02tx", b"\x00", MalformedMessage),
        (b"\x00\x00\x00\x09tx", b"\x00\x01", MalformedMessage),
        (b"\x00\x00\x00\x02tx", b"\x00\x01" + bytes(14) + b"\x06" + bytes(18), MalformedMessage),
    ],
)
def test_what_is_not_what_it_claims_is_refused(key: bytes, value: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        TransactionJournal(lambda: 2).decode_entry(key, value)


@pytest.mark.parametrize(
    "changes",
    [
        {"producer_id": -1},
        {"producer_epoch": -10},
        {"next_producer_id": -2},
        {"next_producer_id": EXAMPLE.producer_id, "producer_epoch": 5, "next_producer_epoch": 4},
        {"state": TransactionState.PREPARE_ABORT, "start_timestamp_ms": -1},
        {"state": TransactionState.ONGOING, "start_timestamp_ms": -1},
    ],
    ids=lambda changes: ", ".join(changes),
)
def test_what_no_coordinator_can_have_written_is_refused(changes: dict[str, Any]) -> None:
    """Its checksum may be right. Going on from it would end in a contradiction, in the midst of a start."""
    journal = TransactionJournal(lambda: 2)
    written = journal.encode_entry(TransactionEntry("tx", EXAMPLE._replace(**changes)))
    with pytest.raises(MalformedMessage):
        journal.decode_entry(*written)
