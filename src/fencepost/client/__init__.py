"""A Kafka client: transactions, an idempotent producer, readers, administration. Sees brokers only through the wire.

    from fencepost.client import Client

    with Client("127.0.0.1:9092") as client, client.transaction("invoicing") as transaction:
        transaction.send("invoices", b"one book", key=b"alice")

Each class has an asynchronous twin (`AsyncClient`, `AsyncProducer`, ...) that it is a face of.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.client.accumulator import ProducerIdentity
    from fencepost.client.admin import AsyncAdmin
    from fencepost.client.blocking import Admin, PartitionReader, Producer
    from fencepost.client.blocking_transactions import (
        Client,
        GroupConsumer,
        Transaction,
        TransactionalProducer,
        TransactionWriter,
    )
    from fencepost.client.client import AsyncClient
    from fencepost.client.client_transaction import AsyncTransaction
    from fencepost.client.consumer import AsyncPartitionReader, AtTimestamp
    from fencepost.client.errors import BrokerError, BrokerUnreachable, ClientError, DeliveryFailed, UnknownTopic
    from fencepost.client.group_consumer import AsyncGroupConsumer, ConsumerSettings
    from fencepost.client.producer import AsyncProducer
    from fencepost.client.record_buffer import Sending
    from fencepost.client.transaction_calls import GroupMetadata, TransactionProtocol
    from fencepost.client.transaction_errors import (
        ProducerFenced,
        TransactionAborted,
        TransactionError,
        TransactionFailed,
        TransactionMustAbort,
        TransactionOutcomeUnknown,
    )
    from fencepost.client.transaction_handle import AsyncTransactionWriter, TransactionHandle
    from fencepost.client.transactional_producer import AsyncTransactionalProducer
    from fencepost.client.values import CommittedOffset, IsolationLevel, NewTopic, Reset, ResourceType
    from fencepost.topic_partition import TopicPartition

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncClient",
    "AsyncGroupConsumer",
    "AsyncPartitionReader",
    "AsyncProducer",
    "AsyncTransaction",
    "AsyncTransactionWriter",
    "AsyncTransactionalProducer",
    "AtTimestamp",
    "BrokerError",
    "BrokerUnreachable",
    "Client",
    "ClientError",
    "CommittedOffset",
    "ConsumerSettings",
    "DeliveryFailed",
    "GroupConsumer",
    "GroupMetadata",
    "IsolationLevel",
    "NewTopic",
    "PartitionReader",
    "Producer",
    "ProducerFenced",
    "ProducerIdentity",
    "Reset",
    "ResourceType",
    "Sending",
    "TopicPartition",
    "Transaction",
    "TransactionAborted",
    "TransactionError",
    "TransactionFailed",
    "TransactionHandle",
    "TransactionMustAbort",
    "TransactionOutcomeUnknown",
    "TransactionProtocol",
    "TransactionWriter",
    "TransactionalProducer",
    "UnknownTopic",
]

_HOMES = {
    "accumulator": ("ProducerIdentity",),
    "admin": ("AsyncAdmin",),
    "blocking": (
        "Admin",
        "PartitionReader",
        "Producer",
    ),
    "blocking_transactions": (
        "Client",
        "GroupConsumer",
        "Transaction",
        "TransactionWriter",
        "TransactionalProducer",
    ),
    "client": ("AsyncClient",),
    "client_transaction": ("AsyncTransaction",),
    "consumer": (
        "AsyncPartitionReader",
        "AtTimestamp",
    ),
    "errors": (
        "BrokerError",
        "BrokerUnreachable",
        "ClientError",
        "DeliveryFailed",
        "UnknownTopic",
    ),
    "group_consumer": (
        "AsyncGroupConsumer",
        "ConsumerSettings",
    ),
    "producer": ("AsyncProducer",),
    "record_buffer": ("Sending",),
    "transaction_calls": (
        "GroupMetadata",
        "TransactionProtocol",
    ),
    "transaction_errors": (
        "ProducerFenced",
        "TransactionAborted",
        "TransactionError",
        "TransactionFailed",
        "TransactionMustAbort",
        "TransactionOutcomeUnknown",
    ),
    "transaction_handle": (
        "AsyncTransactionWriter",
        "TransactionHandle",
    ),
    "transactional_producer": ("AsyncTransactionalProducer",),
    "values": (
        "CommittedOffset",
        "IsolationLevel",
        "NewTopic",
        "Reset",
        "ResourceType",
    ),
}


def __getattr__(name: str) -> Any:
    # A command that lists topics must not pay for the producer and its codecs.
    import importlib

    if name == "TopicPartition":
        return importlib.import_module("fencepost.topic_partition").TopicPartition
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"fencepost.client.{home}"), name)
    raise AttributeError(f"module 'fencepost.client' has no attribute {name!r}")
