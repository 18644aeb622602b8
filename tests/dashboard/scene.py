"""What the pages of these tests show: transactions with every end, a fencing, a pipeline, one that stays open."""

import json
from contextlib import suppress

from fencepost.client import (
    AsyncAdmin,
    AsyncClient,
    AsyncProducer,
    CommittedOffset,
    NewTopic,
    ProducerFenced,
    TopicPartition,
)

LONG_MS = 600_000
TOPIC = "orders"
COMMITS, ABORTS = 3, 2
PER_TRANSACTION = 2
PIPELINE, APPLICATION = "billing", "app-7"


async def play(bootstrap_servers: str) -> None:
    async with AsyncAdmin(bootstrap_servers) as admin:
        await admin.create_topic(NewTopic(TOPIC, 2))
    async with AsyncProducer(bootstrap_servers) as plain:
        for at in range(4):
            await plain.send(TOPIC, b"plain %d" % at, partition=0)
        await plain.flush()
    async with AsyncClient(bootstrap_servers, client_id="shop") as client:
        await _ended(client, "shop-commit", COMMITS, is_commit=True)
        await _ended(client, "shop-abort", ABORTS, is_commit=False)
    await _fenced(bootstrap_servers)
    await _pipeline(bootstrap_servers)
    async with AsyncClient(bootstrap_servers, client_id="night-shift") as client:
        left_open = client.producer("shop-open", transaction_timeout_ms=LONG_MS)
        await left_open.init()
        await left_open.begin()
        for at in range(3):
            await left_open.send(TOPIC, b"open %d" % at, partition=0)
        await left_open.send_offsets({TopicPartition(TOPIC, 1): CommittedOffset(7)}, "readers")
        await left_open.flush()
        await _ended(client, "shop-behind", 1, is_commit=True)


async def _ended(client: AsyncClient, name: str, count: int, *, is_commit: bool) -> None:
    producer = client.producer(name)
    await producer.init()
    for turn in range(count):
        await producer.begin()
        for at in range(PER_TRANSACTION):
            await producer.send(TOPIC, b"%d %d" % (turn, at), partition=0)
        await producer.flush()
        await (producer.commit() if is_commit else producer.abort())


async def _fenced(bootstrap_servers: str) -> None:
    async with (
        AsyncClient(bootstrap_servers, client_id="first") as first,
        AsyncClient(bootstrap_servers, client_id="second") as second,
    ):
        stopped = first.producer("shop-fenced", transaction_timeout_ms=LONG_MS)
        await stopped.init()
        await stopped.begin()
        await stopped.send(TOPIC, b"lost", partition=1)
        await stopped.flush()
        await second.producer("shop-fenced").init()
        with suppress(ProducerFenced):
            await stopped.commit()
            raise AssertionError("the first one should be fenced")


async def _pipeline(bootstrap_servers: str) -> None:
    """Two batches as the sink of a Spark pipeline commits them, the second after an abort."""
    for batch, is_commit in ((0, True), (1, False), (1, True)):
        client_id = f"spark/{APPLICATION}/{PIPELINE}/{batch}"
        async with AsyncClient(bootstrap_servers, client_id=client_id) as client:
            producer = client.producer(PIPELINE)
            await producer.init()
            await producer.begin()
            await producer.send(TOPIC, b"of batch %d" % batch, partition=1)
            marker = json.dumps({"term": 1, "query": "q", "batch": batch})
            await producer.send_offsets(
                {TopicPartition(TOPIC, 0): CommittedOffset(2 + batch, metadata=marker)}, PIPELINE
            )
            await producer.flush()
            await (producer.commit() if is_commit else producer.abort())
