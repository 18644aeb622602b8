"""A data directory with everything in it, stopped or killed, and what it must still say after it was damaged.

Small segments and dense indexes, so that every kind of file is there several times: plain and idempotent batches,
transactions of both protocols that were committed, aborted, left open, a compacted topic, groups, offsets in
transactions, a fenced producer.
"""

import copy
import functools
from dataclasses import dataclass, field
from typing import Any

from fencepost.simulation.disk import SimulatedDisk
from fencepost.simulation.node import DATA_DIRECTORY, SimulatedNode
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import build_batch, iterate_headers
from tests.durability.scene import SMALL, Client, values_in
from tests.durability.transactional import TransactionalClient, find_coordinators, read_committed

SETTINGS = {
    **SMALL,
    "transaction.state.log.num.partitions": "1",
    "log.segment.bytes": "1500",
    "log.index.interval.bytes": "300",
    "log.cleaner.backoff.ms": "1000",
    "offsets.topic.segment.bytes": "1500",
    "transaction.state.log.segment.bytes": "2500",
}
PLACES = (("orders", 0), ("payments", 0), ("payments", 1), ("stock", 0), ("canary", 0))
PARTITIONS = tuple(TopicPartition(*place) for place in PLACES)
GROUP = "billing"
WAYS_TO_END = ("stopped", "killed")


@dataclass(slots=True)
class Content:
    """What the broker said before anything was damaged."""

    records: dict[TopicPartition, dict[int, bytes | None]] = field(default_factory=dict)
    committed: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    offsets_ever: dict[int, set[int]] = field(default_factory=lambda: {0: set(), 1: set()})
    """By partition of `orders`: whatever the group committed at any time."""


@dataclass(slots=True)
class Image:
    disk: SimulatedDisk
    content: Content
    wall_ms: int

    def paths(self) -> list[str]:
        return sorted(file_paths(self.disk, DATA_DIRECTORY))


def file_paths(disk: SimulatedDisk, directory: str) -> list[str]:
    found = []
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        try:
            disk.size(path)
        except FileNotFoundError:
            found += file_paths(disk, path)
        else:
            found.append(path)
    return found


@functools.cache
def image(way: str) -> Image:
    """Made once a process; use a `copy.deepcopy` of its disk."""
    machine = SimulatedNode(SETTINGS, seed=5).start()
    content = Content()
    _live(machine, content)
    _observe(Client(machine), content)
    if way == "stopped":
        machine.stop()
    else:
        machine.crash()
    return Image(machine.disk, content, machine.clock.wall_ms())


def _live(machine: SimulatedNode, content: Content) -> None:
    client = Client(machine)
    assert client.create_topic("orders", 1) == 0
    assert client.create_topic("payments", 2) == 0
    assert client.create_topic("canary", 1) == 0
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1500"}
    assert client.create_topic("stock", 1, **compacted) == 0
    assert client.produce("canary", b"tweet").error_code == 0
    find_coordinators(client, [GROUP], ["shop", "till", "open"])
    shop, till = TransactionalClient(client, "shop"), TransactionalClient(client, "till", is_new=False)
    shop.init()
    till.init()
    producer_id = client.producer_id()
    for round_ in range(12):
        _one_round(client, round_, producer_id, (shop, till), content)
    fenced = TransactionalClient(client, "shop")
    fenced.init()
    left_open = TransactionalClient(client, "open", timeout_ms=600_000)
    left_open.init()
    left_open.produce("payments", 1, b"undecided", b"undecided too")
    # The cleaner has its passes, checkpoints are written, markers and Complete records are through.
    machine.scheduler.run_for(70_000)
    for number in range(3):
        assert client.produce("orders", b"last %d" % number, producer_id=-1).error_code == 0
    machine.scheduler.run_for(100)


def _one_round(
    client: Client, round_: int, producer_id: int, clients: tuple[TransactionalClient, ...], content: Content
) -> None:
    values = [b"order %d.%d " % (round_, n) + b"x" * 40 * n for n in range(3)]
    answer = client.produce("orders", *values, producer_id=producer_id, producer_epoch=0, base_sequence=3 * round_)
    assert answer.error_code == 0
    for key in (b"apples", b"pears %d" % (round_ % 4)):
        now_ms = client.machine.clock.wall_ms()
        _produce_keyed(client, key, b"%d left" % round_, now_ms)
    for at, transactional in enumerate(clients):
        is_commit = (round_ + at) % 3 != 0
        for partition in (0, 1):
            transactional.produce("payments", partition, b"payment %d by %d" % (round_, at), b"y" * 90)
        if is_commit and at == 0:
            transactional.send_offset(GROUP, "orders", 0, 10 * round_)
            content.offsets_ever[0].add(10 * round_)
        transactional.end(is_commit=is_commit)
    if round_ % 4 == 1:
        assert client.commit(GROUP, "orders", 0, 10 * round_ + 1) == 0
        content.offsets_ever[0].add(10 * round_ + 1)
    client.machine.scheduler.run_for(1000)


def _produce_keyed(client: Client, key: bytes, value: bytes, now_ms: int) -> None:
    batch = build_batch([(now_ms, key, value, ())])
    assert client.produced(client.send("stock", {0: batch})).error_code == 0


def _observe(client: Client, content: Content) -> None:
    for at in PARTITIONS:
        content.records[at] = dict(_read_from_disk(client, *at))
        content.committed[at] = dict(read_committed(client, *at))
    content.offsets = client.committed(GROUP, "orders", [0])


def _read_from_disk(client: Client, topic: str, partition: int) -> list[tuple[int, bytes | None]]:
    """Data records, aborted and undecided ones too."""
    log = client.machine.node.partition(topic, partition).log
    found: list[tuple[int, bytes | None]] = []
    for segment in log.segments:
        found += data_values_in(segment.file.read(0, segment.size))
    return found


def data_values_in(records: Any) -> list[tuple[int, bytes | None]]:
    """Without markers: a coordinator may write one again after a loss."""
    view = memoryview(records)
    found = []
    for position, header in iterate_headers(view):
        if not header.is_control:
            found += values_in(view[position : position + header.size_bytes])
    return found


def machine_on(disk: SimulatedDisk, wall_ms: int) -> SimulatedNode:
    machine = SimulatedNode(SETTINGS, seed=6, disk=disk)
    machine.clock.jump_wall(wall_ms - machine.clock.wall_ms())
    return machine


def copy_of(way: str) -> tuple[SimulatedNode, Content]:
    """A machine that is off, with the directory on its disk."""
    made = image(way)
    return machine_on(copy.deepcopy(made.disk), made.wall_ms), made.content


def partition_of(path: str) -> Any:
    """Topic and partition a file belongs to; None if it belongs to the whole broker."""
    directory = path.removeprefix(DATA_DIRECTORY + "/").split("/")
    if len(directory) == 1:
        return None
    topic, _, partition = directory[0].rpartition("-")
    return topic, int(partition)


def file_kind(path: str) -> str:
    """What the name says of the format: a suffix for the files of a log, the whole name of any other."""
    name = path.rpartition("/")[2]
    suffix = name[20:] if name[:20].isdigit() else name
    return f"internal {suffix}" if "/__" in path else suffix
