"""Clients that were there before a broker's restart go on after it, without help."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.peers.broker_process import BrokerProcess
from tests.peers.clients import CLIENTS, CONFLUENT, KCAT, Member, Record
from tests.support.patience import patient

pytestmark = pytest.mark.timeout(120)
TOPIC = "restarted"
PARTITIONS = 2
SETTLE_TIMEOUT_SECONDS = patient(60)
LASTING = [client for client in CLIENTS if client is not KCAT]  # kcat ends by itself when no broker is there


@contextmanager
def prepared(broker_kind: type[BrokerProcess]) -> Iterator[BrokerProcess]:
    """A broker of the test's own, with the topic, and with its offsets topic made by a first commit."""
    with broker_kind() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(patient(20))
        outsider = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "outsider"})
        deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
        while True:
            try:
                outsider.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
                break
            except KafkaException:
                # Apache Kafka is a while without a coordinator after its first start.
                assert time.monotonic() < deadline
        outsider.close()
        yield broker


def wave(label: str) -> list[Record]:
    return [Record(partition, f"{label}-{n}", label) for n in range(10) for partition in range(PARTITIONS)]


def settle(holds: Callable[[], bool], members: dict[str, Member]) -> None:
    deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(
                "\n".join(f"{name}: {m.process.events[-5:]} {m.process.output[-800:]}" for name, m in members.items())
            )
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_members_of_every_client_go_on_after_the_broker_was(how: str, broker_kind: type[BrokerProcess]) -> None:
    if how == "killed" and broker_kind.name == "apache":
        pytest.skip("Apache Kafka comes back from a kill only after its session with itself timed out")
    with prepared(broker_kind) as own_broker:
        restart_under_members(own_broker, how)


def restart_under_members(own_broker: BrokerProcess, how: str) -> None:
    bootstrap = own_broker.bootstrap_servers
    before, after = wave("before"), wave("after")
    CONFLUENT.produce(bootstrap, TOPIC, before)
    with ExitStack() as stack:
        members = {
            client.name: stack.enter_context(client.member(bootstrap, f"group-{client.name}", TOPIC))
            for client in LASTING
        }
        settle(lambda: all(len(member.records) >= len(before) for member in members.values()), members)
        if how == "killed":
            own_broker.kill()
        else:
            own_broker.stop()
        own_broker.start()
        assert own_broker.bootstrap_servers == bootstrap
        CONFLUENT.produce(bootstrap, TOPIC, after)

        def has_all(member: Member) -> bool:
            wanted = {(record.partition, record.key) for record in before + after}
            return {(record.partition, record.key) for record in member.records} == wanted

        settle(lambda: all(has_all(member) for member in members.values()), members)
        for member in members.values():
            for partition in range(PARTITIONS):
                # A commit that the stop cut off may repeat records, but in order, and nothing is skipped.
                seen = [record.offset for record in member.records if record.partition == partition]
                assert list(dict.fromkeys(seen)) == list(range(20))
