"""The files of a data directory: finds them, reads them, and prints them as Kafka's dump tool does.

A row is a dict with the names of Kafka's dump tool, in its order. `lines` formats rows as that tool does; JSON output
uses them directly. A reader yields rows, reports errors as a `Problem`, and continues.
"""

import enum
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.insight.causes import JOURNAL_NAME
from fencepost.insight.internal_records import decode_record, is_decodable
from fencepost.insight.message_json import to_json
from fencepost.insight.segment_file import SegmentFile, StoredBatch
from fencepost.internal_topic_names import CLUSTER_METADATA
from fencepost.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from fencepost.log.leader_epochs import CorruptEpochCheckpoint, LeaderEpochs
from fencepost.log.open_transactions import ENTRY_BYTES as TRANSACTION_ENTRY_BYTES
from fencepost.log.producers import CorruptSnapshot, read_snapshot
from fencepost.log.side_files import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptSideFile,
    decode_offset_checkpoint,
    decode_partition_metadata,
    encode_uuid,
    parse_partition_directory_name,
)
from fencepost.metadata.records import UnreadableMetadata
from fencepost.metadata.records import decode_record as decode_metadata
from fencepost.wire.batch import NO_SEQUENCE, SEQUENCE_MAX, ControlType
from fencepost.wire.codec import decode
from fencepost.wire.compression import Codec
from fencepost.wire.errors import MalformedMessage
from fencepost.wire.messages import message_class, snake_case
from fencepost.wire.records import Record

Row = dict[str, Any]
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TRANSACTION_ENTRY = struct.Struct(">hqqqq")
_CONTROL_TYPE = struct.Struct(">hh")
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_NUMBERED = re.compile(r"^\d{20}(-\d{10})?\.(\w+)$")
_OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
# The output of Java for an OptionalLong.
_OPTIONAL = frozenset({"deleteHorizonMs", "currentTxnFirstOffset"})
# Of the metadata log: what the tool calls a control record, and its schema.
_QUORUM_RECORDS = {
    int(ControlType.LEADER_CHANGE): ("LeaderChange", "LeaderChangeMessage"),
    int(ControlType.SNAPSHOT_HEADER): ("SnapshotHeader", "SnapshotHeaderRecord"),
    int(ControlType.SNAPSHOT_FOOTER): ("SnapshotFooter", "SnapshotFooterRecord"),
    int(ControlType.KRAFT_VERSION): ("KRaftVersion", "KRaftVersionRecord"),
    int(ControlType.KRAFT_VOTERS): ("KRaftVoters", "VotersRecord"),
}
# The tool sets no colon behind these.
_WITHOUT_COLON = frozenset({"SnapshotHeader", "SnapshotFooter", "KRaftVersion", "KRaftVoters"})
_NOT_PRINTED = frozenset({"records", "decoded"})


# Which files there are


class FileKind(enum.Enum):
    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    METADATA_SNAPSHOT = "checkpoint"
    OFFSET_CHECKPOINT = "offset-checkpoint"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    PROPERTIES = "properties"
    JSON_LINES = "json-lines"


class NotInspectable(Exception):
    """A path without files that this tool can read; the text says why."""


_BY_SUFFIX = {
    kind.value: kind
    for kind in (
        FileKind.LOG,
        FileKind.OFFSET_INDEX,
        FileKind.TIME_INDEX,
        FileKind.TRANSACTION_INDEX,
        FileKind.PRODUCER_SNAPSHOT,
        FileKind.METADATA_SNAPSHOT,
    )
}
_BY_NAME = {
    **dict.fromkeys(_OFFSET_CHECKPOINTS, FileKind.OFFSET_CHECKPOINT),
    LEADER_EPOCH_CHECKPOINT: FileKind.LEADER_EPOCHS,
    PARTITION_METADATA: FileKind.PARTITION_METADATA,
    META_PROPERTIES: FileKind.PROPERTIES,
    CLEAN_SHUTDOWN: FileKind.JSON_LINES,
    JOURNAL_NAME: FileKind.JSON_LINES,
    "cluster-metadata.jsonl": FileKind.JSON_LINES,
    "cluster-metadata.jsonl.converted": FileKind.JSON_LINES,
    "quorum-state": FileKind.JSON_LINES,
}
_ORDER = list(FileKind)


def kind_of(path: Path) -> FileKind | None:
    numbered = _NUMBERED.match(path.name)
    if numbered is not None:
        return _BY_SUFFIX.get(numbered[2])
    return _BY_NAME.get(path.name)


def files_at(path: Path) -> list[Path]:
    """The readable files of a path: the file itself, or those in a partition directory or data directory."""
    if not path.exists():
        raise NotInspectable(f"{path} does not exist")
    if path.is_file():
        if kind_of(path) is None:
            raise NotInspectable(f"{path} is not a known type of log file")
        return [path]
    found = _readable(path)
    for directory in sorted(path.iterdir(), key=_partition_order):
        if directory.is_dir() and parse_partition_directory_name(directory.name) is not None:
            found += _readable(directory)
    if not found:
        raise NotInspectable(f"{path} is not a log directory: it has no file that this tool can read")
    return found


def partitions_at(path: Path) -> list[Path]:
    """The partition directories below a data directory, or the path itself if it is one."""
    if not path.is_dir():
        raise NotInspectable(f"{path} is not a directory")
    if any(path.glob("*.log")):
        return [path.absolute()]
    found = [
        directory
        for directory in sorted(path.absolute().iterdir(), key=_partition_order)
        if directory.is_dir() and parse_partition_directory_name(directory.name) is not None
    ]
    if not found:
        raise NotInspectable(f"{path} is not a data directory: it has no partitions")
    return found


def _readable(directory: Path) -> list[Path]:
    kinds = {file: kind_of(file) for file in directory.iterdir() if file.is_file()}
    known = [(file, kind) for file, kind in kinds.items() if kind is not None]
    return [file for file, kind in sorted(known, key=lambda each: (_ORDER.index(each[1]), each[0].name))]


def _partition_order(directory: Path) -> tuple[str, int]:
    return parse_partition_directory_name(directory.name) or (directory.name, -1)


# Contents


class Problem(NamedTuple):
    """An error in a file."""

    text: str


class Contents(NamedTuple):
    """How much of a log to print."""

    records: bool = False
    payloads: bool = False


def rows_of(path: Path, contents: Contents) -> Iterator[Row | Problem]:
    """Raises OSError if the file cannot be read; yields all other errors as a Problem."""
    kind = kind_of(path)
    match kind:
        case FileKind.LOG | FileKind.METADATA_SNAPSHOT:
            return log_rows(path, contents)
        case FileKind.OFFSET_INDEX:
            return offset_index_rows(path)
        case FileKind.TIME_INDEX:
            return time_index_rows(path)
        case FileKind.TRANSACTION_INDEX:
            return transaction_index_rows(path)
        case FileKind.PRODUCER_SNAPSHOT:
            return producer_snapshot_rows(path)
        case FileKind.OFFSET_CHECKPOINT:
            return offset_checkpoint_rows(path)
        case FileKind.LEADER_EPOCHS:
            return leader_epoch_rows(path)
        case FileKind.PARTITION_METADATA:
            return partition_metadata_rows(path)
        case FileKind.PROPERTIES:
            return properties_rows(path)
        case FileKind.JSON_LINES:
            return json_lines_rows(path)
        case None:
            raise NotInspectable(f"{path} is not a log file")


def topic_of(path: Path) -> str:
    """The topic of a file, from the name of its directory; empty if that does not tell."""
    named = parse_partition_directory_name(path.absolute().parent.name)
    return named[0] if named is not None else ""


# Logs


def log_rows(path: Path, contents: Contents) -> Iterator[Row | Problem]:
    segment = SegmentFile(path)
    topic = topic_of(path)
    for batch in segment.batches():
        row = batch_row(batch)
        if contents.records:
            try:
                row["records"] = [record_row(batch, record, topic, contents) for record in batch.records()]
            except MalformedMessage as error:
                yield row
                yield Problem(str(error))
                continue
        yield row
        if not batch.is_valid:
            yield Problem(f"the CRC of the batch at position {batch.position} is wrong")
    if segment.trailing_bytes:
        yield Problem(f"Found {segment.trailing_bytes} invalid bytes at the end of {path.name}")


def batch_row(batch: StoredBatch) -> Row:
    header = batch.header
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.base_timestamp if header.has_delete_horizon else None,
        "position": batch.position,
        _TIMESTAMP_TYPES[header.timestamp_type]: header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": _codec_name(header.compression),
        "crc": header.crc,
        "isvalid": batch.is_valid,
    }


def record_row(batch: StoredBatch, record: Record, topic: str, contents: Contents) -> Row:
    header = batch.header
    sequence = NO_SEQUENCE
    if header.base_sequence != NO_SEQUENCE:
        sequence = (header.base_sequence + record.offset - header.base_offset) & SEQUENCE_MAX
    row: Row = {
        "offset": record.offset,
        _TIMESTAMP_TYPES[header.timestamp_type]: record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "headerKeys": [name for name, _ in record.headers],
    }
    if header.is_control:
        row.update(_control_fields(batch, record))
    elif contents.payloads and topic == CLUSTER_METADATA:
        row.update(_metadata_fields(record))
    elif contents.payloads and is_decodable(topic):
        decoded = decode_record(topic, record)
        row["key"] = decoded.key_text
        if decoded.payload_text is not None:
            row["payload"] = decoded.payload_text
        row["decoded"] = {"type": decoded.key_type, "key": decoded.key, "value": decoded.value}
    elif contents.payloads:
        if record.key is not None:
            row["key"] = record.key.decode("utf-8", "replace")
        if record.value is not None:
            row["payload"] = record.value.decode("utf-8", "replace")
    return row


def _metadata_fields(record: Record) -> Row:
    try:
        decoded = decode_metadata(record.value or b"")
    except UnreadableMetadata as error:
        return {"payload": f"Error at {record.offset}, skipping. {error}"}
    kind, data = snake_case(decoded.name).upper(), to_json(decoded.message, decoded.version)
    document = {"type": kind, "version": decoded.version, "data": data}
    return {
        "payload": json.dumps(document, separators=(",", ":"), ensure_ascii=False),
        "decoded": {"type": kind, "key": None, "value": data},
    }


def _control_fields(batch: StoredBatch, record: Record) -> Row:
    marker = batch.marker()
    if marker is not None:
        return {
            "endTxnMarker": ControlType(marker.control_type).name,
            "coordinatorEpoch": marker.coordinator_epoch,
        }
    kind = _CONTROL_TYPE.unpack_from(record.key or b"\0\0\xff\xff")[1]
    if kind in _QUORUM_RECORDS and record.value is not None:
        title, schema = _QUORUM_RECORDS[kind]
        (version,) = struct.unpack_from(">h", record.value)
        return {title: to_json(decode(message_class(schema), version, record.value), version)}
    name = ControlType(kind).name if kind in set(ControlType) else "UNKNOWN"
    return {"controlType": f"{name}({kind})"}


def _codec_name(number: int) -> str:
    return Codec(number).name.lower() if number in set(Codec) else f"unknown({number})"


# Indexes


def offset_index_rows(path: Path) -> Iterator[Row | Problem]:
    base_offset, data = _base_offset(path), path.read_bytes()
    log = path.with_suffix(".log")
    yield from _torn(path, data, OFFSET_ENTRY_BYTES)
    for at in range(len(data) // OFFSET_ENTRY_BYTES):
        relative_offset, position = _OFFSET_ENTRY.unpack_from(data, at * OFFSET_ENTRY_BYTES)
        if relative_offset == 0 and at > 0:
            return  # the zero tail of a preallocated file
        offset = base_offset + relative_offset
        yield {"offset": offset, "position": position}
        if not log.exists():
            continue
        found = next(SegmentFile(log).batches(position), None)
        if found is None:
            yield Problem(f"Index offset: {offset}, no batch of the log is at position {position}")
        elif found.header.last_offset != offset:
            yield Problem(f"Index offset: {offset}, log offset: {found.header.last_offset}")


def time_index_rows(path: Path) -> Iterator[Row | Problem]:
    base_offset, data = _base_offset(path), path.read_bytes()
    log = path.with_suffix(".log")
    yield from _torn(path, data, TIME_ENTRY_BYTES)
    times = _largest_timestamps(log) if log.exists() else None
    previous = -1
    for at in range(len(data) // TIME_ENTRY_BYTES):
        timestamp, relative_offset = _TIME_ENTRY.unpack_from(data, at * TIME_ENTRY_BYTES)
        if relative_offset == 0 and at > 0:
            return
        offset = base_offset + relative_offset
        yield {"timestamp": timestamp, "offset": offset}
        if times is not None and offset not in times:
            yield Problem(f"Indexed offset: {offset}, no batch of the log ends there")
        elif times is not None and times[offset] != timestamp:
            yield Problem(f"Index timestamp: {timestamp}, log timestamp: {times[offset]}")
        if previous >= timestamp:
            yield Problem(f"Index timestamp: {timestamp}, Previously indexed timestamp: {previous}")
        previous = timestamp


def _largest_timestamps(log: Path) -> dict[int, int]:
    """Last offset of each batch -> its largest timestamp; -1 for one that compaction emptied."""
    return {
        batch.header.last_offset: batch.header.max_timestamp if batch.header.record_count else -1
        for batch in SegmentFile(log).batches()
    }


def transaction_index_rows(path: Path) -> Iterator[Row | Problem]:
    data = path.read_bytes()
    yield from _torn(path, data, TRANSACTION_ENTRY_BYTES)
    previous = -1
    for at in range(len(data) // TRANSACTION_ENTRY_BYTES):
        version, producer_id, first_offset, last_offset, last_stable_offset = _TRANSACTION_ENTRY.unpack_from(
            data, at * TRANSACTION_ENTRY_BYTES
        )
        yield {
            "version": version,
            "producerId": producer_id,
            "firstOffset": first_offset,
            "lastOffset": last_offset,
            "lastStableOffset": last_stable_offset,
        }
        if last_offset <= previous:
            yield Problem(f"the entry that ends at {last_offset} follows one that ends at {previous}")
        previous = last_offset


# Producers and checkpoints


def producer_snapshot_rows(path: Path) -> Iterator[Row | Problem]:
    try:
        entries = read_snapshot(path.read_bytes())
    except CorruptSnapshot as error:
        yield Problem(str(error))
        return
    for entry in entries:
        row: Row = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": entry.current_txn_first_offset if entry.has_open_transaction else None,
            "lastTimestamp": entry.last_timestamp,
        }
        for batch in entry.batch_metadata():
            row.update(
                firstSequence=batch.first_sequence,
                lastSequence=batch.last_sequence,
                lastOffset=batch.last_offset,
                offsetDelta=batch.offset_delta,
                timestamp=batch.timestamp,
            )
        yield row


def offset_checkpoint_rows(path: Path) -> Iterator[Row | Problem]:
    try:
        offsets = decode_offset_checkpoint(str(path), path.read_bytes())
    except CorruptSideFile as error:
        yield Problem(error.reason)
        return
    for (topic, partition), offset in offsets.items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def leader_epoch_rows(path: Path) -> Iterator[Row | Problem]:
    data = path.read_bytes()
    if not data:
        return
    try:
        epochs = LeaderEpochs.decode(data)
    except CorruptEpochCheckpoint as error:
        yield Problem(str(error))
        return
    for entry in epochs.entries:
        yield {"epoch": entry.epoch, "startOffset": entry.start_offset}


def partition_metadata_rows(path: Path) -> Iterator[Row | Problem]:
    data = path.read_bytes()
    if not data:
        return
    try:
        yield {"version": 0, "topicId": encode_uuid(decode_partition_metadata(str(path), data))}
    except CorruptSideFile as error:
        yield Problem(error.reason)


def properties_rows(path: Path) -> Iterator[Row | Problem]:
    lines = path.read_bytes().decode("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith(("#", "!")))
    yield {name.strip(): value.strip() for name, _, value in pairs}


def json_lines_rows(path: Path) -> Iterator[Row | Problem]:
    """Fencepost's own journals, of metadata and of causes."""
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            yield row
        elif line.strip():
            yield Problem(f"line {number} is not a JSON object")


def _base_offset(path: Path) -> int:
    return int(path.name.split(".")[0])


def _torn(path: Path, data: bytes, entry_bytes: int) -> Iterator[Problem]:
    if len(data) % entry_bytes:
        yield Problem(f"{path.name} has {len(data)} bytes, which is not a multiple of the entry size {entry_bytes}")


# Formatting


def heading(path: Path) -> Iterator[str]:
    yield f"Dumping {path}"
    kind = kind_of(path)
    if kind is FileKind.LOG:
        yield f"Log starting offset: {int(path.name.split('.')[0])}"
    elif kind is FileKind.METADATA_SNAPSHOT:
        offset, _, epoch = path.stem.partition("-")
        yield f"Snapshot end offset: {int(offset)}, epoch: {int(epoch or 0)}"


def lines(row: Row) -> Iterator[str]:
    yield _line(row)
    for record in row.get("records", ()):
        yield "| " + _line(record)


def _line(row: Row) -> str:
    return " ".join(
        f"{name}{'' if name in _WITHOUT_COLON else ':'} {_text(name, value)}"
        for name, value in row.items()
        if name not in _NOT_PRINTED
    )


def _text(name: str, value: Any) -> str:
    if name in _OPTIONAL:
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and name == "headerKeys":
        return f"[{','.join(value)}]"
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return str(value)
