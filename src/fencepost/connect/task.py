"""One task: from one partition of a source into Kafka, exactly once.

It starts in this order, and every step needs the one before:

1. InitProducerId ends what an earlier task had open and fences it: from now on nobody else moves the position.
2. The position is read, read_committed, up to the end that the topic has now.
3. The source is opened at that position, and taken away from a zombie that still reads it.

Then the records of source transactions go into Kafka transactions, each with the position behind it. The source hears
of a position after the commit, never before. Whatever fails is tried again from step 1: what was not committed is read
again, and nobody has seen it. If the outcome of a commit is not known, step 1 decides it and step 2 learns it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fencepost.client import Admin, Client, ClientError, ProducerFenced, TransactionalProducer, UnknownTopic
from fencepost.client.errors import BrokerError
from fencepost.client.sending import BULK
from fencepost.connect.cluster import (
    TOPIC_KNOWN_SECONDS,
    ClusterAddress,
    ensure_topic,
    max_transaction_timeout_ms,
)
from fencepost.connect.errors import ConnectError, SourceUnavailable, TaskFenced, TransactionTooLong
from fencepost.connect.outgoing import Outgoing
from fencepost.connect.positions import Claimant, Held, Positions, position_key, task_name, transactional_id
from fencepost.connect.records import Portion, Position, Record, Transaction, compact_json
from fencepost.connect.sources import Boundary, Reader, Source, SourcePartition
from fencepost.wire.errors import ErrorCode

TRANSACTION_TIMEOUT_MS = 60_000
HEARTBEAT_SECONDS = 60.0
"""An idle task writes its position again: it hears that it was fenced, and its transactional id does not expire."""
IDLE_POLL_SECONDS = 0.25
BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
CLAIM_WAIT_SECONDS = 5.0
"""How long a fenced task waits for the position record that names its successor."""

_FINAL = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Refusals that would be the same the next time."""


class Told(Protocol):
    """Hears what a task does."""

    def __call__(self, event: str, task: str, /, **facts: Any) -> None: ...


class Orders(Protocol):
    """What the process wants of its tasks."""

    def is_stopping(self) -> bool: ...

    def is_paused(self, name: str) -> bool: ...

    def wait(self, seconds: float) -> None:
        """Returns early when the tasks shall stop."""


@dataclass(frozen=True, slots=True)
class TaskSettings:
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    heartbeat_seconds: float = HEARTBEAT_SECONDS


@dataclass(slots=True)
class _Open:
    """The Kafka transaction that is open."""

    since: float
    records: int = 0
    size_bytes: int = 0
    source_transactions: int = 0
    position: Position | None = None
    """Behind the last complete source transaction."""
    is_complete: bool = True
    """No source transaction is under way."""
    is_wanted: bool = False
    """The source has asked for its end."""


class Task:
    def __init__(
        self,
        source: Source,
        partition: SourcePartition,
        cluster: ClusterAddress,
        claimant: Claimant,
        tell: Told,
        orders: Orders,
        settings: TaskSettings = TaskSettings(),
    ) -> None:
        self.name = task_name(source.name, partition)
        self._source = source
        self._partition = partition
        self._cluster = cluster
        self._claimant = claimant
        self._tell = tell
        self._orders = orders
        self._settings = settings
        self._key = position_key(source.name, partition)
        self._timeout_ms = settings.transaction_timeout_ms
        self._has_claimed = False
        self._failures = 0

    def run(self) -> None:
        """Until it shall stop. Raises ConnectError if it cannot go on."""
        while not self._orders.is_stopping():
            if self._orders.is_paused(self._source.name):
                self._tell("paused", self.name)
                while self._orders.is_paused(self._source.name) and not self._orders.is_stopping():
                    self._orders.wait(IDLE_POLL_SECONDS)
                continue
            try:
                self._run_once()
            except TransactionTooLong as error:
                self._allow_longer(error)
            except (SourceUnavailable, ClientError) as error:
                if isinstance(error, ClientError) and (final := _final_cause(error)) is not None:
                    raise ConnectError(str(error), final.advice) from error
                self._back_off(error)

    def preview(self) -> tuple[Held, Sequence[str]]:
        """Where it would go on, and what it would change at the source. Fences nobody and changes nothing."""
        try:
            held = Positions(self._cluster).read(self._key)
        except UnknownTopic:
            held = Held()
        return held, list(self._source.preview(self._partition, held.position))

    def reset(self) -> None:
        """Forget the position, and what was made at the source. A task that runs is fenced first."""
        with Client(self._cluster.bootstrap_servers, **self._cluster.options) as client:
            run = _Run(self, client, Admin(self._cluster.bootstrap_servers, **self._cluster.options))
            with run.admin:
                run.fence()
                run.read_position()
                run.forget_position()
                for line in self._source.reset(self._partition):
                    self._tell("reset", self.name, did=line)

    def _run_once(self) -> None:
        cluster = self._cluster
        with Client(cluster.bootstrap_servers, **cluster.options) as client, cluster.admin() as admin:
            if self._has_claimed:
                # A successor may have taken over while this task was cut off: do not fence it back.
                self.refuse_if_replaced()
            run = _Run(self, client, admin)
            try:
                run.run()
                # A source transaction that was under way: nobody should wait for the end of its time-out.
                run.abort_or_be_fenced()
            except ProducerFenced as error:
                raise self._fenced(error) from error
            except ClientError as error:
                run.abort_or_be_fenced()
                if run.has_timed_out():
                    raise run.too_long() from error
                raise
            except BaseException:
                run.abort_or_be_fenced()
                raise

    def refuse_if_replaced(self) -> None:
        held = Positions(self._cluster).read(self._key)
        if held.claimant is not None and held.claimant.instance != self._claimant.instance:
            raise TaskFenced(self.name, f"it is run by {held.claimant}")

    def _fenced(self, error: ProducerFenced) -> TaskFenced:
        """Who it was is in the position record that the successor writes first."""
        positions, deadline = Positions(self._cluster), time.monotonic() + CLAIM_WAIT_SECONDS
        while time.monotonic() < deadline and not self._orders.is_stopping():
            try:
                held = positions.read(self._key)
            except ClientError:
                break
            if held.claimant is not None and held.claimant.instance != self._claimant.instance:
                return TaskFenced(self.name, f"it is run by {held.claimant}")
            self._orders.wait(0.2)
        return TaskFenced(self.name, f"by a producer that has written no position yet ({error})")

    def _allow_longer(self, error: TransactionTooLong) -> None:
        """The work is done again under a longer time-out, if there is one."""
        with self._cluster.admin() as admin:
            longest_ms = max_transaction_timeout_ms(admin)
        if self._timeout_ms >= longest_ms:
            raise error
        self._timeout_ms = min(longest_ms, self._timeout_ms * 4)
        self._tell("retrying", self.name, reason=f"transaction timeout raised to {self._timeout_ms} ms", seconds=0)

    def _back_off(self, error: Exception) -> None:
        seconds = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        self._tell("retrying", self.name, reason=str(error), seconds=seconds)
        self._orders.wait(seconds)

    # What its run needs of it

    def has_committed(self) -> None:
        self._failures = 0

    def has_claimed(self) -> None:
        self._has_claimed = True


class _Run:
    """One try: from InitProducerId to the end or the first failure."""

    def __init__(self, task: Task, client: Client, admin: Admin) -> None:
        self._task = task
        self._source = task._source
        self._orders = task._orders
        self._tell = task._tell
        self.admin = admin
        self._positions = Positions(task._cluster)
        self._offsets_topic = task._cluster.offsets_topic
        self._timeout_ms = task._timeout_ms
        self._producer: TransactionalProducer = client.producer(
            transactional_id(task._source.name, task._partition),
            transaction_timeout_ms=task._timeout_ms,
            sending=BULK,
        )
        self._outgoing = Outgoing(self._producer, self._partition_count)
        self._counts: dict[str, tuple[int, float]] = {}
        self._position: Position | None = None
        self._open: _Open | None = None
        self._committed_at = time.monotonic()
        self._failed_after = 0.0

    def run(self) -> None:
        task = self._task
        self.fence()
        self.read_position()
        self._commit_position()
        task.has_claimed()
        self._tell(
            "started",
            task.name,
            position=self._position,
            transactional_id=transactional_id(self._source.name, task._partition),
            producer_id=self._producer.identity.producer_id,
            producer_epoch=self._producer.identity.producer_epoch,
        )
        reader = self._source.open(task._partition, self._position)
        try:
            while not self._orders.is_stopping() and not self._orders.is_paused(self._source.name):
                self._step(reader)
            self._commit_complete(reader)
        finally:
            reader.close()

    # The start

    def fence(self) -> None:
        self._producer.init()

    def read_position(self) -> None:
        waited_since, told = time.monotonic(), False

        def waiting() -> None:
            nonlocal told
            if not told and time.monotonic() - waited_since > 2:
                told = True
                self._tell("waiting", self._task.name, reason=f"a transaction is open in {self._offsets_topic}")

        self._position = self._positions.read(self._task._key, waiting).position

    def forget_position(self) -> None:
        self._position = None
        self._commit_position()

    # Records

    def _step(self, reader: Reader) -> None:
        try:
            found = reader.poll(self._patience())
        except Exception:
            self._commit_complete(reader)
            raise
        for given in found:
            self._take(given)
            if self._is_due():
                self._commit(reader)
        if self._is_due():
            self._commit(reader)
        elif self._open is None and time.monotonic() - self._committed_at > self._task._settings.heartbeat_seconds:
            self._commit_position()
            self._tell("heartbeat", self._task.name, position=self._position)

    def _patience(self) -> float:
        """How long the source may let us wait for more."""
        if self._open is None or not self._open.is_complete or self._source.boundary is Boundary.CONNECTOR:
            return IDLE_POLL_SECONDS
        left = self._open.since + self._source.linger_ms / 1000 - time.monotonic()
        return min(max(left, 0.0), IDLE_POLL_SECONDS)

    def _take(self, given: Transaction | Portion) -> None:
        if self._open is None:
            self._producer.begin()
            self._open = _Open(time.monotonic())
        opened = self._open
        if self.has_timed_out():
            raise self.too_long()
        count, size_bytes = self._outgoing.add(given.records)
        opened.records += count
        opened.size_bytes += size_bytes
        if isinstance(given, Portion):
            opened.is_complete = False
            return
        compact_json(given.position)  # refused here rather than after the records of many others
        opened.position = given.position
        opened.source_transactions += 1
        opened.is_complete = True
        opened.is_wanted = given.ends_kafka_transaction

    def _is_due(self) -> bool:
        opened, source = self._open, self._source
        if opened is None or not opened.is_complete:
            return False
        if source.boundary is Boundary.CONNECTOR:
            return opened.is_wanted
        if source.boundary is Boundary.POLL:
            return True
        return opened.records >= source.max_records or time.monotonic() >= opened.since + source.linger_ms / 1000

    def _commit_complete(self, reader: Reader) -> None:
        """Before the end, unless it is for the source to say."""
        opened = self._open
        if opened is not None and opened.is_complete and self._source.boundary is not Boundary.CONNECTOR:
            self._commit(reader)

    def _commit(self, reader: Reader) -> None:
        opened = self._open
        assert opened is not None
        assert opened.position is not None
        self._outgoing.flush()
        self._write_position(opened.position)
        self._producer.commit()
        self._open = None
        self._position = opened.position
        self._has_committed()
        reader.committed(opened.position)
        self._tell(
            "committed",
            self._task.name,
            records=opened.records,
            bytes=opened.size_bytes,
            source_transactions=opened.source_transactions,
            position=opened.position,
            milliseconds=round((self._committed_at - opened.since) * 1000),
            lag=reader.lag(),
        )

    def _commit_position(self) -> None:
        """A transaction of the position alone: says who runs the task now."""
        self._producer.begin()
        self._write_position(self._position)
        self._producer.commit()
        self._has_committed()

    def _write_position(self, position: Position | None) -> None:
        """Last in the transaction, so that readers of the topic wait for the commit alone."""
        key = self._task._key
        value = None if position is None else compact_json(position)
        partition = self._positions.partition_of(key)
        record = Record(self._offsets_topic, value, key, self._task._claimant.headers(), partition)
        self._outgoing.add([record])
        self._outgoing.flush()

    def _has_committed(self) -> None:
        self._committed_at = time.monotonic()
        self._task.has_committed()

    def _partition_count(self, topic: str) -> int:
        known = self._counts.get(topic)
        now = time.monotonic()
        if known is None or now > known[1]:
            partitions = self._source.topic_partitions(topic)
            count = (
                len(self.admin.describe_topic(topic).partitions)
                if partitions is None
                else ensure_topic(self.admin, topic, partitions)
            )
            known = self._counts[topic] = count, now + TOPIC_KNOWN_SECONDS
        return known[0]

    # The end of a try that failed

    def has_timed_out(self) -> bool:
        """The coordinator has given up on the transaction, or is about to."""
        elapsed = self._failed_after or (time.monotonic() - self._open.since if self._open is not None else 0.0)
        return elapsed * 1000 > self._timeout_ms * 0.95

    def too_long(self) -> TransactionTooLong:
        records = self._open.records if self._open is not None else 0
        return TransactionTooLong(self._task.name, self._position, records, self._timeout_ms)

    def abort_or_be_fenced(self) -> None:
        """A leader cannot tell a takeover from a transaction that timed out; the coordinator can, asked to abort."""
        if self._open is None:
            return
        self._failed_after = time.monotonic() - self._open.since
        try:
            self._producer.abort()
        except ProducerFenced as error:
            if not self.has_timed_out():
                raise self._task._fenced(error) from error
            self._task.refuse_if_replaced()
        except ClientError:
            # Cut off, or a state in which there is nothing to abort: InitProducerId ends whatever is open.
            pass


def _final_cause(error: BaseException) -> BrokerError | UnknownTopic | None:
    """The refusal behind an error that another try would only repeat."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, UnknownTopic) or (isinstance(seen, BrokerError) and seen.code in _FINAL):
            return seen
        seen = getattr(seen, "cause", None) or seen.__cause__
    return None
