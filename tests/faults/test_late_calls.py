"""Produce, AddPartitionsToTxn and AddOffsetsToTxn that come too late, and calls that come twice."""

from collections.abc import Callable

import pytest

from tests.faults.proxy import Direction, FaultProxy
from tests.faults.scene import ends, open_producers, same_producer, script, send_only, values_of
from tests.interop.cases.transactional import ABORT, COMMIT, SHORT_TIMEOUT_MS, Producer
from tests.peers.batches import TRANSACTIONAL, batch
from tests.peers.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(60)
PROTOCOLS = pytest.mark.parametrize(("version", "end_version"), [(9, 1), (11, 4), (12, 5)])
REFUSALS = {47, 48, 120}


def produce_late(producer: Producer, topic: str, version: int, sequence: int) -> None:
    content = batch(
        [b"late"],
        attributes=TRANSACTIONAL,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
    )
    data = [{"Name": topic, "PartitionData": [{"Index": 0, "Records": content}]}]
    send_only(producer, "Produce", version, Acks=-1, TimeoutMs=5000, TopicData=data)


@PROTOCOLS
def test_a_batch_that_comes_after_the_time_out_opens_nothing(
    version: int, end_version: int, broker: BrokerProcess, proxy: FaultProxy, unique: Callable[[str], str]
) -> None:
    name = unique("late-produce")
    producer = script(proxy, name).producer()
    topic = producer.script.peer.topic()
    producer.init(timeout_ms=SHORT_TIMEOUT_MS)
    producer.open(topic, version)
    held = proxy.hold("Produce", transactional_id=producer.name)
    produce_late(producer, topic, version, 1)
    held.wait()
    elsewhere = same_producer(producer, script(broker, name))
    elsewhere.settle("CompleteAbort")
    answer = held.release().outcome()
    assert answer is not None
    assert answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] in REFUSALS
    assert ends(elsewhere.script, topic) == (2, 2)
    assert open_producers(elsewhere.script, topic) == []


@PROTOCOLS
@pytest.mark.parametrize("result", [COMMIT, ABORT], ids=["commit", "abort"])
def test_a_batch_that_comes_after_the_end_opens_nothing(
    result: bool,
    version: int,
    end_version: int,
    broker: BrokerProcess,
    proxy: FaultProxy,
    unique: Callable[[str], str],
) -> None:
    name = unique("late-produce")
    producer = script(proxy, name).producer()
    topic = producer.script.peer.topic()
    producer.open(topic, version)
    held = proxy.hold("Produce", transactional_id=producer.name)
    produce_late(producer, topic, version, 1)
    held.wait()
    elsewhere = same_producer(producer, script(broker, name))
    elsewhere.end(result, end_version)
    answer = held.release().outcome()
    assert answer is not None
    assert answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] in REFUSALS
    assert ends(elsewhere.script, topic) == (2, 2)
    assert open_producers(elsewhere.script, topic) == []


@PROTOCOLS
def test_a_batch_of_the_transaction_before_is_never_part_of_the_next(
    version: int, end_version: int, broker: BrokerProcess, proxy: FaultProxy, unique: Callable[[str], str]
) -> None:
    name = unique("late-produce")
    producer = script(proxy, name).producer()
    topic = producer.script.peer.topic()
    producer.open(topic, version)
    held = proxy.hold("Produce", transactional_id=producer.name)
    produce_late(producer, topic, version, 1)
    held.wait()
    elsewhere = same_producer(producer, script(broker, name))
    elsewhere.end(ABORT, end_version)
    # The next transaction has written here already. An old client's carries on with the sequence numbers, so that the
    # late batch is taken for a repetition. Had nothing been written yet, nobody could tell, as in Kafka.
    elsewhere.open(topic, version)
    answer = held.release().outcome()
    assert answer is not None
    code = answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"]
    assert code == (47 if version >= 12 else 0)
    elsewhere.end(COMMIT, end_version)
    assert len(values_of(broker, topic)) == 1
    assert b"late" not in values_of(broker, topic, "read_uncommitted")


@pytest.mark.parametrize("api", ["AddPartitionsToTxn", "AddOffsetsToTxn"])
def test_a_late_add_opens_no_phantom_transaction(
    api: str, broker: BrokerProcess, proxy: FaultProxy, unique: Callable[[str], str]
) -> None:
    name = unique("late-add")
    producer = script(proxy, name).producer()
    topic = producer.script.peer.topic(partitions=2)
    producer.open(topic)
    held = proxy.hold(api, transactional_id=producer.name)
    if api == "AddPartitionsToTxn":
        send_only(producer, api, 3, Topics=[{"Name": topic, "Partitions": [1]}])
    else:
        send_only(producer, api, 3, GroupId=name)
    held.wait()
    elsewhere = same_producer(producer, script(broker, name))
    assert elsewhere.end(COMMIT)["ErrorCode"] == 0
    assert held.release().outcome() is None
    described = elsewhere.script.describe(elsewhere.name)[0]
    assert (described["TransactionState"], described["Topics"]) == ("CompleteCommit", [])
    assert ends(elsewhere.script, topic, 1) == (0, 0)


@pytest.mark.parametrize("version", [1, 4, 5])
@pytest.mark.parametrize("result", [COMMIT, ABORT], ids=["commit", "abort"])
def test_an_end_that_comes_twice_ends_once(
    version: int, result: bool, proxy: FaultProxy, unique: Callable[[str], str]
) -> None:
    producer = script(proxy, unique("twice")).producer()
    topic = producer.script.peer.topic()
    producer.open(topic, 12 if version == 5 else 11)
    twice = proxy.duplicate("EndTxn", transactional_id=producer.name)
    # The first answer is the repetition's; either may find the other still being carried out.
    assert producer.end(result, version)["ErrorCode"] in (0, 51)
    twice.wait()
    before = ends(producer.script, topic)
    assert before == (2, 2), "one batch, one marker"
    assert producer.script.describe(producer.name)[0]["ProducerEpoch"] == (1 if version == 5 else 0)


def test_the_retry_of_an_end_whose_answer_was_lost_gets_the_same_epoch(
    broker: BrokerProcess, proxy: FaultProxy, unique: Callable[[str], str]
) -> None:
    name = unique("lost-answer")
    producer = script(proxy, name).producer()
    topic = producer.script.peer.topic()
    producer.open(topic, 12)
    lost = proxy.drop("EndTxn", Direction.RESPONSE)
    assert producer.end(COMMIT, 5) == "connection closed"
    granted = lost.wait().message
    answers = [producer.end(COMMIT, 5, epoch=0) for _ in range(2)]
    assert [answer["ProducerEpoch"] for answer in answers] == [granted["ProducerEpoch"]] * 2 == [1, 1]
    assert producer.end(ABORT, 5, epoch=0)["ErrorCode"] == 48
    assert ends(producer.script, topic) == (2, 2)
