"""A transaction coordinator on a stage: a log in memory, virtual time, a disk and markers that can be held up on cue.

`play` runs a transcript. A line that is not indented is something that happens; the indented lines below it are what
the coordinator makes of it: `=` the answer, `log` a record that was written, `markers` an order for markers, `event`
what it tells, `->` the answer to an earlier call. Producer ids start at 1000.
"""

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from fencepost.broker.slices import finished
from fencepost.config import broker_config
from fencepost.coordinators.context import Caller
from fencepost.coordinators.journal import JournalRecord
from fencepost.coordinators.runtime import DURABLE, AppendOutcome
from fencepost.coordinators.transactions import events as told
from fencepost.coordinators.transactions.coordinator import MarkerDone, TransactionCoordinator
from fencepost.coordinators.transactions.effects import MarkerOrder
from fencepost.coordinators.transactions.ghosts import DropConnection
from fencepost.coordinators.transactions.transaction_journal import TransactionJournal
from fencepost.coordinators.transactions.transaction_metadata import (
    TransactionEntry,
    TransactionMetadata,
    TransactionRecord,
)
from fencepost.coordinators.transactions.transaction_states import STATE_OF_WIRE_NAME
from fencepost.ports import Now
from fencepost.promise import Promise
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.batch import build_batch
from fencepost.wire.codec import decode, encode
from fencepost.wire.errors import ErrorCode, error_code
from fencepost.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)

WALL_START_MS = 1_700_000_000_000
FIRST_PRODUCER_ID = 1000
TIMEOUT_MS = 60_000

Pair = tuple[int, int]


class KnownTopics:
    def __init__(self) -> None:
        self.counts = {"out": 4, "audit": 2, "__consumer_offsets": 50}

    def name_of(self, topic_id: bytes) -> str | None:
        return None

    def id_of(self, name: str) -> bytes | None:
        return None

    def partition_count_of(self, name: str) -> int | None:
        return self.counts.get(name)


class Scene:
    def __init__(self, *, markers_at_once: bool = True, transaction_version: int = 2, **settings: object) -> None:
        texts = {"transaction.state.log.num.partitions": "1"}
        texts |= {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.config = broker_config(texts)
        self.milliseconds = 1_000
        self.wall_jump_ms = 0
        self.topics = KnownTopics()
        self.transaction_version = transaction_version
        self.events: list[object] = []
        self.log: list[bytearray] = []
        self.written: list[TransactionEntry] = []
        """Every entry that was appended, in order; a lost write takes its own back."""
        self.failures: list[ErrorCode] = []
        self.is_disk_slow = False
        self.unsynced: list[tuple[Promise[AppendOutcome], AppendOutcome, int]] = []
        self.markers_at_once = markers_at_once
        self.orders: list[MarkerOrder] = []
        self.marker_done: dict[TopicPartition, list[MarkerDone]] = {}
        self.next_id = FIRST_PRODUCER_ID
        self.output: list[str] = []
        self.journal = TransactionJournal(lambda: self.transaction_version)
        self._start()

    # The stage

    def _start(self) -> None:
        self.coordinator = TransactionCoordinator(
            self.config,
            self._append,
            self,
            self._tell,
            self.topics,
            next_producer_id=self._next_producer_id,
            send_markers=self._send_markers,
            group_partition=lambda group: len(group),
            coordinator_epoch=lambda partition: 7,
            transaction_version=lambda: self.transaction_version,
        )
        self.coordinator.runtime.load(0, [bytes(batch) for batch in self.log], self.now)

    def restart(self) -> None:
        """A new coordinator that knows nothing but the log. What was not synced is lost with the old one."""
        self._lose_unsynced()
        self.marker_done.clear()
        self._start()

    def monotonic_ms(self) -> int:
        return self.milliseconds

    def wall_ms(self) -> int:
        return WALL_START_MS + self.milliseconds + self.wall_jump_ms

    @property
    def now(self) -> Now:
        return Now(self.monotonic_ms(), self.wall_ms())

    def advance(self, milliseconds: int) -> None:
        """Let time pass, with every deadline on the way met when it comes."""
        end = self.milliseconds + milliseconds
        while (deadline := self.coordinator.next_deadline_ms()) is not None and deadline <= end:
            self.milliseconds = max(self.milliseconds, deadline)
            self.coordinator.on_time(self.now)
        self.milliseconds = end

    def _next_producer_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def _append(
        self,
        partition: int,
        records: Sequence[JournalRecord],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        transactional: bool = False,
        verification_guard: object = None,
        now_ms: int | None = None,
    ) -> Promise[AppendOutcome]:
        if self.failures:
            error = self.failures.pop(0)
            self.output.append(f"write fails with {error.name}")
            return Promise.resolved(AppendOutcome(error))
        batch = build_batch([(self.wall_ms(), key, value, ()) for key, value in records], base_offset=len(self.written))
        self.log.append(batch)
        for record in records:
            entry = self.journal.decode_entry(*record)
            self.written.append(entry)
            self.output.append(f"log {describe(entry)}")
        outcome = AppendOutcome(ErrorCode.NONE)
        if not self.is_disk_slow:
            return DURABLE
        promise: Promise[AppendOutcome] = Promise()
        self.unsynced.append((promise, outcome, len(records)))
        return promise

    def sync(self) -> None:
        """The slow disk catches up."""
        waiting, self.unsynced = self.unsynced, []
        for promise, outcome, _ in waiting:
            promise.resolve(outcome)

    def fail_sync(self, error: ErrorCode) -> None:
        """What was not synced is lost."""
        for promise in self._lose_unsynced():
            promise.resolve(AppendOutcome(error))

    def _lose_unsynced(self) -> list[Promise[AppendOutcome]]:
        lost, self.unsynced = self.unsynced, []
        del self.log[len(self.log) - len(lost) :]
        del self.written[self.durable_count(lost) :]
        return [promise for promise, _, _ in lost]

    def durable_count(self, unsynced: list[tuple[Promise[AppendOutcome], AppendOutcome, int]] | None = None) -> int:
        """Of `written`."""
        return len(self.written) - sum(count for _, _, count in (self.unsynced if unsynced is None else unsynced))

    def _send_markers(self, order: MarkerOrder, done: MarkerDone) -> None:
        self.orders.append(order)
        result = "commit" if order.is_commit else "abort"
        pair = f"{order.producer_id}/{order.producer_epoch}"
        self.output.append(f"markers {result} {pair} TV{order.transaction_version} {names(order.partitions)}")
        for partition in order.partitions:
            self.marker_done.setdefault(partition, []).append(done)
        if self.markers_at_once:
            for partition in order.partitions:
                self.marked(partition)

    def marked(self, partition: TopicPartition, error: ErrorCode = ErrorCode.NONE) -> None:
        for done in self.marker_done.pop(partition):
            done(partition, error)

    def _tell(self, event: object) -> None:
        self.events.append(event)
        line = _EVENT_LINES.get(type(event))
        if line is not None:
            self.output.append(f"event {type(event).__name__}: {line(event)}")

    def happened(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def metadata(self, transactional_id: str = "tx") -> TransactionMetadata:
        return self.coordinator.runtime.machine(0).transactions[transactional_id]

    def seed(self, record: TransactionRecord, transactional_id: str = "tx") -> None:
        """Start from a log that says this."""
        self._append(0, [self.journal.encode_entry(TransactionEntry(transactional_id, record))])
        self.next_id = max(self.next_id, record.producer_id + 1, record.next_producer_id + 1)
        self.restart()

    # Calls; every request and answer passes through the bytes of its version

    def call(self, name: str, request: Any, version: int, connection: int = 1) -> Promise[Any]:
        sent = decode(type(request), version, encode(request, version))
        handler = getattr(self.coordinator, name)
        reply: Promise[Any] = handler(sent, version, Caller("app", "127.0.0.1", connection), self.now)
        response_class = getattr(messages, type(request).__name__.replace("Request", "Response"))
        received: Promise[Any] = Promise()

        def answered(response: Any) -> None:
            if not isinstance(response, DropConnection):
                response = decode(response_class, version, encode(response, version))
            received.resolve(response)

        reply.then(answered)
        return received

    def init(
        self,
        transactional_id: str | None = "tx",
        held: Pair = (-1, -1),
        *,
        version: int = 5,
        timeout_ms: int = TIMEOUT_MS,
        two_phase: bool = False,
        keep: bool = False,
    ) -> Promise[Any]:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )
        if version >= 3:
            request.producer_id, request.producer_epoch = held
        return self.call("init_producer_id", request, version)

    def add(
        self,
        pair: Pair,
        *partitions: TopicPartition,
        transactional_id: str = "tx",
        version: int = 3,
        verify_only: bool = False,
        connection: int = 1,
    ) -> Promise[Any]:
        topics = [
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[index])
            for topic, index in partitions
        ]
        if version >= 4:
            transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=pair[0],
                producer_epoch=pair[1],
                verify_only=verify_only,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=pair[0],
                v3_and_below_producer_epoch=pair[1],
                v3_and_below_topics=topics,
            )
        return self.call("add_partitions_to_txn", request, version, connection)

    def offsets(
        self, pair: Pair, group: str, *, transactional_id: str = "tx", version: int = 4, connection: int = 1
    ) -> Promise[Any]:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], group_id=group
        )
        return self.call("add_offsets_to_txn", request, version, connection)

    def end(
        self, pair: Pair, *, commit: bool, transactional_id: str = "tx", version: int = 4, connection: int = 1
    ) -> Promise[Any]:
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=commit
        )
        return self.call("end_txn", request, version, connection)

    def describe(self, transactional_id: str = "tx") -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        return self.call("describe_transactions", request, 0).value.transaction_states[0]

    def list_transactions(self, version: int = 2, **filters: Any) -> Any:
        return finished(self.coordinator.list_transactions(ListTransactionsRequest(**filters), self.now))

    # Transcripts

    def play(self, transcript: str) -> None:
        """Run the lines that are not indented, and compare what comes of them with the lines that are."""
        lines = [line.rstrip() for line in transcript.strip("\n").splitlines() if line.strip()]
        margin = min(len(line) - len(line.lstrip()) for line in lines)
        expected = [line[margin:] for line in lines]
        actual: list[str] = []
        for line in expected:
            if not line.startswith(" "):
                self.output = []
                self._perform(line)
                actual += [line, *(f"  {result}" for result in self.output)]
        assert "\n".join(actual) == "\n".join(expected)

    def _perform(self, line: str) -> None:
        verb, *words = shlex.split(line.partition("#")[0])
        options = dict(word.split("=", 1) for word in words if "=" in word)
        words = [word for word in words if "=" not in word]
        getattr(self, f"_do_{verb}")(words, options)

    def _expect(self, line: str, promise: Promise[Any], text: Callable[[Any], str]) -> None:
        if not promise.done:
            self.output.append("(waits)")
            promise.then(lambda answer: self.output.append(f"-> {line}: {text(answer)}"))
        else:
            # What was written and told came first in time, but the answer is what the reader looks for.
            self.output.insert(0, f"= {text(promise.value)}")

    def _do_init(self, words: list[str], options: dict[str, str]) -> None:
        flags = {word for word in words[1:] if "/" not in word}
        held = next((pair(word) for word in words[1:] if "/" in word), (-1, -1))
        is_new = "2pc" in flags or "keep" in flags
        reply = self.init(
            words[0],
            held,
            version=int(options.get("v", 6 if is_new else 5)),
            timeout_ms=int(options.get("timeout", TIMEOUT_MS)),
            two_phase="2pc" in flags,
            keep="keep" in flags,
        )
        self._expect(f"init {words[0]}", reply, init_text)

    def _do_add(self, words: list[str], options: dict[str, str]) -> None:
        name, identity, *partitions = words
        reply = self.add(
            pair(identity),
            *map(topic_partition, partitions),
            transactional_id=name,
            version=int(options.get("v", 3)),
            connection=int(options.get("connection", 1)),
        )
        self._expect(f"add {name} {' '.join(partitions)}", reply, add_text)

    def _do_offsets(self, words: list[str], options: dict[str, str]) -> None:
        name, identity, group = words
        version, connection = int(options.get("v", 4)), int(options.get("connection", 1))
        reply = self.offsets(pair(identity), group, transactional_id=name, version=version, connection=connection)
        self._expect(f"offsets {name} {group}", reply, error_text)

    def _do_implicit(self, words: list[str], options: dict[str, str]) -> None:
        """A partition leader adds on behalf of a producer of protocol 2."""
        self._leader(words, add=True)

    def _do_verify(self, words: list[str], options: dict[str, str]) -> None:
        self._leader(words, add=False)

    def _leader(self, words: list[str], *, add: bool) -> None:
        name, identity, *partitions = words
        reply = self.coordinator.verify_or_add(
            name, *pair(identity), [topic_partition(text) for text in partitions], add=add
        )
        verb = "implicit" if add else "verify"
        self._expect(f"{verb} {name} {' '.join(partitions)}", reply, partition_errors_text)

    def _do_end(self, words: list[str], options: dict[str, str]) -> None:
        name, identity, result = words
        reply = self.end(
            pair(identity),
            commit=result == "commit",
            transactional_id=name,
            version=int(options.get("v", 4)),
            connection=int(options.get("connection", 1)),
        )
        self._expect(f"end {name} {result}", reply, end_text)

    def _do_marked(self, words: list[str], options: dict[str, str]) -> None:
        partition, *error = words
        self.marked(topic_partition(partition), ErrorCode[error[0]] if error else ErrorCode.NONE)

    def _do_advance(self, words: list[str], options: dict[str, str]) -> None:
        self.advance(int(words[0].replace("_", "")))

    def _do_jump(self, words: list[str], options: dict[str, str]) -> None:
        """The wall clock is set."""
        self.wall_jump_ms += int(words[0].replace("_", ""))

    def _do_seed(self, words: list[str], options: dict[str, str]) -> None:
        name, state, identity, *partitions = words
        is_open = state not in ("Empty",)
        record = TransactionRecord(
            *pair(identity),
            timeout_ms=TIMEOUT_MS,
            state=STATE_OF_WIRE_NAME[state],
            partitions=frozenset(map(topic_partition, partitions)),
            start_timestamp_ms=self.wall_ms() if is_open else -1,
            last_update_timestamp_ms=self.wall_ms(),
            previous_producer_id=pair(identity)[0],
            client_transaction_version=int(options.get("TV", 0)),
        )
        self.seed(record, name)
        self.output = []

    def _do_restart(self, words: list[str], options: dict[str, str]) -> None:
        self.restart()

    def _do_slow(self, words: list[str], options: dict[str, str]) -> None:
        self.is_disk_slow = True

    def _do_fast(self, words: list[str], options: dict[str, str]) -> None:
        self.is_disk_slow = False
        self.sync()

    def _do_sync(self, words: list[str], options: dict[str, str]) -> None:
        self.sync()

    def _do_lose(self, words: list[str], options: dict[str, str]) -> None:
        self.fail_sync(ErrorCode[words[0]])

    def _do_fail(self, words: list[str], options: dict[str, str]) -> None:
        self.failures.append(ErrorCode[words[0]])

    def _do_unload(self, words: list[str], options: dict[str, str]) -> None:
        self.coordinator.runtime.unload(0)

    def _do_describe(self, words: list[str], options: dict[str, str]) -> None:
        found = self.describe(words[0])
        if found.error_code:
            self.output.append(f"= {error_code(found.error_code).name}")
            return
        partitions = [(topic.topic, index) for topic in found.topics for index in topic.partitions]
        identity = f"{found.producer_id}/{found.producer_epoch}"
        self.output.append(f"= {found.transaction_state} {identity} {names(partitions)}")


def pair(text: str) -> Pair:
    producer_id, _, epoch = text.partition("/")
    return int(producer_id), int(epoch)


def topic_partition(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def names(partitions: Any) -> str:
    return "[" + " ".join(f"{topic}-{index}" for topic, index in sorted(partitions)) + "]"


def describe(entry: TransactionEntry) -> str:
    record = entry.record
    if record is None:
        return f"tombstone {entry.transactional_id}"
    text = f"{entry.transactional_id} {record.state.wire_name} {record.producer_id}/{record.producer_epoch}"
    if record.partitions:
        text += f" {names(record.partitions)}"
    if record.next_producer_id != -1:
        text += f" next {record.next_producer_id}/{record.next_producer_epoch}"
    return text


def error_text(response: Any) -> str:
    return "connection dropped" if isinstance(response, DropConnection) else error_code(response.error_code).name


def init_text(response: Any) -> str:
    if response.error_code:
        return error_code(response.error_code).name
    text = f"{response.producer_id}/{response.producer_epoch}"
    if response.ongoing_txn_producer_id != -1:
        text += f" ongoing {response.ongoing_txn_producer_id}/{response.ongoing_txn_producer_epoch}"
    return text


def end_text(response: Any) -> str:
    if isinstance(response, DropConnection) or response.error_code or response.producer_id == -1:
        return error_text(response)
    return f"NONE {response.producer_id}/{response.producer_epoch}"


def add_text(response: Any) -> str:
    if isinstance(response, DropConnection):
        return error_text(response)
    results = response.results_by_topic_v3_and_below or response.results_by_transaction[0].topic_results
    return partition_errors_text(
        {
            (topic.name, partition.partition_index): error_code(partition.partition_error_code)
            for topic in results
            for partition in topic.results_by_partition
        }
    )


def partition_errors_text(errors: dict[TopicPartition, ErrorCode]) -> str:
    if len(set(errors.values())) == 1:
        return next(iter(errors.values())).name
    return " ".join(f"{topic}-{index}:{error.name}" for (topic, index), error in sorted(errors.items()))


_EVENT_LINES: dict[type, Callable[[Any], str]] = {
    told.ProducerFenced: lambda e: (
        f"{e.producer_id}/{e.old_epoch} by {e.new_producer_id}/{e.new_epoch}, {e.cause.name}"
    ),
    told.TransactionAborted: lambda e: f"{e.producer_id}/{e.old_epoch}, {e.cause.name}",
    told.TransactionTimedOut: lambda e: f"{e.producer_id}/{e.producer_epoch} after {e.open_ms} ms",
    told.CallRefused: lambda e: (
        f"{e.operation} {e.producer_id}/{e.producer_epoch}, {e.cause.name}"
        + (f", fenced by {e.fenced_by.name}" if e.fenced_by else "")
    ),
    told.TransactionKept: lambda e: f"{e.producer_id}/{e.producer_epoch} for {e.client_producer_id}/{e.client_epoch}",
    told.ProducerIdRotated: lambda e: f"{e.old_producer_id} to {e.new_producer_id}",
    told.GhostCallDropped: lambda e: f"{e.operation} on {e.connection}, newest is {e.newest_connection}",
    told.GhostProtectionSwitchedOff: lambda e: e.transactional_id,
    told.MarkerRefused: lambda e: f"{e.topic}-{e.partition}, {e.error.name}",
    told.TransactionResumed: lambda e: f"{e.producer_id}/{e.producer_epoch} {'commit' if e.is_commit else 'abort'}",
    told.TransactionalIdsExpired: lambda e: " ".join(e.transactional_ids),
}
