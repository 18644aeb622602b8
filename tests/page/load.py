"""What the page is shown: a few scenes that stay, a steady load from a thread of its own, and many ids."""

import asyncio
import contextlib
import itertools
import json
import random
import threading
from types import TracebackType
from typing import Self

from fencepost.client import (
    AsyncAdmin,
    AsyncClient,
    AsyncProducer,
    ClientError,
    CommittedOffset,
    NewTopic,
    ProducerFenced,
    TopicPartition,
    apis,
)
from fencepost.client.cluster import Cluster
from fencepost.client.kafka_types import CoordinatorKind
from fencepost.wire import messages
from tests.insight.scenes import LONG_MS

SHOPS = [f"checkout-{number}" for number in range(4)]
PIPELINE = "ledger"
AT_ONCE = 500


async def make_topics(bootstrap_servers: str) -> None:
    async with AsyncAdmin(bootstrap_servers) as admin:
        for topic, partitions in (
            ("orders", 3),
            ("payments", 2),
            ("purchases", 1),
            ("refunds", 1),
            ("parking", 1),
            ("archive", 1),
        ):
            await admin.create_topic(NewTopic(topic, partitions))


async def lay_scenes(bootstrap_servers: str) -> None:
    """A held partition, an abandoned id that was taken over, a pipeline with batches, groups with lag."""
    await make_topics(bootstrap_servers)
    async with AsyncProducer(bootstrap_servers) as plain:
        for at in range(40):
            await plain.send("refunds", b"refund %d" % at)
            await plain.send("purchases", b"early %d" % at)
    async with AsyncClient(bootstrap_servers) as client:
        auditing = client.producer("auditing")
        await auditing.init()
        await auditing.begin()
        reached = {
            TopicPartition("refunds", 0): CommittedOffset(12),
            TopicPartition("purchases", 0): CommittedOffset(30),
        }
        await auditing.send_offsets(reached, "auditors")
        await auditing.commit()
    await _pipeline(bootstrap_servers)
    await _fenced(bootstrap_servers)
    await hold(bootstrap_servers, "billing", "purchases", "spark/app-7/billing/17", "auditors")


async def hold(
    bootstrap_servers: str,
    transactional_id: str,
    topic: str,
    client_id: str,
    group: str | None = None,
    timeout_ms: int = LONG_MS,
    behind: int = 7,
) -> None:
    """A producer that goes away in the midst of a transaction, and others that go on behind it."""
    async with AsyncClient(bootstrap_servers, client_id=client_id) as client:
        producer = client.producer(transactional_id, transaction_timeout_ms=timeout_ms)
        await producer.init()
        await producer.begin()
        for at in range(12):
            await producer.send(topic, b"never ended %d" % at, partition=0)
        if group is not None:
            await producer.send_offsets({TopicPartition("refunds", 0): CommittedOffset(25)}, group)
        await producer.flush()
    async with AsyncProducer(bootstrap_servers) as plain:
        for at in range(behind):
            await plain.send(topic, b"behind it %d" % at, partition=0)


async def _pipeline(bootstrap_servers: str) -> None:
    for batch in range(6):
        async with AsyncClient(bootstrap_servers, client_id=f"spark/app-7/{PIPELINE}/{batch}") as client:
            producer = client.producer(PIPELINE)
            await producer.init()
            for is_commit in (False, True) if batch == 3 else (True,):
                await producer.begin()
                for at in range(5):
                    await producer.send("payments", b"booked %d" % at, partition=at % 2)
                marker = json.dumps({"term": 1, "query": "q", "batch": batch})
                reached = {TopicPartition("refunds", 0): CommittedOffset(5 * batch, metadata=marker)}
                await producer.send_offsets(reached, PIPELINE)
                await producer.flush()
                await (producer.commit() if is_commit else producer.abort())


async def _fenced(bootstrap_servers: str) -> None:
    async with (
        AsyncClient(bootstrap_servers, client_id="till-a") as first,
        AsyncClient(bootstrap_servers, client_id="till-b") as second,
    ):
        stopped = first.producer("till")
        await stopped.init()
        await stopped.begin()
        await stopped.send("refunds", b"half a refund", partition=0)
        await stopped.flush()
        successor = second.producer("till")
        await successor.init()
        with contextlib.suppress(ProducerFenced):
            await stopped.commit()
        await successor.begin()
        await successor.send("refunds", b"a whole refund", partition=0)
        await successor.commit()


async def make_ids(bootstrap_servers: str, count: int) -> None:
    """So many transactional ids, each initialised and nothing more."""
    cluster = Cluster(bootstrap_servers)
    await cluster.connect()
    try:
        node = await cluster.coordinator(CoordinatorKind.TRANSACTION, "many-0")
        for first in range(0, count, AT_ONCE):
            requests = [
                messages.InitProducerIdRequest(transactional_id=f"many-{number:05}", transaction_timeout_ms=60_000)
                for number in range(first, min(first + AT_ONCE, count))
            ]
            answers = await asyncio.gather(*(cluster.call_node(node, apis.INIT_PRODUCER_ID, each) for each in requests))
            assert all(answer.error_code == 0 for answer in answers)
    finally:
        await cluster.close()


class Load:
    """Transactions without end: most commit, some abort, over five partitions. Goes on after a broker's restart."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.ended = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    async def _run(self) -> None:
        shops = (self._shop(name, number) for number, name in enumerate(SHOPS))
        await asyncio.gather(*shops, self._read())

    async def _read(self) -> None:
        while not self._is_over.is_set():
            try:
                async with AsyncClient(self._bootstrap_servers, client_id="shipping") as client:
                    consumer = client.consumer("shipping", ["orders"])
                    while not self._is_over.is_set():
                        if await consumer.poll(500):
                            await consumer.commit()
            except ClientError:
                await asyncio.sleep(0.2)

    async def _shop(self, name: str, seed: int) -> None:
        chance = random.Random(seed)
        while not self._is_over.is_set():
            try:
                async with AsyncClient(self._bootstrap_servers, client_id=name) as client:
                    await self._trade(client, name, chance)
            except ClientError:
                await asyncio.sleep(0.2)  # the broker is away for a while: that is what a test may want

    async def _trade(self, client: AsyncClient, name: str, chance: random.Random) -> None:
        producer = client.producer(name)
        await producer.init()
        for turn in itertools.count():
            if self._is_over.is_set():
                return
            await producer.begin()
            for at in range(chance.randint(2, 9)):
                await producer.send("orders", b"order %d" % at, partition=chance.randrange(3))
            await producer.send("payments", b"payment", partition=turn % 2)
            await producer.flush()
            await asyncio.sleep(chance.uniform(0, 0.05))
            await (producer.abort() if chance.random() < 0.15 else producer.commit())
            self.ended += 1
            await asyncio.sleep(chance.uniform(0.02, 0.15))
