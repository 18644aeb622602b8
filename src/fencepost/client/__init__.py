"""A Kafka client: administration, an idempotent producer, a partition reader. Sees brokers only through the wire.

    from fencepost.client import Admin, NewTopic, PartitionReader, Producer

    with Producer("127.0.0.1:9092") as producer:
        producer.send("purchases", b"one book", key=b"alice").result()

Each class has an asynchronous twin (`AsyncAdmin`, `AsyncProducer`, `AsyncPartitionReader`) that it is a face of.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.client.admin import AsyncAdmin
    from fencepost.client.blocking import Admin, PartitionReader, Producer
    from fencepost.client.consumer import AsyncPartitionReader, AtTimestamp
    from fencepost.client.errors import BrokerError, BrokerUnreachable, ClientError, DeliveryFailed, UnknownTopic
    from fencepost.client.producer import AsyncProducer
    from fencepost.client.values import IsolationLevel, NewTopic, Reset, ResourceType, TopicPartition

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncPartitionReader",
    "AsyncProducer",
    "AtTimestamp",
    "BrokerError",
    "BrokerUnreachable",
    "ClientError",
    "DeliveryFailed",
    "IsolationLevel",
    "NewTopic",
    "PartitionReader",
    "Producer",
    "Reset",
    "ResourceType",
    "TopicPartition",
    "UnknownTopic",
]

_HOMES = {
    "admin": ("AsyncAdmin",),
    "blocking": ("Admin", "PartitionReader", "Producer"),
    "consumer": ("AsyncPartitionReader", "AtTimestamp"),
    "errors": ("BrokerError", "BrokerUnreachable", "ClientError", "DeliveryFailed", "UnknownTopic"),
    "producer": ("AsyncProducer",),
    "values": ("IsolationLevel", "NewTopic", "Reset", "ResourceType", "TopicPartition"),
}


def __getattr__(name: str) -> Any:
    # A command that lists topics must not pay for the producer and its codecs.
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"fencepost.client.{home}"), name)
    raise AttributeError(f"module 'fencepost.client' has no attribute {name!r}")
