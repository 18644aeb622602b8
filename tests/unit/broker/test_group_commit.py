"""Group commit: one sync for everything that waits, and nothing is seen before its sync."""

from typing import Any

import pytest

from fencepost.simulation.disk import PowerCut
from fencepost.simulation.node import SimulatedNode
from tests.durability.scene import LATEST, LEADER, SMALL, Client

TOPIC = "purchases"
SYNC_MS = 10


def running(partitions: int = 1, **settings: str) -> tuple[SimulatedNode, Client]:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    machine = SimulatedNode({**SMALL, **names}, sync_ms=SYNC_MS).start()
    client = Client(machine)
    assert client.create_topic(TOPIC, partitions) == 0
    for partition in range(partitions):  # the first batch also makes the directory durable
        assert client.produce(TOPIC, b"first", partition=partition).error_code == 0
    return machine, client


class Counted:
    """The syncs that a piece of a scenario asks for: how many times, and of how many files."""

    def __init__(self, machine: SimulatedNode) -> None:
        self._machine = machine
        self._requests, self._files = machine.flusher.requests, machine.disk.syncs

    @property
    def requests(self) -> int:
        return self._machine.flusher.requests - self._requests

    @property
    def files(self) -> int:
        return self._machine.disk.syncs - self._files


def test_producers_that_write_at_the_same_time_share_one_sync() -> None:
    machine, _ = running()
    clients = [Client(machine) for _ in range(64)]
    counted = Counted(machine)
    sent = [(client, client.send(TOPIC, {0: client.batch(b"x")})) for client in clients]
    machine.scheduler.run_for(SYNC_MS)
    assert sorted(client.produced(one).base_offset for client, one in sent) == list(range(1, 65))
    assert (counted.requests, counted.files) == (1, 1)


def test_what_is_written_while_a_sync_runs_gathers_for_the_next_one() -> None:
    machine, client = running()
    counted = Counted(machine)
    early = client.send(TOPIC, {0: client.batch(b"early")})
    machine.scheduler.run_for(1)
    late = []
    for number in range(5):
        other = Client(machine)
        late.append((other, other.send(TOPIC, {0: other.batch(b"%d" % number)})))
        machine.scheduler.run_for(1)
    machine.scheduler.run_for(SYNC_MS - 6)
    assert early in client.socket.answers
    assert not any(one in other.socket.answers for other, one in late), "they were written after that sync had begun"
    assert client.offset(TOPIC, 0, LATEST) == 2
    machine.scheduler.run_for(SYNC_MS)
    assert all(one in other.socket.answers for other, one in late)
    assert counted.requests == 2


def test_a_sync_covers_many_partitions_each_file_once() -> None:
    machine, client = running(partitions=8)
    counted = Counted(machine)
    for _ in range(3):
        client.send(TOPIC, {partition: client.batch(b"x") for partition in range(8)})
    machine.scheduler.run_for(SYNC_MS)
    assert (counted.requests, counted.files) == (1, 8)


def test_an_answer_waits_for_the_last_of_its_partitions() -> None:
    machine, client = running(partitions=2)
    client.send(TOPIC, {0: client.batch(b"sets off a sync")})
    machine.scheduler.run_for(1)
    both = client.send(TOPIC, {0: client.batch(b"x"), 1: client.batch(b"y")})
    machine.scheduler.run_for(SYNC_MS)
    assert both not in client.socket.answers
    machine.scheduler.run_for(SYNC_MS)
    assert both in client.socket.answers


def test_without_anything_written_nothing_is_synced() -> None:
    machine, client = running()
    counted = Counted(machine)
    client.read_all(TOPIC)
    machine.scheduler.run_for(1_000)
    assert counted.requests == 0


def test_readers_see_nothing_that_is_not_synced() -> None:
    machine, client = running()
    client.send(TOPIC, {0: client.batch(b"unsynced")}, acks=LEADER)
    reader = Client(machine)
    machine.scheduler.run_for(SYNC_MS - 1)
    assert reader.read_all(TOPIC) == [(0, b"first")]
    machine.scheduler.run_for(2)
    assert reader.read_all(TOPIC) == [(0, b"first"), (1, b"unsynced")]


def test_with_acks_of_one_acknowledged_means_synced_too() -> None:
    machine, client = running()
    started_ms = machine.clock.monotonic_ms()
    assert client.produce(TOPIC, b"x", acks=LEADER).base_offset == 1
    assert machine.clock.monotonic_ms() == started_ms + SYNC_MS
    assert client.offset(TOPIC, 0, LATEST) == 2, "whoever was acknowledged finds the record"
    machine.crash()
    machine.disk.power_cut(PowerCut.LOSE_ALL)
    machine.start()
    assert Client(machine).read_all(TOPIC) == [(0, b"first"), (1, b"x")]


def test_a_retry_of_a_batch_that_is_not_synced_yet_waits_for_its_sync_too() -> None:
    machine, client = running()
    producer = {"producer_id": client.producer_id(), "producer_epoch": 0, "base_sequence": 0}
    batch = client.batch(b"x", **producer)
    first = client.send(TOPIC, {0: batch})
    machine.scheduler.run_for(SYNC_MS // 2)
    other = Client(machine)
    retry = other.send(TOPIC, {0: batch})
    assert retry not in other.socket.answers, "a duplicate is as durable as its original, no sooner"
    machine.scheduler.run_for(SYNC_MS)
    assert client.produced(first).base_offset == other.produced(retry).base_offset == 1


@pytest.mark.parametrize(
    "settings", [{"flush": "os"}, {"flush": "os", "log_flush_offset_checkpoint_interval_ms": "50"}]
)
def test_with_flush_os_answers_and_readers_wait_for_no_sync(settings: dict[str, str]) -> None:
    machine, client = running(**settings)
    started_ms = machine.clock.monotonic_ms()
    counted = Counted(machine)
    assert client.produce(TOPIC, b"x").base_offset == 1
    assert client.read_all(TOPIC)[-1] == (1, b"x")
    assert machine.clock.monotonic_ms() == started_ms
    assert counted.requests == 0


def test_with_flush_os_a_topic_may_still_ask_for_syncs() -> None:
    machine, client = running(flush="os")
    assert client.create_topic("careful", flush_messages="1") == 0
    started_ms = machine.clock.monotonic_ms()
    assert client.produce("careful", b"x").error_code == 0
    assert machine.clock.monotonic_ms() == started_ms + SYNC_MS


def test_committed_offsets_share_the_sync_with_records() -> None:
    machine, client = running()
    assert client.find_coordinator("billing") == 0
    assert client.commit("billing", TOPIC, 0, 0) == 0
    counted = Counted(machine)
    commit = client.send_commit("billing", TOPIC, 0, 1)
    produce = Client(machine)
    sent = produce.send(TOPIC, {0: produce.batch(b"x")})
    machine.scheduler.run_for(SYNC_MS - 1)
    assert commit not in client.socket.answers
    machine.scheduler.run_for(1)
    assert commit in client.socket.answers
    assert produce.produced(sent).error_code == 0
    assert (counted.requests, counted.files) == (1, 2)


def test_a_run_is_the_same_under_the_same_seed() -> None:
    def story(seed: int) -> list[Any]:
        machine = SimulatedNode(SMALL, seed=seed).start()
        clients = [Client(machine) for _ in range(4)]
        assert clients[0].create_topic(TOPIC, 3) == 0
        for number in range(60):
            client = machine.source.choice(clients)
            client.send(TOPIC, {machine.source.randrange(3): client.batch(b"%d" % number)})
            machine.scheduler.run_for(machine.source.randrange(4))
        return [clients[0].read_all(TOPIC, partition) for partition in range(3)] + [
            machine.clock.monotonic_ms(),
            machine.disk.syncs,
            machine.node.metadata.topics[TOPIC].topic_id,
        ]

    assert story(5) == story(5)
    assert story(5) != story(6)


def test_a_continuation_that_raises_is_reported_and_holds_nobody_up() -> None:
    machine, client = running()
    told: list[object] = []
    machine.node.events.subscribe(told.append)
    partition = machine.node.partition(TOPIC, 0)
    waiting = client.send(TOPIC, {0: client.batch(b"x")})

    def raises(error: object) -> None:
        raise RuntimeError("a fault of ours")

    partition.when_durable(1, raises)
    other = Client(machine)
    behind = other.send(TOPIC, {0: other.batch(b"y")})
    assert client.produced(waiting).error_code == 0
    assert other.produced(behind).error_code == 0, "group commit goes on"
    assert client.produce(TOPIC, b"z").base_offset == 3
    assert ["a fault of ours" in str(event) for event in told if type(event).__name__ == "InternalError"] == [True]


def test_a_sync_that_fails_while_the_broker_stops_leaves_no_mark_of_a_clean_stop() -> None:
    machine, client = running()
    client.send(TOPIC, {0: client.batch(b"x")})
    machine.disk.fail_sync(".log")
    machine.scheduler.run_for(1)
    assert machine.flusher.running, "its end is heard during the stop"
    machine.stop()
    machine.start()
    assert machine.node.storage.was_clean is False


def test_a_topic_that_moves_to_group_commit_during_a_flush_is_acknowledged_after_its_own_sync() -> None:
    machine, client = running(flush="os", log_flush_offset_checkpoint_interval_ms="50")
    client.produce(TOPIC, b"in the page cache")
    machine.scheduler.run_until(lambda: machine.flusher.running > 0, 200)
    machine.node.set_topic_overrides(TOPIC, {"flush.messages": "1"})
    sent = client.send(TOPIC, {0: client.batch(b"careful")})
    machine.scheduler.run_until(lambda: sent in client.socket.answers, 1_000)
    assert client.produced(sent).base_offset == 2
    assert machine.node.partition(TOPIC, 0).log.synced_offset == 3
    machine.crash()
    machine.disk.power_cut(PowerCut.LOSE_ALL)
    machine.start()
    assert Client(machine).read_all(TOPIC)[-1] == (2, b"careful")
