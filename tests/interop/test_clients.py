"""Every client writes and reads: compression, idempotence, headers, timestamps, nulls."""

import time
from collections.abc import Callable

import pytest

from tests.peers.broker_process import BrokerProcess
from tests.peers.clients import CLIENTS, COMPRESSIONS, CONFLUENT, Client, Record
from tests.peers.raw import RawClient

pytestmark = pytest.mark.timeout(90)
CODEC_NUMBERS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HOUR_MS = 3_600_000
THEN_MS = int(time.time() * 1000) - 12 * HOUR_MS  # within every broker's retention


def by_partition(records: list[Record]) -> dict[int, list[Record]]:
    """Order means something within a partition only."""
    found: dict[int, list[Record]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(record)
    return found


def payload(records: list[Record]) -> dict[int, list[tuple[str | None, str | None]]]:
    return {p: [(record.key, record.value) for record in some] for p, some in by_partition(records).items()}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_what_a_client_writes_it_reads_back_with_headers_timestamps_and_nulls(
    client: Client, broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2, stem="roundtrip")
    at = (lambda n: THEN_MS + n * HOUR_MS) if client.sets_timestamps else (lambda n: None)
    records = [
        Record(0, "plain", "value", timestamp=at(0)),
        Record(0, None, "no key", timestamp=at(1)),
        Record(0, "tombstone", None, timestamp=at(2)),
        Record(0, "clé ☃", "größer 🙂", timestamp=at(3)),
        Record(1, "headed", "value", (("trace", "1"), ("empty", ""), ("später", "ü")), at(4)),
        Record(1, "long", "x" * 20_000, timestamp=at(5)),
    ]

    produced = client.produce(broker.bootstrap_servers, topic, records)
    assert len(produced) == len(records)
    if client.knows_produced_offsets:
        assert produced == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]

    for reader in {client.name: client, CONFLUENT.name: CONFLUENT}.values():
        read = by_partition(reader.consume(broker.bootstrap_servers, topic, [0, 1], len(records)))
        assert [record.offset for record in read[0]] == [0, 1, 2, 3]
        assert [record.offset for record in read[1]] == [0, 1]
        for expected, found in zip(records, read[0] + read[1], strict=True):
            assert (found.key, found.value, found.headers) == (expected.key, expected.value, expected.headers)
            if expected.timestamp is not None:
                assert found.timestamp == expected.timestamp


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_compressed_batches_are_kept_as_the_client_made_them_and_read_back(
    client: Client, broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=len(client.compressions), stem="codecs")
    written: list[Record] = []
    for partition, compression in enumerate(client.compressions):
        records = [Record(partition, f"key-{n}", f"{compression} {n} " + "abc" * 200) for n in range(50)]
        client.produce(broker.bootstrap_servers, topic, records, compression)
        written += records

    read = client.consume(broker.bootstrap_servers, topic, range(len(client.compressions)), len(written))
    assert payload(read) == payload(written)
    with RawClient(broker.address) as raw:
        for partition, compression in enumerate(client.compressions):
            batches = raw.fetch_batches(topic, partition)
            assert {batch.compression for batch in batches} == {CODEC_NUMBERS[compression]}
            assert all(batch.producer_id >= 0 for batch in batches), "the producer is idempotent"
            assert sum(batch.record_count for batch in batches) == 50


def test_every_client_reads_what_every_other_client_wrote(broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=1, stem="babel")
    written: list[Record] = []
    for writer in CLIENTS:
        # One codec each is enough here, spread so that all of them occur.
        codec = writer.compressions[CLIENTS.index(writer) % len(writer.compressions)]
        records = [Record(0, writer.name, f"{codec} {n}") for n in range(20)]
        writer.produce(broker.bootstrap_servers, topic, records, codec)
        written += records

    readable = [reader for reader in CLIENTS if set(COMPRESSIONS) <= set(reader.compressions)]
    for reader in readable:
        assert payload(reader.consume(broker.bootstrap_servers, topic, [0], len(written))) == payload(written)
