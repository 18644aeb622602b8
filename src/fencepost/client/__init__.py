"""A Kafka client: transactions, an idempotent producer, readers, administration. It sees brokers only through the wire
protocol.

    from fencepost.client import Client

    with Client("127.0.0.1:9092") as client, client.transaction("invoicing") as transaction:
        transaction.send("invoices", b"one book", key=b"alice")

Each class is the blocking twin of an asynchronous one (`AsyncClient`, `AsyncProducer`, ...).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.client.admin import AsyncAdmin
    from fencepost.client.blocking import (
        Admin,
        Client,
        GroupConsumer,
        PartitionReader,
        Producer,
        Transaction,
        TransactionalProducer,
    )
    from fencepost.client.client import AsyncClient
    from fencepost.client.errors import (
        BrokerError,
        BrokerUnreachable,
        ClientError,
        DeliveryFailed,
        ProducerFenced,
        TransactionAborted,
        TransactionError,
        TransactionFailed,
        TransactionMustAbort,
        TransactionOutcomeUnknown,
        UnknownTopic,
    )
    from fencepost.client.fetching import AsyncPartitionReader, AtTimestamp
    from fencepost.client.group_consumer import AsyncGroupConsumer, ConsumerSettings
    from fencepost.client.kafka_types import (
        CommittedOffset,
        GroupMetadata,
        IsolationLevel,
        NewTopic,
        ProducerIdentity,
        Reset,
        ResourceType,
    )
    from fencepost.client.producer import AsyncProducer
    from fencepost.client.sending import Sending
    from fencepost.client.transaction_calls import TransactionProtocol
    from fencepost.client.transactions import (
        AsyncTransaction,
        AsyncTransactionalProducer,
        AsyncTransactionWriter,
        TransactionHandle,
        TransactionWriter,
    )
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
    "fencepost.client.admin": ("AsyncAdmin",),
    "fencepost.client.blocking": (
        "Admin",
        "Client",
        "GroupConsumer",
        "PartitionReader",
        "Producer",
        "Transaction",
        "TransactionalProducer",
    ),
    "fencepost.client.client": ("AsyncClient",),
    "fencepost.client.errors": (
        "BrokerError",
        "BrokerUnreachable",
        "ClientError",
        "DeliveryFailed",
        "ProducerFenced",
        "TransactionAborted",
        "TransactionError",
        "TransactionFailed",
        "TransactionMustAbort",
        "TransactionOutcomeUnknown",
        "UnknownTopic",
    ),
    "fencepost.client.fetching": ("AsyncPartitionReader", "AtTimestamp"),
    "fencepost.client.group_consumer": ("AsyncGroupConsumer", "ConsumerSettings"),
    "fencepost.client.producer": ("AsyncProducer",),
    "fencepost.client.sending": ("Sending",),
    "fencepost.client.transaction_calls": ("TransactionProtocol",),
    "fencepost.client.transactions": (
        "AsyncTransaction",
        "AsyncTransactionWriter",
        "AsyncTransactionalProducer",
        "TransactionHandle",
        "TransactionWriter",
    ),
    "fencepost.client.kafka_types": (
        "CommittedOffset",
        "GroupMetadata",
        "IsolationLevel",
        "NewTopic",
        "ProducerIdentity",
        "Reset",
        "ResourceType",
    ),
    "fencepost.topic_partition": ("TopicPartition",),
}


def __getattr__(name: str) -> Any:
    # Loaded on first use, because a command that lists topics must not load the producer and its codecs.
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'fencepost.client' has no attribute {name!r}")
