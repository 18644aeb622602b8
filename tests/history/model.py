"""A tiny transactional log and clients that use it in a random order. What they record is true, so no anomaly is in it.

Clients are generators that yield between any two events, so that their operations interleave. They die with operations
under way, lose answers, abort, read at both isolation levels, go back, commit offsets with their outputs.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Generator
from typing import Any

from fencepost.history import HistoryRecorder, RecordedOperation
from fencepost.history.operations import READ_COMMITTED, READ_UNCOMMITTED

PARTITIONS = ("orders-0", "orders-1", "orders-2")
INPUT = "input-0"
GROUP = "billing"
Running = Generator[None]
Transaction = int


class TinyLog:
    """Slots of (value, transaction); a marker is a slot without a value."""

    def __init__(self) -> None:
        self.slots: dict[str, list[tuple[str | None, Transaction | None]]] = defaultdict(list)
        self.committed: dict[Transaction, bool] = {}
        self.offsets: dict[str, int] = {}
        self._parts: dict[Transaction, set[str]] = defaultdict(set)
        self._pending: dict[Transaction, dict[str, int]] = defaultdict(dict)

    def append(self, partition: str, value: str, transaction: Transaction | None = None) -> int:
        self.slots[partition].append((value, transaction))
        if transaction is not None:
            self._parts[transaction].add(partition)
        return len(self.slots[partition]) - 1

    def commit_offset(self, partition: str, offset: int, transaction: Transaction | None = None) -> None:
        (self.offsets if transaction is None else self._pending[transaction])[partition] = offset

    def end(self, transaction: Transaction, commit: bool) -> None:
        if transaction in self.committed:
            return
        self.committed[transaction] = commit
        for partition in sorted(self._parts[transaction]):
            self.slots[partition].append((None, None))
        if commit:
            self.offsets.update(self._pending[transaction])

    def is_open(self, transaction: Transaction | None) -> bool:
        return transaction is not None and transaction not in self.committed

    def stable_end(self, partition: str) -> int:
        slots = self.slots[partition]
        open_ones = (offset for offset, (_, transaction) in enumerate(slots) if self.is_open(transaction))
        return next(open_ones, len(slots))

    def read(self, partition: str, start: int, isolation: str, count: int) -> tuple[list[tuple[int, str]], int]:
        """What a poll returns, and where the next one begins."""
        slots = self.slots[partition]
        end = self.stable_end(partition) if isolation == READ_COMMITTED else len(slots)
        found: list[tuple[int, str]] = []
        position = start
        while position < end and len(found) < count:
            value, transaction = slots[position]
            is_aborted = transaction is not None and not self.committed.get(transaction, False)
            if value is not None and (isolation == READ_UNCOMMITTED or not is_aborted):
                found.append((position, value))
            position += 1
        return found, position


class Model:
    def __init__(self, seed: int, steps: int = 250, *, tells_positions: bool = False) -> None:
        self._tells_positions = tells_positions
        self.random = random.Random(seed)
        self.log = TinyLog()
        self.events: list[dict[str, Any]] = []
        ticks = itertools.count()
        self.recorder = HistoryRecorder(self.events.append, lambda: float(next(ticks)))
        self._values = itertools.count()
        self._transactions = itertools.count()
        self._lives = itertools.count()
        self._copies: list[Transaction] = []
        self._run(steps)
        self._finish()

    def _run(self, steps: int) -> None:
        for number in range(20):
            self.log.append(INPUT, f"input {number}")
        starts = [self._sender, self._transactor, self._copier, self._reader, self._reader]
        running = [start(f"{start.__name__.strip('_')}-{next(self._lives)}") for start in starts]
        for _ in range(steps):
            at = self.random.randrange(len(running))
            if self.random.random() < 0.01:
                # It dies, and another takes its place.
                running[at].close()
                running[at] = starts[at](f"{starts[at].__name__.strip('_')}-{next(self._lives)}")
            next(running[at])
        for each in running:
            each.close()

    def _finish(self) -> None:
        """What a broker does with transactions that time out, and a reader who reads everything afterwards."""
        for transaction in range(next(self._transactions)):
            self.log.end(transaction, commit=False)
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            reading = self.recorder.final_read(f"final {isolation}", PARTITIONS, isolation)
            for partition in PARTITIONS:
                position = 0
                while position < len(self.log.slots[partition]):
                    found, position = self.log.read(partition, position, isolation, 10)
                    reading.polled({partition: found})
            reading.ok()
        fetching = self.recorder.fetch_offsets("final offsets")
        fetching.fetched(GROUP, {INPUT: self.log.offsets.get(INPUT)})
        fetching.ok()

    def _value(self) -> str:
        return f"v{next(self._values)}"

    def _sender(self, process: str) -> Running:
        while True:
            sends = [(self.random.choice(PARTITIONS), self._value()) for _ in range(self.random.randint(1, 3))]
            operation = self.recorder.send(process, sends)
            yield
            chance = self.random.random()
            if chance < 0.1:
                operation.fail()
                continue
            for number, (partition, value) in enumerate(sends):
                if chance < 0.2 and self.random.random() < 0.5:
                    continue  # lost on its way
                offset = self.log.append(partition, value)
                if chance >= 0.2 and self.random.random() < 0.9:
                    operation.sent(number, offset)
                yield
            operation.info() if chance < 0.2 else operation.ok()
            yield

    def _transactor(self, process: str) -> Running:
        while True:
            transaction, operation = next(self._transactions), self.recorder.transaction(process)
            for _ in range(self.random.randint(1, 4)):
                yield from self._send(operation, transaction, self.random.choice(PARTITIONS), self._value())
            yield from self._end(operation, transaction)

    def _copier(self, process: str) -> Running:
        """Reads the input on from the group's offset, and writes a value again when the last attempt was aborted."""
        while True:
            for transaction in self._copies:
                self.log.end(transaction, commit=False)  # by whoever takes over the transactional id
            position = self.log.offsets.get(INPUT, 0)
            fetching = self.recorder.fetch_offsets(process)
            fetching.fetched(GROUP, {INPUT: self.log.offsets.get(INPUT)})
            fetching.ok()
            self.recorder.assign(process)
            transaction = next(self._transactions)
            self._copies.append(transaction)
            operation = self.recorder.transaction(process, "copier")
            found, position = self.log.read(INPUT, position, READ_COMMITTED, self.random.randint(1, 3))
            operation.polled({INPUT: found})
            yield
            for _, value in found:
                yield from self._send(operation, transaction, PARTITIONS[0], f"copy of {value}")
            if found:
                operation.committing_offsets(GROUP, {INPUT: position})
                self.log.commit_offset(INPUT, position, transaction)
            yield from self._end(operation, transaction)

    def _send(self, operation: RecordedOperation, transaction: Transaction, partition: str, value: str) -> Running:
        number = operation.sending(partition, value)
        yield
        offset = self.log.append(partition, value, transaction)
        if self.random.random() < 0.9:
            operation.sent(number, offset)
        yield

    def _end(self, operation: RecordedOperation, transaction: Transaction) -> Running:
        commit = self.random.random() < 0.7
        operation.ending(commit)
        yield
        chance = self.random.random()
        if chance < 0.1:
            operation.info()  # the request is lost, and the transaction will be aborted
            yield
            self.log.end(transaction, commit=False)
            return
        self.log.end(transaction, commit)
        yield
        if chance < 0.3:
            operation.info()
        elif commit:
            operation.ok()
        else:
            operation.fail()
        yield

    def _reader(self, process: str) -> Running:
        isolation = self.random.choice((READ_COMMITTED, READ_UNCOMMITTED))
        positions = dict.fromkeys(PARTITIONS, 0)
        while True:
            if self.random.random() < 0.05:
                self.recorder.assign(process)
                positions = {name: self.random.randrange(position + 1) for name, position in positions.items()}
            operation = self.recorder.poll(process, isolation)
            yield
            records = {}
            for partition in self.random.sample(PARTITIONS, 2):
                found, positions[partition] = self.log.read(partition, positions[partition], isolation, 4)
                records[partition] = found
            yield
            operation.polled(records)
            if self._tells_positions:
                operation.passed({partition: positions[partition] for partition in records})
            operation.ok()
            yield
