"""A transactional producer and a coordinator that answers with every kind of trouble."""

from collections.abc import Awaitable, Callable

import pytest
from scripted_broker import HANG_UP, SILENCE, ScriptedBroker

from fencepost.client import (
    AsyncClient,
    GroupMetadata,
    ProducerFenced,
    ProducerIdentity,
    TopicPartition,
    TransactionAborted,
    TransactionFailed,
    TransactionMustAbort,
    TransactionOutcomeUnknown,
    TransactionProtocol,
)
from fencepost.client.transaction_calls import Call, Verdict, verdict
from fencepost.client.transactions import PREDECESSORS, AsyncTransactionalProducer, State
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode

TV1, TV2 = TransactionProtocol.TV1, TransactionProtocol.TV2
Scenario = Callable[[AsyncTransactionalProducer], Awaitable[None]]


def play(broker: ScriptedBroker, scenario: Scenario, **options: int) -> None:
    async def scene() -> None:
        async with AsyncClient(broker.address) as client:
            await scenario(client.producer("tx", **options))

    broker.run(scene)


def test_tv2_takes_four_calls_and_names_its_versions() -> None:
    broker = ScriptedBroker()

    async def scenario(producer: AsyncTransactionalProducer) -> None:
        await producer.init()
        for _ in range(2):
            await producer.begin()
            await producer.send("out", b"x", partition=1)
            await producer.send_offsets({TopicPartition("in", 0): 5}, GroupMetadata("group", 3, "member", "instance"))
            await producer.commit()
        assert producer.identity == ProducerIdentity(7, 2)

    play(broker, scenario)
    assert broker.calls[0] == ("InitProducerId", 5)
    assert sorted(broker.calls[1:4]) == [("EndTxn", 5), ("Produce", 12), ("TxnOffsetCommit", 5)]
    (offsets, again) = broker.requests(ApiKey.TXN_OFFSET_COMMIT)
    assert (offsets.generation_id, offsets.member_id, offsets.group_instance_id) == (3, "member", "instance")
    assert (offsets.producer_epoch, again.producer_epoch) == (0, 1)
    assert [
        (at, batch.producer_epoch, batch.base_sequence, batch.is_transactional) for at, batch in broker.batches()
    ] == [
        (1, 0, 0, True),
        (1, 1, 0, True),
    ]


def test_tv1_adds_partitions_and_groups_first_and_keeps_its_epoch_and_sequences() -> None:
    broker = ScriptedBroker(transaction_version=1)

    async def scenario(producer: AsyncTransactionalProducer) -> None:
        await producer.init()
        for _ in range(2):
            await producer.begin()
            await producer.send("out", b"x", partition=1)
            await producer.send("out", b"y", partition=2)
            await producer.flush()
            await producer.send("out", b"z", partition=1)
            await producer.flush()
            await producer.send_offsets({TopicPartition("in", 0): 5}, "group")
            await producer.commit()

    play(broker, scenario)
    one = [
        ("AddPartitionsToTxn", 3), ("Produce", 11), ("Produce", 11),
        ("AddOffsetsToTxn", 4), ("TxnOffsetCommit", 4), ("EndTxn", 4),
    ]  # fmt: skip
    assert broker.calls == [("InitProducerId", 5), *one, *one]
    assert [(at, batch.producer_epoch, batch.base_sequence) for at, batch in broker.batches()] == [
        (1, 0, 0), (2, 0, 0), (1, 0, 1), (1, 0, 2), (2, 0, 1), (1, 0, 3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        HANG_UP,
    ],
    ids=lambda trouble: trouble.name,
)
@pytest.mark.parametrize("protocol", [TV1, TV2])
def test_trouble_that_passes_is_waited_out_at_every_call(protocol: TransactionProtocol, trouble: object) -> None:
    broker = ScriptedBroker(protocol)
    for api in (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN):
        broker.answer(api, trouble)
    broker.answer(ApiKey.TXN_OFFSET_COMMIT, trouble)
    broker.answer(ApiKey.PRODUCE, trouble)

    async def scenario(producer: AsyncTransactionalProducer) -> None:
        await producer.init()
        await producer.begin()
        sent = await producer.send("out", b"x", partition=0)
        await producer.send_offsets({TopicPartition("in", 0): 5}, "group")
        await producer.commit()
        assert (await sent).partition == 0

    play(broker, scenario)
    lookups = len(broker.requests(ApiKey.FIND_COORDINATOR))
    assert lookups > 2 if trouble in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE) else lookups >= 2
    # The same bytes twice: who knows whether the first was written.
    first, second = (batch.base_sequence for _, batch in broker.batches())
    assert (first, second) == (0, 0)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize("api", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT])
def test_fenced_by_a_coordinator_is_fenced_for_good(api: ApiKey, code: ErrorCode) -> None:
    broker = ScriptedBroker(transaction_version=1)
    broker.answer(api, code)

    async def scenario(producer: AsyncTransactionalProducer) -> None:
        await producer.init()
        await producer.begin()
        with pytest.raises(ProducerFenced) as fenced:  # noqa: PT012 - one of the calls is refused
            await producer.send("out", b"x", partition=0)
            await producer.flush()
            await producer.send_offsets({TopicPartition("in", 0): 5}, "group")
            await producer.commit()
        assert (fenced.value.transactional_id, fenced.value.producer_id, fenced.value.producer_epoch) == ("tx", 7, 0)
        assert producer.state is State.FAILED
        asked = len(broker.asked)
        for call in (producer.flush, producer.commit, producer.begin, producer.abort):
            with pytest.raises(Exception, match=r"fenced|not possible"):
                await call()
        assert len(broker.asked) == asked

    play(broker, scenario)


def test_a_commit_without_an_answer_is_unknown_and_may_be_asked_for_again() -> None:
    broker = ScriptedBroker()
    broker.answer(ApiKey.END_TXN, SILENCE)

    async def scenario(producer: AsyncTransactionalProducer) -> None:
        await producer.init()
        await producer.begin()
        await producer.send("out", b"x", partition=0)
        with pytest.raises(TransactionOutcomeUnknown):
            await producer.commit()
        assert producer.state is State.COMMITTING
        await producer.commit()
        assert producer.state is State.READY

    play(broker, scenario, max_block_ms=300)
    assert [(request.committed, request.producer_epoch) for request in broker.requests(ApiKey.END_TXN)] == [
        (True, 0)
    ] * 2


def test_a_block_after_an_unknown_outcome_first_learns_it() -> None:
    broker = ScriptedBroker()
    broker.answer(ApiKey.END_TXN, SILENCE)

    async def scene() -> None:
        async with AsyncClient(broker.address) as client:
            with pytest.raises(TransactionOutcomeUnknown):
                async with client.transaction("tx", max_block_ms=300) as transaction:
                    await transaction.send("out", b"x", partition=0)
            async with client.transaction("tx") as transaction:
                assert transaction.identity.producer_epoch == 1

    broker.run(scene)
    assert [request.committed for request in broker.requests(ApiKey.END_TXN)] == [True, True]


def test_a_tv2_commit_of_a_transaction_the_coordinator_has_ended_is_aborted_and_the_producer_goes_on() -> None:
    broker = ScriptedBroker()
    broker.answer(ApiKey.END_TXN, ErrorCode.INVALID_TXN_STATE)

    async def scene() -> None:
        async with AsyncClient(broker.address) as client:
            with pytest.raises(TransactionAborted) as aborted:
                async with client.transaction("tx") as transaction:
                    await transaction.send("out", b"x", partition=0)
            assert aborted.value.producer_epoch == 0
            async with client.transaction("tx") as transaction:
                assert transaction.identity.producer_epoch == 1

    broker.run(scene)
    assert [request.committed for request in broker.requests(ApiKey.END_TXN)] == [True, False]


def test_a_tv1_commit_in_a_wrong_state_is_fatal() -> None:
    broker = ScriptedBroker(transaction_version=1)
    broker.answer(ApiKey.END_TXN, ErrorCode.INVALID_TXN_STATE)

    async def scenario(producer: AsyncTransactionalProducer) -> None:
        await producer.init()
        await producer.begin()
        await producer.send("out", b"x", partition=0)
        with pytest.raises(TransactionFailed):
            await producer.commit()
        assert producer.state is State.FAILED
        await producer.init()
        assert producer.state is State.READY

    play(broker, scenario)


def test_a_producer_that_the_coordinator_forgot_asks_for_an_epoch_instead_of_an_end() -> None:
    broker = ScriptedBroker(transaction_version=1)
    broker.answer(ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    async def scenario(producer: AsyncTransactionalProducer) -> None:
        await producer.init()
        await producer.begin()
        await producer.send("out", b"x", partition=0)
        with pytest.raises(TransactionMustAbort):
            await producer.commit()
        await producer.abort()
        await producer.begin()
        await producer.send("out", b"y", partition=0)
        await producer.commit()
        assert producer.identity.producer_epoch == 1

    play(broker, scenario)
    assert [name for name, _ in broker.calls] == [
        "InitProducerId", "AddPartitionsToTxn", "InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"
    ]  # fmt: skip
    assert broker.requests(ApiKey.INIT_PRODUCER_ID)[1].producer_epoch == 0


def test_under_tv1_a_failed_batch_costs_an_epoch_because_its_sequence_is_lost() -> None:
    broker = ScriptedBroker(transaction_version=1)
    broker.answer(ApiKey.PRODUCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    async def scenario(producer: AsyncTransactionalProducer) -> None:
        await producer.init()
        await producer.begin()
        sent = await producer.send("out", b"x", partition=0)
        with pytest.raises(TransactionMustAbort):
            await producer.flush()
        with pytest.raises(Exception, match="OUT_OF_ORDER"):
            await sent
        with pytest.raises(TransactionMustAbort):
            await producer.send("out", b"more", partition=0)
        await producer.abort()
        await producer.begin()
        assert producer.identity.producer_epoch == 1
        await producer.send("out", b"y", partition=0)
        await producer.commit()

    play(broker, scenario)
    assert [(batch.producer_epoch, batch.base_sequence) for _, batch in broker.batches()] == [(0, 0), (1, 0)]


def test_an_abort_drops_what_was_not_sent_and_tells_its_senders() -> None:
    broker = ScriptedBroker()

    async def scenario(producer: AsyncTransactionalProducer) -> None:
        await producer.init()
        await producer.begin()
        unsent = await producer.send("out", b"x", partition=0)
        await producer.abort()
        with pytest.raises(TransactionAborted, match="abort was called"):
            await unsent
        assert producer.state is State.READY

    play(broker, scenario)
    # Nothing was sent, so there is nothing that the coordinator would have to end.
    assert broker.calls == [("InitProducerId", 5)]


def test_every_state_can_be_reached_and_left() -> None:
    reached = set(State) - {State.UNINITIALIZED}
    assert {state for state, before in PREDECESSORS.items() if before - {state}} == reached
    for state in State:
        followers = {after for after, before in PREDECESSORS.items() if state in before}
        assert followers - {state}, f"nothing follows {state}"


@pytest.mark.parametrize(
    ("call", "code", "expected"),
    [
        (Call.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.ABORT),
        (Call.PRODUCE, ErrorCode.CONCURRENT_TRANSACTIONS, Verdict.RETRY),
        (Call.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, Verdict.RETRY),
        (Call.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE, Verdict.ABORT),
        (Call.PRODUCE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.FATAL),
        (Call.INIT, ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.FENCED),
        (Call.INIT, ErrorCode.INVALID_TRANSACTION_TIMEOUT, Verdict.FATAL),
        (Call.ADD_OFFSETS, ErrorCode.GROUP_AUTHORIZATION_FAILED, Verdict.ABORT),
        (Call.ADD_PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Verdict.RETRY),
        (Call.COMMIT_OFFSETS, ErrorCode.ILLEGAL_GENERATION, Verdict.ABORT),
        (Call.COMMIT_OFFSETS, ErrorCode.PRODUCER_FENCED, Verdict.FENCED),
        (Call.COMMIT, ErrorCode.TRANSACTION_ABORTABLE, Verdict.ABORT),
        (Call.COMMIT, ErrorCode.INVALID_TXN_STATE, Verdict.FATAL),
        (Call.ABORT, ErrorCode.UNKNOWN_SERVER_ERROR, Verdict.FATAL),
    ],
)
def test_errors_are_sorted_as_kafkas_own_producer_sorts_them(call: Call, code: ErrorCode, expected: Verdict) -> None:
    assert verdict(call, code) is expected
