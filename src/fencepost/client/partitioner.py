"""Chooses the partition of a record: by the murmur2 hash of its key as in Java's client, or sticky without a key."""

import random
import struct
from collections.abc import Sequence

_WORD = struct.Struct("<I")
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's Java client, as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for (word,) in _WORD.iter_unpack(memoryview(data)[:whole]):
        k = (word * _M) & _MASK
        k ^= k >> 24
        h = ((h * _M) & _MASK) ^ ((k * _M) & _MASK)
    rest = data[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """Stays on a partition until about one batch was sent to it, so that batches are full; then chooses another."""

    def __init__(self, sticky_bytes: int, randomness: random.Random | None = None) -> None:
        self._sticky_bytes = sticky_bytes
        self._random = randomness or random.Random()
        self._current: dict[str, tuple[int, int]] = {}

    def partition(self, topic: str, available: Sequence[int], size_bytes: int) -> int:
        """`available`: the partitions that currently have a leader."""
        chosen, so_far = self._current.get(topic, (-1, 0))
        if chosen not in available or so_far >= self._sticky_bytes:
            others = [partition for partition in available if partition != chosen] or available
            chosen, so_far = self._random.choice(others), 0
        self._current[topic] = (chosen, so_far + size_bytes)
        return chosen
