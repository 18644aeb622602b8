"""Which writer an output partition belongs to, and how Spark is made to bring its rows there.

Every output partition has exactly one writer: (index of its topic's first partition + partition) mod writers. The
shuffle is by hash of a small number, chosen so that Spark's hash of it is the writer: `repartition(n, column)` is in
every Spark and every way to reach it, which `repartitionById` is not.
"""

import functools
import zlib
from collections.abc import Mapping

_MASK = 0xFFFFFFFF
_SEED = 42


def first_index(topic: str, known: Mapping[str, int]) -> int:
    """Topics that are named beforehand are numbered densely; of others any number will do that all tasks agree on."""
    return known.get(topic, zlib.crc32(topic.encode()))


def dense_indexes(partition_counts: Mapping[str, int]) -> dict[str, int]:
    """The index of each topic's first partition among all output partitions."""
    indexes, total = {}, 0
    for topic, count in partition_counts.items():
        indexes[topic] = total
        total += count
    return indexes


@functools.cache
def salts(writers: int) -> tuple[int, ...]:
    """For each writer an int that Spark's hash partitioning sends to the partition of that number."""
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < writers:
        found.setdefault(spark_hash(candidate) % writers, candidate)
        candidate += 1
    return tuple(found[writer] for writer in range(writers))


def spark_hash(value: int) -> int:
    """Spark's Murmur3 of an int column, as a signed number."""
    k = (value * 0xCC9E2D51) & _MASK
    k = ((k << 15) | (k >> 17)) & _MASK
    k = (k * 0x1B873593) & _MASK
    h = _SEED ^ k
    h = ((h << 13) | (h >> 19)) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & _MASK
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h
