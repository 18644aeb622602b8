"""Giving up what a log has lost, so that it can be opened again and no offset is ever handed out twice.

What is lost is replaced by a batch without records that covers the lost offsets: the log itself then says that there is
nothing, to brokers and to clients, and to Apache Kafka as well. Bytes that are not what was written are kept beside the
segment, as `.damaged`. Each step is synced before the next, and none destroys what proves the loss before the log says
it itself: a repair that was cut short is simply begun again.

A transaction that was open where the hole begins may have been ended in it, and a later marker of the same producer
must not decide about it: it counts as aborted, and a marker in the hole says so, unless a producer snapshot from behind
the hole knows that it was still open.

Of a log that is a coordinator's memory, what comes before the loss must go as well (`forgets_earlier`): the newest
record of a key may have been lost, and the one before it says what is not true any more. Such a log begins behind the
loss.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

from fencepost.log.batch_scans import read_batches, read_headers
from fencepost.log.directory import LogDirectory
from fencepost.log.dry_run import DryRunDisk
from fencepost.log.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_CHECKSUM_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from fencepost.log.indexes import RELATIVE_OFFSET_MAX
from fencepost.log.open_transactions import AbortedTransactions, CorruptTransactionIndex
from fencepost.log.partition_log import PartitionLog
from fencepost.log.producers import CorruptSnapshot, ProducerStateManager
from fencepost.log.recovery import DamagedLog, finish_interrupted, is_good, offsets_of
from fencepost.log.set_aside import ends_of_batches, ends_set_aside, free_name, set_bytes_aside
from fencepost.log.side_files import LEADER_EPOCH_CHECKPOINT
from fencepost.ports import Disk, File
from fencepost.wire.batch import (
    CURRENT_MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    ControlType,
    control_batch,
    read_header,
    verify_crc,
)
from fencepost.wire.errors import KafkaError, MalformedMessage
from fencepost.wire.records import rebuild_batch

_UNFINISHED = "repair-unfinished"
"""Holds the base offset of the segment that is being written to."""
_STEPS_MAX = 10_000
_FOR_EVER_MS = 2**62

OpenLog = Callable[[Disk], PartitionLog]
"""Opens the log as the next start of the broker would, on the disk it is given. Raises DamagedLog or KafkaError."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that a log has lost."""

    reason: str
    first_offset: int
    next_offset: int
    """Equal to the first where bytes are wrong but no offset is missing."""
    set_aside: str | None = None
    """The file that keeps the bytes which were cut off."""
    aborted: int = 0
    """Transactions that were open where the loss begins, and count as aborted."""
    forgotten: tuple[str, ...] = ()
    """Segments that were set aside because what they say may be outdated."""


class CannotRepair(Exception):
    """The log cannot be brought into a state in which it opens."""


def examine(
    disk: Disk,
    data_directory: str,
    path: str,
    open_log: OpenLog,
    recovery_point: int | None,
    *,
    is_read_whole: bool = False,
    forgets_earlier: bool = False,
) -> list[Loss]:
    """Everything that would have to be given up for the log to open; nothing on the disk changes."""
    return repair(
        DryRunDisk(disk, data_directory),
        data_directory,
        path,
        open_log,
        recovery_point,
        is_read_whole=is_read_whole,
        forgets_earlier=forgets_earlier,
    )


def repair(
    disk: Disk,
    data_directory: str,
    path: str,
    open_log: OpenLog,
    recovery_point: int | None,
    *,
    is_read_whole: bool = False,
    forgets_earlier: bool = False,
) -> list[Loss]:
    """Give up whatever keeps the log from being opened, one thing after the other.

    `is_read_whole`: one bad batch makes the log useless, wherever it is. `forgets_earlier`: the log begins behind what
    is lost.
    """
    losses: list[Loss] = []
    for _ in range(_STEPS_MAX):
        damage = _damage(disk, data_directory, path, open_log, is_read_whole)
        if damage is None:
            if disk.exists(f"{path}/{_UNFINISHED}"):
                _remove(LogDirectory(disk, path), [_UNFINISHED])
            return losses
        loss = _give_up(disk, path, damage, recovery_point or 0, forgets_earlier)
        if losses and loss == losses[-1]:
            break
        losses.append(loss)
    raise CannotRepair(f"{path}: {losses[-1].reason}")


def _damage(disk: Disk, data_directory: str, path: str, open_log: OpenLog, is_read_whole: bool) -> DamagedLog | None:
    tried = DryRunDisk(disk, data_directory)
    directory = LogDirectory(tried, path)
    if tried.exists(f"{path}/{_UNFINISHED}"):
        # What a repair wrote when it was cut short may be torn, in a segment that is opened without a look at it.
        base_offset = int(tried.read_bytes(f"{path}/{_UNFINISHED}") or b"-1")
        if tried.exists(directory.path_at(base_offset, LOG_SUFFIX)):
            found = _damage_in(directory, base_offset, "an earlier repair was cut short")
            if found is not None:
                return found
    try:
        open_log(tried)
    except DamagedLog as error:
        return error
    except KafkaError as error:
        found = _first_damage(directory, error.message or str(error))
        if found is None:
            raise CannotRepair(f"{path}: {error}") from None
        return found
    return _first_damage(directory, None) if is_read_whole else None


def _first_damage(directory: LogDirectory, reason: str | None) -> DamagedLog | None:
    bases = offsets_of(directory.names())[0]
    for base_offset, following in zip_longest(bases, bases[1:]):
        path = directory.path_at(base_offset, LOG_SUFFIX)
        found = _damage_in(directory, base_offset, reason or f"{path} has a batch that cannot be read", following)
        if found is not None:
            return found
    return None


def _damage_in(
    directory: LogDirectory, base_offset: int, reason: str, following: int | None = None
) -> DamagedLog | None:
    """Where a segment is not what was written, or goes on into the one that follows."""
    file = directory.disk.open(directory.path_at(base_offset, LOG_SUFFIX))
    next_offset, end = base_offset, 0
    for found in read_batches(file, 0, file.size()):
        if not is_good(found.header, next_offset, base_offset) or not verify_crc(
            found.block, found.start, found.header
        ):
            break
        if following is not None and found.header.last_offset >= following:
            break
        next_offset, end = found.header.next_offset, found.position + found.header.size_bytes
    if end == file.size():
        return None
    return DamagedLog(str(directory), reason, next_offset, None, base_offset, end)


# One step


def _give_up(disk: Disk, path: str, damage: DamagedLog, recovery_point: int, forgets_earlier: bool) -> Loss:
    if not disk.exists(path):
        disk.make_directory(path)
        disk.sync_directory(path.rpartition("/")[0])
    directory = LogDirectory(disk, path)
    finish_interrupted(directory, directory.names(), 0)
    names = directory.names()
    bases, snapshots = offsets_of(names)
    first = damage.first_offset
    # Nothing that is there proves how far a lost end went, but every name tells of an offset that was reached.
    reached = max([recovery_point, *_named_offsets(names)])
    if not bases:
        _remove(directory, [name for name in names if name == LEADER_EPOCH_CHECKPOINT or name[:20].isdigit()])
        file = disk.open(directory.path_at(reached, LOG_SUFFIX), create=True)
        file.sync()
        file.close()
        directory.sync()
        return Loss(damage.reason, first, reached)
    if forgets_earlier:
        return _begin_behind(directory, bases, damage, reached)
    lost = {offset for offset in _named_offsets(names) if offset not in bases}
    stale = [offset_name(offset, suffix) for offset in lost for suffix in SEGMENT_SUFFIXES[1:]]
    stale += [offset_name(offset, SNAPSHOT_SUFFIX) for offset in snapshots if offset > first]
    # A name may be all that tells of the largest offset, and a snapshot of what was decided in the hole.
    loss = _fill_hole(directory, bases, damage, reached) if damage.segment is None else (
        _cut(directory, bases, damage, reached)
    )  # fmt: skip
    _remove(directory, stale)
    return loss


def _begin_behind(directory: LogDirectory, bases: list[int], damage: DamagedLog, reached: int) -> Loss:
    """Set aside every segment up to the end of the loss, the oldest first: until the last is gone the loss shows."""
    disk = directory.disk
    if damage.segment is None:
        next_offset = _end_of_hole(bases, damage, reached)
    else:
        file = disk.open(directory.path_at(damage.segment, LOG_SUFFIX))
        tail = file.read(damage.position, file.size() - damage.position)
        file.close()
        next_offset = _end_of_damage(directory, bases, damage.segment, damage.first_offset, tail, reached)
    if next_offset not in bases:
        file = disk.open(directory.path_at(next_offset, LOG_SUFFIX), create=True)
        file.sync()
        file.close()
        directory.sync()
    forgotten = []
    for base in bases:
        if base < next_offset:
            name = free_name(directory, base)
            disk.rename(directory.path_at(base, LOG_SUFFIX), directory.path_of(name))
            directory.sync()
            forgotten.append(name)
    names = directory.names()
    stale = [name for name in names if name[20:] in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX) and name[:20].isdigit()]
    _remove(directory, [name for name in stale if int(name[:20]) < next_offset] + [LEADER_EPOCH_CHECKPOINT])
    return Loss(damage.reason, damage.first_offset, next_offset, forgotten=tuple(forgotten))


def _end_of_hole(bases: list[int], damage: DamagedLog, reached: int) -> int:
    next_offset = damage.next_offset
    if next_offset is None or next_offset not in bases:
        return max(next_offset or 0, reached)
    return next_offset


def _end_of_damage(directory: LogDirectory, bases: list[int], base: int, first: int, tail: bytes, reached: int) -> int:
    following = min((each for each in bases if each > base), default=None)
    if following is not None:
        return following
    return max([reached, first, *ends_of_batches(tail, first), *ends_set_aside(directory, base, first)])


def _fill_hole(directory: LogDirectory, bases: list[int], damage: DamagedLog, reached: int) -> Loss:
    next_offset = _end_of_hole(bases, damage, reached)
    aborted = _fill(directory, max(base for base in bases if base < next_offset), next_offset)
    return Loss(damage.reason, damage.first_offset, next_offset, aborted=aborted)


def _cut(directory: LogDirectory, bases: list[int], damage: DamagedLog, reached: int) -> Loss:
    """What is behind the damage goes, up to the next segment, and stays beside it as another file."""
    base = damage.segment
    assert base is not None
    first, position = damage.first_offset, damage.position
    disk, path = directory.disk, directory.path_at(base, LOG_SUFFIX)
    file = disk.open(path)
    tail = file.read(position, file.size() - position)
    next_offset = _end_of_damage(directory, bases, base, first, tail, reached)
    kept = set_bytes_aside(directory, base, tail)
    if position == 0 and base != bases[0]:
        # All of it: the segment before it covers its offsets, then the file goes.
        file.retire()
        aborted = _fill(directory, bases[bases.index(base) - 1], next_offset)
        disk.rename(path, path + DELETED_SUFFIX)
        directory.sync()
        _remove(directory, [offset_name(base, suffix) for suffix in SEGMENT_SUFFIXES[1:]])
        disk.remove(path + DELETED_SUFFIX)
        directory.sync()
    else:
        _remove(directory, [offset_name(base, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)])
        epoch = _last_epoch(file, position)
        aborted = _write_fillers(directory, file, base, position, first, next_offset, epoch)
    return Loss(damage.reason, first, next_offset, kept, aborted)


def _fill(directory: LogDirectory, base: int, next_offset: int) -> int:
    """Let the segment at `base` go on to `next_offset`; how many transactions are aborted by that."""
    file = directory.disk.open(directory.path_at(base, LOG_SUFFIX))
    end_offset, position, epoch = base, 0, 0
    for found, header in read_headers(file, 0, file.size()):
        end_offset, position, epoch = header.next_offset, found + header.size_bytes, header.partition_leader_epoch
    return _write_fillers(directory, file, base, position, end_offset, next_offset, epoch)


def _write_fillers(
    directory: LogDirectory, file: File, base: int, position: int, first: int, next_offset: int, epoch: int
) -> int:
    """Aborts and batches without records from `first` up to `next_offset`, at `position`, and nothing behind them."""
    disk = directory.disk
    markers = _aborts(directory, base, position, first, next_offset, epoch)
    aborted = len(markers)
    while True:
        disk.write_atomically(directory.path_of(_UNFINISHED), b"%d" % base)
        stop = min(next_offset, base + RELATIVE_OFFSET_MAX + 1)
        if first < stop:
            batches = b"".join(markers)
            first += len(markers)
            if first < stop:
                batches += _filler(first, stop, epoch)
            file.write(position, batches)
            position, first, markers = position + len(batches), stop, []
            file.sync()
        if file.size() > position:
            file.truncate(position)
            file.sync()
        file.close()
        if first >= next_offset:
            directory.sync()
            return aborted
        # Offsets in a segment are counted from its base, and there are only so many.
        base, position = first, 0
        file = disk.open(directory.path_at(base, LOG_SUFFIX), create=True)


# Transactions


def _aborts(
    directory: LogDirectory, base: int, position: int, first: int, next_offset: int, epoch: int
) -> list[bytearray]:
    """Markers for what was open at `first` and may have been ended behind it. The segment's index gets to know them."""
    producers = _producers_at(directory, base, position)
    still_open = _open_behind(directory, next_offset)
    index = AbortedTransactions(directory.disk, directory.path_at(base, TRANSACTION_INDEX_SUFFIX))
    try:
        index.truncate_to(first)
    except CorruptTransactionIndex:
        pass  # its readers find that out, too, and make it anew
    markers: list[bytearray] = []
    for first_offset, producer_id in list(producers.transactions.ongoing()):
        entry = producers.last_entry(producer_id)
        offset = first + len(markers)
        if entry is None or still_open.get(producer_id) == first_offset or offset >= next_offset:
            continue
        marker = control_batch(
            ControlType.ABORT,
            max(entry.coordinator_epoch, 0),
            producer_id,
            entry.producer_epoch,
            max(entry.last_timestamp, 0),
            offset,
            epoch,
        )
        completed = producers.replay_batch(marker, 0, read_header(marker))
        if completed is not None:
            index.append_completed(completed)
        markers.append(marker)
    if markers:
        directory.disk.write_atomically(directory.path_at(base, TRANSACTION_CHECKSUM_SUFFIX), index.checksum())
    if index.file is not None:
        index.file.sync()
        index.close()
    return markers


def _producers_at(directory: LogDirectory, base: int, position: int) -> ProducerStateManager:
    """Producers as of a place in a segment: the newest good snapshot before it, then the batches."""
    bases, snapshots = offsets_of(directory.names())
    producers = _no_producers(directory)
    start = bases[0]
    for offset in reversed([each for each in snapshots if start <= each <= base]):
        try:
            data = directory.disk.read_bytes(directory.path_at(offset, SNAPSHOT_SUFFIX))
            producers.load_snapshot(data, 0, 0)
        except CorruptSnapshot:
            continue
        start = offset
        break
    for each in bases:
        if each > base:
            break
        file = directory.disk.open(directory.path_at(each, LOG_SUFFIX))
        for found in read_batches(file, 0, position if each == base else file.size()):
            if found.header.base_offset >= start and verify_crc(found.block, found.start, found.header):
                with contextlib.suppress(MalformedMessage):
                    producers.replay_batch(found.block, found.start, found.header)
        file.close()
    return producers


def _open_behind(directory: LogDirectory, offset: int) -> dict[int, int]:
    """Producer ids and where their transactions begin, of what a snapshot says was open at an offset."""
    producers = _no_producers(directory)
    try:
        producers.load_snapshot(directory.disk.read_bytes(directory.path_at(offset, SNAPSHOT_SUFFIX)), 0, 0)
    except (FileNotFoundError, CorruptSnapshot):
        return {}
    return {producer_id: first_offset for first_offset, producer_id in producers.transactions.ongoing()}


def _no_producers(directory: LogDirectory) -> ProducerStateManager:
    return ProducerStateManager(str(directory), _FOR_EVER_MS, verification_enabled=False)


def _filler(first: int, next_offset: int, epoch: int) -> bytearray:
    header = BatchHeader(
        base_offset=first,
        batch_length=0,
        partition_leader_epoch=epoch,
        magic=CURRENT_MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=next_offset - first - 1,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )
    return rebuild_batch(header, b"", 0)


def _last_epoch(file: File, end: int) -> int:
    epoch = 0
    for _, header in read_headers(file, 0, end):
        epoch = header.partition_leader_epoch
    return epoch


# Files


def _named_offsets(names: list[str]) -> list[int]:
    suffixes = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)
    return [int(name[:20]) for name in names if name[:20].isdigit() and name[20:] in suffixes]


def _remove(directory: LogDirectory, names: list[str]) -> None:
    present = set(directory.names())
    removed = [name for name in names if name in present]
    for name in removed:
        directory.disk.remove(directory.path_of(name))
    if removed:
        directory.sync()
