"""Which partition of an internal topic answers for a key: Kafka's rule, on Java's string hash."""

import struct
from functools import lru_cache

_INT32_MIN = -(2**31)
# Every call of a client asks for the same one again; a long id takes long.
KEYS_CACHED_MAX = 16_384


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, wrapping at 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


@lru_cache(maxsize=KEYS_CACHED_MAX)
def partition_for_key(key: str, partition_count: int) -> int:
    value = java_string_hash(key)
    # The one number without a positive twin goes to partition 0.
    return 0 if value == _INT32_MIN else abs(value) % partition_count
