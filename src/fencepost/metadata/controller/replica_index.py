"""Which partitions have a broker among some of their replicas, in the order in which it came to be there.

Follows from the image; kept because a broker that falls silent must not cost a look at every partition.
"""

from collections.abc import Iterable, Iterator


class ReplicaIndex:
    def __init__(self) -> None:
        self._partitions: dict[int, dict[bytes, dict[int, None]]] = {}

    def update(self, topic_id: bytes, index: int, before: Iterable[int], after: Iterable[int]) -> None:
        gone, here = set(before), set(after)
        for broker_id in gone - here:
            topics = self._partitions[broker_id]
            indexes = topics[topic_id]
            del indexes[index]
            if not indexes:
                del topics[topic_id]
        for broker_id in here - gone:
            self._partitions.setdefault(broker_id, {}).setdefault(topic_id, {})[index] = None

    def of_broker(self, broker_id: int) -> Iterator[tuple[bytes, int]]:
        for topic_id, indexes in self._partitions.get(broker_id, {}).items():
            for index in indexes:
                yield topic_id, index

    def has_any(self, broker_id: int) -> bool:
        return bool(self._partitions.get(broker_id))
