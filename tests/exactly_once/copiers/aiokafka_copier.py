"""The loop with aiokafka.

Its producer sends offsets with the group's name only, not with the member's generation, so the broker cannot fence a
member that lost its partitions. The way that holds without it is the older one: a transactional id per input partition.
Who gets a partition starts that id's producer first, which fences the last owner and waits for the end of its last
transaction, and reads the committed position then. Later the position is remembered instead: aiokafka's consumer does
not ask for stable offsets, so just after a commit the broker may still tell it the position before.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from tests.exactly_once.copiers.plan import Aborted, Dice, Plan, given_plan
from tests.peers.programs.console import say, when_input_closes

RETRY_SECONDS = 0.05


class Copier(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._dice = Dice(plan)
        self._producers: dict[TopicPartition, AIOKafkaProducer] = {}
        self._positions: dict[TopicPartition, int] = {}
        # A rebalance, which aiokafka runs in the background, waits for the transaction at hand.
        self._busy = asyncio.Lock()
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=plan.bootstrap,
            group_id=plan.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=plan.session_timeout_ms,
            heartbeat_interval_ms=plan.heartbeat_interval_ms,
            fetch_max_wait_ms=50,
            retry_backoff_ms=20,
        )

    async def run(self) -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        when_input_closes(lambda: loop.call_soon_threadsafe(stopping.set))
        self._consumer.subscribe([self._plan.source], listener=self)
        await _until_it_works(self._consumer.start)
        while not stopping.is_set():
            found = await self._consumer.getmany(timeout_ms=200, max_records=self._plan.inputs_per_transaction)
            async with self._busy:
                for partition, records in found.items():
                    if partition not in self._producers:
                        continue
                    if records[0].offset == self._positions[partition]:
                        await self._one_transaction(partition, records)
                    else:
                        # Read before a rebalance or an abort that set the position anew.
                        self._seek(partition)
        await self._consumer.stop()
        for producer in self._producers.values():
            await _stop(producer)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        async with self._busy:
            producers, self._producers = self._producers, {}
            for producer in producers.values():
                await _stop(producer)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        async with self._busy:
            for partition in assigned:
                await self._start_over(partition)

    async def _one_transaction(self, partition: TopicPartition, records: list[Any]) -> None:
        try:
            await self._copy(partition, records)
        except (Aborted, KafkaError) as problem:
            cause = "random" if isinstance(problem, Aborted) else type(problem).__name__
            try:
                await self._producers[partition].abort_transaction()
                say("aborted", cause=cause)
                # Back to the committed position: the consumer's own one is after what was not committed.
                self._seek(partition)
            except KafkaError as second:
                say("recreated", cause=f"{cause}, {type(second).__name__}")
                await _stop(self._producers[partition])
                await self._start_over(partition)
        else:
            self._positions[partition] = records[-1].offset + 1
            say("committed", count=len(records))

    async def _copy(self, partition: TopicPartition, records: list[Any]) -> None:
        whims = self._dice.throw()
        producer = self._producers[partition]
        await producer.begin_transaction()
        for record in records:
            for topic, key, value in self._plan.transform(record.key, record.value):
                await producer.send(topic, key=key, value=value)
        await asyncio.sleep(whims.pause_before_offsets_seconds)
        if whims.abort_before_offsets:
            raise Aborted
        await producer.send_offsets_to_transaction({partition: records[-1].offset + 1}, self._plan.group)
        await asyncio.sleep(whims.pause_before_end_seconds)
        if whims.abort_before_end:
            raise Aborted
        await producer.commit_transaction()

    async def _new_producer(self, partition: TopicPartition) -> AIOKafkaProducer:
        while True:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._plan.bootstrap,
                transactional_id=f"{self._plan.group}-{partition.partition}",
                transaction_timeout_ms=self._plan.transaction_timeout_ms,
                linger_ms=2,
                retry_backoff_ms=20,
            )
            try:
                await producer.start()
                return producer
            except KafkaError as problem:
                say("recreated", cause=type(problem).__name__)
                await _stop(producer)
                await asyncio.sleep(RETRY_SECONDS)

    async def _start_over(self, partition: TopicPartition) -> None:
        async def read_position() -> None:
            self._positions[partition] = await self._consumer.committed(partition) or 0

        self._producers[partition] = await self._new_producer(partition)
        await _until_it_works(read_position)
        self._seek(partition)

    def _seek(self, partition: TopicPartition) -> None:
        if partition in self._consumer.assignment():
            self._consumer.seek(partition, self._positions[partition])


async def _stop(producer: AIOKafkaProducer) -> None:
    try:
        await producer.stop()
    except KafkaError as problem:
        # It tells once more what it failed of.
        say("stopped", cause=type(problem).__name__)


async def _until_it_works(call: Any) -> None:
    while True:
        try:
            await call()
            return
        except KafkaError as problem:
            say("retried", cause=type(problem).__name__)
            await asyncio.sleep(RETRY_SECONDS)


async def main() -> None:
    await Copier(given_plan()).run()


if __name__ == "__main__":
    asyncio.run(main())
