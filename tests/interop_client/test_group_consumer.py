"""The group consumer: rebalances with its like and with librdkafka, static members, and transactions that rewind."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer

from fencepost.client import (
    Admin,
    Client,
    ConsumerSettings,
    GroupConsumer,
    Producer,
    Reset,
    TopicPartition,
    TransactionAborted,
    TransactionProtocol,
)
from fencepost.client.errors import BrokerError
from fencepost.client.group_consumer import NoCommittedOffset
from tests.interop_client.conftest import committed, create_topic
from tests.interop_client.test_transactions import wait_until
from tests.peers.broker_process import BrokerProcess

QUICK = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6_000, "max_wait_ms": 100}
STRATEGIES = ["range", "roundrobin", "cooperative-sticky"]


def fill(broker: BrokerProcess, topic: str, count: int = 30) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 3)
        producer.flush()


def poll_until(
    consumers: list[GroupConsumer], condition: Callable[[], bool], seconds: float = 40.0, records_max: int = 500
) -> list[bytes]:
    values = []
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, [consumer.assignment for consumer in consumers]
        for consumer in consumers:
            values += [record.value or b"" for record in consumer.poll(50, records_max)]
    return values


@pytest.fixture
def other(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as made:
        yield made


@pytest.mark.parametrize("assignor", STRATEGIES)
def test_members_come_and_go_and_share_the_partitions(
    broker: BrokerProcess, client: Client, other: Client, topic: str, assignor: str
) -> None:
    fill(broker, topic)
    group, options = f"group-{topic}", {**QUICK, "assignors": (assignor,)}
    events: list[tuple[str, int]] = []
    with client.consumer(
        group,
        topic,
        on_assigned=lambda partitions: events.append(("assigned", len(partitions))),
        on_revoked=lambda partitions: events.append(("revoked", len(partitions))),
        **options,
    ) as first:
        values = poll_until([first], lambda: len(first.assignment) == 3 and sum(first.positions.values()) == 30)
        assert sorted(values) == sorted(b"%d" % number for number in range(30))
        first.commit()
        with other.consumer(group, topic, **options) as second:
            again = poll_until([first, second], lambda: bool(second.assignment) and len(first.assignment) < 3)
            assert sorted(first.assignment + second.assignment) == [TopicPartition(topic, at) for at in range(3)]
            assert again == []
            assert ("revoked", 1 if assignor == "cooperative-sticky" else 3) in events
        poll_until([first], lambda: len(first.assignment) == 3)
    with Admin(broker.bootstrap_servers) as admin:
        assert admin.describe_group(group).members == []


@pytest.mark.parametrize("assignor", STRATEGIES)
def test_it_shares_a_group_with_librdkafka(broker: BrokerProcess, client: Client, topic: str, assignor: str) -> None:
    fill(broker, topic)
    group = f"group-{topic}"
    foreign = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": assignor,
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
        }
    )
    foreign.subscribe([topic])
    values: list[bytes] = []

    def poll_foreign() -> None:
        message = foreign.poll(0.05)
        if message is not None and message.error() is None:
            values.append(message.value())

    try:
        wait_until(lambda: poll_foreign() or len(foreign.assignment()) == 3)
        # Librdkafka leads the group; we take what it decides.
        with client.consumer(group, topic, **{**QUICK, "assignors": (assignor,)}) as ours:

            def both() -> bool:
                poll_foreign()
                return len(ours.assignment) + len(foreign.assignment()) == 3 and bool(ours.assignment)

            poll_until([ours], both)
            held = {(at.topic, at.partition) for at in foreign.assignment()}
            assert held.isdisjoint((at.topic, at.partition) for at in ours.assignment)
            foreign.unsubscribe()
            poll_until([ours], lambda: poll_foreign() or len(ours.assignment) == 3)
            # Now we lead, and librdkafka takes what we decide.
            foreign.subscribe([topic])
            poll_until([ours], both)
    finally:
        foreign.close()


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    group = f"group-{topic}"
    settings = {**QUICK, "session_timeout_ms": 10_000, "assignors": ("range",)}
    revoked: list[int] = []
    with client.consumer(
        group, topic, group_instance_id="stays", on_revoked=lambda at: revoked.append(len(at)), **settings
    ) as stays:
        poll_until([stays], lambda: len(stays.assignment) == 3)
        with Client(broker.bootstrap_servers) as first:
            restarts = first.consumer(group, topic, group_instance_id="restarts", **settings)
            poll_until(
                [stays, restarts],
                lambda: bool(restarts.assignment) and len(stays.assignment) + len(restarts.assignment) == 3,
            )
            before = restarts.assignment
            revoked.clear()
        with Client(broker.bootstrap_servers) as second:
            restarted = second.consumer(group, topic, group_instance_id="restarts", **settings)
            poll_until([stays, restarted], lambda: bool(restarted.assignment))
            assert restarted.assignment == before
            # A second holder of the instance fences the first.
            with Client(broker.bootstrap_servers) as third:
                usurper = third.consumer(group, topic, group_instance_id="restarts", **settings)
                poll_until([usurper], lambda: bool(usurper.assignment))
                with pytest.raises(BrokerError, match="FENCED_INSTANCE_ID"):
                    poll_until([restarted], lambda: False)
        assert revoked == []


def test_where_nothing_is_committed_the_setting_says_where_to_begin(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    fill(broker, topic)
    with client.consumer(f"late-{topic}", topic, auto_offset_reset=Reset.LATEST, **QUICK) as late:
        assert poll_until([late], lambda: sum(late.positions.values()) == 30) == []
    with (
        client.consumer(f"strict-{topic}", topic, auto_offset_reset=None, **QUICK) as strict,
        pytest.raises(NoCommittedOffset),
    ):
        strict.poll()


def test_an_aborted_block_rewinds_to_what_is_committed(
    broker: BrokerProcess, client: Client, topic: str, unique: Callable[[str], str], protocol: TransactionProtocol
) -> None:
    fill(broker, topic)
    output = create_topic(broker, unique("output"), 1)
    client.producer(f"tx-{topic}", protocol=protocol)
    seen: list[list[bytes | None]] = []

    class Mishap(Exception):
        pass

    with client.consumer(f"group-{topic}", topic, **QUICK) as consumer:
        for attempt in range(40):
            try:
                with consumer.transaction(f"tx-{topic}") as transaction:
                    records = transaction.poll(timeout_ms=2_000, records_max=7)
                    seen.append([record.value for record in records])
                    for record in records:
                        transaction.send(output, record.value, key=record.key)
                    if attempt % 3 == 0 and records:
                        raise Mishap
            except Mishap:
                continue
            if not records:
                break
        assert consumer.positions == {at: found.offset for at, found in consumer.committed().items()}
    everything = sorted(b"%d" % number for number in range(30))
    wait_until(lambda: len(committed(broker, output)) >= 30)
    assert sorted(value or b"" for value in committed(broker, output)) == everything
    assert seen[0] == seen[1], "the records of the aborted block came again"


def test_without_a_block_an_abort_is_the_applications_business(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    fill(broker, topic)
    with client.consumer(f"group-{topic}", topic, **QUICK) as consumer:
        records = consumer.poll(timeout_ms=20_000)
        with pytest.raises(LookupError), client.transaction(f"tx-{topic}") as transaction:  # noqa: PT012
            transaction.send_offsets(consumer.positions, consumer.metadata())
            raise LookupError
        assert consumer.committed() == {}
        assert records


def test_a_member_that_was_thrown_out_cannot_commit_what_it_consumed(
    broker: BrokerProcess, client: Client, other: Client, topic: str, unique: Callable[[str], str]
) -> None:
    fill(broker, topic)
    output = create_topic(broker, unique("output"), 1)
    # So short a poll interval that the coordinator goes on without the member that is busy.
    settings = {**QUICK, "max_poll_interval_ms": 1_000}
    with (
        client.consumer(f"group-{topic}", topic, **settings) as slow,
        other.consumer(f"group-{topic}", topic, **QUICK) as quick,
    ):
        with pytest.raises(TransactionAborted), slow.transaction(f"slow-{topic}") as transaction:  # noqa: PT012
            records = transaction.poll(timeout_ms=20_000)
            assert records
            for record in records:
                transaction.send(output, b"slow " + (record.value or b""))
            poll_until([quick], lambda: len(quick.assignment) == 3, records_max=0)
        while True:
            with quick.transaction(f"quick-{topic}") as transaction:
                records = transaction.poll(timeout_ms=1_000)
                for record in records:
                    transaction.send(output, record.value)
            if sum(found.offset for found in quick.committed().values()) == 30:
                break
    wait_until(lambda: len(committed(broker, output)) == 30)
    assert Counter(committed(broker, output)) == Counter(b"%d" % number for number in range(30))


def test_topics_that_come_to_be_later_are_read(
    broker: BrokerProcess, client: Client, unique: Callable[[str], str]
) -> None:
    name = unique("later")
    with client.consumer(f"group-{name}", name, **QUICK) as consumer:
        assert consumer.poll(timeout_ms=500) == []
        create_topic(broker, name)
        fill(broker, name, 3)
        assert len(poll_until([consumer], lambda: sum(consumer.positions.values()) == 3)) == 3


def test_settings_have_the_defaults_of_kafka_but_read_what_is_committed() -> None:
    settings = ConsumerSettings()
    assert settings.session_timeout_ms == 45_000
    assert settings.isolation_level.name == "READ_COMMITTED"
