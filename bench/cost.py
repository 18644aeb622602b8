"""`python -m bench.cost`: what every kind of request costs the broker, from the API table, worst first.

A request may use a millisecond of processor time for free. Beyond that its time divided by the bytes received and sent
may be twenty times that of Produce with 1 KiB batches, and none may hold the broker longer than 20 ms in one go. The
broker runs in this thread without sockets, so the times are those of reading, handling and answering alone; the disk is
simulated. What the garbage collector takes is left out. What goes beyond the rule is charged to the client's share of
the processor (docs/security.md): where most of it was charged, a request is within the rule "by its client's share".
"""

import argparse
import sys
import time
from dataclasses import dataclass

from tests.hostile.expensive import (
    ENTRIES_MAX,
    HOLD_NS_MAX,
    TIME_MS,
    Cost,
    Expensive,
    Workbench,
    all_expensive,
    produce_frame,
)

from fencepost.wire.batch import build_batch, read_header
from fencepost.wire.catalog import ApiKey
from fencepost.wire.compression import Codec
from fencepost.wire.framing import request_frame
from fencepost.wire.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    ListTransactionsRequest,
    MetadataRequest,
)
from fencepost.wire.records import convert_batch

# Entries within entries count too: half of them, or a third.
SHARES = (1, 2, 3, 4)
# Of the time beyond the rule so much has to be charged to the client: syncs and continuations cannot be told apart.
CHARGED_MIN = 0.6


@dataclass
class Line:
    name: str
    cost: Cost
    factor: float
    """Time beyond the free millisecond for each byte, as a multiple of Produce's."""

    excess_ns: float
    """Time beyond the rule."""

    @property
    def is_met(self) -> bool:
        is_paid = self.cost.charged_ns >= CHARGED_MIN * self.excess_ns
        return is_paid and self.cost.longest_ns <= HOLD_NS_MAX

    @property
    def verdict(self) -> str:
        if not self.is_met:
            return "no"
        return "by its client's share" if self.excess_ns else "yes"


def frame_of(api: ApiKey, version: int, message: object) -> bytes:
    return b"".join(request_frame(api, version, 1, "c", message))[4:]


def packed(count: int, codec: Codec = Codec.ZSTD, value: bytes = b"v") -> bytes:
    """Many records of the same key: few bytes."""
    plain = build_batch([(TIME_MS, b"k", value, ()) for _ in range(count)])
    return bytes(convert_batch(plain, read_header(plain), codec, 1 << 30))


def tagged_frame(count: int) -> bytes:
    """ApiVersions with tagged fields that nobody knows."""
    plain = frame_of(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    tags = b"".join(bytes([0x80 | n & 0x7F, 0x80 | n >> 7 & 0x7F, n >> 14, 0]) for n in range(count))
    return plain[:-1] + bytes([0x80 | count & 0x7F, 0x80 | count >> 7 & 0x7F, count >> 14]) + tags


def specials(bench: Workbench) -> list[tuple[str, bytes]]:
    """What is expensive without being long: each of them has held a broker up."""
    bench.node.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    bench.node.create_topic("converted", 1, {"compression.type": "gzip"})
    topic = CreateTopicsRequest.CreatableTopic
    wide = CreateTopicsRequest(topics=[topic(name="made-wide", num_partitions=5_000, replication_factor=1)])
    many = [topic(name=f"made-{number}", num_partitions=1, replication_factor=1) for number in range(2_000)]
    pattern = ListTransactionsRequest(transactional_id_pattern="(a?){400}a{400}", duration_filter=-1)
    large = ListTransactionsRequest(transactional_id_pattern="(.?){900}z", duration_filter=-1)
    zeros = packed(1, value=bytes(60_000_000))
    return [
        ("ListTransactions, pattern (a?){400}a{400}", frame_of(ApiKey.LIST_TRANSACTIONS, 2, pattern)),
        ("ListTransactions, pattern (.?){900}z", frame_of(ApiKey.LIST_TRANSACTIONS, 2, large)),
        ("Produce, 190,000 records in a zstd batch, compacted topic", produce_frame("compacted", packed(190_000))),
        ("Produce, 60 MB of zeros in a zstd batch, compacted topic", produce_frame("compacted", zeros)),
        ("Produce, 190,000 records in a zstd batch, gzip topic", produce_frame("converted", packed(190_000))),
        (f"ApiVersions, {ENTRIES_MAX - 10:,} tagged fields", tagged_frame(ENTRIES_MAX - 10)),
        ("CreateTopics, 5,000 partitions", frame_of(ApiKey.CREATE_TOPICS, 7, wide)),
        ("CreateTopics, 2,000 topics", frame_of(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=many))),
        ("Metadata, all topics", frame_of(ApiKey.METADATA, 12, MetadataRequest(topics=None))),
    ]


def largest_frame(case: Expensive, entries: int, bench: Workbench) -> tuple[bytes, Cost]:
    """With as many entries as the limits allow."""
    for share in SHARES:
        frame = case.frame(entries // share - 10, bench.topic_ids)
        cost = bench.cost(frame)
        if not cost.was_closed or share == SHARES[-1]:
            break
    return frame, cost


def measured(name: str, frame: bytes, bench: Workbench, baseline: float, tries: int) -> Line:
    costs = [bench.cost(frame) for _ in range(tries)]
    best = min(costs, key=lambda cost: cost.total_ns)
    best.longest_ns = min(cost.longest_ns for cost in costs)
    return Line(name, best, best.factor(baseline), best.excess_ns(baseline))


def lines(options: argparse.Namespace) -> tuple[float, list[Line]]:
    bench = Workbench()
    baseline = bench.baseline_ns_per_byte()
    made = []
    for case in all_expensive(every_version=options.every_version):
        if options.rows not in str(case):
            continue
        bench.cost(case.frame(300, bench.topic_ids))
        frame, _ = largest_frame(case, options.entries, bench)
        made.append(measured(str(case), frame, bench, baseline, options.tries))
        print(".", end="", flush=True, file=sys.stderr)
    if options.rows in ("", "special"):
        bench = Workbench()
        for name, frame in specials(bench):
            # What creates something does so once.
            made.append(measured(name, frame, bench, baseline, 1 if "Create" in name else options.tries))
    print(file=sys.stderr)
    return baseline, sorted(made, key=lambda line: (line.is_met, -line.factor))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES_MAX, help=f"of each array (default {ENTRIES_MAX:,})")
    parser.add_argument("--every-version", action="store_true", help="not only the highest of each API")
    parser.add_argument("--rows", default="", help="only those whose name contains this")
    parser.add_argument("--tries", type=int, default=2, help="of which the best counts")
    parser.add_argument("--show", type=int, default=40, help="lines, worst first")
    options = parser.parse_args()
    started = time.monotonic()
    baseline, table = lines(options)
    print(f"Produce with 1 KiB batches: {baseline:.1f} ns for each byte received and sent\n")
    print(
        "| request | bytes in | bytes out | CPU ms | charged ms | longest hold ms | times Produce | within the rule |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    for line in table[: options.show]:
        cost = line.cost
        print(
            f"| {line.name} | {cost.received_bytes:,} | {cost.sent_bytes:,} | {cost.total_ns / 1e6:.1f} "
            f"| {cost.charged_ns / 1e6:.1f} | {cost.longest_ns / 1e6:.1f} | {line.factor:.1f} | {line.verdict} |"
        )
    met = sum(line.is_met for line in table)
    print(f"\n{met} of {len(table)} within the rule, {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
