"""Consumer groups as each client runs them: joining, sharing, leaving, static members, cooperation."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.peers.broker_process import BrokerProcess
from tests.peers.clients import AIOKAFKA, CLIENTS, CONFLUENT, JAVA, KAFKA_PYTHON, Client, Member, Record
from tests.support.patience import patient

pytestmark = pytest.mark.timeout(120)
PARTITIONS = 4
PER_PARTITION = 10
SETTLE_TIMEOUT_SECONDS = patient(40)


def wave(label: str) -> list[Record]:
    return [Record(p, f"{label}-{n}", label) for n in range(PER_PARTITION) for p in range(PARTITIONS)]


def processed(*members: Member) -> dict[str, int]:
    """How often each record was handed to the application, over all members."""
    counts: dict[str, int] = {}
    for member in members:
        for record in member.records:
            name = f"{record.partition}/{record.key}"
            counts[name] = counts.get(name, 0) + 1
    return counts


def once_each(*labels: str) -> dict[str, int]:
    return {f"{record.partition}/{record.key}": 1 for label in labels for record in wave(label)}


def settle(holds: Callable[[], bool], what: str, *members: Member) -> None:
    """Waits for a state of several processes together."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"the group did not settle: {what}\n{state_of(*members)}")
        time.sleep(0.05)


def share(first: Member, second: Member) -> bool:
    mine, yours = first.assignment, second.assignment
    return bool(mine) and bool(yours) and not mine & yours and len(mine | yours) == PARTITIONS


def state_of(*members: Member) -> str:
    return "\n".join(f"{m.process.name}: {m.process.events[-20:]}\n{m.process.output[-2000:]}" for m in members)


def committed(broker: BrokerProcess, group: str, topic: str) -> dict[int, int]:
    """The committed offsets, asked through a client that has no part in the test."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for p in range(PARTITIONS)])
    answer = admin.list_consumer_group_offsets([request])[group].result(patient(20))
    return {each.partition: each.offset for each in answer.topic_partitions}


def await_commits(client: Client, broker: BrokerProcess, group: str, topic: str, offset: int) -> None:
    if client.commits_at_once:
        settle(
            lambda: committed(broker, group, topic) == dict.fromkeys(range(PARTITIONS), offset), f"commits of {offset}"
        )


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_two_members_share_a_topic_and_hand_over_without_loss_or_repetition(
    client: Client, broker: BrokerProcess, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic, group = new_topic(partitions=PARTITIONS, stem="shared"), unique("group")
    CONFLUENT.produce(broker.bootstrap_servers, topic, wave("alone"))

    with client.member(broker.bootstrap_servers, group, topic, client_id="first") as first:
        first.wait_for_assignment(lambda owned: len(owned) == PARTITIONS)
        first.wait_for_records(lambda records: len(records) >= PARTITIONS * PER_PARTITION)
        await_commits(client, broker, group, topic, PER_PARTITION)

        with client.member(broker.bootstrap_servers, group, topic, client_id="second") as second:
            settle(lambda: share(first, second), "two members share", first, second)
            CONFLUENT.produce(broker.bootstrap_servers, topic, wave("together"))
            settle(lambda: len(processed(first, second)) == 2 * PARTITIONS * PER_PARTITION, "the second wave")
            assert second.records, "the second member has work"
            mine = second.assignment
            assert {record.partition for record in second.records} == mine
            await_commits(client, broker, group, topic, 2 * PER_PARTITION)

            first.leave()
            second.wait_for_assignment(lambda owned: len(owned) == PARTITIONS)
            CONFLUENT.produce(broker.bootstrap_servers, topic, wave("left"))
            settle(lambda: len(processed(first, second)) == 3 * PARTITIONS * PER_PARTITION, "the third wave")
            second.leave()

    # Every handover was clean and every offset committed, so nothing is seen twice.
    assert processed(first, second) == once_each("alone", "together", "left")
    assert committed(broker, group, topic) == dict.fromkeys(range(PARTITIONS), 3 * PER_PARTITION)


@pytest.mark.parametrize("client", [CONFLUENT, JAVA, AIOKAFKA, KAFKA_PYTHON], ids=lambda client: client.name)
def test_a_new_member_resumes_where_the_group_committed(
    client: Client, broker: BrokerProcess, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic, group = new_topic(partitions=PARTITIONS, stem="resumed"), unique("group")
    CONFLUENT.produce(broker.bootstrap_servers, topic, wave("before"))
    offsets = [TopicPartition(topic, p, PER_PARTITION - p) for p in range(PARTITIONS)]
    outsider = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    outsider.commit(offsets=offsets, asynchronous=False)
    outsider.close()

    # 0 + 1 + 2 + 3 records are left to read.
    with client.member(broker.bootstrap_servers, group, topic) as member:
        member.wait_for_records(lambda records: len(records) >= 6)
        member.leave()
    assert sorted((record.partition, record.offset) for record in member.records) == [
        (1, 9), (2, 8), (2, 9), (3, 7), (3, 8), (3, 9)
    ]  # fmt: skip


def test_a_killed_member_is_missed_and_its_partitions_are_taken_over(
    broker: BrokerProcess, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic, group = new_topic(partitions=PARTITIONS, stem="killed"), unique("group")
    options = {"session_timeout_ms": 6000}  # the shortest that a broker allows by default
    with (
        CONFLUENT.member(broker.bootstrap_servers, group, topic, **options) as first,
        CONFLUENT.member(broker.bootstrap_servers, group, topic, **options) as second,
    ):
        settle(lambda: share(first, second), "two members share", first, second)
        first.kill()
        second.wait_for_assignment(lambda owned: len(owned) == PARTITIONS)
        CONFLUENT.produce(broker.bootstrap_servers, topic, wave("after"))
        second.wait_for_records(lambda records: len(records) >= PARTITIONS * PER_PARTITION)
        assert processed(second) == once_each("after")
        second.leave()


def test_cooperative_members_keep_what_they_have_while_others_join(
    broker: BrokerProcess, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic, group = new_topic(partitions=PARTITIONS, stem="cooperative"), unique("group")
    options = {"assignor": "cooperative-sticky"}
    with JAVA.member(broker.bootstrap_servers, group, topic, **options) as first:
        first.wait_for_assignment(lambda owned: len(owned) == PARTITIONS)
        with JAVA.member(broker.bootstrap_servers, group, topic, **options) as second:
            settle(lambda: share(first, second), "two members share", first, second)
            assert len(first.assignment) == len(second.assignment) == PARTITIONS // 2
            # The point of cooperation: only what moves is given up, the rest is never interrupted.
            revoked = [partition for event in first.events("revoked") for partition in event["partitions"]]
            assert set(revoked) == second.assignment
            assert first.events("lost") == []

            CONFLUENT.produce(broker.bootstrap_servers, topic, wave("shared"))
            settle(lambda: len(processed(first, second)) == PARTITIONS * PER_PARTITION, "the wave")
            kept = set(second.assignment)
            first.leave()
            second.wait_for_assignment(lambda owned: len(owned) == PARTITIONS)
            assert not kept & {p for event in second.events("revoked") for p in event["partitions"]}
            second.leave()
    assert processed(first, second) == once_each("shared")


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    broker: BrokerProcess, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic, group = new_topic(partitions=PARTITIONS, stem="static"), unique("group")
    options = {"session_timeout_ms": 30_000}
    with CONFLUENT.member(broker.bootstrap_servers, group, topic, instance_id="one", **options) as stays:
        with CONFLUENT.member(broker.bootstrap_servers, group, topic, instance_id="two", **options) as goes:
            settle(lambda: share(stays, goes), "two members share", stays, goes)
            kept, owned = set(stays.assignment), set(goes.assignment)
            rebalances = len(stays.events("assigned"))
            goes.leave()  # a static member does not tell the group

        with CONFLUENT.member(broker.bootstrap_servers, group, topic, instance_id="two", **options) as returns:
            returns.wait_for_assignment(lambda partitions: partitions == owned)
            CONFLUENT.produce(broker.bootstrap_servers, topic, wave("back"))
            settle(lambda: len(processed(stays, returns)) == PARTITIONS * PER_PARTITION, "the wave")
            assert stays.assignment == kept
            assert len(stays.events("assigned")) == rebalances, "the member that stayed was not disturbed"
            assert {record.partition for record in returns.records} == owned


@pytest.mark.parametrize("assignor", ["roundrobin", "sticky"])
@pytest.mark.parametrize("client", [JAVA, AIOKAFKA, KAFKA_PYTHON], ids=lambda client: client.name)
def test_the_other_assignors_of_a_client_share_the_topic_too(
    client: Client, assignor: str, broker: BrokerProcess, new_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topic, group = new_topic(partitions=PARTITIONS, stem=assignor), unique("group")
    with (
        client.member(broker.bootstrap_servers, group, topic, assignor=assignor) as first,
        client.member(broker.bootstrap_servers, group, topic, assignor=assignor) as second,
    ):
        settle(lambda: share(first, second), "two members share", first, second)
        CONFLUENT.produce(broker.bootstrap_servers, topic, wave("dealt"))
        settle(lambda: len(processed(first, second)) == PARTITIONS * PER_PARTITION, "the wave")
        assert processed(first, second) == once_each("dealt")
        first.leave()
        second.leave()
