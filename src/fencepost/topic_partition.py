"""A partition of a topic, as every part of the product names it. Imports nothing of the product."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """Equal to the plain tuple of its parts, and as cheap to hash; shown as Kafka shows it: `purchases-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
