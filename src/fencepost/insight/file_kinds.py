"""Which files a path stands for, and which reader each of them needs."""

import enum
import re
from collections.abc import Iterator
from pathlib import Path

from fencepost.insight import file_rows
from fencepost.insight.file_rows import Contents, Problem, Row
from fencepost.log.side_files import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_partition_directory_name,
)

_NUMBERED = re.compile(r"^\d{20}(-\d{10})?\.(\w+)$")
_OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)


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
    """A path that holds nothing this tool can read; the text says why."""


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
    "cause-journal.jsonl": FileKind.JSON_LINES,
    "cluster-metadata.jsonl": FileKind.JSON_LINES,
    "quorum-state": FileKind.JSON_LINES,
}
_ORDER = list(FileKind)


def kind_of(path: Path) -> FileKind | None:
    numbered = _NUMBERED.match(path.name)
    if numbered is not None:
        return _BY_SUFFIX.get(numbered[2])
    return _BY_NAME.get(path.name)


def files_at(path: Path) -> list[Path]:
    """The readable files a path names: itself, or those of a partition's or a whole data directory, in order."""
    if not path.exists():
        raise NotInspectable(f"{path} does not exist")
    if path.is_file():
        if kind_of(path) is None:
            raise NotInspectable(f"{path} is no file of a log; its name says nothing that is known")
        return [path]
    found = _readable(path)
    for directory in sorted(path.iterdir(), key=_partition_order):
        if directory.is_dir() and parse_partition_directory_name(directory.name) is not None:
            found += _readable(directory)
    if not found:
        raise NotInspectable(f"{path} is no directory of a log: there is no file in it that this tool reads")
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
        raise NotInspectable(f"{path} is no data directory: no partition is in it")
    return found


def rows_of(path: Path, contents: Contents) -> Iterator[Row | Problem]:
    """Raises OSError for a file that cannot be read; everything else that is wrong comes as a Problem."""
    kind = kind_of(path)
    match kind:
        case FileKind.LOG | FileKind.METADATA_SNAPSHOT:
            return file_rows.log_rows(path, contents)
        case FileKind.OFFSET_INDEX:
            return file_rows.offset_index_rows(path)
        case FileKind.TIME_INDEX:
            return file_rows.time_index_rows(path)
        case FileKind.TRANSACTION_INDEX:
            return file_rows.transaction_index_rows(path)
        case FileKind.PRODUCER_SNAPSHOT:
            return file_rows.producer_snapshot_rows(path)
        case FileKind.OFFSET_CHECKPOINT:
            return file_rows.offset_checkpoint_rows(path)
        case FileKind.LEADER_EPOCHS:
            return file_rows.leader_epoch_rows(path)
        case FileKind.PARTITION_METADATA:
            return file_rows.partition_metadata_rows(path)
        case FileKind.PROPERTIES:
            return file_rows.properties_rows(path)
        case FileKind.JSON_LINES:
            return file_rows.json_lines_rows(path)
        case None:
            raise NotInspectable(f"{path} is no file of a log")


def _readable(directory: Path) -> list[Path]:
    kinds = {file: kind_of(file) for file in directory.iterdir() if file.is_file()}
    known = [(file, kind) for file, kind in kinds.items() if kind is not None]
    return [file for file, kind in sorted(known, key=lambda each: (_ORDER.index(each[1]), each[0].name))]


def _partition_order(directory: Path) -> tuple[str, int]:
    return parse_partition_directory_name(directory.name) or (directory.name, -1)
