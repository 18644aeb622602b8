"""The controller's log in a file: one segment of `__cluster_metadata-0`, batch after batch, as Apache Kafka has it.

Read whole at a start, which cuts off what a crash left unfinished at its end; damage before that is an error. Its
batches stay in memory for the brokers that follow. Nothing is ever removed from its beginning yet.
"""

import json
from collections.abc import Callable, Iterator

from fencepost.log.file_names import LOG_SUFFIX, offset_name
from fencepost.log.side_files import CorruptSideFile
from fencepost.metadata.controller.service import MemoryLog
from fencepost.metadata.log_files import METADATA_DIRECTORY, QUORUM_STATE
from fencepost.metadata.records import MetadataRecord, decode_record
from fencepost.ports import Disk, File, Flusher
from fencepost.wire.batch import HEADER_BYTES, BatchHeader, read_header, verify_crc
from fencepost.wire.records import read_records

BATCH_BYTES_MAX = 64 * 1024 * 1024


class KeptLog(MemoryLog):
    def __init__(self, disk: Disk, flusher: Flusher, data_directory: str) -> None:
        super().__init__()
        self._disk = disk
        self._flusher = flusher
        self._directory = f"{data_directory}/{METADATA_DIRECTORY}"
        self._path = f"{self._directory}/{offset_name(0, LOG_SUFFIX)}"
        self._position = 0
        self._file: File | None = None

    def load(self) -> Iterator[tuple[int, list[MetadataRecord]]]:
        """Each batch's records and where they are; none for a batch of control records. Raises CorruptSideFile."""
        content = self._disk.read_bytes(self._path) if self._disk.exists(self._path) else b""
        while (header := _whole_batch(content, self._position)) is not None:
            end = self._position + header.size_bytes
            batch = content[self._position : end]
            if header.base_offset != self.end_offset or header.record_count != header.last_offset_delta + 1:
                raise CorruptSideFile(self._path, f"offset {header.base_offset} follows {self.end_offset}")
            super().append(batch, header.next_offset)
            self._position = end
            records: list[MetadataRecord] = []
            if not header.is_control:
                records = [decode_record(each.value or b"") for each in read_records(batch, BATCH_BYTES_MAX)]
            yield header.base_offset, records
        if any(_whole_batch(content, at) is not None for at in range(self._position + 1, len(content))):
            raise CorruptSideFile(self._path, f"damage at byte {self._position}, and whole batches behind it")

    def begin(self, node_id: int) -> int:
        """The epoch of this start, above all that were before. Writes what says so, and cuts off what is unfinished."""
        state = f"{self._directory}/{QUORUM_STATE}"
        epoch = self.last_epoch
        if self._disk.exists(state):
            epoch = max(epoch, int(json.loads(self._disk.read_bytes(state))["leaderEpoch"]))
        else:
            self._disk.make_directory(self._directory)
        epoch += 1
        content = {"leaderId": node_id, "leaderEpoch": epoch, "votedId": -1, "data_version": 0}
        self._disk.write_atomically(state, json.dumps(content).encode())
        self._file = self._disk.open(self._path, create=True)
        self._file.truncate(self._position)
        self._file.sync()
        self._disk.sync_directory(self._directory)
        return epoch

    def append(self, batch: bytes, next_offset: int) -> None:
        assert self._file is not None, "appended to before its epoch was begun"
        self._file.write(self._position, batch)
        self._position += len(batch)
        super().append(batch, next_offset)

    def sync(self, done: Callable[[OSError | None], None]) -> None:
        assert self._file is not None, "synced before its epoch was begun"
        self._flusher.sync([self._file], done)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _whole_batch(content: bytes, position: int) -> BatchHeader | None:
    if position + HEADER_BYTES > len(content):
        return None
    header = read_header(content, position)
    return header if verify_crc(content, position, header) else None
