"""A recorded trace of 200 client operations, and the promises that the broker has made so far at any moment of it.

Produce by idempotent producers, transactions of both protocols over several partitions with offsets in them, group
commits, keyed records for the cleaner, new topics, segments that roll, waits in which checkpoints are written and the
cleaner has its passes. One operation at a time, so that at most one is in doubt when the power fails.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from fencepost.log import recovery
from fencepost.log.producers import ProducerStateManager
from fencepost.simulation.disk import SimulatedDisk
from fencepost.simulation.node import SimulatedNode
from fencepost.wire.batch import build_batch
from tests.durability.scene import SMALL, Client
from tests.durability.transactional import TransactionalClient, find_coordinators, read_committed

OPERATIONS = 200
SETTINGS = {
    **SMALL,
    "transaction.state.log.num.partitions": "1",
    "log.segment.bytes": "2000",
    "offsets.topic.segment.bytes": "2000",
    "transaction.state.log.segment.bytes": "2000",
    "log.index.interval.bytes": "400",
    "log.cleaner.backoff.ms": "2000",
}
PARTITIONS = (("purchases", 0), ("purchases", 1), ("invoices", 0))
GROUP, TRANSACTIONAL_GROUP = "billing", "shop"
KEYS = (b"apples", b"pears", b"plums")
TIMEOUT_MS = 20_000
DECIDED_MS = 45_000
Operation = tuple[str, int]


def recorded(seed: int = 11) -> list[Operation]:
    """What happens, and a number to choose details by. The same for every moment at which it is cut short."""
    source = random.Random(seed)
    kinds = ("produce", "produce", "send", "send", "send", "offset", "end", "commit", "keyed", "keyed", "wait")
    operations = [(source.choice(kinds), source.randrange(1 << 30)) for _ in range(OPERATIONS)]
    for at in range(25, OPERATIONS, 50):
        operations[at] = ("create", at)
    for at in range(60, OPERATIONS, 60):
        operations[at] = ("long wait", at)
    return operations


@dataclass(slots=True)
class Transaction:
    values: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    offset: int | None = None
    state: str = "open"
    """open, committing, aborting, committed, aborted; the last two when EndTxn was answered."""


class Trace:
    """Runs the operations and keeps the promises."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.machine = SimulatedNode(SETTINGS, seed=3, disk=disk)
        self.kind = "start"
        self.topics: set[str] = set()
        self.acknowledged: dict[tuple[str, int], dict[int, bytes]] = {at: {} for at in PARTITIONS}
        self.sent: dict[tuple[str, int], set[bytes]] = {at: set() for at in PARTITIONS}
        self.transactions: list[Transaction] = []
        self.offset_acknowledged = self.offset_sent = -1
        self.keyed_acknowledged: dict[bytes, bytes] = {}
        self.keyed_sent: dict[bytes, bytes] = {}
        self._values_of_key: dict[bytes, set[bytes]] = {key: set() for key in KEYS}
        self._open: list[Transaction | None] = [None, None]
        self._sequences = dict.fromkeys(PARTITIONS, 0)
        self._count = 0

    def run(self, operations: list[Operation]) -> None:
        self._begin()
        for self.kind, number in operations:
            getattr(self, "_" + self.kind.replace(" ", "_"))(number)

    def _begin(self) -> None:
        self.machine.start()
        client = self.client = Client(self.machine)
        for topic, partitions in (("purchases", 2), ("invoices", 1)):
            assert client.create_topic(topic, partitions) == 0
            self.topics.add(topic)
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1000"}
        assert client.create_topic("stock", 1, **compacted) == 0
        self.topics.add("stock")
        find_coordinators(client, [GROUP], ["new", "old"])
        self._producer_ids = {at: client.producer_id() for at in PARTITIONS}
        self._clients = [
            TransactionalClient(client, name, is_new=name == "new", timeout_ms=TIMEOUT_MS) for name in ("new", "old")
        ]
        for one in self._clients:
            one.init()

    def _value(self, what: bytes, number: int) -> bytes:
        self._count += 1
        return b"%s %d " % (what, self._count) + b"x" * (number % 300)

    # Operations

    def _produce(self, number: int) -> None:
        at = PARTITIONS[number % len(PARTITIONS)]
        values = [self._value(b"plain", number) for _ in range(1 + number % 3)]
        self.sent[at].update(values)
        sequence = self._sequences[at]
        self._sequences[at] += len(values)
        producer = {"producer_id": self._producer_ids[at], "producer_epoch": 0, "base_sequence": sequence}
        answer = self.client.produce(at[0], *values, partition=at[1], **producer)
        assert answer.error_code == 0, answer
        self.acknowledged[at].update((answer.base_offset + n, value) for n, value in enumerate(values))

    def _send(self, number: int) -> None:
        which = number % 2
        transaction = self._open[which]
        if transaction is None:
            transaction = self._open[which] = Transaction()
            self.transactions.append(transaction)
        at = PARTITIONS[number // 2 % len(PARTITIONS)]
        value = self._value(b"transactional", number)
        transaction.values.setdefault(at, []).append(value)
        self._clients[which].produce(*at, value)

    def _offset(self, number: int) -> None:
        which = number % 2
        transaction = self._open[which]
        if transaction is not None and not any(one is not None and one.offset is not None for one in self._open):
            self._count += 1
            transaction.offset = self._count
            self._clients[which].send_offset(TRANSACTIONAL_GROUP, "purchases", 0, self._count)

    def _end(self, number: int) -> None:
        which = number % 2
        transaction = self._open[which]
        if transaction is None:
            return
        is_commit = number // 2 % 3 != 0
        transaction.state = "committing" if is_commit else "aborting"
        self._clients[which].end(is_commit=is_commit)
        transaction.state = "committed" if is_commit else "aborted"
        self._open[which] = None

    def _commit(self, number: int) -> None:
        self.offset_sent += 1
        assert self.client.commit(GROUP, "purchases", 0, self.offset_sent) == 0
        self.offset_acknowledged = self.offset_sent

    def _keyed(self, number: int) -> None:
        key, value = KEYS[number % len(KEYS)], self._value(b"keyed", number)
        self.keyed_sent[key] = value
        self._values_of_key[key].add(value)
        batch = build_batch([(self.machine.clock.wall_ms(), key, value, ())])
        assert self.client.produced(self.client.send("stock", {0: batch})).error_code == 0
        self.keyed_acknowledged[key] = value

    def _create(self, number: int) -> None:
        name = f"topic-{number}"
        assert self.client.create_topic(name, 2) == 0
        self.topics.add(name)

    def _wait(self, number: int) -> None:
        self.machine.scheduler.run_for(number % 400)

    def _long_wait(self, number: int) -> None:
        """Transactions are ended first: a time-out here would end them behind the trace's back."""
        for which in (0, 1):
            self._end(which + 2)
        self.machine.scheduler.run_for(62_000)

    # Promises

    def check(self, disk: SimulatedDisk, wall_ms: int) -> None:
        """Start another broker on what is left, and hold it to every promise."""
        machine = SimulatedNode(SETTINGS, seed=4, disk=disk)
        machine.clock.jump_wall(wall_ms - machine.clock.wall_ms())
        machine.start()
        machine.scheduler.run_for(1_000)
        client = Client(machine)
        assert self.topics <= client.topics().keys()
        for transaction in self.transactions:
            if transaction.state in ("open", "aborting"):
                self._check_hidden(client, transaction)
        machine.scheduler.run_for(DECIDED_MS)
        client = Client(machine)
        find_coordinators(client, [GROUP, TRANSACTIONAL_GROUP], ["new", "old"])
        known = [at for at in PARTITIONS if at[0] in self.topics]
        visible = {at: dict(read_committed(client, *at)) for at in known}
        self._check_plain(visible)
        self._check_transactions(client, visible)
        offset = client.committed(GROUP, "purchases", [0])[0]
        assert self.offset_acknowledged <= offset <= self.offset_sent, (offset, self.offset_acknowledged)
        if "stock" in self.topics:
            self._check_keyed(client)
        for log in machine.node.logs():
            log.check_invariants()
            check_aborted_index(log)
        for topic, partition in known:
            assert client.produce(topic, b"afterwards", partition=partition).error_code == 0
        machine.crash()

    def _check_hidden(self, client: Client, transaction: Transaction) -> None:
        for at, values in transaction.values.items():
            seen = {value for _, value in read_committed(client, *at)}
            assert not seen & set(values), f"{at}: a transaction that is {transaction.state} is visible"

    def _check_plain(self, visible: dict[tuple[str, int], dict[int, bytes]]) -> None:
        for at in visible:
            assert self.acknowledged[at].items() <= visible[at].items(), f"{at} lost what it acknowledged"
            values = list(visible[at].values())
            assert len(values) == len(set(values)), f"{at} has something twice"
            transactional = {value for transaction in self.transactions for value in transaction.values.get(at, ())}
            assert set(values) <= self.sent[at] | transactional

    def _check_transactions(self, client: Client, visible: dict[tuple[str, int], dict[int, bytes]]) -> None:
        expected_offset = -1
        for transaction in self.transactions:
            seen = [value in visible[at].values() for at, values in transaction.values.items() for value in values]
            assert all(seen) or not any(seen), f"torn: {transaction}"
            if transaction.state != "committing":
                assert any(seen) == (transaction.state == "committed"), transaction
            if transaction.offset is not None and any(seen):
                expected_offset = transaction.offset
        offset = client.committed(TRANSACTIONAL_GROUP, "purchases", [0])[0]
        assert offset == expected_offset, "the offsets of a transaction and its records do not go together"

    def _check_keyed(self, client: Client) -> None:
        values = [value for _, value in client.read_all("stock")]
        for key, acknowledged in self.keyed_acknowledged.items():
            of_key = [value for value in values if value in self._values_of_key[key]]
            assert of_key, f"{key!r} is lost"
            assert of_key[-1] in (acknowledged, self.keyed_sent[key]), f"{key!r} is not what was acknowledged"


def check_aborted_index(log: Any) -> None:
    """Every index of aborted transactions says what the batches say."""
    if log.config.is_compacted:
        return  # the cleaner keeps entries of transactions whose first batches are gone
    for segment in log.segments:
        found = log.aborted_index_of(segment).entries()
        producers = ProducerStateManager(log.topic_partition, log.producers.producer_id_expiration_ms)
        told = recovery.rescan_aborted(log.directory, log.segments, [segment], producers, log.log_start_offset)[segment]
        assert found == told, segment.log_path
