"""The loop with kafka-python."""

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.producer.transaction_manager import TransactionalRequestResult
from kafka.structs import OffsetAndMetadata

from tests.exactly_once.copiers.plan import Aborted, Dice, Plan, given_plan, stopping_when_input_closes
from tests.peers.programs.console import say

RETRY_SECONDS = 0.05
NETWORK = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100, "retry_backoff_ms": 20}

Batch = dict[TopicPartition, list[Any]]


class Copier:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._dice = Dice(plan)
        self._stopping = stopping_when_input_closes()
        self._producer = self._new_producer()
        signal.signal(signal.SIGUSR1, lambda _, frame: self._say_whether_a_call_was_lost(frame))
        self._consumer = KafkaConsumer(
            plan.source,
            bootstrap_servers=plan.bootstrap,
            group_id=plan.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=plan.session_timeout_ms,
            heartbeat_interval_ms=plan.heartbeat_interval_ms,
            max_poll_records=plan.inputs_per_transaction,
            fetch_max_wait_ms=50,
            **NETWORK,
        )

    def run(self) -> None:
        # A member that joins before it knows the partitions has to join again, and this client forgets such a join if
        # it outlasts the poll: its heartbeats stop, and it never reads anything.
        while not self._stopping.is_set() and not self._tried(self._consumer.partitions_for_topic, self._plan.source):
            pass
        while not self._stopping.is_set():
            if batch := self._tried(self._consumer.poll, 200):
                self._one_transaction(batch)
        self._consumer.close()
        self._producer.close()

    def _say_whether_a_call_was_lost(self, frame: FrameType | None) -> None:
        """Asked when nothing moves; how this client forgets a call that somebody waits for: test_kafka_python.py."""
        transactions = self._producer._transaction_manager
        queued = bool(transactions._pending_requests) or transactions.has_in_flight_transactional_request()
        say("asked", lost=_waits_for_a_result(frame) and not queued)

    def _tried(self, call: Callable[[Any], Any], argument: Any) -> Any:
        """What a call of the consumer gives; nothing while there is no connection to the broker."""
        try:
            return call(argument)
        except KafkaError as problem:
            say("retried", cause=type(problem).__name__)
            time.sleep(RETRY_SECONDS)
            return {}

    def _one_transaction(self, batch: Batch) -> None:
        try:
            self._copy(batch)
        except (Aborted, KafkaError) as problem:
            self._abort("random" if isinstance(problem, Aborted) else type(problem).__name__)
            self._rewind()
        else:
            say("committed", count=sum(map(len, batch.values())))

    def _copy(self, batch: Batch) -> None:
        whims = self._dice.throw()
        self._producer.begin_transaction()
        for records in batch.values():
            for record in records:
                for topic, key, value in self._plan.transform(record.key, record.value):
                    self._producer.send(topic, key=key, value=value)
        time.sleep(whims.pause_before_offsets_seconds)
        if whims.abort_before_offsets:
            raise Aborted
        positions = {
            partition: OffsetAndMetadata(records[-1].offset + 1, "", -1) for partition, records in batch.items()
        }
        self._producer.send_offsets_to_transaction(positions, self._consumer.group_metadata())
        time.sleep(whims.pause_before_end_seconds)
        if whims.abort_before_end:
            raise Aborted
        self._producer.commit_transaction()

    def _abort(self, cause: str) -> None:
        """Aborts; a producer that cannot even do that has failed for good."""
        try:
            self._producer.abort_transaction()
            say("aborted", cause=cause)
        except KafkaError as problem:
            say("recreated", cause=f"{cause}, {type(problem).__name__}")
            self._producer.close(timeout=0)
            self._producer = self._new_producer()

    def _new_producer(self) -> KafkaProducer:
        while True:
            producer = None
            try:
                producer = KafkaProducer(
                    bootstrap_servers=self._plan.bootstrap,
                    transactional_id=self._plan.transactional_id,
                    transaction_timeout_ms=self._plan.transaction_timeout_ms,
                    linger_ms=2,
                    **NETWORK,
                )
                producer.init_transactions()
                return producer
            except KafkaError as problem:
                say("recreated", cause=type(problem).__name__)
                if producer is not None:
                    producer.close(timeout=0)
                time.sleep(RETRY_SECONDS)

    def _rewind(self) -> None:
        """Back to the committed position: the consumer's own one is after what was not committed."""
        while True:
            try:
                for partition in self._consumer.assignment():
                    self._consumer.seek(partition, self._consumer.committed(partition) or 0)
                return
            except KafkaError as problem:
                say("retried", cause=type(problem).__name__)
                time.sleep(RETRY_SECONDS)


def _waits_for_a_result(frame: FrameType | None) -> bool:
    while frame is not None:
        waiting = frame.f_locals.get("self")
        if isinstance(waiting, TransactionalRequestResult):
            return not waiting.is_done
        frame = frame.f_back
    return False


if __name__ == "__main__":
    Copier(given_plan()).run()
