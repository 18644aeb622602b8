"""Groups through the command, with a consumer of another maker as their member."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition

from tests.interop_cli.conftest import Command
from tests.peers.broker_process import BrokerProcess

JOIN_ATTEMPTS = 100


@contextmanager
def member(broker: BrokerProcess, group: str, topic: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "client.id": "shop",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    for _ in range(JOIN_ATTEMPTS):
        consumer.poll(0.1)
        if consumer.assignment():
            break
    assert consumer.assignment()
    try:
        yield consumer
    finally:
        consumer.close()


def fill(command: Command, topic: str) -> None:
    for partition in range(3):
        lines = "".join(f"{at}\n" for at in range(10))
        command("produce", topic, "--partition", str(partition), standard_input=lines)


def offsets(command: Command, group: str) -> dict[int, tuple[int | None, int | None]]:
    described = command("groups", "describe", group, "--json").json
    return {at["partition"]: (at["committed_offset"], at["lag"]) for at in described["offsets"]}


def test_a_group_with_a_member_is_listed_and_described(
    command: Command, broker: BrokerProcess, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    fill(command, topic)
    with member(broker, group, topic) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        assert [group, "Stable", "classic"] in command("groups", "list").rows
        described = command("groups", "describe", group, "--json").json
        assert described["state"] == "Stable"
        assert described["protocol_type"] == "consumer"
        (only,) = described["members"]
        assert only["client_id"] == "shop"
        assert only["assignment"] == [{"topic": topic, "partition": at} for at in range(3)]
        by_partition = {at["partition"]: at for at in described["offsets"]}
        assert (by_partition[0]["committed_offset"], by_partition[0]["end_offset"], by_partition[0]["lag"]) == (
            4,
            10,
            6,
        )
        assert by_partition[1]["committed_offset"] is None
        assert by_partition[1]["member_id"] == only["member_id"]
        refused = command.refused("groups", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
        assert "only while it is empty, but it is Stable; stop its consumers first" in refused
        assert "NON_EMPTY_GROUP" in command.refused("groups", "delete", group)
    assert [group, "Empty", "classic"] in command("groups", "list").rows


def test_offsets_are_moved_only_when_told_to(command: Command, topic: str, unique: Callable[[str], str]) -> None:
    group = unique("group")
    fill(command, topic)
    reset = ("groups", "reset-offsets", group)
    dry = command(*reset, "--topic", topic, "--to-latest")
    assert dry.rows == [[topic, str(partition), "-", "10"] for partition in range(3)]
    assert "nothing was changed; add --execute" in dry.errors
    assert group not in [row[0] for row in command("groups", "list").rows]

    command(*reset, "--topic", topic, "--to-latest", "--execute")
    assert offsets(command, group) == {0: (10, 0), 1: (10, 0), 2: (10, 0)}
    shifted = command(*reset, "--topic", f"{topic}:0,2", "--shift-by", "-3", "--execute", "--json").json
    assert shifted["executed"] is True
    assert [(at["partition"], at["old_offset"], at["new_offset"]) for at in shifted["offsets"]] == [
        (0, 10, 7),
        (2, 10, 7),
    ]
    command(*reset, "--all-topics", "--to-offset", "9", "--execute")
    assert offsets(command, group) == {0: (9, 1), 1: (9, 1), 2: (9, 1)}
    command(*reset, "--all-topics", "--shift-by", "-100", "--execute")
    assert offsets(command, group) == {0: (0, 10), 1: (0, 10), 2: (0, 10)}
    command(*reset, "--all-topics", "--to-datetime", "2100-01-01T00:00:00Z", "--execute")
    assert offsets(command, group) == {0: (10, 0), 1: (10, 0), 2: (10, 0)}
    command(*reset, "--all-topics", "--to-datetime", "2020-01-01T00:00:00Z", "--execute")
    assert offsets(command, group) == {0: (0, 10), 1: (0, 10), 2: (0, 10)}
    command(*reset, "--all-topics", "--to-earliest", "--execute")

    assert command("groups", "delete", group).output == f"deleted group {group}\n"
    assert group not in [row[0] for row in command("groups", "list").rows]


def test_a_group_that_does_not_exist_is_said_to(command: Command) -> None:
    assert "GROUP_ID_NOT_FOUND" in command.refused("groups", "describe", "absent")
    assert "GROUP_ID_NOT_FOUND" in command.refused("groups", "delete", "absent")
    assert "has committed no offsets; name topics with --topic" in command.refused(
        "groups", "reset-offsets", "absent", "--all-topics", "--to-earliest"
    )
