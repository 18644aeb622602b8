"""The long poll: how long a fetch waits, for how much, how much it brings, and what wakes it."""

from typing import Any

import pytest

from fencepost.simulation.node import SimulatedNode
from tests.durability.scene import SMALL, Client, values_in

TOPIC = "purchases"
WAIT_MS = 500


class Scene:
    def __init__(self, **options: Any) -> None:
        self.machine = SimulatedNode(SMALL, **options).start()
        self.producer = Client(self.machine)
        self.reader = Client(self.machine)
        assert self.producer.create_topic(TOPIC, 3) == 0

    def start(self, offsets: dict[int, int], **fields: Any) -> int:
        self.started_ms = self.machine.clock.monotonic_ms()
        return self.reader.start_fetch(TOPIC, offsets, **{"max_wait_ms": WAIT_MS, **fields})

    def answered_after_ms(self, correlation_id: int) -> int:
        """Virtual time until the answer."""
        self.reader.socket.wait(correlation_id)
        return self.machine.clock.monotonic_ms() - self.started_ms

    def is_answered(self, correlation_id: int) -> bool:
        return correlation_id in self.reader.socket.answers

    def records(self, correlation_id: int) -> dict[int, list[bytes | None]]:
        (topic,) = self.reader.socket.answers[correlation_id].responses
        return {one.partition_index: [value for _, value in values_in(one.records or b"")] for one in topic.partitions}


def test_a_fetch_with_nothing_to_read_is_answered_when_its_time_is_over() -> None:
    scene = Scene()
    fetch = scene.start({0: 0})
    scene.machine.scheduler.run_for(WAIT_MS - 1)
    assert not scene.is_answered(fetch)
    assert scene.answered_after_ms(fetch) == WAIT_MS
    assert scene.records(fetch) == {0: []}


def test_a_fetch_that_may_not_wait_is_answered_at_once() -> None:
    scene = Scene()
    assert scene.answered_after_ms(scene.start({0: 0}, max_wait_ms=0)) == 0


def test_what_is_there_is_brought_at_once() -> None:
    scene = Scene()
    scene.producer.produce(TOPIC, b"a", b"b")
    fetch = scene.start({0: 0})
    assert scene.answered_after_ms(fetch) == 0
    assert scene.records(fetch) == {0: [b"a", b"b"]}


def test_a_waiting_fetch_wakes_when_a_record_is_durable_and_not_before() -> None:
    scene = Scene(sync_ms=40)
    fetch = scene.start({0: 0, 1: 0})
    scene.machine.scheduler.run_for(100)
    scene.producer.send(TOPIC, {1: scene.producer.batch(b"x")})
    scene.machine.scheduler.run_for(39)
    assert not scene.is_answered(fetch), "a reader must not see what a power cut could take back"
    assert scene.answered_after_ms(fetch) == 140
    assert scene.records(fetch)[1] == [b"x"]


def test_a_fetch_waits_until_so_many_bytes_are_there_over_all_its_partitions() -> None:
    scene = Scene()
    batch_bytes = len(scene.producer.batch(b"x" * 100))
    fetch = scene.start({0: 0, 1: 0, 2: 0}, min_bytes=3 * batch_bytes)
    for partition in (0, 1):
        assert scene.producer.produce(TOPIC, b"x" * 100, partition=partition).error_code == 0
        scene.machine.scheduler.run_for(10)
        assert not scene.is_answered(fetch)
    assert scene.producer.produce(TOPIC, b"x" * 100, partition=2).error_code == 0
    scene.machine.scheduler.run_for(1)
    assert scene.is_answered(fetch)
    assert scene.records(fetch) == {partition: [b"x" * 100] for partition in range(3)}


def test_too_few_bytes_are_brought_when_the_time_is_over() -> None:
    scene = Scene()
    fetch = scene.start({0: 0}, min_bytes=100_000)
    scene.producer.produce(TOPIC, b"x")
    assert scene.answered_after_ms(fetch) == WAIT_MS
    assert scene.records(fetch) == {0: [b"x"]}


def test_a_record_for_another_partition_wakes_nobody() -> None:
    scene = Scene()
    fetch = scene.start({0: 0})
    scene.producer.produce(TOPIC, b"x", partition=1)
    assert scene.answered_after_ms(fetch) == WAIT_MS


def test_one_record_wakes_every_reader_that_waits_for_it() -> None:
    scene = Scene()
    readers = [Client(scene.machine) for _ in range(5)]
    fetches = [reader.start_fetch(TOPIC, {0: 0}, max_wait_ms=WAIT_MS) for reader in readers]
    scene.producer.produce(TOPIC, b"x")
    scene.machine.scheduler.run_for(1)
    for reader, fetch in zip(readers, fetches, strict=True):
        assert values_in(reader.socket.answers[fetch].responses[0].partitions[0].records) == [(0, b"x")]
    assert scene.machine.node.parked_requests == 0


def test_the_first_batch_comes_whole_even_if_it_is_larger_than_any_limit() -> None:
    scene = Scene()
    scene.producer.produce(TOPIC, b"x" * 5_000)
    scene.producer.produce(TOPIC, b"y")
    for limits in ({"max_bytes": 100}, {"partition_max_bytes": 100}, {"max_bytes": 1, "partition_max_bytes": 1}):
        fetch = scene.start({0: 0}, **limits)
        scene.reader.socket.wait(fetch)
        assert scene.records(fetch) == {0: [b"x" * 5_000]}


def test_a_fetch_brings_no_more_than_its_limits_allow() -> None:
    scene = Scene()
    batch_bytes = len(scene.producer.batch(b"x" * 1_000))
    for partition in range(3):
        for _ in range(4):
            assert scene.producer.produce(TOPIC, b"x" * 1_000, partition=partition).error_code == 0
    counts = {
        # Two whole batches and not the part of a third.
        2: {"partition_max_bytes": 3 * batch_bytes - 1},
        4: {"max_bytes": 100 * batch_bytes},
    }
    for count, limits in counts.items():
        fetch = scene.start({0: 0, 1: 0, 2: 0}, **limits)
        scene.reader.socket.wait(fetch)
        assert {partition: len(values) for partition, values in scene.records(fetch).items()} == dict.fromkeys(
            range(3), count
        )
    fetch = scene.start({0: 0, 1: 0, 2: 0}, max_bytes=6 * batch_bytes)
    scene.reader.socket.wait(fetch)
    assert {partition: len(values) for partition, values in scene.records(fetch).items()} == {0: 4, 1: 2, 2: 0}


def test_a_fetch_in_the_middle_of_a_batch_gets_that_batch() -> None:
    scene = Scene()
    scene.producer.produce(TOPIC, b"a", b"b", b"c")
    fetch = scene.start({0: 2})
    scene.reader.socket.wait(fetch)
    assert scene.records(fetch) == {0: [b"a", b"b", b"c"]}


@pytest.mark.parametrize(("partition", "offset", "code"), [(0, 7, 1), (0, -5, 1), (9, 0, 3)])
def test_an_error_is_told_at_once(partition: int, offset: int, code: int) -> None:
    scene = Scene()
    scene.producer.produce(TOPIC, b"x")
    fetch = scene.start({partition: offset, 1: 0})
    assert scene.answered_after_ms(fetch) == 0
    found = {one.partition_index: one.error_code for one in scene.reader.socket.answers[fetch].responses[0].partitions}
    assert found[partition] == code


def test_a_reader_is_told_at_once_when_the_topic_it_waits_for_is_deleted() -> None:
    scene = Scene()
    fetch = scene.start({0: 0})
    scene.machine.scheduler.run_for(100)
    assert scene.producer.delete_topic(TOPIC) == 0
    assert scene.answered_after_ms(fetch) == 100
    (data,) = scene.reader.socket.answers[fetch].responses[0].partitions
    assert data.error_code == 3


def test_when_too_many_wait_already_a_fetch_is_answered_with_what_there_is() -> None:
    scene = Scene()
    scene.machine.node.start_settings["parked.requests.max"] = "1"
    scene.machine.node._apply_broker_overrides()
    first = Client(scene.machine)
    first.start_fetch(TOPIC, {0: 0}, max_wait_ms=WAIT_MS)
    assert scene.answered_after_ms(scene.start({0: 0})) == 0


def test_a_fetch_returns_less_as_the_memory_for_unread_answers_fills() -> None:
    machine = SimulatedNode({"flush": "os", "response.buffers.max.bytes": "16777216"}, seed=1).start()
    node = machine.node
    assert node.answer_max_bytes() == 1_048_576
    node.unread_bytes = 8_388_608
    assert node.answer_max_bytes() == 524_288
    node.unread_bytes = 16_777_216
    assert node.answer_max_bytes() == 65_536
    machine.stop()


def large_batches(scene: Scene, count: int) -> list[bytes]:
    values = [bytes([number]) * 50_000 for number in range(count)]
    for value in values:
        scene.producer.produce(TOPIC, value)
    return values


def test_records_that_are_not_in_memory_are_waited_for_by_a_helper_thread() -> None:
    scene = Scene()
    values = large_batches(scene, 4)
    disk, node = scene.machine.disk, scene.machine.node
    path = node.partition(TOPIC, 0).log.segments.active.log_path
    disk.cold_paths.add(path)
    run = node.workers.run
    held: list[Any] = []
    node.workers.run = lambda function, done: held.append((function, done))  # type: ignore[method-assign]
    fetch = scene.start({0: 0})
    scene.machine.scheduler.run_for(1)
    assert not scene.is_answered(fetch)
    assert disk.cold_paths == {path}, "nothing was read on the loop"
    # Meanwhile others are served, and so are small reads.
    other = Client(scene.machine)
    small = other.fetch(TOPIC, {0: 0}, max_bytes=1).responses[0].partitions[0]
    assert [value for _, value in values_in(small.records)] == values[:1]
    ((load, done),) = held
    node.workers.run = run  # type: ignore[method-assign]
    node.workers.run(load, done)
    scene.machine.scheduler.run_for(1)
    assert scene.records(fetch) == {0: values}


def test_what_is_not_in_memory_counts_for_the_size_of_the_answer() -> None:
    scene = Scene()
    for index in range(3):
        for number in range(4):
            scene.producer.produce(TOPIC, bytes([number]) * 50_000, partition=index)
        scene.machine.disk.cold_paths.add(scene.machine.node.partition(TOPIC, index).log.segments.active.log_path)
    fetch = scene.start({0: 0, 1: 0, 2: 0}, max_bytes=160_000)
    scene.machine.scheduler.run_for(1)
    assert [len(values) for values in scene.records(fetch).values()] == [3, 0, 0]
    assert len(scene.machine.disk.cold_paths) == 2, "no more was loaded than is answered"
