"""`format("fencepost")`: topics as rows, with the options, columns and offsets of Spark's own Kafka source.

The driver plans ranges of offsets (`source_progress`), tasks read them (`source_reading`). Nothing heavy is imported
before rows are read: Spark loads this module whenever it looks for data sources.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fencepost.spark.errors import FencepostSparkError
from fencepost.spark.python_workers import TaskCode
from fencepost.spark.source_cluster import SourceCluster
from fencepost.spark.source_errors import InvalidSourceOption
from fencepost.spark.source_offsets import OffsetRange, cut, offsets_of, starts_of, to_json
from fencepost.spark.source_options import EARLIEST, Bound, SourceOptions, parse_source_options
from fencepost.spark.source_progress import SourceProgress

FORMAT = "fencepost"

_FIELDS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def columns(*, include_headers: bool) -> StructType:
    return StructType([*_FIELDS, StructField("headers", ArrayType(_HEADER))] if include_headers else list(_FIELDS))


class FencepostSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        options = parse_source_options(dict(self.options), is_streaming=None)
        return columns(include_headers=options.include_headers)

    def streamReader(self, schema: StructType) -> "FencepostStreamReader":
        return FencepostStreamReader(self._parsed(schema, is_streaming=True))

    def reader(self, schema: StructType) -> "FencepostReader":
        return FencepostReader(self._parsed(schema, is_streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        # Only a mistake leads here, so nobody else pays for the import.
        from fencepost.spark.stream_writing import instead_of_stream_writer

        raise instead_of_stream_writer(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        from fencepost.spark.stream_writing import instead_of_writer  # as above

        raise instead_of_writer(dict(self.options))

    def _parsed(self, schema: StructType, *, is_streaming: bool) -> SourceOptions:
        options = parse_source_options(dict(self.options), is_streaming=is_streaming)
        if schema != columns(include_headers=options.include_headers):
            raise InvalidSourceOption(
                "Kafka source has a fixed schema and cannot be set with a custom one",
                "Remove .schema(...) and parse the column `value` instead.",
            )
        return options


class RangePartition(InputPartition):
    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(tuple(wanted))

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(*self.value)


def _tasks(options: SourceOptions, ranges: list[OffsetRange]) -> list[InputPartition]:
    return [RangePartition(one) for one in cut(ranges, options.min_partitions, options.max_records_per_partition)]


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    # Spark makes a task without a range when there is nothing to read.
    if not isinstance(partition, RangePartition):
        return iter(())
    # What reads the records is for tasks; the process that plans them starts quicker without it.
    from fencepost.spark.source_reading import read_range

    return read_range(options, partition.range)


class FencepostReader(TaskCode, DataSourceReader):
    """A batch read: everything between two bounds, as they are when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with SourceCluster(options) as cluster:
            starts, ends = cluster.at(options.starting), cluster.at(options.ending)
            for partition, start in starts.items():
                if start > ends[partition]:
                    raise InvalidSourceOption(
                        f"The resolved start offset {start} is greater than the resolved end offset "
                        f"{ends[partition]} for topic {partition.topic} partition {partition.partition}",
                        f"Check '{options.starting.option}' and '{options.ending.option}', and whether the topic was "
                        "deleted and created again.",
                    )
        return _tasks(options, [OffsetRange(at.topic, at.partition, starts[at], ends[at]) for at in sorted(starts)])

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, partition)


class FencepostStreamReader(TaskCode, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a Python process of the driver for as long as the query runs; copies of it read in the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: tuple[SourceCluster, SourceProgress] | None = None
        self._initial: dict[str, Any] | None = None

    @property
    def _progress(self) -> SourceProgress:
        if self._opened is None:
            cluster = SourceCluster(self._options)
            self._opened = (cluster, SourceProgress(self._options, cluster))
        return self._opened[1]

    def initialOffset(self) -> dict[str, Any]:
        # Spark asks more than once, and the log grows meanwhile.
        if self._initial is None:
            self._initial = to_json(self._progress.initial())
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets_per_trigger)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = offsets_of(start)
        until, anew = self._progress.end_of_batch(begin, _max_offsets(limit, self._options))
        if start == self._initial:
            return to_json(until, starts={**begin, **anew})
        # The same offset in other words would be a batch of its own.
        if until == begin and not anew:
            return start
        end = to_json(until, starts=anew)
        if end == start:
            # A new log that is as long as the one of the first batch: Spark would see nothing new.
            longest = max(anew, key=lambda partition: until[partition] - anew[partition])
            end = to_json({**until, longest: max(anew[longest], until[longest] - 1)}, starts=anew)
        return end

    def prepareForTriggerAvailableNow(self) -> None:
        self._progress.stop_at_what_is_there()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        if self._opened is None or not self._progress.latest:
            return None
        return to_json(self._progress.latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        stored = starts_of(end)
        if not stored and start == self._initial and not _is_certain(self._options.starting):
            raise UnknownStart(self._options.starting)
        starts = {**offsets_of(start), **stored}
        return _tasks(self._options, self._progress.ranges(starts, offsets_of(end)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, partition)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None


def _max_offsets(limit: ReadLimit, options: SourceOptions) -> int | None:
    if isinstance(limit, ReadAllAvailable):
        return None
    return limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_offsets_per_trigger


def _is_certain(bound: Bound) -> bool:
    """Whether a bound is the same whenever it is looked up."""
    if bound.is_timestamp:
        return False
    numbers = bound.each.values() if bound.everywhere is None else [bound.everywhere]
    return all(number >= 0 or number == EARLIEST for number in numbers)


class UnknownStart(FencepostSparkError):
    def __init__(self, bound: Bound) -> None:
        super().__init__(
            "The first batch of this checkpoint was planned by another source and never finished, and where it began "
            f"is not stored where this source could see it ({bound.option} gives another offset every time)",
            "let the query finish its first batch with format('kafka'), then change the format; or set startingOffsets "
            "to the offsets in the checkpoint's file sources/0/0",
        )
