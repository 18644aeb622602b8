"""The loop with confluent-kafka (librdkafka)."""

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from tests.exactly_once.copiers.plan import Aborted, Dice, Plan, given_plan, stopping_when_input_closes
from tests.peers.programs.console import say

CALL_TIMEOUT_SECONDS = 10
RETRY_SECONDS = 0.05
NETWORK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "socket.timeout.ms": 5_000,
    # Otherwise librdkafka forgets its only broker when that goes away, and send_offsets_to_transaction can wait for the
    # forgotten one forever, whatever its time-out says (librdkafka issues 5511 and 5456).
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class Copier:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._dice = Dice(plan)
        self._stopping = stopping_when_input_closes()
        self._batch: list[Message] = []
        self._consumer = Consumer(
            {
                **NETWORK,
                "bootstrap.servers": plan.bootstrap,
                "group.id": plan.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": plan.session_timeout_ms,
                "heartbeat.interval.ms": plan.heartbeat_interval_ms,
                "fetch.wait.max.ms": 50,
            }
        )
        self._producer = self._new_producer()

    def run(self) -> None:
        self._consumer.subscribe([self._plan.source], on_revoke=self._drop, on_lost=self._drop)
        while not self._stopping.is_set():
            self._collect()
            if self._batch:
                self._one_transaction()
        self._consumer.close()

    def _drop(self, *_: object) -> None:
        # What was read so far belongs to somebody else now, who starts at the committed position.
        self._batch.clear()

    def _collect(self) -> None:
        self._batch.clear()
        while len(self._batch) < self._plan.inputs_per_transaction:
            message = self._consumer.poll(0.1)
            if message is None:
                return
            if message.error() is None:
                self._batch.append(message)

    def _one_transaction(self) -> None:
        try:
            self._copy()
        except Aborted:
            self._abort("random")
            self._rewind()
        except KafkaException as problem:
            error = problem.args[0]
            if error.txn_requires_abort():
                self._abort(error.name())
            else:
                self._recreate(error.name())
            self._rewind()
        else:
            say("committed", count=len(self._batch))

    def _copy(self) -> None:
        whims = self._dice.throw()
        self._producer.begin_transaction()
        for message in self._batch:
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            for topic, output_key, output_value in self._plan.transform(key, value):
                self._producer.produce(topic, key=output_key, value=output_value)
            self._producer.poll(0)
        time.sleep(whims.pause_before_offsets_seconds)
        if whims.abort_before_offsets:
            raise Aborted
        self._persist(
            lambda: self._producer.send_offsets_to_transaction(
                self._positions(), self._consumer.consumer_group_metadata(), CALL_TIMEOUT_SECONDS
            )
        )
        time.sleep(whims.pause_before_end_seconds)
        if whims.abort_before_end:
            raise Aborted
        self._persist(lambda: self._producer.commit_transaction(CALL_TIMEOUT_SECONDS))

    def _positions(self) -> list[TopicPartition]:
        offsets = {message.partition() or 0: (message.offset() or 0) + 1 for message in self._batch}
        return [TopicPartition(self._plan.source, partition, offset) for partition, offset in offsets.items()]

    def _persist(self, call) -> None:  # type: ignore[no-untyped-def]
        """What is retriable is called again, until it works or fails for good."""
        while True:
            try:
                return call()  # type: ignore[no-any-return]
            except KafkaException as problem:
                if not problem.args[0].retriable():
                    raise
                say("retried", cause=problem.args[0].str())
                time.sleep(RETRY_SECONDS)

    def _abort(self, cause: str) -> None:
        try:
            self._persist(lambda: self._producer.abort_transaction(CALL_TIMEOUT_SECONDS))
            say("aborted", cause=cause)
        except KafkaException as problem:
            self._recreate(problem.args[0].name())

    def _recreate(self, cause: str) -> None:
        say("recreated", cause=cause)
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        while True:
            producer = Producer(
                {
                    **NETWORK,
                    "bootstrap.servers": self._plan.bootstrap,
                    "transactional.id": self._plan.transactional_id,
                    "transaction.timeout.ms": self._plan.transaction_timeout_ms,
                    "linger.ms": 2,
                    "retry.backoff.ms": 20,
                }
            )
            try:
                self._persist(lambda: producer.init_transactions(CALL_TIMEOUT_SECONDS))  # noqa: B023 - called at once
                return producer
            except KafkaException as problem:
                say("recreated", cause=problem.args[0].name())
                time.sleep(RETRY_SECONDS)

    def _rewind(self) -> None:
        """Back to the committed position: the consumer's own one is after what was not committed."""
        while True:
            try:
                assigned = self._consumer.assignment()
                for one in self._consumer.committed(assigned, timeout=CALL_TIMEOUT_SECONDS) if assigned else ():
                    if one.error is not None:
                        raise KafkaException(one.error)
                    offset = one.offset if one.offset >= 0 else OFFSET_BEGINNING
                    self._consumer.seek(TopicPartition(one.topic, one.partition, offset))
                return
            except KafkaException:
                # A record that comes now is dropped, and read again from the position set in the next turn.
                self._consumer.poll(RETRY_SECONDS)


if __name__ == "__main__":
    Copier(given_plan()).run()
