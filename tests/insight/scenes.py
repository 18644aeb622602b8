"""Loads that leave something to see in a broker: transactions with every end, offsets inside of them, groups."""

import asyncio
import base64
import random

from confluent_kafka import Consumer

from fencepost.client import (
    AsyncAdmin,
    AsyncClient,
    CommittedOffset,
    NewTopic,
    Sending,
    TopicPartition,
    TransactionProtocol,
)
from fencepost.wire.compression import Codec
from tests.interop.load import CODECS, KEYS, ROUND, VALUE, await_compaction, create_topics, produce
from tests.peers.broker_process import BrokerProcess

ROUNDS = 3
PER_PARTITION = 5
LONG_MS = 600_000
"""A time-out that does not come while a test is held up."""


async def mixed_transactions(bootstrap_servers: str, topic: str, group: str) -> None:
    """Both protocols, committed and aborted in turn over two partitions and a group's offsets; one stays open."""
    async with AsyncAdmin(bootstrap_servers) as admin:
        await admin.create_topic(NewTopic(topic, 2))
    async with AsyncClient(bootstrap_servers) as client:
        for protocol in TransactionProtocol:
            producer = client.producer(
                f"{topic}-{protocol.name}", protocol=protocol, sending=Sending(compression=Codec.GZIP)
            )
            await producer.init()
            for turn in range(ROUNDS * 2):
                await producer.begin()
                for at in range(PER_PARTITION * 2):
                    await producer.send(topic, b"value \xff %d" % at, key=b"key %d" % at, partition=at % 2,
                                        headers=[("turn", b"%d" % turn), ("none", None)])  # fmt: skip
                await producer.send_offsets({TopicPartition(topic, 0): CommittedOffset(turn, metadata="a note")}, group)
                await producer.flush()
                await (producer.commit() if turn % 2 else producer.abort())
        left_open = client.producer(f"{topic}-open", transaction_timeout_ms=LONG_MS)
        await left_open.init()
        await left_open.begin()
        await left_open.send(topic, b"open", partition=0)
        await left_open.send_offsets({TopicPartition(topic, 0): CommittedOffset(7)}, group)
        await left_open.flush()


def run_mixed_transactions(broker: BrokerProcess, topic: str = "mixed", group: str = "mixed-group") -> None:
    asyncio.run(mixed_transactions(broker.bootstrap_servers, topic, group))


def group_with_a_member(broker: BrokerProcess, protocol: str = "classic") -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"members-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["segmented"])
    assert consumer.consume(100, 20)
    consumer.commit(asynchronous=False)
    consumer.close()


def varied_load(broker: BrokerProcess) -> None:
    """Several segments, every codec, a compacted topic, groups with and without members, and transactions."""
    create_topics(broker)
    noise = random.Random(2)
    for codec in CODECS:
        produce(broker, "segmented", codec, ((None, base64.b64encode(noise.randbytes(1000))) for _ in range(500)))
    for _ in range(3):
        produce(broker, "compacted", "none", ((b"key %d" % (n % KEYS), b"%d" % n + VALUE) for n in range(ROUND)))
    produce(broker, "compacted", "none", ((b"key %d" % n, None) for n in range(5)))
    group_with_a_member(broker)
    if broker.name == "apache":
        group_with_a_member(broker, "consumer")  # its records are of kinds that Fencepost does not write
    run_mixed_transactions(broker)
    await_compaction(broker)
