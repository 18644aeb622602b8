"""A batch of a few small rows is written by the driver: Spark's tasks compute the rows, and the driver sends them.

That is one stage instead of two, and no Python task, shuffle or barrier of ours; for a few rows these take most of the
time. A task that is repeated, speculated or lost does no harm, because tasks write nothing here: of each one Spark
hands the driver one result. What the batch reads says whether it may be small. What it gives may be more all the same
(a join, a state that is flushed), so Spark returns no more than a little too much, and then the writers do the work.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fencepost.spark.commit_records import Positions
from fencepost.spark.errors import InvalidOutput, NotSupported
from fencepost.spark.outputs import HEADERS_TYPE, Output, output_partitions
from fencepost.spark.planned_batches import Planned
from fencepost.spark.requirements import is_connect, setting
from fencepost.spark.run_producer import OutputRecord, RunProducer

ROWS_MAX_SETTING = "spark.fencepost.smallBatchRows"
ROWS_MAX = 200
"""Unless the setting says otherwise: offsets that a small batch reads, and rows that it gives. With 0 none is small."""
ROW_BYTES_MAX = 8 * 1024
BATCHES_UNTIL_NEXT_TRY = 100
"""After a batch that read little and gave much: the next ones are likely to do so, too, and each would run twice."""

_ROW = "_row"
_COLUMNS = {
    "key": "CAST(NULL AS BINARY)",
    "headers": f"CAST(NULL AS {HEADERS_TYPE})",
    "topic": "CAST(NULL AS STRING)",
    "partition": "CAST(NULL AS INT)",
    "value": "",
}
_HEADERS_BYTES = (
    "aggregate(headers, 0, (total, header) -> total + octet_length(header.key) + "
    "coalesce(octet_length(header.value), 0))"
)
_ROW_NUMBER = f"(monotonically_increasing_id() & {(1 << 33) - 1})"
"""Within its task: Spark counts in the lower 33 bits."""


@dataclasses.dataclass(slots=True)
class SmallBatches:
    """What one run of a query knows about the size of its batches."""

    rows_max: int = dataclasses.field(default_factory=lambda: ROWS_MAX)
    read_until: Positions | None = None
    """Where the batch before has ended; None before the first."""
    not_before: int = 0
    """The batch number from which on it may be tried again."""

    def is_next(self, batch_id: int, planned: Planned | None, before: Planned | None) -> bool:
        """Whether the batch reads few records. `before` is the plan of the batch before, for the first of a run."""
        if planned is None or self.rows_max < 1 or batch_id < self.not_before:
            return False
        read_until = self.read_until
        if read_until is None:
            read_until = before.offsets if before is not None else {}
        begin = {**read_until, **planned.starts}
        if not planned.offsets or not begin.keys() >= planned.offsets.keys():
            return False  # Another source than Kafka, or a partition that begins nobody knows where.
        return sum(max(0, end - begin[at]) for at, end in planned.offsets.items()) <= self.rows_max

    def has_read(self, planned: Planned) -> None:
        """The batch is committed: the next one reads from where it ends."""
        self.read_until = planned.offsets

    def was_too_large(self, batch_id: int) -> None:
        self.not_before = batch_id + BATCHES_UNTIL_NEXT_TRY


def rows_max(spark: Any) -> int:
    """What holds for a session. The driver's part of Spark Connect has not been tried with it."""
    given = setting(spark, ROWS_MAX_SETTING, str(ROWS_MAX))
    if not given.lstrip("-").isdecimal():
        raise NotSupported(f"{ROWS_MAX_SETTING}={given} is not a number of rows", "write 200, say, or 0 for none")
    return 0 if is_connect(spark) else int(given)


def collected(
    outputs: Sequence[Output], counts: Mapping[str, int], producer: RunProducer, rows_max: int
) -> list[OutputRecord] | None:
    """The rows of all outputs, computed in one job; None if they are too many or one is too large."""
    frame = _bounded(0, outputs[0], rows_max)
    for number, output in enumerate(outputs[1:], 1):
        frame = frame.unionAll(_bounded(number, output, rows_max))
    rows = [row[_ROW] for row in frame.collect()]
    if len(rows) > rows_max or None in rows:
        return None
    records = [_record(row, outputs) for row in rows]
    _check_partitions(records, {**counts, **output_partitions(producer, _topics(records))})
    return records


def _bounded(number: int, output: Output, rows_max: int) -> Any:
    """At most one row more than is allowed from each task, and null in place of a row that is too large."""
    columns = ", ".join(f"{name if name in output.columns else absent} AS {name}" for name, absent in _COLUMNS.items())
    sizes = [f"coalesce(octet_length({name}), 0)" for name in ("key", "value") if name in output.columns]
    if "headers" in output.columns:
        sizes.append(f"CASE WHEN headers IS NULL THEN 0 ELSE {_HEADERS_BYTES} END")
    row = f"struct({number} AS output, {columns})"
    return output.rows.where(f"{_ROW_NUMBER} <= {rows_max}").selectExpr(
        f"CASE WHEN {' + '.join(sizes)} <= {ROW_BYTES_MAX} THEN {row} END AS {_ROW}"
    )


def _record(row: Any, outputs: Sequence[Output]) -> OutputRecord:
    topic = outputs[row["output"]].topic or row["topic"]
    if topic is None:
        raise InvalidOutput("a row has no topic", "give every row a topic, or name one with topic=")
    headers = tuple((header["key"], _bytes(header["value"])) for header in row["headers"] or ())
    return OutputRecord(topic, row["partition"], _bytes(row["key"]), _bytes(row["value"]), headers)


def _bytes(value: Any) -> bytes | None:
    """Spark gives a bytearray, or bytes where it is new."""
    return None if value is None else bytes(value)


def _topics(records: Iterable[OutputRecord]) -> list[str]:
    return sorted({record.topic for record in records})


def _check_partitions(records: Iterable[OutputRecord], counts: Mapping[str, int]) -> None:
    for record in records:
        if record.partition is not None and not 0 <= record.partition < counts[record.topic]:
            raise InvalidOutput.of_partition(record.topic, record.partition, counts[record.topic])
