"""`__cluster_metadata-0`: the metadata log, its snapshots and the state of its quorum, in the files of Apache Kafka.

Owns the bytes. `read` changes nothing: a torn end, which a power cut leaves, is only cut off by `begin`, which starts
an epoch of ours at the end of the log, whoever wrote it. When `append` returns, the records are durable. Damage that no
power cut explains, and records that Apache Kafka 4.3 does not have, are errors: nothing is written then.

There is one voter. With `kraft.version` 1 the log itself names it; with 0 the settings of Apache Kafka do.
"""

import contextlib
import errno
import json
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fencepost.internal_topic_names import CLUSTER_METADATA
from fencepost.log.file_names import INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX, offset_name
from fencepost.log.leader_epochs import CorruptEpochCheckpoint, LeaderEpochs
from fencepost.log.side_files import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    CorruptSideFile,
    decode_uuid,
    encode_partition_metadata,
    encode_uuid,
)
from fencepost.metadata.records import (
    METADATA_TOPIC_ID,
    MetadataRecord,
    UnreadableMetadata,
    decode_record,
    encode_record,
)
from fencepost.ports import Disk, File
from fencepost.wire.batch import (
    CURRENT_MAGIC,
    HEADER_BYTES,
    BatchHeader,
    ControlType,
    build_batch,
    iterate_headers,
    read_header,
    verify_crc,
)
from fencepost.wire.codec import decode, encode
from fencepost.wire.errors import KafkaError, MalformedMessage
from fencepost.wire.messages import (
    BeginTransactionRecord,
    EndTransactionRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from fencepost.wire.records import read_records

METADATA_DIRECTORY = f"{CLUSTER_METADATA}-0"
QUORUM_STATE = "quorum-state"
CHECKPOINT_SUFFIX = ".checkpoint"
CONTROLLER_LISTENER = "CONTROLLER"
CONTROLLER_PORT = 9093
"""What the voter's record names until Apache Kafka is started on the directory and says better."""

BATCH_RECORDS_BYTES_MAX = 4 << 20
"""Apache Kafka takes batches of up to 8 MiB."""
FIRST_OFFSET = 1_000
"""Where a log of ours begins, behind a snapshot. Apache Kafka does not load a snapshot at offset 0."""
FIRST_EPOCH = 1
EPOCH_MAX = 2**31 - 1
_DECOMPRESSED_BYTES_MAX = 64 << 20
_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_VERSION = 0
_NO_VOTE = -1


class MetadataNotSynced(OSError):
    """What is in the log is not known any more: nothing may be appended before a start has read it again."""


@dataclass(frozen=True, slots=True)
class Voter:
    voter_id: int
    directory_id: bytes
    """Zero where the log does not say."""


@dataclass(slots=True)
class StoredMetadata:
    """What the files hold, and where to go on."""

    records: list[MetadataRecord] = field(default_factory=list)
    end_offset: int = 0
    last_epoch: int = 0
    """Of the last record; the quorum may have been further."""
    last_timestamp_ms: int = 0
    kraft_version: int = 0
    voters: tuple[Voter, ...] = ()
    voters_record: VotersRecord | None = None
    snapshot_bytes: int = 0
    log_bytes: int = 0
    """Since the snapshot: what a start reads one by one."""
    segment: str = ""
    """The file to go on with; empty if there is none."""
    segment_end: int = 0
    """Where in it the last whole batch ends: behind that is what a power cut left."""
    stale: tuple[str, ...] = ()
    """Files that lie before the snapshot: Apache Kafka removes them some time, and so do we."""


class MetadataLog:
    def __init__(self, disk: Disk, data_directory: str) -> None:
        self._disk = disk
        self._data_directory = data_directory
        self.path = f"{data_directory}/{METADATA_DIRECTORY}"
        self._file: File | None = None
        self._position = 0
        self.end_offset = 0
        self.epoch = 0

    def exists(self) -> bool:
        return self._disk.exists(self.path) and any(
            name.endswith((LOG_SUFFIX, CHECKPOINT_SUFFIX)) for name in self._disk.list(self.path)
        )

    # Reading

    def read(self) -> StoredMetadata:
        """Raises CorruptSideFile and UnreadableMetadata. Writes nothing."""
        names = self._disk.list(self.path)
        stored = StoredMetadata()
        snapshots = sorted(name for name in names if _SNAPSHOT_NAME.fullmatch(name))
        if snapshots:
            self._read_snapshot(snapshots[-1], stored)
        start = stored.end_offset
        segments = sorted(name for name in names if name.endswith(LOG_SUFFIX) and name[:-4].isdigit())
        for at, name in enumerate(segments):
            self._read_segment(name, stored, is_first=at == 0, is_last=at == len(segments) - 1)
        if segments and stored.end_offset == start and not stored.segment:
            stored.stale = tuple(segments)  # a snapshot from a leader that was further
        stored.stale += tuple(snapshots[:-1])
        return stored

    def _read_snapshot(self, name: str, stored: StoredMetadata) -> None:
        path = f"{self.path}/{name}"
        data = self._disk.read_bytes(path)
        match = _SNAPSHOT_NAME.fullmatch(name)
        assert match is not None
        is_whole = False
        try:
            for position, header in iterate_headers(data):
                if not verify_crc(data, position, header):
                    raise CorruptSideFile(path, f"the CRC of the batch at byte {position} is wrong")
                kinds = self._take_batch(path, data, position, header, stored)
                is_whole = ControlType.SNAPSHOT_FOOTER in kinds
        except MalformedMessage as error:
            raise CorruptSideFile(path, str(error)) from None
        if not is_whole:
            raise CorruptSideFile(path, "the snapshot does not end as a whole one does")
        stored.snapshot_bytes = len(data)
        stored.end_offset, stored.last_epoch = int(match[1]), int(match[2])

    def _read_segment(self, name: str, stored: StoredMetadata, *, is_first: bool, is_last: bool) -> None:
        path = f"{self.path}/{name}"
        base_offset = int(name.removesuffix(LOG_SUFFIX))
        if base_offset > stored.end_offset:
            missing = f"records {stored.end_offset} to {base_offset - 1} of the metadata log are missing"
            raise CorruptSideFile(path, missing)
        data = self._disk.read_bytes(path)
        position, following = 0, base_offset
        while position < len(data):
            header = _whole_batch(data, position, following)
            if header is None:
                rest = _whole_batch_after(data, position + 1, following)
                if rest is not None or not is_last:
                    reason = "and whole ones follow it" if is_last else "and other segments follow"
                    raise CorruptSideFile(
                        path, f"the batch at byte {position} is damaged, {reason}: no power cut did that"
                    )
                break
            following = header.next_offset
            if header.last_offset >= stored.end_offset:
                self._take_batch(path, data, position, header, stored)
                stored.end_offset, stored.last_epoch = header.next_offset, header.partition_leader_epoch
                stored.last_timestamp_ms = header.max_timestamp
                stored.log_bytes += header.size_bytes
            position += header.size_bytes
        if is_last and following == stored.end_offset:
            stored.segment, stored.segment_end = name, position

    def _take_batch(
        self, path: str, data: bytes, position: int, header: BatchHeader, stored: StoredMetadata
    ) -> set[int]:
        """The kinds of its control records, if it has any."""
        kinds: set[int] = set()
        try:
            for record in read_records(data[position : position + header.size_bytes], _DECOMPRESSED_BYTES_MAX):
                if not header.is_control:
                    stored.records.append(decode_record(record.value or b""))
                    continue
                _, kind = _CONTROL_KEY.unpack_from(record.key or b"\0\0\xff\xff")
                kinds.add(kind)
                value = record.value or b""
                version = int.from_bytes(value[:2], "big")
                if kind == ControlType.KRAFT_VERSION:
                    stored.kraft_version = decode(KRaftVersionRecord, version, value).k_raft_version
                elif kind == ControlType.KRAFT_VOTERS:
                    stored.voters_record = voters = decode(VotersRecord, version, value)
                    stored.voters = tuple(Voter(each.voter_id, each.voter_directory_id) for each in voters.voters)
                elif kind == ControlType.LEADER_CHANGE and stored.voters_record is None:
                    change = decode(LeaderChangeMessage, version, value)
                    stored.voters = tuple(Voter(each.voter_id, bytes(16)) for each in change.voters)
        except UnreadableMetadata as error:
            raise type(error)(f"{path}, batch at byte {position}: {error}") from None
        except (KafkaError, MalformedMessage, struct.error) as error:
            raise CorruptSideFile(path, f"the batch at byte {position} makes no sense: {error}") from None
        return kinds

    def quorum_epoch(self) -> int:
        """The newest that the quorum was in; 0 where the file does not say, since the log tells it too."""
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            epoch = int(json.loads(self._disk.read_bytes(f"{self.path}/{QUORUM_STATE}"))["leaderEpoch"])
            return epoch if 0 <= epoch < EPOCH_MAX else 0
        return 0

    # Writing

    def create(
        self, node_id: int, directory_id: str, now_ms: int, records: Iterable[MetadataRecord], token: bytes
    ) -> None:
        """Begin the log with these records. It is there whole, or not at all: `token` names where it is made.

        What a crash leaves has the name of a deleted partition, which every start removes.
        """
        making = f"{self.path}.{token.hex()}-delete"
        self._disk.make_directory(making)
        voters = VotersRecord(
            voters=[
                VotersRecord.Voter(
                    voter_id=node_id,
                    voter_directory_id=decode_uuid(directory_id),
                    endpoints=[
                        VotersRecord.Voter.Endpoint(name=CONTROLLER_LISTENER, host="localhost", port=CONTROLLER_PORT)
                    ],
                    k_raft_version_feature=VotersRecord.Voter.KRaftVersionFeature(
                        min_supported_version=0, max_supported_version=1
                    ),
                )
            ]
        )
        snapshot = _snapshot(records, 1, voters, epoch=FIRST_EPOCH, now_ms=now_ms, contained_ms=now_ms)
        for name, data in (
            (PARTITION_METADATA, encode_partition_metadata(METADATA_TOPIC_ID)),
            (_snapshot_name(FIRST_OFFSET, FIRST_EPOCH), snapshot),
        ):
            file = self._disk.open(f"{making}/{name}", create=True)
            file.write(0, data)
            file.sync()
            file.close()
        self._disk.sync_directory(making)
        if self._disk.exists(self.path):
            self._disk.rename(self.path, f"{self.path}.{token.hex()}-stray")  # without a log or a snapshot in it
        self._disk.rename(making, self.path)
        self._disk.sync_directory(self._data_directory)

    def begin(self, stored: StoredMetadata, node_id: int, now_ms: int) -> None:
        """Go on where the log ends, as the leader of a new epoch."""
        self.epoch = max(stored.last_epoch, self.quorum_epoch()) + 1
        self._disk.write_atomically(f"{self.path}/{QUORUM_STATE}", _quorum_state(stored, node_id, self.epoch))
        self.end_offset = stored.end_offset
        name = stored.segment or offset_name(stored.end_offset, LOG_SUFFIX)
        path = f"{self.path}/{name}"
        is_new = not self._disk.exists(path)
        self._file = self._disk.open(path, create=True)
        self._position = stored.segment_end if stored.segment else 0
        if self._file.size() != self._position:
            self._file.truncate(self._position)
        for each in stored.stale:
            self._remove(each)
        self._drop_indexes(name)
        voters = [LeaderChangeMessage.Voter(voter_id=node_id)]
        # A client of ours has no use for the directory in it; Kafka's own has none either before version 1.
        change = LeaderChangeMessage(leader_id=node_id, voters=voters, granting_voters=voters)
        self._write([_control(ControlType.LEADER_CHANGE, change, now_ms)], control=True)
        if is_new:
            self._disk.sync_directory(self.path)
        self._note_epoch()

    def append(self, values: Iterable[bytes], now_ms: int) -> int:
        """Encoded records; the offset of the first. All are durable and count, or none does, even in many batches."""
        first_offset = self.end_offset
        chunks = _chunks(values)
        if len(chunks) > 1:
            begin = MetadataRecord(BeginTransactionRecord(name="a change of many records"))
            chunks = [[encode_record(begin)], *chunks, [encode_record(MetadataRecord(EndTransactionRecord()))]]
        for chunk in chunks:
            try:
                self._write([(now_ms, None, value, ()) for value in chunk])
            except OSError as error:
                if self.end_offset == first_offset:
                    raise
                raise MetadataNotSynced(errno.EIO, f"a change was cut short: {error}", self.path) from error
        return first_offset

    def _write(self, records: list[Any], *, control: bool = False) -> None:
        assert self._file is not None, "metadata changed before its log was begun"
        batch = build_batch(records, base_offset=self.end_offset, partition_leader_epoch=self.epoch, control=control)
        self._file.write(self._position, batch)
        try:
            self._file.sync()
        except OSError as error:
            raise MetadataNotSynced(errno.EIO, f"the metadata log could not be synced: {error}", self.path) from error
        self._position += len(batch)
        self.end_offset += len(records)

    def write_snapshot(self, stored: StoredMetadata, records: Iterable[MetadataRecord], now_ms: int) -> StoredMetadata:
        """Put all that was read into a snapshot, and go on in a new segment behind it. Before `begin`."""
        offset, epoch = stored.end_offset, stored.last_epoch
        voters = stored.voters_record
        data = _snapshot(records, stored.kraft_version, voters, epoch, now_ms, stored.last_timestamp_ms)
        name = _snapshot_name(offset, epoch)
        self._disk.write_atomically(f"{self.path}/{name}", data)
        older = tuple(
            each
            for each in self._disk.list(self.path)
            if (each.endswith(LOG_SUFFIX) or _SNAPSHOT_NAME.fullmatch(each)) and each != name
        )
        return StoredMetadata(
            stored.records, offset, epoch, stored.last_timestamp_ms, stored.kraft_version, stored.voters, voters,
            len(data), stale=tuple(each for each in older if each != offset_name(offset, LOG_SUFFIX)),
        )  # fmt: skip

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _note_epoch(self) -> None:
        """Kafka makes it anew from the batches where it is missing or behind: nothing waits for it."""
        path = f"{self.path}/{LEADER_EPOCH_CHECKPOINT}"
        epochs = LeaderEpochs()
        with contextlib.suppress(FileNotFoundError, CorruptEpochCheckpoint):
            epochs = LeaderEpochs.decode(self._disk.read_bytes(path))
        epochs.truncate_from_end(self.end_offset - 1)
        epochs.assign(self.epoch, self.end_offset - 1)
        self._disk.write_bytes(path, epochs.encode())

    def _drop_indexes(self, segment: str) -> None:
        """Apache Kafka's, of before what is appended now. It makes them anew at every start."""
        base = segment.removesuffix(LOG_SUFFIX)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._remove(base + suffix)

    def _remove(self, name: str) -> None:
        path = f"{self.path}/{name}"
        names = [path]
        if name.endswith(LOG_SUFFIX):
            base = path.removesuffix(LOG_SUFFIX)
            names += [base + suffix for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX)]
        for each in names:
            if self._disk.exists(each):
                self._disk.remove(each)


def _whole_batch(data: bytes, position: int, expected_offset: int) -> BatchHeader | None:
    if position + HEADER_BYTES > len(data):
        return None
    header = read_header(data, position)
    if header.magic != CURRENT_MAGIC or header.base_offset != expected_offset:
        return None
    return header if verify_crc(data, position, header) else None


def _whole_batch_after(data: bytes, position: int, at_least: int) -> int | None:
    """Where another batch of a later offset is whole, if anywhere: a torn end has none."""
    first = at_least.to_bytes(8, "big")[:5]
    # Later offsets begin with the same bytes, but for one in 16 million.
    while (position := data.find(first, position)) >= 0:
        if position + HEADER_BYTES > len(data):
            return None
        header = read_header(data, position)
        if (
            header.magic == CURRENT_MAGIC
            and header.base_offset > at_least
            and header.batch_length > 0
            and verify_crc(data, position, header)
        ):
            return position
        position += 1
    return None


def _snapshot_name(offset: int, epoch: int) -> str:
    return f"{offset:020d}-{epoch:010d}{CHECKPOINT_SUFFIX}"


def _control(kind: ControlType, message: Any, now_ms: int) -> tuple[int, bytes, bytes, tuple[()]]:
    return now_ms, _CONTROL_KEY.pack(0, kind), encode(message, _CONTROL_VERSION), ()


def _snapshot(
    records: Iterable[MetadataRecord],
    kraft_version: int,
    voters: VotersRecord | None,
    epoch: int,
    now_ms: int,
    contained_ms: int,
) -> bytes:
    head = [
        _control(ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord(last_contained_log_timestamp=contained_ms), now_ms)
    ]
    if kraft_version and voters is not None:
        version = KRaftVersionRecord(k_raft_version=kraft_version)
        head.append(_control(ControlType.KRAFT_VERSION, version, now_ms))
        head.append(_control(ControlType.KRAFT_VOTERS, voters, now_ms))
    parts = [build_batch(head, partition_leader_epoch=epoch, control=True)]
    offset = len(head)
    for chunk in _chunks(map(encode_record, records)):
        content = [(now_ms, None, value, ()) for value in chunk]
        parts.append(build_batch(content, base_offset=offset, partition_leader_epoch=epoch))
        offset += len(chunk)
    foot = [_control(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(), now_ms)]
    parts.append(build_batch(foot, base_offset=offset, partition_leader_epoch=epoch, control=True))
    return b"".join(parts)


def _chunks(values: Iterable[bytes]) -> list[list[bytes]]:
    chunks: list[list[bytes]] = [[]]
    size = 0
    for value in values:
        if size + len(value) > BATCH_RECORDS_BYTES_MAX and chunks[-1]:
            chunks.append([])
            size = 0
        chunks[-1].append(value)
        size += len(value)
    return [chunk for chunk in chunks if chunk]


def _quorum_state(stored: StoredMetadata, node_id: int, epoch: int) -> bytes:
    """In the version that Apache Kafka expects with this `kraft.version`."""
    document: dict[str, Any]
    if stored.kraft_version:
        document = {
            "leaderId": node_id,
            "leaderEpoch": epoch,
            "votedId": _NO_VOTE,
            "votedDirectoryId": encode_uuid(bytes(16)),
            "data_version": 1,
        }
    else:
        document = {
            "clusterId": "",
            "leaderId": node_id,
            "leaderEpoch": epoch,
            "votedId": _NO_VOTE,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": node_id}],
            "data_version": 0,
        }
    return json.dumps(document, separators=(",", ":")).encode()
