"""Clients whose connections keep breaking: ghost protection never hurts a live one."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.clients import CLIENTS, FORGIVEN, TransactionalClient
from tests.faults.conftest import CONFIGS, settled
from tests.faults.proxy import Direction, FaultProxy
from tests.faults.scene import events, script, values_of
from tests.peers import java
from tests.peers.broker_process import BrokerProcess
from tests.peers.build import require_node
from tests.peers.clients import KAFKAJS
from tests.peers.fencepost_process import FencepostProcess
from tests.support.patience import patient

pytestmark = [pytest.mark.timeout(90), *FORGIVEN]
PROGRAMS = Path(__file__).parent / "programs"
TRANSACTIONS = 16
PROGRAM_TIMEOUT_SECONDS = patient(60)


def keep_breaking(proxy: FaultProxy) -> None:
    """Requests and answers of the coordinator's calls are lost, each with its connection, at different times."""
    proxy.drop("EndTxn", nth=3, every=7)
    proxy.drop("EndTxn", Direction.RESPONSE, nth=5, every=7)
    proxy.drop("AddPartitionsToTxn", nth=4, every=7)
    proxy.drop("AddPartitionsToTxn", Direction.RESPONSE, nth=6, every=7)
    proxy.drop("Produce", Direction.RESPONSE, nth=7, every=11)


def assert_unharmed(broker: BrokerProcess, proxy: FaultProxy, name: str, topic: str) -> None:
    assert values_of(broker, topic) == [b"%d" % n for n in range(TRANSACTIONS)]
    assert proxy.accepted > 5, "connections did break"
    assert events(broker, "GhostProtectionSwitchedOff", name) == []
    assert events(broker, "ProducerFenced", name) == []


@pytest.mark.parametrize("client", CLIENTS)
def test_reconnects_do_not_hurt(
    client: str,
    broker: BrokerProcess,
    proxy: FaultProxy,
    unique: Callable[[str], str],
    new_client: Callable[..., TransactionalClient],
) -> None:
    name = unique("reconnects")
    topic = script(broker, name).peer.topic()
    producer = new_client(client, proxy.bootstrap_servers, name)
    keep_breaking(proxy)
    for n in range(TRANSACTIONS):
        producer.begin()
        producer.send(topic, b"%d" % n)
        producer.commit()
    assert_unharmed(broker, proxy, name, topic)


def test_reconnects_do_not_hurt_kafkajs(broker: BrokerProcess, proxy: FaultProxy, unique: Callable[[str], str]) -> None:
    name = unique("reconnects")
    topic = script(broker, name).peer.topic()
    # KafkaJS gives up on a transaction whose connection breaks; between transactions it reconnects.
    proxy.on("EndTxn", lambda: None, Direction.RESPONSE, nth=2, every=3, hang_up=True)
    proxy.drop("Produce", Direction.RESPONSE, nth=7, every=11)
    program = [require_node(), str(PROGRAMS / "kafkajs_transactions.js")]
    done = subprocess.run(
        [*program, proxy.bootstrap_servers, name, topic, str(TRANSACTIONS)],
        env={**os.environ, **dict(KAFKAJS.environment)},
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert_unharmed(broker, proxy, name, topic)


def run_java(proxy: FaultProxy, name: str, topic: str) -> None:
    # Java compiles a single source file as it starts it.
    java.run(str(PROGRAMS / "JavaTransactions.java"), proxy.bootstrap_servers, name, topic, str(TRANSACTIONS))


def test_reconnects_do_not_hurt_java(broker: BrokerProcess, proxy: FaultProxy, unique: Callable[[str], str]) -> None:
    name = unique("reconnects")
    topic = script(broker, name).peer.topic()
    keep_breaking(proxy)
    ends = proxy.on("EndTxn", lambda: None)
    run_java(proxy, name, topic)
    assert ends.wait().version >= 5, "it speaks the new protocol"
    assert_unharmed(broker, proxy, name, topic)


@pytest.fixture(scope="module")
def old_cluster() -> Iterator[BrokerProcess]:
    """One whose transaction.version is 1, so that the Java client speaks the old protocol."""
    with FencepostProcess(CONFIGS) as process:
        settled(process)
        update = {"Feature": "transaction.version", "MaxVersionLevel": 1, "UpgradeType": 2}
        answer = script(process, "features").call(
            "UpdateFeatures", 1, {"timeoutMs": 5000, "FeatureUpdates": [update], "ValidateOnly": False}
        )
        assert answer["ErrorCode"] == 0, answer
        yield process


def test_reconnects_do_not_hurt_java_below_the_new_protocol(
    old_cluster: BrokerProcess, unique: Callable[[str], str]
) -> None:
    name = unique("reconnects")
    topic = script(old_cluster, name).peer.topic()
    with FaultProxy(old_cluster.address) as proxy:
        keep_breaking(proxy)
        ends = proxy.on("EndTxn", lambda: None)
        run_java(proxy, name, topic)
        assert ends.wait().version <= 4
        assert_unharmed(old_cluster, proxy, name, topic)
