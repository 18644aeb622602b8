"""Compaction: readers see the same keys and values before and after, and nothing goes before its time."""

import dataclasses
import errno
import itertools
import os
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.config import TopicConfig
from fencepost.log import cleaner as cleaner_module
from fencepost.log.cleaner import (
    CleaningAborted,
    LogCleaner,
    UncleanableLog,
    cleanable,
    compact,
    group_segments,
    run_to_end,
)
from fencepost.log.partition_log import Checkpoints, PartitionLog
from fencepost.log.producers import Origin
from fencepost.shell.disk import RealDisk
from fencepost.simulation.disk import PowerCut, SimulatedDisk
from fencepost.wire.batch import ControlType, build_batch, iterate_headers, read_marker
from fencepost.wire.compression import Codec
from fencepost.wire.records import read_records
from tests.peers import java
from tests.peers.markers import append_marker

NOW = 1_700_000_000_000
DAY = 86_400_000
PLENTY = 1 << 24
CONFIG = TopicConfig(
    cleanup_policy=("compact",), segment_bytes=600, index_interval_bytes=100, min_cleanable_dirty_ratio=0.0
)


class CompactedLog:
    """A log with tiny segments, everything below its end durable and visible."""

    def __init__(self, disk=None, directory="/data/t-0", config=CONFIG):
        self.disk = disk or SimulatedDisk()
        self.disk.make_directory(os.path.dirname(directory))
        self.disk.sync_directory(os.path.dirname(os.path.dirname(directory)))
        self.directory = directory
        self.config = config
        self.now = NOW
        self.sequences = {}
        self.log = self._open(clean=True)

    def _open(self, *, clean, recovery_point=0):
        return PartitionLog.open(
            self.disk, self.directory, "t", 0, b"i" * 16, self.config, self.now, Checkpoints(clean, recovery_point),
        )  # fmt: skip

    def put(self, *pairs, pid=-1, epoch=0, transactional=False, codec=Codec.NONE):
        records = [(self.now, key, value, ()) for key, value in pairs]
        sequence = self.sequences.get((pid, epoch), 0) if pid >= 0 else -1
        batch = build_batch(
            records, producer_id=pid, producer_epoch=epoch if pid >= 0 else -1, base_sequence=sequence,
            transactional=transactional, compression=codec,
        )  # fmt: skip
        guard = None
        if transactional:
            guard = self.log.producers.maybe_start_verification("tx", pid, sequence, epoch, False, self.now)
        appended = self.log.append_as_leader(
            batch, leader_epoch=0, now_ms=self.now, origin=Origin.CLIENT, verification_guard=guard
        )
        self.sequences[pid, epoch] = sequence + len(records)
        self.flush()
        return appended.first_offset

    def mark(self, kind, pid, epoch=0):
        append_marker(self.log, kind, pid, epoch, 0, transaction_version=0, leader_epoch=0, now_ms=self.now)
        self.flush()

    def flush(self):
        self.log.flush()
        self.log.advance_high_watermark(self.log.synced_offset)

    def roll(self):
        self.log.roll(self.now)
        self.flush()

    def compact(self, last_clean_offset=None, **options):
        target = cleanable(self.log, last_clean_offset, self.now)
        result = run_to_end(compact(target, self.now, **options))
        self.log.check_invariants()
        return result

    def reopen(self, *, clean=False, recovery_point=0):
        self.log = self._open(clean=clean, recovery_point=recovery_point)
        self.log.check_invariants()

    def batches(self):
        """Header and records of every batch a reader of everything gets."""
        found = []
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            result = self.log.read(offset, PLENTY)
            if not result.records:
                break
            for position, header in iterate_headers(result.records):
                found.append((header, list(read_records(result.records, PLENTY, position)), result.records, position))
            offset = result.next_offset
        return found

    def records(self):
        return [record for header, records, *_ in self.batches() if not header.is_control for record in records]

    def markers(self):
        return [
            (header.base_offset, read_marker(content, position).control_type)
            for header, records, content, position in self.batches()
            if header.is_control and records
        ]

    def committed(self):
        """Records a reader of committed data gets, by the client's rule."""
        aborted = sorted(
            self.log.aborted_transactions(self.log.log_start_offset, self.log.log_end_offset),
            key=lambda transaction: transaction.first_offset,
        )
        active, visible = set(), []
        for header, records, content, position in self.batches():
            if header.base_offset >= self.log.last_stable_offset:
                break
            while aborted and aborted[0].first_offset <= header.last_offset:
                active.add(aborted.pop(0).producer_id)
            if header.is_control:
                if header.record_count and read_marker(content, position).control_type == ControlType.ABORT:
                    active.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in active):
                visible += records
        return visible

    def view(self):
        """Key -> value, as a table built from the log."""
        table = {}
        for record in self.committed():
            table[record.key] = record.value
        return {key: value for key, value in table.items() if value is not None}


def filled(**options):
    log = CompactedLog(**options)
    for number in range(30):
        log.put((b"key-%d" % (number % 4), b"value-%d" % number))
    return log


class TestRecords:
    def test_only_the_newest_record_of_a_key_stays_and_keeps_its_offset(self):
        log = filled()
        before = log.view()
        sealed = log.log.segments.active.base_offset
        result = log.compact()
        assert log.view() == before
        below = [record for record in log.records() if record.offset < sealed]
        assert sorted(record.key for record in below) == [b"key-0", b"key-1", b"key-2", b"key-3"]
        assert all(record.value == b"value-%d" % record.offset for record in log.records())
        assert result.first_dirty_offset == sealed
        assert result.bytes_written < result.bytes_read

    def test_the_active_segment_is_left_alone(self):
        log = filled()
        active = log.log.segments.active
        content = active.file.read(0, active.size)
        log.compact()
        assert log.log.segments.active is active
        assert active.file.read(0, active.size) == content

    @pytest.mark.parametrize("codec", list(Codec))
    def test_records_inside_a_compressed_batch_are_thinned_out(self, codec):
        log = CompactedLog()
        log.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), codec=codec)
        log.put((b"b", b"2"), codec=codec)
        log.roll()
        log.compact()
        assert [(r.offset, r.key, r.value) for r in log.records()] == [(2, b"a", b"2"), (3, b"b", b"2")]
        header = log.batches()[0][0]
        assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 1)
        assert header.compression == codec

    def test_records_without_a_key_go(self):
        log = CompactedLog(config=dataclasses.replace(CONFIG, cleanup_policy=("delete",)))
        log.put((None, b"lost"), (b"a", b"kept"))
        log.roll()
        log.log.update_config(CONFIG)
        log.compact()
        assert [record.value for record in log.records()] == [b"kept"]

    def test_long_keys_are_told_apart(self):
        log = CompactedLog()
        for value in (b"1", b"2"):
            for ending in (b"x", b"y"):
                log.put((b"k" * 100 + ending, value))
        log.roll()
        log.compact()
        assert [(r.key[-1:], r.value) for r in log.records()] == [(b"x", b"2"), (b"y", b"2")]

    def test_a_second_pass_begins_where_the_first_ended_and_still_drops_older_records(self):
        log = filled()
        clean_to = log.compact().first_dirty_offset
        log.put((b"key-1", b"newer"))
        log.roll()
        log.compact(clean_to)
        assert [record.value for record in log.records() if record.key == b"key-1"] == [b"newer"]

    def test_small_segments_are_joined(self):
        log = filled()
        first = log.compact()
        assert first.segments_before > 2
        second = log.compact()  # what the first pass left is small enough to share a segment
        assert second.segments_after == 1
        assert len(log.log.segments) == 2

    def test_joined_segments_fit_the_segment_size(self):
        log = filled()
        groups = list(group_segments(log.log.segments[:-1], log.log.segments.active.base_offset, 1500, 10_000))
        assert sum(map(len, groups)) == len(log.log.segments) - 1
        assert all(sum(segment.size for segment in group) <= 1500 for group in groups)
        assert any(len(group) > 1 for group in groups)

    def test_a_map_too_small_for_all_keys_cleans_a_part_and_says_how_far(self):
        log = CompactedLog()
        for number in range(40):
            log.put((b"key-%d" % (number // 2), b"%d" % number))
        log.roll()
        before = log.view()
        reached, passes = None, 0
        while True:
            result = log.compact(reached, keys_max=5)
            assert log.view() == before
            passes += 1
            if result.first_dirty_offset == log.log.segments.active.base_offset:
                break
            assert result.first_dirty_offset > (reached or 0)
            reached = result.first_dirty_offset
        assert passes > 2
        assert len(log.records()) == 20

    def test_a_batch_with_more_keys_than_the_map_holds_does_not_stop_the_cleaner(self):
        log = CompactedLog()
        log.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
        log.put((b"a", b"2"))
        log.roll()
        reached = log.compact(keys_max=2).first_dirty_offset
        assert reached == 4
        assert log.view() == {b"a": b"2", b"b": b"1", b"c": b"1"}

    def test_the_last_batch_stays_empty_so_that_the_end_of_the_cleaned_part_is_known(self):
        log = CompactedLog(config=dataclasses.replace(CONFIG, delete_retention_ms=0))
        log.put((b"a", None))
        log.roll()
        log.compact()
        log.now += 1
        log.compact(0)
        ((header, records, *_),) = log.batches()
        assert records == []
        assert header.last_offset == 0


class TestTombstones:
    def test_a_tombstone_outlives_the_first_pass_by_the_retention_and_then_goes(self):
        log = CompactedLog()
        log.put((b"a", b"1"), (b"b", b"1"))
        log.put((b"a", None))
        log.put((b"c", b"1"))
        log.roll()
        written = log.now
        log.compact()
        (tombstone,) = [record for record in log.records() if record.value is None]
        assert (tombstone.offset, tombstone.timestamp) == (2, written)
        (header,) = [header for header, *_ in log.batches() if header.base_offset == 2]
        assert header.has_delete_horizon
        assert header.base_timestamp == written + DAY
        assert header.max_timestamp == written
        log.now += DAY - 1
        log.compact(0)
        assert any(record.value is None for record in log.records())
        log.now += 1
        log.compact(0)
        assert {record.key: record.value for record in log.records()} == {b"b": b"1", b"c": b"1"}

    def test_a_value_written_after_a_tombstone_drops_it_at_once(self):
        log = CompactedLog()
        log.put((b"a", None))
        log.put((b"a", b"back"))
        log.roll()
        log.compact()
        assert [record.value for record in log.records()] == [b"back"]


class TestTransactions:
    def test_an_open_transaction_stops_the_cleaner_at_its_first_offset(self):
        log = CompactedLog()
        log.put((b"a", b"1"))
        log.put((b"a", b"2"))
        log.roll()
        log.put((b"a", b"undecided"), pid=7, transactional=True)
        log.roll()
        log.put((b"a", b"3"))
        log.roll()
        assert cleanable(log.log, None, NOW).first_uncleanable_offset == 2
        log.compact()
        assert [record.value for record in log.records()] == [b"2", b"undecided", b"3"]
        log.mark(ControlType.ABORT, 7)
        log.roll()
        log.compact()
        assert [record.value for record in log.records()] == [b"3"]

    def test_what_was_aborted_goes_and_hides_nothing_that_was_committed(self):
        log = CompactedLog()
        log.put((b"a", b"committed"), pid=1, transactional=True)
        log.mark(ControlType.COMMIT, 1)
        log.put((b"a", b"aborted"), pid=2, transactional=True)
        log.put((b"b", b"plain"))
        log.mark(ControlType.ABORT, 2)
        log.roll()
        log.compact()
        assert log.view() == {b"a": b"committed", b"b": b"plain"}
        assert [record.value for record in log.records()] == [b"committed", b"plain"]

    def test_a_marker_stays_while_its_transaction_has_records_and_a_day_longer(self):
        log = CompactedLog()
        log.put((b"a", b"1"), pid=1, transactional=True)
        log.mark(ControlType.COMMIT, 1)
        log.put((b"x", b"x"), pid=1)
        log.roll()
        log.compact()
        assert log.markers() == [(1, ControlType.COMMIT)]
        log.put((b"a", b"2"))
        log.roll()
        log.compact()
        assert log.markers() == [(1, ControlType.COMMIT)]  # this pass took its last record
        log.now += DAY
        log.compact(0)
        assert log.markers() == [(1, ControlType.COMMIT)]  # and this one sets the time of removal
        log.now += DAY
        log.compact(0)
        assert log.markers() == []

    def test_each_marker_answers_for_its_own_transaction_alone(self):
        log = CompactedLog()
        log.put((b"stays", b"1"), pid=1, transactional=True)
        log.mark(ControlType.COMMIT, 1)
        log.put((b"a", b"1"), pid=1, transactional=True)
        log.mark(ControlType.COMMIT, 1)
        log.put((b"a", b"2"), pid=1)
        log.roll()
        for _ in range(3):
            log.compact(0)
            log.now += DAY
        assert log.markers() == [(1, ControlType.COMMIT)]

    def test_the_index_of_aborted_transactions_shrinks_with_them(self):
        log = CompactedLog()
        log.put((b"a", b"1"), pid=1, transactional=True)
        log.put((b"a", b"1"), pid=2)
        log.mark(ControlType.ABORT, 1)
        log.put((b"z", b"1"), pid=1)
        log.roll()
        log.compact()
        assert len(log.log.aborted_transactions(0, 100)) == 1
        log.compact(0)
        assert log.log.aborted_transactions(0, 100) == []

    def test_the_last_batch_of_a_producer_stays_empty_so_that_its_sequence_is_known_after_a_crash(self):
        log = CompactedLog()
        log.put((b"a", b"1"), pid=5, epoch=3)
        log.put((b"a", b"2"))
        log.put((b"b", b"2"))
        log.roll()
        log.compact()
        emptied = log.batches()[0][0]
        assert (emptied.record_count, emptied.producer_id, emptied.base_sequence) == (0, 5, 0)
        for name in log.disk.list(str(log.directory)):
            if name.endswith(".snapshot"):
                log.disk.remove(f"{log.directory}/{name}")
        log.reopen()
        entry = log.log.producers.last_entry(5)
        assert (entry.producer_epoch, entry.last_sequence) == (3, 0)

    def test_a_marker_that_holds_a_producers_last_epoch_stays_emptied(self):
        log = CompactedLog()
        log.mark(ControlType.ABORT, 9, epoch=4)
        log.put((b"b", b"2"))
        log.roll()
        for _ in range(3):
            log.compact(0)
            log.now += DAY
        assert [h.producer_epoch for h, *_ in log.batches() if h.is_control] == [4]
        assert log.markers() == []


class TestChoice:
    def test_nothing_is_due_before_there_is_a_sealed_segment(self):
        log = CompactedLog()
        log.put((b"a", b"1"))
        assert not cleanable(log.log, None, NOW).is_due
        log.roll()
        assert cleanable(log.log, None, NOW).is_due

    def test_the_dirty_ratio_decides(self):
        log = filled()
        clean_to = log.compact().first_dirty_offset
        log.log.update_config(dataclasses.replace(CONFIG, min_cleanable_dirty_ratio=0.5))
        log.put((b"key-0", b"x"))
        log.roll()
        target = cleanable(log.log, clean_to, NOW)
        assert target.clean_bytes > 0
        assert target.dirty_ratio > 0
        assert target.is_due == (target.dirty_ratio > 0.5)
        for number in range(40):
            log.put((b"key-0", b"x%d" % number))
        log.roll()
        assert cleanable(log.log, clean_to, NOW).is_due

    def test_records_younger_than_the_minimum_lag_wait(self):
        log = CompactedLog(config=dataclasses.replace(CONFIG, min_compaction_lag_ms=1000))
        log.put((b"a", b"1"))
        log.roll()
        log.now += 500
        log.put((b"a", b"2"))
        log.roll()
        assert cleanable(log.log, None, NOW + 999).first_uncleanable_offset == 0
        assert cleanable(log.log, None, NOW + 1000).first_uncleanable_offset == 1
        assert cleanable(log.log, None, NOW + 1500).first_uncleanable_offset == 2

    def test_records_older_than_the_maximum_lag_are_due_whatever_the_ratio(self):
        config = dataclasses.replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
        log = CompactedLog(config=config)
        log.put((b"a", b"1"))
        log.roll()
        assert not cleanable(log.log, None, NOW + 1000).is_due
        assert cleanable(log.log, None, NOW + 1001).is_due

    def test_a_checkpoint_that_does_not_fit_the_log_is_ignored(self):
        log = filled()
        assert cleanable(log.log, 10**9, NOW).first_dirty_offset == 0
        log.log.delete_records_before(10)
        assert cleanable(log.log, 3, NOW).first_dirty_offset == 10

    def test_the_cleaner_takes_the_filthiest_log_and_remembers_how_far_it_came(self):
        disk = SimulatedDisk()
        disk.make_directory("/data")
        dirty = filled(disk=disk)
        tidy = CompactedLog(disk=disk, directory="/data/u-0")
        cleaner = LogCleaner(disk, "/data")
        target = cleaner.filthiest([tidy.log, dirty.log], NOW)
        assert target.log is dirty.log
        run_to_end(cleaner.clean(target, NOW))
        assert cleaner.filthiest([tidy.log, dirty.log], NOW) is None
        sealed = dirty.log.segments.active.base_offset
        assert disk.read_bytes("/data/cleaner-offset-checkpoint") == b"0\n1\nt 0 %d\n" % sealed
        assert LogCleaner(disk, "/data").last_clean_offset(dirty.log) == sealed
        cleaner.truncated(dirty.log, 4)
        assert LogCleaner(disk, "/data").last_clean_offset(dirty.log) == 4
        cleaner.forget([("t", 0)])
        assert LogCleaner(disk, "/data").last_clean_offset(dirty.log) is None

    def test_a_log_without_compaction_is_not_the_cleaners(self):
        disk = SimulatedDisk()
        disk.make_directory("/data")
        log = filled(disk=disk, config=dataclasses.replace(CONFIG, cleanup_policy=("delete",)))
        assert LogCleaner(disk, "/data").filthiest([log.log], NOW) is None


class TestInterruption:
    def test_a_pass_goes_in_short_steps_between_which_records_are_appended_and_read(self, monkeypatch):
        monkeypatch.setattr(cleaner_module, "SLICE_RECORDS_MAX", 3)
        log = filled()
        steps = 0
        for files in compact(cleanable(log.log, None, NOW), NOW):
            for file in files:
                file.sync()
            log.put((b"key-%d" % (steps % 4), b"during-%d" % steps))
            log.log.check_invariants()
            assert log.view()[b"key-%d" % (steps % 4)] == b"during-%d" % steps
            steps += 1
        assert steps > 10

    def test_segments_deleted_under_the_cleaner_end_the_pass_and_leave_no_file(self, monkeypatch):
        monkeypatch.setattr(cleaner_module, "SLICE_RECORDS_MAX", 3)
        log = filled()
        steps = compact(cleanable(log.log, None, NOW), NOW)
        for _ in range(12):
            next(steps)
        log.log.delete_records_before(20)
        with pytest.raises(CleaningAborted):
            run_to_end(steps)
        assert not [name for name in log.disk.list(str(log.directory)) if "cleaned" in name]
        log.log.check_invariants()

    def test_a_pass_given_up_leaves_no_file(self, monkeypatch):
        monkeypatch.setattr(cleaner_module, "SLICE_RECORDS_MAX", 3)
        log = filled()
        steps = compact(cleanable(log.log, None, NOW), NOW)
        for _ in range(14):
            next(steps)
        assert [name for name in log.disk.list(str(log.directory)) if "cleaned" in name]
        steps.close()
        assert not [name for name in log.disk.list(str(log.directory)) if "cleaned" in name]

    def test_a_full_disk_ends_the_pass_and_the_log_goes_on(self):
        log = filled()
        before = log.view()
        log.disk.fail_write(".cleaned", errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            log.compact()
        assert not [name for name in log.disk.list(str(log.directory)) if "cleaned" in name]
        assert log.view() == before
        log.compact()
        assert log.view() == before

    def test_a_log_that_cannot_be_read_is_left_alone(self):
        disk = SimulatedDisk()
        disk.make_directory("/data")
        log = filled(disk=disk)
        first = log.log.segments[0]
        first.file.write(first.size - 3, b"???")
        cleaner = LogCleaner(disk, "/data")
        with pytest.raises(UncleanableLog, match="CRC"):
            run_to_end(cleaner.clean(cleaner.filthiest([log.log], NOW), NOW))
        assert cleaner.filthiest([log.log], NOW) is None
        assert ("t", 0) in cleaner.uncleanable


class CrashingDisk(SimulatedDisk):
    """Loses power just before its n-th change of a name, write or sync."""

    class Crash(BaseException):
        pass

    def __init__(self):
        super().__init__()
        self.until_crash = None

    def _count(self):
        if self.until_crash is not None:
            if self.until_crash == 0:
                raise self.Crash
            self.until_crash -= 1

    def write_to(self, inode, path, position, data):
        self._count()
        super().write_to(inode, path, position, data)

    def rename(self, source, target):
        self._count()
        super().rename(source, target)

    def remove(self, path):
        self._count()
        super().remove(path)

    def sync_inode(self, inode, path):
        self._count()
        super().sync_inode(inode, path)

    def sync_directory(self, path):
        self._count()
        super().sync_directory(path)


def log_with_everything(disk):
    log = CompactedLog(disk=disk)
    for number in range(12):
        log.put((b"key-%d" % (number % 3), b"value-%d" % number), (b"other", b"%d" % number))
        if number % 4 == 0:
            log.put((b"key-0", b"aborted"), pid=5, transactional=True)
            log.mark(ControlType.ABORT, 5)
        if number % 5 == 0:
            log.put((b"gone", b"soon"), (b"key-9", b"t%d" % number), pid=6, transactional=True)
            log.mark(ControlType.COMMIT, 6)
    log.put((b"gone", None))
    log.roll()
    log.put((b"last", b"1"))
    return log


def crashed_logs(mode):
    """One log for every moment at which its compaction can lose power, with its end offset, recovered."""
    for moment in itertools.count():
        disk = CrashingDisk()
        log = log_with_everything(disk)
        before = (log.log.log_end_offset, log.view(), log.log.producers.take_snapshot())
        disk.until_crash = moment
        try:
            log.compact()
        except CrashingDisk.Crash:
            disk.until_crash = None
            disk.power_cut(mode, random.Random(moment))
            log.reopen(recovery_point=before[0])
            yield moment, log, before
        else:
            assert moment > 20
            return


@pytest.mark.parametrize("mode", list(PowerCut))
def test_a_power_cut_at_any_moment_leaves_the_old_segments_or_the_new_ones(mode):
    for moment, log, (end, view, producers) in crashed_logs(mode):
        assert log.log.log_end_offset == end, moment
        assert log.view() == view, moment
        assert log.log.producers.take_snapshot() == producers, moment
        leftovers = [name for name in log.disk.list(str(log.directory)) if re.search("cleaned|swap|deleted", name)]
        assert not leftovers, moment
        log.put((b"key-0", b"after"))
        log.compact()
        assert log.view() == {**view, b"key-0": b"after"}, moment


@pytest.mark.parametrize("mode", [PowerCut.LOSE_NOTHING, PowerCut.PREFIX])
def test_every_offset_is_found_after_a_crash_because_indexes_stay_with_their_log(mode):
    for moment, log, (end, *_) in crashed_logs(mode):
        batches = [header for header, *_ in log.batches()]
        for offset in range(end):
            expected = next(header for header in batches if header.last_offset >= offset)
            _, found = next(iterate_headers(log.log.read(offset, PLENTY).records))
            assert found == expected, (moment, offset)


keys = st.sampled_from([b"a", b"b", b"c", b"d", b"long-" * 10])
values = st.none() | st.binary(max_size=20)
actions = st.one_of(
    st.tuples(st.just("put"), st.lists(st.tuples(keys, values), min_size=1, max_size=4), st.sampled_from(list(Codec))),
    st.tuples(st.just("txn"), st.integers(0, 2), st.lists(st.tuples(keys, values), min_size=1, max_size=3)),
    st.tuples(st.just("end"), st.integers(0, 2), st.sampled_from([ControlType.ABORT, ControlType.COMMIT])),
    st.tuples(st.just("roll")),
    st.tuples(st.just("wait"), st.integers(0, DAY)),
    st.tuples(st.just("compact")),
    st.tuples(st.just("reopen"), st.booleans()),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(actions, min_size=5, max_size=40))
def test_whatever_happens_readers_of_committed_data_see_the_same_table(steps):
    log = CompactedLog()
    clean_to = None
    for step in steps:
        match step:
            case ("put", pairs, codec):
                log.put(*pairs, codec=codec)
            case ("txn", pid, pairs):
                log.put(*pairs, pid=pid, transactional=True)
            case ("end", pid, kind):
                log.mark(kind, pid)
            case ("roll",):
                log.roll()
            case ("wait", span):
                log.now += span
            case ("compact",):
                before = log.view()
                clean_to = log.compact(clean_to).first_dirty_offset
                assert log.view() == before
            case ("reopen", clean):
                before = log.view()
                if clean:
                    log.log.close()
                log.reopen(clean=clean)
                assert log.view() == before


def test_kafkas_dump_tool_reads_what_compaction_leaves(tmp_path):
    log = CompactedLog(disk=RealDisk(), directory=str(tmp_path / "t-0"))
    for number in range(60):
        log.put((b"key-%d" % (number % 4), b"value-%d" % number), (b"k", None), codec=Codec(number % 5))
        if number % 7 == 0:
            log.put((b"key-0", b"aborted"), pid=5, transactional=True)
            log.mark(ControlType.ABORT, 5)
    log.roll()
    log.compact()
    log.now += 2 * DAY
    log.compact(0)
    log.log.close()
    segment = log.log.segments[0]
    printed = java.dump_log(segment.log_path, "--deep-iteration", "--print-data-log")
    assert "isvalid: true" in printed
    assert "isvalid: false" not in printed
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", printed, re.MULTILINE)]
    sealed = log.log.segments.active.base_offset
    ours = [r.offset for _, records, *_ in log.batches() for r in records if r.offset < sealed]
    assert offsets == ours[: len(offsets)]
    assert offsets
    for name in sorted(os.listdir(str(log.directory))):
        if name.endswith((".index", ".timeindex", ".txnindex", ".snapshot")):
            checked = java.dump_log(f"{log.directory}/{name}")
            assert not re.search("mismatch|corrupt|non-monotonic|exception", checked, re.IGNORECASE), checked
