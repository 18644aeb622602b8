"""`fencepost txn` on Fencepost and on Apache Kafka: what is listed, what hangs, what an abort would do and does."""

import asyncio
from collections.abc import Callable

import pytest

from fencepost.client import AsyncAdmin, AsyncClient, CommittedOffset, NewTopic, ProducerFenced, TopicPartition
from tests.insight.reading import read_committed
from tests.insight.scenes import LONG_MS
from tests.interop.cases import Peer
from tests.interop.cases.transactional import Script
from tests.interop_cli.conftest import Command
from tests.peers.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(300)
Unique = Callable[[str], str]
FOUND = 3


async def open_one(broker: BrokerProcess, name: str, topic: str, group: str) -> None:
    """A transaction with three records and an offset, left open; behind it a plain and a committed record."""
    async with AsyncAdmin(broker.bootstrap_servers) as admin:
        await admin.create_topic(NewTopic(topic, 1))
    async with AsyncClient(broker.bootstrap_servers) as client:
        producer = client.producer(name, transaction_timeout_ms=LONG_MS)
        await producer.init()
        await producer.begin()
        for at in range(3):
            await producer.send(topic, b"open %d" % at)
        await producer.send_offsets({TopicPartition(topic, 0): CommittedOffset(41)}, group)
        await producer.flush()
        async with client.transaction(f"{name}-behind") as transaction:
            await transaction.send(topic, b"committed behind")


def test_an_open_transaction_is_listed_described_and_aborted_after_a_dry_run(
    command: Command, broker: BrokerProcess, unique: Unique
) -> None:
    name, topic, group = unique("id"), unique("topic"), unique("group")
    asyncio.run(open_one(broker, name, topic, group))
    listed = {each["transactional_id"]: each for each in command("txn", "list", "--json").json["transactions"]}
    assert listed[name]["state"] == "Ongoing"
    assert listed[f"{name}-behind"]["state"] in ("CompleteCommit", "PrepareCommit")
    assert [row[0] for row in command("txn", "list", "--match", name).rows] == [name]
    assert name in command("txn", "list", "--state", "Ongoing").output
    described = command("txn", "describe", name, "--json").json
    assert (described["state"], described["producer_id"]) == ("Ongoing", listed[name]["producer_id"])
    assert {"topic": topic, "partition": 0, "start_offset": 0} in described["partitions"]
    assert described["age_ms"] >= 0
    assert f"{name}  Ongoing" in command("txn", "describe", name).output

    planned = command("txn", "abort", name, "--json").json
    assert planned["executed"] is False
    by_topic = {each["topic"]: each for each in planned["partitions"]}
    assert (by_topic[topic]["vanishing_records"], by_topic[topic]["visible_records"]) == (3, 1)
    (vanishing,) = by_topic["__consumer_offsets"]["vanishing_offsets"]
    assert (vanishing["group"], vanishing["topic"], vanishing["offset"]) == (group, topic, 41)
    assert command("txn", "describe", name, "--json").json["state"] == "Ongoing", "a dry run changes nothing"
    assert read_committed(broker, topic) == []
    text = command("txn", "abort", name)
    assert "nothing was changed; add --execute" in text.errors
    assert f"the pending offset 41 of group {group} for {topic}-0 is discarded" in text.output

    command("txn", "abort", name, "--execute")
    assert read_committed(broker, topic) == [b"committed behind"], "exactly what the dry run said"
    assert "has no open transaction" in command.refused("txn", "abort", name)


def test_a_hanging_transaction_is_found_in_the_whole_cluster_and_ended(
    command: Command, broker: BrokerProcess, unique: Unique
) -> None:
    with Peer(broker, unique("peer")) as peer:
        script = Script(peer)
        topic = peer.topic()
        honest, hanging = script.producer("honest"), script.producer("hanging")
        honest.init(timeout_ms=LONG_MS)
        honest.add(topic)
        assert honest.produce(topic)[0] == 0
        hanging.init()
        assert hanging.produce(topic)[0] == 0
        searched = command.run(("txn", "find-hanging", "--json"))
        assert searched.status == FOUND, searched.errors
        (found,) = (each for each in searched.json["hanging"] if each["topic"] == topic)
        assert (found["topic"], found["partition"]) == (topic, 0)
        assert (found["producer_id"], found["start_offset"]) == (hanging.producer_id, 1)
        assert found["transactional_id"] == hanging.name
        assert found["age_ms"] >= 0
        assert "is in state Empty" in found["reason"]
        assert command.run(("txn", "find-hanging", "--topic", topic, "--older-than", "86400")).status == 0
        assert hanging.name in command.run(("txn", "find-hanging", "--topic", topic)).output

        where = ("--topic", topic, "--partition", "0")
        refused = command.refused("txn", "abort", *where, "--start-offset", "0")
        assert (
            f"does not hang, its coordinator will end it; to abort it now: fencepost txn abort {honest.name}" in refused
        )
        assert "open transactions begin at: 0, 1" in command.refused("txn", "abort", *where, "--start-offset", "7")
        (effect,) = command("txn", "abort", *where, "--start-offset", "1", "--json").json["partitions"]
        assert (effect["vanishing_records"], effect["visible_records"]) == (1, 0)
        assert effect["held_by_producer_id"] == honest.producer_id
        command("txn", "abort", *where, "--start-offset", "1", "--execute")
        assert command.run(("txn", "find-hanging", "--topic", topic, "--json")).json["hanging"] == []
        honest.end(True)


def test_an_aborted_producer_is_fenced(broker: BrokerProcess, command: Command, unique: Unique) -> None:
    name, topic = unique("id"), unique("topic")

    async def scenario() -> None:
        async with AsyncAdmin(broker.bootstrap_servers) as admin:
            await admin.create_topic(NewTopic(topic, 1))
        async with AsyncClient(broker.bootstrap_servers) as client:
            producer = client.producer(name, transaction_timeout_ms=LONG_MS)
            await producer.init()
            await producer.begin()
            await producer.send(topic, b"one")
            await producer.flush()
            await asyncio.to_thread(command, "txn", "abort", name, "--execute")
            with pytest.raises(ProducerFenced):
                await producer.commit()

    asyncio.run(scenario())


def test_names_that_speak_to_the_terminal_are_printed_without_effect(
    broker: BrokerProcess, command: Command, unique: Unique
) -> None:
    topic = unique("topic")
    name, group = f"{topic}\x1b[31m\nid \x9bm", f"{topic}\x1b]0;t\x07\u202e\ngroup"

    async def scenario() -> None:
        async with AsyncAdmin(broker.bootstrap_servers) as admin:
            await admin.create_topic(NewTopic(topic, 1))
            await admin.commit_offsets(group, {TopicPartition(topic, 0): CommittedOffset(0)})
        async with AsyncClient(broker.bootstrap_servers, client_id="client\x1b[2J") as client:
            producer = client.producer(name, transaction_timeout_ms=LONG_MS)
            await producer.init()
            await producer.begin()
            await producer.send(topic, b"one")
            await producer.send_offsets({TopicPartition(topic, 0): CommittedOffset(1)}, group)
            await producer.flush()
            for arguments in (
                ("txn", "list"),
                ("txn", "describe", name),
                ("txn", "abort", name),
                ("groups", "list"),
                ("groups", "describe", group),
                ("lag", group),
                ("explain", topic),
                ("explain", name, "--history"),
                ("explain", "absent \x1b[31m"),
            ):
                done = await asyncio.to_thread(command.run, arguments)
                printed = (done.output + done.errors).replace("\n", "")
                assert printed.isprintable(), (arguments, printed)
                if name in arguments or arguments == ("txn", "list"):
                    assert "\\x1b[31m\\nid \\x9bm" in printed or arguments[1] == "abort", arguments
            await producer.abort()

    asyncio.run(scenario())
    listed = command("txn", "list", "--json").json["transactions"]
    assert name in [each["transactional_id"] for each in listed], "JSON is exact"
    assert group in [each["group"] for each in command("groups", "list", "--json").json["groups"]]


def test_what_is_not_there_is_said_in_one_line(command: Command) -> None:
    assert "TRANSACTIONAL_ID_NOT_FOUND" in command.refused("txn", "describe", "absent")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in command.refused("txn", "abort", "absent")
    assert "absent" in command.refused("txn", "find-hanging", "--topic", "absent")
    command.refused("txn", "abort", status=2)
    command.refused("txn", "abort", "--topic", "x", status=2)
    assert "there is no profile 'absent'" in command.refused("txn", "list", "--profile", "absent")
    assert "cannot read" in command.refused("txn", "list", "--command-config", "/absent")
    assert "cannot reach" in command.refused("txn", "list", "--bootstrap-server", "127.0.0.1:1")
