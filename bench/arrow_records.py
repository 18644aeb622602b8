"""`python -m bench.arrow_records`: records to and from Arrow arrays, on one core, in millions of records per second.

Whole batches of about 1 MB as a producer makes them, CRC included, and fetches of 4 MB as a reader gets them, CRC
checked. CPU time of this process, the best of many rounds: other work on the machine takes time from it, but not CPU.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from fencepost.wire.arrow_records import decode_batches, encode_batches
from fencepost.wire.batch import build_batch, iterate_headers, verify_crc
from fencepost.wire.records import read_records

ROUNDS = 40
FETCH_BYTES = 4_000_000
TARGET_MILLIONS = 20.0
TIMESTAMP_MS = 1_700_000_000_000


def column(rows: int, size_bytes: int) -> pa.Array:
    data = np.random.default_rng(7).integers(0, 256, rows * size_bytes, np.uint8)
    offsets = np.arange(0, (rows + 1) * size_bytes, size_bytes, np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def millions_per_second(rows: int, work: Callable[[], object]) -> float:
    work()
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time_ns()
        work()
        best = min(best, time.process_time_ns() - started)
    return rows * 1000 / best


def encoded(values: pa.Array, keys: pa.Array | None) -> int:
    # One by one, as they are sent: each is gone before the next is made.
    return sum(len(batch) for batch in encode_batches(values, keys=keys, timestamps=TIMESTAMP_MS))


def decoded(fetched: bytes) -> pa.RecordBatch:
    assert all(verify_crc(fetched, position, header) for position, header in iterate_headers(fetched))
    return decode_batches(fetched)


def main() -> int:
    good = True
    print(f"{'records':<42}{'encode':>10}{'decode':>10}   M/s of one core; the target is {TARGET_MILLIONS:g}")
    for name, value_bytes, key_bytes in (
        ("100-byte values", 100, 0),
        ("100-byte values, 16-byte keys", 100, 16),
        ("1,000-byte values", 1_000, 0),
    ):
        rows = FETCH_BYTES // (value_bytes + key_bytes)
        values, keys = column(rows, value_bytes), column(rows, key_bytes) if key_bytes else None
        fetched = b"".join(encode_batches(values, keys=keys, timestamps=TIMESTAMP_MS))
        encode = millions_per_second(rows, lambda values=values, keys=keys: encoded(values, keys))
        decode = millions_per_second(rows, lambda fetched=fetched: decoded(fetched))
        if value_bytes == 100 and not key_bytes:
            good = min(encode, decode) >= TARGET_MILLIONS
        print(f"{name:<42}{encode:>10.1f}{decode:>10.1f}")
    rows = 5_000
    content = [bytes(100)] * rows
    plain = bytes(build_batch([(TIMESTAMP_MS, None, value, ()) for value in content]))
    encode = millions_per_second(rows, lambda: build_batch([(TIMESTAMP_MS, None, value, ()) for value in content]))
    decode = millions_per_second(rows, lambda: list(read_records(plain, 2**30)))
    print(f"{'100-byte values, wire.records':<42}{encode:>10.1f}{decode:>10.1f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
