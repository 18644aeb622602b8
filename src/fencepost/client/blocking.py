"""The blocking twins of the asynchronous classes: the same calls, without async.

    with Client("127.0.0.1:9092") as client, client.transaction("invoicing") as transaction:
        transaction.send("invoices", b"one book", key=b"alice")

`loop_thread` explains how the calls work. Two twins are elsewhere: `TransactionWriter` is in `transactions`, because a
handle creates it, and `ArrowReader` is in `arrow`.
"""

from collections.abc import Sequence
from typing import Any, Self, TypeVar

from fencepost.client.admin import AsyncAdmin
from fencepost.client.client import AsyncClient
from fencepost.client.fetching import AsyncPartitionReader
from fencepost.client.group_consumer import AsyncConsumedTransaction, AsyncGroupConsumer
from fencepost.client.loop_thread import (
    BlockTwin,
    BufferingTwin,
    OwningTwin,
    Twin,
    Value,
    after_sends,
    at_once,
    blocking,
    despite_sends,
    flattened,
    on_loop,
    part,
    queued,
)
from fencepost.client.producer import AsyncProducer
from fencepost.client.sending import FINISHED_BATCH_WEIGHT, SendsRecords
from fencepost.client.transactions import AsyncTransaction, AsyncTransactionalProducer


class Admin(OwningTwin[AsyncAdmin]):
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


class Producer(BufferingTwin[AsyncProducer]):
    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        super().__init__(lambda: AsyncProducer(bootstrap_servers, **options))

    send = queued(AsyncProducer.send)
    produce = blocking(AsyncProducer.produce)
    flush = after_sends(AsyncProducer.flush)


class PartitionReader(OwningTwin[AsyncPartitionReader]):
    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        super().__init__(lambda: AsyncPartitionReader(bootstrap_servers, **options))

    assign = blocking(AsyncPartitionReader.assign)
    assign_topic = blocking(AsyncPartitionReader.assign_topic)
    partitions_of = blocking(AsyncPartitionReader.partitions_of)
    end_offsets = blocking(AsyncPartitionReader.end_offsets)
    poll = blocking(AsyncPartitionReader.poll)
    records = flattened(AsyncPartitionReader.records, AsyncPartitionReader.batches)
    positions = Value(AsyncPartitionReader.positions)


W = TypeVar("W", bound="AsyncTransaction | AsyncTransactionalProducer")


class _InTransaction(Twin[W]):
    """The calls within an open transaction."""

    send = queued(SendsRecords.send)
    send_batch = queued(SendsRecords.send_batch, FINISHED_BATCH_WEIGHT)
    flush = after_sends(AsyncTransactionalProducer.flush)
    add = blocking(AsyncTransactionalProducer.add)
    send_offsets = after_sends(AsyncTransactionalProducer.send_offsets)
    handle = after_sends(AsyncTransactionalProducer.handle)
    identity = Value(AsyncTransactionalProducer.identity)


class Transaction(BlockTwin[AsyncTransaction], _InTransaction[AsyncTransaction]):
    """One transaction as a block: it commits at the end, an exception aborts it."""


class TransactionalProducer(_InTransaction[AsyncTransactionalProducer]):
    """A transactional producer with explicit init, begin, commit and abort. Its client closes it."""

    init = blocking(AsyncTransactionalProducer.init)
    begin = blocking(AsyncTransactionalProducer.begin)
    commit = after_sends(AsyncTransactionalProducer.commit)
    abort = despite_sends(AsyncTransactionalProducer.abort)
    state = Value(AsyncTransactionalProducer.state)
    protocol = Value(AsyncTransactionalProducer.protocol)


class ConsumedTransaction(Transaction):
    """A transaction around a consumer: commits the offsets of polled records together with the records sent, or
    neither."""

    poll = blocking(AsyncConsumedTransaction.poll)


class GroupConsumer(Twin[AsyncGroupConsumer]):
    """A member of a consumer group. Heartbeats are sent in the background; the application must poll often enough."""

    poll = blocking(AsyncGroupConsumer.poll)
    commit = blocking(AsyncGroupConsumer.commit)
    committed = blocking(AsyncGroupConsumer.committed)
    close = blocking(AsyncGroupConsumer.close)
    seek = on_loop(AsyncGroupConsumer.seek)
    transaction = part(AsyncGroupConsumer.transaction, ConsumedTransaction)
    metadata = at_once(AsyncGroupConsumer.metadata)
    assignment = Value(AsyncGroupConsumer.assignment)
    positions = Value(AsyncGroupConsumer.positions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client(OwningTwin[AsyncClient]):
    """One client of one cluster. Options have Kafka's names, with dots or underscores."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **kafka: Any) -> None:
        super().__init__(lambda: AsyncClient(bootstrap_servers, **kafka))

    init_producer_id = blocking(AsyncClient.init_producer_id)
    transaction = part(AsyncClient.transaction, Transaction)
    producer = part(AsyncClient.producer, TransactionalProducer)
    step_into = part(AsyncClient.step_into, TransactionalProducer)
    consumer = part(AsyncClient.consumer, GroupConsumer)
