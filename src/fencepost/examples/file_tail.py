"""Each line that is appended to a file becomes one record, exactly once, through rotation and restarts.

LINES_FILE=/var/log/syslog fencepost connect examples/file_tail.py
"""

import os
from collections.abc import Iterator

from fencepost.connect import Record, Transaction, source
from fencepost.connect.records import Position

FILE = os.environ.get("LINES_FILE", "lines.txt")
LINES_AT_ONCE = 1000


@source("lines", topics={"lines": 1}, every_seconds=0.2)
def lines(position: Position | None) -> Iterator[Transaction]:
    try:
        file = open(FILE, "rb")  # noqa: SIM115 - the block below closes it
    except FileNotFoundError:
        return  # called again soon: it may be in the middle of a rotation
    with file:
        status = os.fstat(file.fileno())
        is_same = position is not None and position["inode"] == status.st_ino and position["offset"] <= status.st_size
        offset = position["offset"] if position is not None and is_same else 0
        file.seek(offset)
        while True:
            records = []
            for _ in range(LINES_AT_ONCE):
                line = file.readline()
                if not line.endswith(b"\n"):
                    break  # the rest of this line is still to be written
                offset += len(line)
                records.append(Record("lines", line.rstrip(b"\r\n")))
            if not records:
                return
            yield Transaction(records, position={"inode": status.st_ino, "offset": offset})
