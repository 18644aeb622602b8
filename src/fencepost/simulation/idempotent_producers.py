"""Simulated producers: what all have in common, and the idempotent ones; transactional ones have their own module.

They behave as real clients do: what was not acknowledged is sent again with its sequence. Answers go into the history;
an outcome that a client cannot know stays unknown.
"""

from typing import Any, NamedTuple

from fencepost.history.recording import RecordedOperation
from fencepost.simulation import requests
from fencepost.simulation.client_journal import ClientJournal, partition_name
from fencepost.simulation.clients import RETRIABLE, RETRY_MS, Burst, ClientProcess, Request, Sleep, Steps
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import build_batch
from fencepost.wire.errors import ErrorCode

IN_FLIGHT_MAX = 5
LONG_VALUES = 0.08


class Producer(ClientProcess):
    long_bytes = 900

    def __init__(self, *arguments: Any, journal: ClientJournal) -> None:
        super().__init__(*arguments)
        self.journal = journal
        self.starts = 0
        self.pair = (-1, -1)
        self._count = 0

    @property
    def process(self) -> str:
        """Its name in the history; one that is started again is another."""
        return f"{self.name}#{self.starts}"

    def next_value(self) -> str:
        self._count += 1
        # Some are longer than a sector, so that a power cut can tear them.
        return f"{self.name}.{self._count}" + ("-" * self.long_bytes if self.source.random() < LONG_VALUES else "")

    def batch_of(self, values: list[str], sequence: int, *, is_transactional: bool) -> bytearray:
        now_ms = self.scheduler.clock.wall_ms()
        return build_batch(
            [(now_ms, None, value.encode(), ()) for value in values],
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            base_sequence=sequence,
            transactional=is_transactional,
        )

    def become_producer(self) -> Steps[None]:
        """Ask for a producer id until there is one."""
        while True:
            answer = yield requests.init_producer_id(None, 0)
            if answer is not None and not answer.error_code:
                break
            yield Sleep(RETRY_MS)
        self.take_pair(answer.producer_id, answer.producer_epoch)

    def take_pair(self, producer_id: int, producer_epoch: int) -> None:
        self.pair = (producer_id, producer_epoch)
        self.journal.handed_out(self.pair, self.process)


class _Batch(NamedTuple):
    sequence: int
    number: int
    """Of its first value in the operation."""
    values: list[str]


class IdempotentProducer(Producer):
    def __init__(self, *arguments: Any, target: TopicPartition, journal: ClientJournal) -> None:
        super().__init__(*arguments, journal=journal)
        self.target = target

    def run(self) -> Steps[None]:
        self.starts += 1
        yield from self.become_producer()
        sequence = 0
        while True:
            batches: list[_Batch] = []
            values: list[str] = []
            for _ in range(self.source.randint(1, IN_FLIGHT_MAX)):
                count = self.source.choice((1, 1, 2, 5))
                batches.append(_Batch(sequence, len(values), [self.next_value() for _ in range(count)]))
                values += batches[-1].values
                sequence += count
            name = partition_name(self.target)
            operation = self.journal.recorder.send(self.process, [(name, value) for value in values])
            yield from self._send_all(batches, operation)
            operation.ok()
            yield Sleep(self.source.choice((30, 200, 800)))

    def _send_all(self, batches: list[_Batch], operation: RecordedOperation) -> Steps[None]:
        """All at once, and again in order until each is acknowledged."""
        left = batches
        while left:
            answers = yield Burst([self._request(batch) for batch in left])
            pairs = zip(left, answers, strict=True)
            left = [batch for batch, answer in pairs if not self._is_acknowledged(batch, answer, operation)]
            if left:
                yield Sleep(self.source.randint(1, 2 * RETRY_MS))

    def _request(self, batch: _Batch) -> Request:
        data = self.batch_of(batch.values, batch.sequence, is_transactional=False)
        return requests.produce({self.target: data}, 9, None)

    def _is_acknowledged(self, batch: _Batch, answer: Any, operation: RecordedOperation) -> bool:
        if answer is None:
            return False
        data = answer.responses[0].partition_responses[0]
        if data.error_code == 0:
            for at in range(len(batch.values)):
                operation.sent(batch.number + at, data.base_offset + at)
            return True
        if data.error_code not in RETRIABLE and data.error_code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            name = ErrorCode(data.error_code).name
            self.journal.wonder(f"{self.name}: {batch.values[0]} refused with {name}: {data.error_message}")
        if data.base_offset != -1:
            self.journal.wonder(f"{self.name}: an error with base offset {data.base_offset}")
        return False
