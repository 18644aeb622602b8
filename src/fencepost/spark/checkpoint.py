"""Reads Spark's checkpoint: the offsets a micro-batch ends at, and the query's id. Never writes to it.

Spark has written `offsets/<batch id>` before the batch runs, and replays a batch with exactly these offsets, so they
are the authority on what was read; what a group has committed only tells the world.
"""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from fencepost.spark.errors import FencepostSparkError, NotSupported
from fencepost.spark.source_offsets import STARTS
from fencepost.topic_partition import TopicPartition

_TEMPORARY = re.compile(r"/temporary-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/?$")
_VERSION = re.compile(r"v(\d+)")
_NAMED_SOURCE = re.compile(r"[A-Za-z0-9_]+:(.*)")
"""A source in the second format: by its number, or by the name that `readStream.name()` gave it."""
NEWEST_VERSION = 2
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def refuse_temporary(location: str) -> None:
    """Without a location Spark silently uses a directory that does not outlive the query."""
    if _TEMPORARY.search(location):
        raise NotSupported(
            "the query has no checkpoint location, so a restart could not know what was written",
            'name one: .option("checkpointLocation", "/a/directory/that/stays")',
        )


class Checkpoint:
    def __init__(self, location: str, spark: Any = None, *, reads_kafka: bool = False) -> None:
        """`reads_kafka`: a source of the query is known to, so the offsets must not be missing."""
        self.location = location.rstrip("/")
        self._spark = spark
        self.reads_kafka = reads_kafka

    def query_id(self) -> str:
        return str(json.loads(self._read("metadata"))["id"])

    def query_id_if_begun(self) -> str | None:
        """None before the first run of the query: Spark has written nothing there yet."""
        parsed = urlparse(self.location)
        if parsed.scheme in ("", "file"):
            directory = Path(unquote(parsed.path) if parsed.scheme else self.location)
            return self.query_id() if (directory / "metadata").exists() else None
        context = self._spark.sparkContext
        file = context._jvm.org.apache.hadoop.fs.Path(f"{self.location}/metadata")
        is_there = file.getFileSystem(context._jsc.hadoopConfiguration()).exists(file)
        return self.query_id() if is_there else None

    def offsets(self, batch_id: int) -> dict[TopicPartition, int]:
        """Where the batch ends, of all its sources that look like Kafka; the smaller where two read one partition."""
        return parse_offsets(self.offset_log(batch_id), reads_kafka=self.reads_kafka)

    def offset_log(self, batch_id: int) -> str:
        return self._read(f"offsets/{batch_id}")

    def next_batch(self) -> int:
        """The batch that Spark runs first when it starts: the last one planned, unless it is done."""
        last, done = self._last("offsets"), self._last("commits")
        return last if last > done else last + 1

    def _last(self, log: str) -> int:
        """The newest entry of one of Spark's logs; -1 if there is none."""
        parsed = urlparse(self.location)
        if parsed.scheme in ("", "file"):
            directory = Path(unquote(parsed.path) if parsed.scheme else self.location) / log
            names = [entry.name for entry in directory.iterdir()] if directory.exists() else []
        else:
            context = self._spark.sparkContext
            path = context._jvm.org.apache.hadoop.fs.Path(f"{self.location}/{log}")
            system = path.getFileSystem(context._jsc.hadoopConfiguration())
            names = [entry.getPath().getName() for entry in system.listStatus(path)] if system.exists(path) else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _read(self, name: str) -> str:
        parsed = urlparse(self.location)
        try:
            if parsed.scheme in ("", "file"):
                return (Path(unquote(parsed.path) if parsed.scheme else self.location) / name).read_text()
            return self._read_with_hadoop(f"{self.location}/{name}")
        except OSError as error:
            raise FencepostSparkError(f"{name} of the checkpoint {self.location} cannot be read: {error}") from error

    def _read_with_hadoop(self, path: str) -> str:
        if self._spark is None or not hasattr(self._spark, "_jsparkSession"):
            rows = self._spark.read.text(path, wholetext=True).collect()
            return str(rows[0][0])
        jvm, context = self._spark.sparkContext._jvm, self._spark.sparkContext._jsc
        file = jvm.org.apache.hadoop.fs.Path(path)
        stream = file.getFileSystem(context.hadoopConfiguration()).open(file)
        try:
            return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()


def parse_offsets(text: str, *, reads_kafka: bool = False) -> dict[TopicPartition, int]:
    """Spark's offset log, first or second format: a version, the batch's metadata, then one line per source.

    The first format has the sources in their order, the second (`spark.sql.streaming.offsetLog.formatVersion=2`) in any
    order, each line with the name of its source in front. With `reads_kafka` it raises if no line has offsets of Kafka:
    a batch whose input offsets are not understood must not be committed without them.
    """
    lines = source_lines(text)
    sources = [_source_offsets(line) for line in lines]
    if reads_kafka and all(offsets is None for offsets in sources):
        raise NotSupported(
            f"a source of the query reads Kafka, but its offsets are not understood: {' '.join(lines)[:200]!r}",
            "fencepost does not know how this version of Spark writes its offset log; use one that it supports",
        )
    merged: dict[TopicPartition, int] = {}
    for offsets in sources:
        for partition, offset in (offsets or {}).items():
            merged[partition] = min(offset, merged.get(partition, offset))
    return merged


def source_lines(text: str) -> list[str]:
    """The offset of each source, as it is written there, without the name that the second format puts in front."""
    lines = text.splitlines()
    version = _version(lines[0].strip() if lines else "")
    return [_without_name(line) if version > 1 else line for line in lines[2:]]


def _without_name(line: str) -> str:
    found = _NAMED_SOURCE.fullmatch(line)
    return line if found is None else found[1]


def _version(line: str) -> int:
    found = _VERSION.fullmatch(line)
    if found is None:
        raise FencepostSparkError(f"this is not an offset log of Spark: {line[:80]!r}")
    version = int(found[1])
    if version > NEWEST_VERSION:
        raise NotSupported(
            f"Spark's offset log has format {version}, and formats up to {NEWEST_VERSION} are understood",
            "set spark.sql.streaming.offsetLog.formatVersion=2 for a new checkpoint, or use a version of Spark that "
            "fencepost supports",
        )
    return version


def _source_offsets(line: str) -> dict[TopicPartition, int] | None:
    """`{"topic": {"0": 12}}`, or `-` of a source that has read nothing yet; None is another kind of source."""
    if line == "-":
        return {}
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in found.items():
        if topic.startswith(STARTS):
            continue
        if not _TOPIC.fullmatch(topic) or not isinstance(partitions, dict):
            return None
        for partition, offset in partitions.items():
            if not partition.isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                return None
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets
