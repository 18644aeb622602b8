"""librdkafka clients that write down what they ask for before they ask, and what they are told."""

import itertools
import os
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from fencepost.history import HistoryRecorder, RecordedOperation
from fencepost.history.operations import READ_COMMITTED
from tests.support.patience import patient

CALL_SECONDS = 15.0
OFFSETS_SECONDS = 2.0
READ_SECONDS = patient(60.0)
HUNG = 75
"""How a process ends that its client library holds for longer than it was told to."""
NETWORK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": 3_000,
    "log_level": 0,
}


def name_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


class ProducerLost(Exception):
    """The producer is of no use any more: fenced, or broken for good."""


class RecordedProducer:
    """A transactional producer; the operation under way is ended by `commit` or `abort`, whatever comes of it."""

    def __init__(
        self, recorder: HistoryRecorder, process: str, bootstrap: str, transactional_id: str, **settings: Any
    ) -> None:
        self._recorder = recorder
        self._process = process
        self._transactional_id = transactional_id
        self._failed: list[KafkaError] = []
        self._producer = Producer(
            {
                **NETWORK,
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "linger.ms": 0,
                "error_cb": lambda error: None,
                **settings,
            }
        )
        self._operation: RecordedOperation | None = None
        operation = recorder.init(process, transactional_id)
        try:
            self._retried(lambda: self._producer.init_transactions(CALL_SECONDS))
        except KafkaException as error:
            operation.info(error)
            raise ProducerLost from error
        operation.ok()

    @staticmethod
    def _retried(call: Callable[[], object]) -> None:
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def begin(self) -> RecordedOperation:
        self._failed.clear()
        self._producer.begin_transaction()
        self._operation = self._recorder.transaction(self._process, self._transactional_id)
        return self._operation

    @property
    def operation(self) -> RecordedOperation:
        assert self._operation is not None
        return self._operation

    def abandon(self, error: object) -> None:
        """Whatever is open was never asked to commit, and never will be."""
        if self._operation is not None and not self._operation.is_complete:
            self._operation.fail(error)

    def send(self, topic: str, partition: int, value: str) -> None:
        operation = self.operation
        number = operation.sending(name_of(topic, partition), value)

        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None:
                self._failed.append(error)
            elif offset is not None:
                operation.sent(number, offset)

        self._producer.produce(topic, value, partition=partition, on_delivery=delivered)

    def flush(self) -> None:
        self._producer.flush(CALL_SECONDS)

    def send_offsets(self, offsets: list[TopicPartition], group: str, consumer: Consumer) -> None:
        named = {name_of(each.topic, each.partition): each.offset for each in offsets}
        self.operation.committing_offsets(group, named)
        metadata = consumer.consumer_group_metadata()

        def send() -> None:
            # After a restart of the broker librdkafka was seen to send nothing here and to wait for ever, whatever time
            # it was given. Its users would end the process.
            hanging = threading.Timer(3 * OFFSETS_SECONDS, os._exit, (HUNG,))
            hanging.daemon = True
            hanging.start()
            try:
                self._producer.send_offsets_to_transaction(offsets, metadata, OFFSETS_SECONDS)
            finally:
                hanging.cancel()

        self._retried(send)

    def commit(self) -> bool:
        self.flush()
        if self._failed:
            self.abort()
            return False
        self.operation.ending(commit=True)
        try:
            self._retried(lambda: self._producer.commit_transaction(CALL_SECONDS))
        except KafkaException as error:
            problem = error.args[0]
            if problem.txn_requires_abort():
                # The library asks for this only where nothing was committed.
                self._give_up(asked_to_commit=True)
                return False
            self.operation.info(problem)
            raise ProducerLost from error
        self.operation.ok()
        return True

    def abort(self) -> None:
        self.operation.ending(commit=False)
        self._give_up(asked_to_commit=False)

    def _give_up(self, asked_to_commit: bool) -> None:
        try:
            self._retried(lambda: self._producer.abort_transaction(CALL_SECONDS))
        except KafkaException as error:
            self.operation.info(error) if asked_to_commit else self.operation.fail(error)
            raise ProducerLost from error
        self.operation.fail()

    def close(self) -> None:
        try:
            self._producer.purge()
            self._producer.flush(1)
        except KafkaException:
            pass  # it is broken for good, and says so once more


class RecordedReader:
    """Polls partitions it has assigned itself, from their beginning."""

    def __init__(
        self,
        recorder: HistoryRecorder,
        process: str,
        bootstrap: str,
        partitions: list[tuple[str, int]],
        isolation: str = READ_COMMITTED,
        name: Callable[[Message], str] | None = None,
    ) -> None:
        """`name` is given every record and says which value the history knows it by."""
        self._recorder = recorder
        self._process = process
        self._isolation = isolation
        self._name = name or text_of
        self.positions: dict[str, int] = {}
        """Where partitions were last seen to end."""
        self._partitions = partitions
        self.consumer = Consumer(
            {
                **NETWORK,
                "bootstrap.servers": bootstrap,
                "group.id": f"readers-{process}",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
                "error_cb": lambda error: None,
            }
        )
        self.consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for topic, each in partitions])
        self._recorder.assign(process)

    def poll(self, seconds: float = 0.1) -> int:
        """One poll. Returns how many values it gave."""
        operation = self._recorder.poll(self._process, self._isolation)
        records, ended = sort_out(self.consumer.consume(200, seconds), self._name)
        operation.polled(records)
        if ended:
            operation.passed(ended)
            self.positions.update(ended)
        operation.ok()
        return sum(map(len, records.values()))

    def read_everything(self) -> int:
        """A final read: everything up to where each partition ends. No transaction may be open."""
        operation = self._recorder.final_read(self._process, self._names, self._isolation)
        return self._read_to_the_end(operation)

    def poll_to_the_end(self) -> int:
        """Everything up to where each partition ends for now."""
        return self._read_to_the_end(self._recorder.poll(self._process, self._isolation))

    @property
    def _names(self) -> list[str]:
        return [name_of(topic, partition) for topic, partition in self._partitions]

    def _read_to_the_end(self, operation: RecordedOperation) -> int:
        left, count = set(self._names), 0
        for _ in range(int(READ_SECONDS / 0.1)):
            if not left:
                break
            records, ended = sort_out(self.consumer.consume(500, 0.1), self._name)
            if records:
                operation.polled(records)
            left -= ended.keys()
            count += sum(map(len, records.values()))
        assert not left, f"{sorted(left)} have no end"
        operation.ok()
        return count

    def close(self) -> None:
        self.consumer.close()


def sort_out(
    messages: list[Message], name: Callable[[Message], str]
) -> tuple[dict[str, list[tuple[int, str]]], dict[str, int]]:
    """Records by partition, and where partitions end whose end was reached."""
    records: dict[str, list[tuple[int, str]]] = {}
    ended: dict[str, int] = {}
    for message in messages:
        topic, partition, offset, error = message.topic(), message.partition(), message.offset(), message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            continue
        assert topic is not None
        assert partition is not None
        assert offset is not None
        if error is not None:
            ended[name_of(topic, partition)] = offset
        else:
            records.setdefault(name_of(topic, partition), []).append((offset, name(message)))
    return records, ended


def text_of(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode()


_serial = itertools.count()


def unique(stem: str) -> str:
    return f"{stem}-{next(_serial)}"
