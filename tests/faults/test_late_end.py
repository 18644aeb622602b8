"""An EndTxn that was held up and comes when the next transaction is open (KAFKA-17754).

Old clients' EndTxn does not say which transaction it means. Fencepost tells by the connection it comes on; without that
protection, as in Kafka, it ends the wrong one.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.clients import CLIENTS, FORGIVEN, TransactionalClient
from tests.faults.proxy import FaultProxy
from tests.faults.scene import ends, events, same_producer, script, send_only, values_of
from tests.interop.cases.transactional import ABORT, COMMIT
from tests.peers.broker_process import BrokerProcess

pytestmark = [pytest.mark.timeout(60), *FORGIVEN]
RESULTS = pytest.mark.parametrize("result", [COMMIT, ABORT], ids=["commit", "abort"])


def raw_story(broker: BrokerProcess, proxy: FaultProxy, name: str, result: bool) -> tuple[Any, Any, str]:
    """The first transaction's EndTxn is held, sent again elsewhere, and comes through while the second is open."""
    old = script(proxy, name).producer()
    topic = old.script.peer.topic()
    old.open(topic)
    held = proxy.hold("EndTxn", transactional_id=old.name)
    send_only(old, "EndTxn", 3, Committed=result)
    held.wait()
    new = same_producer(old, script(broker, name))
    assert new.end(result)["ErrorCode"] == 0
    new.open(topic)
    return held, new, topic


@RESULTS
def test_a_late_end_does_no_harm(
    result: bool, broker: BrokerProcess, proxy: FaultProxy, unique: Callable[[str], str]
) -> None:
    held, producer, topic = raw_story(broker, proxy, unique("late-end"), result)
    assert held.release().outcome() is None, "the ghost is hung up on"
    assert producer.script.describe(producer.name)[0]["TransactionState"] == "Ongoing"
    assert ends(producer.script, topic) == (3, 2), "readers still wait for the second transaction"
    assert producer.end(COMMIT)["ErrorCode"] == 0
    assert len(values_of(broker, topic)) == (2 if result is COMMIT else 1)
    (told,) = events(broker, "GhostCallDropped", producer.name)
    assert told["operation"] == "EndTxn"


@RESULTS
def test_without_protection_it_ends_the_wrong_transaction_as_in_kafka(
    result: bool, unprotected: BrokerProcess, unique: Callable[[str], str]
) -> None:
    with FaultProxy(unprotected.address) as proxy:
        held, producer, topic = raw_story(unprotected, proxy, unique("late-end"), result)
        answer = held.release().outcome()
        assert answer is not None
        assert answer["ErrorCode"] == 0
    producer.settle()
    ended = "CompleteCommit" if result is COMMIT else "CompleteAbort"
    assert producer.script.describe(producer.name)[0]["TransactionState"] == ended
    # The producer goes on with its transaction, half of which is over already.
    assert producer.produce(topic)[0] != 0
    assert ends(producer.script, topic) == (4, 4)


@pytest.mark.parametrize("client", CLIENTS)
@RESULTS
def test_a_late_end_of_a_real_client_does_no_harm(
    client: str,
    result: bool,
    broker: BrokerProcess,
    proxy: FaultProxy,
    unique: Callable[[str], str],
    new_client: Callable[..., TransactionalClient],
) -> None:
    name = unique("late-end")
    watcher = script(broker, name)
    topic = watcher.peer.topic()
    producer = new_client(client, proxy.bootstrap_servers, name)
    # To kafka-python a call without an answer is fatal, but a lost connection is not.
    held = proxy.hold("EndTxn", transactional_id=name, hang_up=client == "kafka-python")
    producer.begin()
    producer.send(topic, b"first")
    # The client loses patience with the held call, reconnects and sends it again, which succeeds.
    producer.commit() if result is COMMIT else producer.abort()
    assert held.frame is not None
    producer.begin()
    producer.send(topic, b"second")
    assert held.release().outcome() is None
    assert watcher.describe(name)[0]["TransactionState"] == "Ongoing"
    before = values_of(broker, topic)
    producer.send(topic, b"third")
    producer.commit()
    first = [b"first"] if result is COMMIT else []
    assert before == first
    assert values_of(broker, topic) == [*first, b"second", b"third"]
    assert events(broker, "GhostProtectionSwitchedOff", name) == []


def test_without_protection_a_late_abort_tears_the_transaction_of_a_real_client(
    unprotected: BrokerProcess, unique: Callable[[str], str], new_client: Callable[..., TransactionalClient]
) -> None:
    name = unique("late-end")
    topic = script(unprotected, name).peer.topic()
    with FaultProxy(unprotected.address) as proxy:
        producer = new_client("confluent-kafka", proxy.bootstrap_servers, name)
        held = proxy.hold("EndTxn", transactional_id=name)
        producer.begin()
        producer.send(topic, b"first")
        producer.abort()
        producer.begin()
        producer.send(topic, b"second")
        answer = held.release().outcome()
        assert answer is not None
        assert answer["ErrorCode"] == 0
        with pytest.raises(Exception, match="INVALID_TXN_STATE"):
            producer.commit()
    assert values_of(unprotected, topic) == []
