"""Arrow columns through a broker: written in a transaction, read back, aborted ones left out."""

import pytest

from tests.support.extras import require_arrow

require_arrow()

import pyarrow as pa  # noqa: E402
from confluent_kafka import Consumer  # noqa: E402

from fencepost.client import Client, TopicPartition, TransactionProtocol  # noqa: E402
from fencepost.client.arrow import ArrowReader  # noqa: E402
from fencepost.wire.arrow_records import encode_batches  # noqa: E402
from fencepost.wire.compression import Codec  # noqa: E402
from tests.interop_client.test_transactions import wait_until  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.name)
def test_columns_go_through_a_transaction_and_come_back(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol, codec: Codec
) -> None:
    rows, at = 30_000, TopicPartition(topic, 1)
    for number in range(4):
        values = pa.array([b"%d.%d" % (number, row) + bytes(60) for row in range(rows)])
        keys = pa.array([b"%d" % (row % 7) if row % 3 else None for row in range(rows)])
        try:
            with client.transaction(f"tx-{topic}", protocol=protocol) as transaction:
                for batch in encode_batches(values, keys=keys, timestamps=NOW_MS, compression=codec):
                    transaction.send_batch(topic, 1, batch)
                # Single records may follow whole batches: the sequence is one.
                transaction.send(topic, b"last of %d" % number, partition=1)
                transaction.flush()
                if number % 2:
                    raise LookupError
        except LookupError:
            pass
    # Two markers lie between what is read, and one behind it.
    end = 4 * (rows + 2)
    found: list[bytes] = []

    def read_all() -> bool:
        nonlocal found
        with ArrowReader(broker.bootstrap_servers) as reader:
            batches = list(reader.read(at, 0, end - 1))
        found = [value.as_py() for batch in batches for value in batch.column("value")]
        return True

    wait_until(read_all)
    expected = [
        value
        for number in (0, 2)
        for value in (*(b"%d.%d" % (number, row) + bytes(60) for row in range(rows)), b"last of %d" % number)
    ]
    assert found == expected
    with ArrowReader(broker.bootstrap_servers) as reader:
        part = pa.Table.from_batches(reader.read(at, 10, 20))
    assert part.column("offset").to_pylist() == list(range(10, 20))
    assert part.column("key").to_pylist() == [b"%d" % (row % 7) if row % 3 else None for row in range(10, 20)]


def test_a_foreign_client_reads_what_columns_became(broker: BrokerProcess, client: Client, topic: str) -> None:
    headers = pa.array(
        [[{"key": "h", "value": b"1"}], [], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    with client.transaction(f"tx-{topic}") as transaction:
        for batch in encode_batches(
            pa.array([b"a", None, b""]), keys=pa.array(["x", "y", None]), headers=headers, timestamps=NOW_MS
        ):
            transaction.send_batch(topic, 0, batch)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"foreign-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    messages = consumer.consume(3, 30)
    consumer.close()
    assert [(message.key(), message.value(), message.headers()) for message in messages] == [
        (b"x", b"a", [("h", b"1")]),
        (b"y", None, None),
        (None, b"", None),
    ]
