"""Three client libraries in one shape: blocking, one transactional producer, quick to lose patience."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import pytest

from tests.support.patience import patient

PATIENCE_MS = 700
"""How long they wait for an answer before they try again on another connection."""
TOTAL_SECONDS = patient(20)
# What the libraries leave behind when their connections break.
FORGIVEN = [
    pytest.mark.filterwarnings(f"ignore::{kind}")
    for kind in ("DeprecationWarning", "ResourceWarning", "pytest.PytestUnraisableExceptionWarning")
]


class TransactionalClient(Protocol):
    def begin(self) -> None: ...
    def send(self, topic: str, value: bytes) -> None:
        """Sent and acknowledged."""

    def send_many(self, topic: str, values: list[bytes]) -> None:
        """Several requests in flight; all acknowledged in the end."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Confluent:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "socket.timeout.ms": PATIENCE_MS,
                "reconnect.backoff.ms": 5,
                "reconnect.backoff.max.ms": 20,
                "retry.backoff.ms": 20,
                "linger.ms": 0,
                "batch.num.messages": 1,
                "log_level": 2,
            }
        )
        self._producer.init_transactions(TOTAL_SECONDS)
        self._failed: list[Any] = []

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes) -> None:
        self.send_many(topic, [value])

    def send_many(self, topic: str, values: list[bytes]) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=0, on_delivery=self._delivered)
        assert self._producer.flush(TOTAL_SECONDS) == 0
        assert not self._failed, self._failed

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def commit(self) -> None:
        self._producer.commit_transaction(TOTAL_SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(TOTAL_SECONDS)

    def close(self) -> None:
        self._producer.flush(0)


class KafkaPython:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        # It reads its schemas in a deprecated way when it is loaded: only inside a test can that be forgiven.
        import kafka

        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            request_timeout_ms=PATIENCE_MS,
            delivery_timeout_ms=int(TOTAL_SECONDS * 1000),
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=20,
            retry_backoff_ms=20,
            batch_size=1,
            linger_ms=0,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes) -> None:
        self.send_many(topic, [value])

    def send_many(self, topic: str, values: list[bytes]) -> None:
        futures = [self._producer.send(topic, value, partition=0) for value in values]
        for future in futures:
            future.get(TOTAL_SECONDS)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)


class AioKafka:
    """In a thread with an event loop of its own."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer = self._run(self._start(bootstrap, transactional_id))

    @staticmethod
    async def _start(bootstrap: str, transactional_id: str) -> Any:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            request_timeout_ms=PATIENCE_MS,
            retry_backoff_ms=20,
            max_batch_size=100,
        )
        await producer.start()
        return producer

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TOTAL_SECONDS)

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=0))

    def send_many(self, topic: str, values: list[bytes]) -> None:
        async def send_all() -> None:
            for future in [await self._producer.send(topic, value, partition=0) for value in values]:
                await future

        self._run(send_all())

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self._producer.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(patient(5))
            self._loop.close()


CLIENTS: dict[str, Callable[[str, str], TransactionalClient]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}
