"""The plain face of administration, producing and reading: the same calls, without async."""

import concurrent.futures
from collections.abc import Iterator, Sequence
from typing import Any

from fencepost.client.admin import AsyncAdmin
from fencepost.client.consumer import AsyncPartitionReader
from fencepost.client.errors import ClientClosed
from fencepost.client.face import Blocking, SendQueue, blocking
from fencepost.client.producer import AsyncProducer
from fencepost.client.values import ConsumedRecord, RecordMetadata
from fencepost.topic_partition import TopicPartition


class Admin(Blocking[AsyncAdmin]):
    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        super().__init__(lambda: AsyncAdmin(bootstrap_servers, **options))

    create_topic = blocking(AsyncAdmin.create_topic)
    delete_topic = blocking(AsyncAdmin.delete_topic)
    add_partitions = blocking(AsyncAdmin.add_partitions)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topic = blocking(AsyncAdmin.describe_topic)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    delete_records = blocking(AsyncAdmin.delete_records)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    describe_features = blocking(AsyncAdmin.describe_features)
    update_features = blocking(AsyncAdmin.update_features)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    alter_configs = blocking(AsyncAdmin.alter_configs)
    list_groups = blocking(AsyncAdmin.list_groups)
    describe_group = blocking(AsyncAdmin.describe_group)
    committed_offsets = blocking(AsyncAdmin.committed_offsets)
    commit_offsets = blocking(AsyncAdmin.commit_offsets)
    delete_offsets = blocking(AsyncAdmin.delete_offsets)
    delete_group = blocking(AsyncAdmin.delete_group)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transaction = blocking(AsyncAdmin.describe_transaction)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    write_abort_marker = blocking(AsyncAdmin.write_abort_marker)
    describe_acls = blocking(AsyncAdmin.describe_acls)
    create_acls = blocking(AsyncAdmin.create_acls)
    delete_acls = blocking(AsyncAdmin.delete_acls)


class Producer(Blocking[AsyncProducer]):
    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        super().__init__(lambda: AsyncProducer(bootstrap_servers, **options))
        self._queue = SendQueue(self._loop, self._inner.send)

    produce = blocking(AsyncProducer.produce)

    def flush(self) -> None:
        """Wait for everything buffered. Raises the first failure since the last flush."""
        self._queue.settle()
        self._loop.run(self._inner.flush())

    def close(self) -> None:
        try:
            self._queue.settle()
        except ClientClosed:
            return
        finally:
            super().close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "concurrent.futures.Future[RecordMetadata]":
        """Buffer a record, waiting only for room; the future is the acknowledgement."""
        return self._queue.put(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)


class PartitionReader(Blocking[AsyncPartitionReader]):
    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        super().__init__(lambda: AsyncPartitionReader(bootstrap_servers, **options))

    assign = blocking(AsyncPartitionReader.assign)
    assign_topic = blocking(AsyncPartitionReader.assign_topic)
    partitions_of = blocking(AsyncPartitionReader.partitions_of)
    end_offsets = blocking(AsyncPartitionReader.end_offsets)
    poll = blocking(AsyncPartitionReader.poll)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._inner.positions

    def records(self, *, follow: bool = False) -> Iterator[ConsumedRecord]:
        batches = self._inner.batches(follow=follow)

        async def following() -> list[ConsumedRecord] | None:
            return await anext(batches, None)

        while (portion := self._loop.run(following())) is not None:
            yield from portion
