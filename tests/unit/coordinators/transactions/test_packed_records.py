"""The records of __transaction_state are packed by hand: byte for byte what the schemas say."""

from hypothesis import given
from hypothesis import strategies as st

from fencepost.coordinators.transactions.transaction_journal import TransactionJournal, by_topic
from fencepost.coordinators.transactions.transaction_metadata import TransactionEntry, TransactionRecord
from fencepost.coordinators.transactions.transaction_states import PERSISTED, TransactionState
from fencepost.wire.codec import encode
from fencepost.wire.messages import TransactionLogKey, TransactionLogValue

ids = st.integers(-1, 2**63 - 1)
epochs = st.integers(-1, 32767)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=249)
partitions = st.frozensets(st.tuples(names, st.integers(0, 2**31 - 1)), max_size=150)
records = st.builds(
    TransactionRecord,
    producer_id=ids,
    producer_epoch=epochs,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from([TransactionState(state) for state in PERSISTED]),
    partitions=partitions,
    start_timestamp_ms=ids,
    last_update_timestamp_ms=ids,
    previous_producer_id=ids,
    next_producer_id=ids,
    next_producer_epoch=epochs,
    client_transaction_version=st.integers(0, 2),
)


@given(name=names, record=records)
def test_a_packed_record_is_what_the_schema_says(name: str, record: TransactionRecord) -> None:
    topics = [
        TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
        for topic, indexes in by_topic(record.partitions).items()
    ]
    value = TransactionLogValue(
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state,
        transaction_partitions=None if record.state is TransactionState.EMPTY else topics,
        transaction_last_update_timestamp_ms=record.last_update_timestamp_ms,
        transaction_start_timestamp_ms=record.start_timestamp_ms,
        previous_producer_id=record.previous_producer_id,
        next_producer_id=record.next_producer_id,
        next_producer_epoch=record.next_producer_epoch,
        client_transaction_version=record.client_transaction_version,
    )
    packed = TransactionJournal(lambda: 2).encode_entry(TransactionEntry(name, record))
    assert packed.key == b"\0\0" + encode(TransactionLogKey(transactional_id=name), 0)
    assert packed.value == b"\0\1" + encode(value, 1)
