"""The send path against a broker that refuses, forgets and hangs up: for idempotent producers and for bulk writers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from scripted_broker import HANG_UP, ScriptedBroker

from fencepost.client import (
    AsyncProducer,
    AsyncTransactionWriter,
    DeliveryFailed,
    ProducerIdentity,
    TransactionHandle,
    TransactionMustAbort,
    TransactionProtocol,
)
from fencepost.client.kafka_types import RecordMetadata
from fencepost.client.loop_thread import LoopThread, Twin, after_sends, queued
from fencepost.client.sending import BULK, FINISHED_BATCH_WEIGHT, Sending
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import build_batch
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode

OK = ErrorCode.NONE


def one(value: bytes = b"x") -> bytearray:
    return build_batch([(1_000, None, value, ())])


def sequences(broker: ScriptedBroker) -> list[int]:
    return [batch.base_sequence for _, batch in broker.batches()]


def produce(broker: ScriptedBroker, scenario: Callable[[AsyncProducer], Awaitable[None]], **options: int) -> None:
    async def scene() -> None:
        async with AsyncProducer(broker.address, **options) as producer:
            await scenario(producer)

    broker.run(scene)


def write_in_bulk(
    broker: ScriptedBroker,
    scenario: Callable[[AsyncTransactionWriter], Awaitable[None]],
    protocol: TransactionProtocol = TransactionProtocol.TV2,
    sending: Sending = BULK,
) -> None:
    async def scene() -> None:
        added = tuple(TopicPartition("out", partition) for partition in range(3))
        handle = TransactionHandle((broker.address,), {}, "tx", ProducerIdentity(7, 3), protocol, added)
        writer = AsyncTransactionWriter(handle, sending)
        await writer.start()
        try:
            await scenario(writer)
        finally:
            await writer.close()

    broker.run(scene)


# Idempotent producers


def test_a_broker_that_forgot_the_producer_gets_the_batch_from_a_new_one() -> None:
    broker = ScriptedBroker()
    broker.answer(ApiKey.PRODUCE, OK, ErrorCode.UNKNOWN_PRODUCER_ID)

    async def scenario(producer: AsyncProducer) -> None:
        for value in (b"a", b"b"):
            await producer.send("out", value, partition=0)
            await producer.flush()

    produce(broker, scenario)
    assert sequences(broker) == [0, 1, 0]
    assert len(broker.requests(ApiKey.INIT_PRODUCER_ID)) == 2


def test_a_batch_that_may_be_written_is_not_sent_by_a_new_producer() -> None:
    broker = ScriptedBroker()
    broker.answer(ApiKey.PRODUCE, HANG_UP, ErrorCode.UNKNOWN_PRODUCER_ID)

    async def scenario(producer: AsyncProducer) -> None:
        sent = await producer.send("out", b"a", partition=0)
        with pytest.raises(DeliveryFailed, match="may have been written") as failed:
            await producer.flush()
        assert sent.exception() is failed.value
        await producer.send("out", b"b", partition=0)
        await producer.flush()

    produce(broker, scenario)
    assert sequences(broker) == [0, 0, 0]
    assert len(broker.requests(ApiKey.INIT_PRODUCER_ID)) == 2


def test_a_batch_too_large_for_the_broker_is_sent_in_halves() -> None:
    broker = ScriptedBroker()
    broker.answer(ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE)

    async def scenario(producer: AsyncProducer) -> None:
        sent = [await producer.send("out", value, partition=0) for value in (b"a", b"b", b"c", b"d")]
        await producer.flush()
        assert all(future.done() and not future.exception() for future in sent)

    produce(broker, scenario)
    assert [(batch.base_sequence, batch.record_count) for _, batch in broker.batches()] == [(0, 4), (0, 2), (2, 2)]


def test_records_that_cannot_be_encoded_fail_without_being_sent() -> None:
    broker = ScriptedBroker()

    async def scenario(producer: AsyncProducer) -> None:
        wrong = await producer.send("out", b"a", partition=0, timestamp_ms=2**70)
        with pytest.raises(DeliveryFailed):
            await producer.flush()
        assert wrong.exception() is not None
        await producer.send("out", b"b", partition=0)
        await producer.flush()

    produce(broker, scenario)
    assert sequences(broker) == [0]


def test_a_full_buffer_makes_the_caller_wait_for_room() -> None:
    broker = ScriptedBroker()

    async def scenario(producer: AsyncProducer) -> None:
        sent = [await producer.send("out", b"v" * 400, partition=number % 3) for number in range(20)]
        assert sum(future.done() for future in sent) >= 18
        await producer.flush()

    produce(broker, scenario, buffer_bytes_max=1_200)


# Bulk writers


def test_the_first_batch_is_confirmed_before_the_others_follow_and_none_waits_for_another() -> None:
    broker = ScriptedBroker()

    async def scenario(writer: AsyncTransactionWriter) -> None:
        sent = [await writer.send_batch("out", 0, one(b"%d" % number)) for number in range(7)]
        await writer.flush()
        assert [(await future).partition for future in sent] == [0] * 7

    write_in_bulk(broker, scenario)
    assert sequences(broker) == list(range(7))
    assert {batch.producer_epoch for _, batch in broker.batches()} == {3}
    assert {batch.is_transactional for _, batch in broker.batches()} == {True}


@pytest.mark.parametrize("protocol", list(TransactionProtocol))
def test_after_a_refusal_everything_behind_it_is_sent_again_in_order(protocol: TransactionProtocol) -> None:
    broker = ScriptedBroker(protocol)
    out_of_order = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 4
    broker.answer(ApiKey.PRODUCE, OK, ErrorCode.NOT_ENOUGH_REPLICAS, *out_of_order)

    async def scenario(writer: AsyncTransactionWriter) -> None:
        for number in range(7):
            await writer.send_batch("out", 0, one(b"%d" % number))
        await writer.flush()

    write_in_bulk(broker, scenario, protocol)
    assert sequences(broker) == [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6]
    # Only the process that began the transaction talks to its coordinator.
    assert {name for name, _ in broker.calls} == {"Produce"}


def test_after_a_lost_connection_everything_unanswered_is_sent_again_in_order() -> None:
    broker = ScriptedBroker()
    broker.answer(ApiKey.PRODUCE, OK, OK, HANG_UP)

    async def scenario(writer: AsyncTransactionWriter) -> None:
        for number in range(7):
            await writer.send_batch("out", 0, one(b"%d" % number))
        await writer.flush()

    write_in_bulk(broker, scenario)
    asked = sequences(broker)
    assert asked[:3] == [0, 1, 2]
    assert asked[-5:] == [2, 3, 4, 5, 6]


def test_out_of_order_without_a_refusal_before_it_ends_the_transaction_and_nothing_more_is_sent() -> None:
    broker = ScriptedBroker()
    broker.answer(ApiKey.PRODUCE, OK, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    async def scenario(writer: AsyncTransactionWriter) -> None:
        await writer.send_batch("out", 0, one())
        await writer.flush()
        refused = await writer.send_batch("out", 0, one())
        with pytest.raises(TransactionMustAbort, match="OUT_OF_ORDER"):
            await writer.flush()
        assert isinstance(refused.exception(), DeliveryFailed)
        with pytest.raises(TransactionMustAbort):
            await writer.send_batch("out", 1, one())

    write_in_bulk(broker, scenario)
    assert sequences(broker) == [0, 1]


def test_a_failure_in_one_partition_fails_what_waits_in_the_others() -> None:
    broker = ScriptedBroker()
    broker.answer(ApiKey.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH)

    async def scenario(writer: AsyncTransactionWriter) -> None:
        sent = [await writer.send_batch("out", 0, one()) for _ in range(3)]
        with pytest.raises(TransactionMustAbort):
            await writer.flush()
        causes = [future.exception() for future in sent]
        assert all(isinstance(cause, DeliveryFailed) for cause in causes)

    write_in_bulk(broker, scenario)
    assert sequences(broker) == [0]


# Blocking callers


def test_a_caller_that_hands_over_finished_batches_is_never_far_ahead_of_the_sender() -> None:
    put = taken = furthest = 0

    class Slow:
        async def send_batch(self, topic: str, batch: bytearray) -> "asyncio.Future[RecordMetadata]":
            nonlocal taken, furthest
            furthest = max(furthest, put - taken)
            await asyncio.sleep(0)
            taken += 1
            acknowledged: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
            acknowledged.set_result(RecordMetadata(topic, 0, taken, 0))
            return acknowledged

        async def flush(self) -> None:
            pass

    class Writer(Twin[Slow]):
        send_batch = queued(Slow.send_batch, FINISHED_BATCH_WEIGHT)
        flush = after_sends(Slow.flush)

    loop = LoopThread()
    try:
        writer = Writer(loop, Slow(), {"out"})
        for _ in range(200):
            put += 1
            writer.send_batch("out", bytearray())
        writer.flush()
    finally:
        loop.close()
    assert taken == 200
    assert furthest <= 2_000 // FINISHED_BATCH_WEIGHT + 1
