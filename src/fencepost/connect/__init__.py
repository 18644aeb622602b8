"""Sources: what happens elsewhere, in Kafka exactly once.

    from fencepost.connect import Record, Transaction, source

    @source("rates", topics={"rates": 1})
    def rates(position):
        ...
        yield Transaction([Record("rates", value, key=key)], position={"date": date})

`fencepost connect FILE.py` runs it. The records of a source transaction and the position behind it are written in one
Kafka transaction, under a transactional id that a new process takes over: what is read again after a crash was never
visible, and an old process can write nothing more.

This package sees a cluster only through `fencepost.client`.
"""

from fencepost.connect.errors import ConnectError, SourceUnavailable
from fencepost.connect.records import Portion, Record, Transaction
from fencepost.connect.sources import Boundary, Reader, Source, source

__all__ = [
    "Boundary",
    "ConnectError",
    "Portion",
    "Reader",
    "Record",
    "Source",
    "SourceUnavailable",
    "Transaction",
    "source",
]
