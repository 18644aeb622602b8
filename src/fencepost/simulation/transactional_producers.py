"""Simulated transactional producers of both protocols, which copy an input with its offsets or just write.

They behave as real clients do: an abort after trouble takes a new epoch, a fenced producer ends its process.
"""

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from fencepost.history.operations import Outcome
from fencepost.history.recording import RecordedOperation
from fencepost.simulation import requests
from fencepost.simulation.client_journal import ClientJournal, partition_name
from fencepost.simulation.clients import FENCED, RETRIABLE, RETRY_MS, Request, Sleep, Steps
from fencepost.simulation.consumers import CorruptBatch, committed_records
from fencepost.simulation.idempotent_producers import Producer
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import ErrorCode

TRIES_MAX = 30
COPIED_RECORDS_MAX = 3
_CERTAIN = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Of what may be tried again, what is refused before anything is written. CONCURRENT_TRANSACTIONS is not: what is under
way may be a copy of the very request."""


class Verdict(enum.Enum):
    FINE = enum.auto()
    ABORT = enum.auto()
    BEGIN_ANEW = enum.auto()
    FENCED = enum.auto()


class Duty(NamedTuple):
    """What to copy, and where to: each input once to each output, up to the position of the group."""

    group: str
    source: TopicPartition
    outputs: tuple[TopicPartition, ...]


class TransactionalProducer(Producer):
    """Writes to several partitions in each transaction; with an input it copies that, with the input's offsets."""

    def __init__(
        self,
        *arguments: Any,
        transactional_id: str,
        protocol: int,
        timeout_ms: int,
        outputs: list[TopicPartition],
        source_partition: TopicPartition | None,
        journal: ClientJournal,
    ) -> None:
        super().__init__(*arguments, journal=journal)
        self.transactional_id = transactional_id
        self.protocol = protocol
        self.timeout_ms = timeout_ms
        self.outputs = outputs
        self.input = source_partition
        self.group = f"group-of-{transactional_id}"
        self.sequences: dict[TopicPartition, int] = {}
        self.position = 0
        self.has_pair = False
        self._needs_epoch = False

    @property
    def duties(self) -> list[Duty]:
        return [] if self.input is None else [Duty(self.group, self.input, tuple(self.outputs))]

    def run(self) -> Steps[None]:
        self.starts += 1
        self.has_pair = False
        while True:
            if not (yield from self.take_over_id()):
                return
            if self.input is not None and not (yield from self.find_position()):
                continue
            while True:
                verdict = yield from self.transact()
                if verdict is Verdict.FENCED:
                    return
                if verdict is Verdict.BEGIN_ANEW:
                    break
                yield Sleep(self.source.choice((0, 20, 120, 400)))

    # Identity

    def take_over_id(self) -> Steps[bool]:
        """A producer id and an epoch; False: fenced, the end of this process."""
        operation = self.journal.recorder.init(self.process, self.transactional_id)
        while True:
            # Who has an epoch may only ask for the next; who begins takes over.
            pair = self.pair if self.has_pair else (-1, -1)
            answer = yield requests.init_producer_id(self.transactional_id, self.timeout_ms, *pair)
            if answer is not None:
                if answer.error_code == 0:
                    break
                if answer.error_code not in RETRIABLE:
                    if answer.error_code not in FENCED:
                        self.wonder("InitProducerId", answer.error_code)
                    operation.info()
                    return False
            yield Sleep(self.source.randint(1, 2 * RETRY_MS))
        operation.ok()
        self.has_pair = True
        self.take_pair(answer.producer_id, answer.producer_epoch)
        self.sequences.clear()
        self._needs_epoch = False
        return True

    def find_position(self) -> Steps[bool]:
        assert self.input is not None
        operation = self.journal.recorder.fetch_offsets(self.process)
        for _ in range(TRIES_MAX):
            answer = yield requests.offset_fetch(self.group, self.input)
            if answer is not None:
                (group,) = answer.groups
                code = group.error_code or group.topics[0].partitions[0].error_code
                if not code:
                    offset = group.topics[0].partitions[0].committed_offset
                    operation.fetched(self.group, {partition_name(self.input): offset if offset >= 0 else None})
                    operation.ok()
                    self.position = max(offset, 0)
                    self.journal.recorder.assign(self.process)
                    return True
                if code not in RETRIABLE:
                    self.wonder("OffsetFetch", code)
            yield Sleep(RETRY_MS)
        operation.info()
        return False

    # One transaction

    def transact(self) -> Steps[Verdict]:
        first_position = self.position
        records: list[tuple[int, str]] = []
        outputs = [key for key in self.outputs if self.source.random() < 0.8] or self.outputs[:1]
        if self.input is not None:
            outputs = self.outputs
            records = yield from self._poll()
            if not records:
                return Verdict.FINE
        operation = self.journal.recorder.transaction(self.process, self.transactional_id)
        if self.input is not None:
            operation.polled({partition_name(self.input): records})
        verdict = yield from self._write(operation, outputs, [value for _, value in records])
        if verdict is Verdict.FINE and self.source.random() < 0.3:
            yield Sleep(self._dawdle_ms())
            if self.input is None:
                verdict = yield from self._write(operation, outputs[: self.source.randint(0, 1)], [])
        if verdict is Verdict.FINE and self.input is not None:
            verdict = yield from self._send_offsets(operation, self.position)
        if verdict is Verdict.FENCED:
            self._ended(operation, Outcome.FAIL)
            return verdict
        is_commit = verdict is Verdict.FINE and self.source.random() > 0.15
        outcome, verdict = yield from self._end(operation, is_commit)
        self._ended(operation, outcome)
        if outcome is not Outcome.OK:
            self.position = first_position
        if verdict is Verdict.FINE and self._needs_epoch and self.protocol == 1:
            return Verdict.BEGIN_ANEW
        return verdict

    def _dawdle_ms(self) -> int:
        """How long it takes between two steps of a transaction; rarely too long for it."""
        is_asleep = self.source.random() < 0.02
        return self.timeout_ms * 2 if is_asleep else self.source.choice((5, 30, 200, 700))

    def _ended(self, operation: RecordedOperation, outcome: Outcome) -> None:
        self.journal.transactions[outcome] += 1
        match outcome:
            case Outcome.OK:
                operation.ok()
            case Outcome.FAIL:
                operation.fail()
            case Outcome.INFO:
                operation.info()

    def _poll(self) -> Steps[list[tuple[int, str]]]:
        assert self.input is not None
        request = requests.fetch({self.input: self.position}, is_committed=True, max_wait_ms=200, max_bytes=2_000)
        answer = yield request
        if answer is None:
            yield Sleep(RETRY_MS)
            return []
        data = answer.responses[0].partitions[0]
        if data.error_code:
            if data.error_code not in RETRIABLE:
                self.wonder(f"Fetch of {self.input} at {self.position}", data.error_code)
            yield Sleep(RETRY_MS)
            return []
        try:
            records, next_offset = committed_records(data, self.position, is_committed=True)
        except CorruptBatch as error:
            self.journal.wonder(f"{self.name} was served a corrupt batch of {self.input} {error}")
            yield Sleep(RETRY_MS)
            return []
        if not records:
            self.position = next_offset
            return []
        records = records[: self.source.randint(1, COPIED_RECORDS_MAX)]
        self.position = records[-1][0] + 1
        return records

    def _write(self, operation: RecordedOperation, outputs: list[TopicPartition], inputs: list[str]) -> Steps[Verdict]:
        """Every output gets its values in one batch each, until all are acknowledged."""
        if not outputs:
            return Verdict.FINE
        if self.protocol == 1:
            code = yield from self._retry(
                lambda: requests.add_partitions(self.transactional_id, self.pair, outputs),
                lambda answer: max(
                    one.partition_error_code
                    for topic in answer.results_by_topic_v3_and_below
                    for one in topic.results_by_partition
                ),
            )
            if code is not ErrorCode.NONE:
                return self._trouble("AddPartitionsToTxn", code)
        left: dict[TopicPartition, list[tuple[int, str]]] = {}
        for key in outputs:
            values = [f"{value}>{self.next_value()}" for value in inputs] or [self._new_value()]
            left[key] = [(operation.sending(partition_name(key), value), value) for value in values]
        # What is sent and never acknowledged leaves a sequence that only a new epoch can forget.
        self._needs_epoch = True
        for _ in range(TRIES_MAX):
            answer = yield self._produce({key: self._transactional_batch(key, sends) for key, sends in left.items()})
            if answer is not None:
                for topic in answer.responses:
                    for data in topic.partition_responses:
                        key = self._key_of(topic, data.index)
                        if data.error_code == 0:
                            sends = left.pop(key)
                            for at, (number, _) in enumerate(sends):
                                operation.sent(number, data.base_offset + at)
                            self.sequences[key] = self.next_sequence(*key) + len(sends)
                        elif data.error_code not in RETRIABLE:
                            return self._refused(key, ErrorCode(data.error_code))
                if not left:
                    self._needs_epoch = False
                    return Verdict.FINE
            yield Sleep(self.source.randint(1, 2 * RETRY_MS))
        return Verdict.ABORT

    def _new_value(self) -> str:
        return self.next_value()

    def _produce(self, batches: dict[TopicPartition, bytearray]) -> Request:
        return requests.produce(dict(batches), 9 if self.protocol == 1 else 12, self.transactional_id)

    def _key_of(self, topic: Any, index: int) -> TopicPartition:
        return TopicPartition(topic.name, index)

    def _refused(self, key: TopicPartition, code: ErrorCode) -> Verdict:
        return self._trouble("Produce", code)

    def next_sequence(self, topic: str, partition: int) -> int:
        return self.sequences.get(TopicPartition(topic, partition), 0)

    def _transactional_batch(self, key: TopicPartition, sends: list[tuple[int, str]]) -> bytearray:
        return self.batch_of([value for _, value in sends], self.next_sequence(*key), is_transactional=True)

    def _send_offsets(self, operation: RecordedOperation, offset: int) -> Steps[Verdict]:
        assert self.input is not None
        key, group = self.input, self.group
        operation.committing_offsets(group, {partition_name(key): offset})
        if self.protocol == 1:
            code = yield from self._retry(
                lambda: requests.add_offsets(self.transactional_id, self.pair, group), lambda answer: answer.error_code
            )
            if code is not ErrorCode.NONE:
                return self._trouble("AddOffsetsToTxn", code)
        code = yield from self._retry(
            lambda: self._offset_commit(key, offset),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )
        return Verdict.FINE if code is ErrorCode.NONE else self._trouble("TxnOffsetCommit", code)

    def _offset_commit(self, key: TopicPartition, offset: int) -> Request:
        version = 3 if self.protocol == 1 else 5
        return requests.transactional_offset_commit(self.transactional_id, self.pair, self.group, key, offset, version)

    def _end(self, operation: RecordedOperation, is_commit: bool) -> Steps[tuple[Outcome, Verdict]]:
        operation.ending(is_commit)
        is_certain = True
        version = 3 if self.protocol == 1 else 5
        for _ in range(TRIES_MAX):
            answer = yield requests.end_transaction(self.transactional_id, self.pair, version, is_commit=is_commit)
            code = None if answer is None else ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                if self.protocol == 2:
                    self.take_pair(answer.producer_id, answer.producer_epoch)
                    self.sequences.clear()
                    self._needs_epoch = False
                return Outcome.OK if is_commit else Outcome.FAIL, Verdict.FINE
            if code is None or code in RETRIABLE:
                is_certain = is_certain and code in _CERTAIN
                yield Sleep(self.source.randint(1, 2 * RETRY_MS))
                continue
            outcome = Outcome.FAIL if is_certain or not is_commit else Outcome.INFO
            if code in FENCED:
                return outcome, Verdict.FENCED
            if code is not ErrorCode.INVALID_TXN_STATE:
                self.wonder("EndTxn", code)
            return outcome, self._give_up()
        return Outcome.INFO if is_commit else Outcome.FAIL, self._give_up()

    def _give_up(self) -> Verdict:
        """Nobody knows where the epoch stands: take over from oneself."""
        self.has_pair = False
        return Verdict.BEGIN_ANEW

    # Trouble

    def _retry(self, make: Callable[[], Request], code_of: Callable[[Any], int]) -> Steps[ErrorCode]:
        """The answer's code, trying again as long as that may help; REQUEST_TIMED_OUT if it did not."""
        for _ in range(TRIES_MAX):
            answer = yield make()
            if answer is not None:
                code = ErrorCode(code_of(answer))
                if code not in RETRIABLE:
                    return code
            yield Sleep(self.source.randint(1, 2 * RETRY_MS))
        return ErrorCode.REQUEST_TIMED_OUT

    def _trouble(self, operation: str, code: ErrorCode) -> Verdict:
        if code in FENCED:
            # Under protocol 2 a timeout raises the epoch by one, and an abort with the old one gets the new.
            return Verdict.FENCED if self.protocol == 1 else Verdict.ABORT
        if code not in (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.REQUEST_TIMED_OUT,
        ):
            self.wonder(operation, code)
        return Verdict.ABORT

    def wonder(self, operation: str, code: int) -> None:
        self.journal.wonder(f"{self.name}: {operation} answered {ErrorCode(code).name}")
