"""What a read_committed reader sees, and what the logs hold."""

import time
from collections.abc import Callable, Iterable

from fencepost.client import PartitionReader
from fencepost.client.kafka_types import ConsumedRecord, IsolationLevel
from tests.support.patience import patient


def committed(servers: str, topics: str | Iterable[str]) -> list[ConsumedRecord]:
    """Partition by partition, in order, up to the last stable offset."""
    found: list[ConsumedRecord] = []
    for topic in [topics] if isinstance(topics, str) else topics:
        with PartitionReader(servers, isolation_level=IsolationLevel.READ_COMMITTED, max_wait_ms=50) as reader:
            reader.assign_topic(topic)
            found += reader.records()
    return sorted(found, key=lambda record: (record.topic, record.partition, record.offset))


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + patient(seconds)
    while not holds():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)
