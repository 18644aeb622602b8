"""Answers that are lost while five requests are in flight: nothing is lost, doubled or out of order."""

from collections.abc import Callable

import pytest

from tests.faults.clients import CLIENTS, FORGIVEN, TransactionalClient
from tests.faults.proxy import Direction, FaultProxy
from tests.faults.scene import script, values_of
from tests.peers.batches import TRANSACTIONAL, batch
from tests.peers.broker_process import BrokerProcess
from tests.peers.raw import RawClient

pytestmark = [pytest.mark.timeout(60), *FORGIVEN]
IN_FLIGHT = 5


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_loses_answers_writes_everything_once_and_in_order(
    client: str,
    broker: BrokerProcess,
    proxy: FaultProxy,
    unique: Callable[[str], str],
    new_client: Callable[..., TransactionalClient],
) -> None:
    name = unique("lost")
    topic = script(broker, name).peer.topic()
    producer = new_client(client, proxy.bootstrap_servers, name)
    lost = proxy.drop("Produce", Direction.RESPONSE, nth=2, every=9)
    sent = [b"%d" % n for n in range(40)]
    producer.begin()
    producer.send_many(topic, sent)
    producer.commit()
    assert lost.count > 2
    assert values_of(broker, topic) == sent
    assert values_of(broker, topic, "read_uncommitted") == sent


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize("lost", range(1, IN_FLIGHT + 1))
def test_five_in_flight_sent_again_after_any_answer_was_lost(
    lost: int, version: int, broker: BrokerProcess, proxy: FaultProxy, unique: Callable[[str], str]
) -> None:
    producer = script(broker, unique("five")).producer()
    topic = producer.script.peer.topic()
    producer.init()
    producer.add(topic)
    proxy.drop("Produce", Direction.RESPONSE, nth=lost)
    requests = []
    for sequence in range(IN_FLIGHT):
        content = batch(
            [b"%d" % sequence],
            attributes=TRANSACTIONAL,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
        )
        data = [{"Name": topic, "PartitionData": [{"Index": 0, "Records": content}]}]
        requests.append({"TransactionalId": producer.name, "Acks": -1, "TimeoutMs": 5000, "TopicData": data})
    with RawClient(proxy.address) as first:
        for request in requests:
            first.send("Produce", version, request)
        for correlation_id in range(1, lost):
            first.receive("Produce", version, correlation_id)
        assert first.is_closed()
    offsets = []
    with RawClient(proxy.address) as second:
        # The client sends again all that it has no word of, whether or not it had arrived.
        for request in requests[lost - 1 :]:
            answer = second.call("Produce", version, request)["Responses"][0]["PartitionResponses"][0]
            offsets.append((answer["ErrorCode"], answer["BaseOffset"]))
    assert offsets == [(0, offset) for offset in range(lost - 1, IN_FLIGHT)]
    producer.end(True, 5 if version == 12 else 4)
    assert values_of(broker, topic) == [b"%d" % sequence for sequence in range(IN_FLIGHT)]
