"""Partitions of many rows at once, compiled by numba: Java's murmur2 over a column of keys, and a stable grouping.

`client.partitioner` is the same for one key and the oracle of the tests. Compiled code is cached beside this file.
"""

from typing import Any

import numpy as np
from numba import njit

_njit: Any = njit
_compiled = _njit(cache=True, nogil=True)

UNKNOWN_PARTITION = -1
"""What `place` gives a row whose own choice is not a partition of the topic."""


@_compiled
def _murmur2(data, start, size):
    m = np.uint32(0x5BD1E995)
    h = np.uint32(0x9747B28C) ^ np.uint32(size)
    whole = size & ~3
    position = start
    while position < start + whole:
        k = (
            np.uint32(data[position])
            | (np.uint32(data[position + 1]) << np.uint32(8))
            | (np.uint32(data[position + 2]) << np.uint32(16))
            | (np.uint32(data[position + 3]) << np.uint32(24))
        )
        k = np.uint32(k * m)
        k ^= k >> np.uint32(24)
        k = np.uint32(k * m)
        h = np.uint32(h * m) ^ k
        position += 4
    rest = size - whole
    if rest >= 3:
        h ^= np.uint32(data[position + 2]) << np.uint32(16)
    if rest >= 2:
        h ^= np.uint32(data[position + 1]) << np.uint32(8)
    if rest >= 1:
        h ^= np.uint32(data[position])
        h = np.uint32(h * m)
    h ^= h >> np.uint32(13)
    h = np.uint32(h * m)
    return h ^ (h >> np.uint32(15))


@_compiled
def place(out, count, keys, key_offsets, key_bitmap, key_start, chosen, sticky, portions):
    """A partition for each row: its own choice if it has one, else by its key, else one partition after the other.

    Rows without a key fill `portions` partitions in equal parts from `sticky` on, so that batches are long.
    Returns the first row whose choice does not exist, or -1.
    """
    rows = out.size
    refused = -1
    for row in range(rows):
        own = chosen[row] if chosen.size else UNKNOWN_PARTITION
        if own >= 0:
            out[row] = own
            if own >= count:
                out[row] = UNKNOWN_PARTITION
                if refused < 0:
                    refused = row
            continue
        index = key_start + row
        is_null = key_offsets.size == 0 or (
            key_bitmap.size > 0 and (key_bitmap[index >> 3] >> np.uint8(index & 7)) & np.uint8(1) == 0
        )
        if is_null:
            out[row] = (sticky + row * portions // rows) % count
        else:
            begin = np.int64(key_offsets[index])
            size = np.int64(key_offsets[index + 1]) - begin
            out[row] = np.int64(_murmur2(keys, begin, size) & np.uint32(0x7FFFFFFF)) % count
    return refused


@_compiled
def group(placed, starts, order):
    """A stable counting sort: `starts[p]` to `starts[p + 1]` of `order` are the rows of partition p."""
    for row in range(placed.size):
        starts[placed[row] + 1] += 1
    for partition in range(1, starts.size):
        starts[partition] += starts[partition - 1]
    next_place = starts.copy()
    for row in range(placed.size):
        partition = placed[row]
        order[next_place[partition]] = row
        next_place[partition] += 1
