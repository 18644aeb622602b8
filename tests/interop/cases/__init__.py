"""Scripts of raw requests, run against two brokers whose answers must be equal.

A case is a function from a `Peer` to a value; the value is what both brokers are compared by. Cases send what
no client library would, and name what they expect only through Apache Kafka's own answer.
"""

import importlib

from tests.interop.cases.peer import CASES, Case, Peer

for _family in ("protocol", "produce", "fetch", "groups", "group_errors", "topics", "versions"):
    importlib.import_module(f"tests.interop.cases.{_family}")
for _part in ("init", "add", "end", "produce", "offsets", "markers", "admin"):
    importlib.import_module(f"tests.interop.cases.transactions_{_part}")

__all__ = ["CASES", "Case", "Peer"]
