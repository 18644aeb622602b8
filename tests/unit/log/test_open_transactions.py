"""Undecided transactions against a plain model, and the aborted index against a scan of everything."""

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.log import open_transactions
from fencepost.log.open_transactions import (
    AbortedTransaction,
    AbortedTransactions,
    CorruptTransactionIndex,
    OpenTransactions,
)
from tests.peers import java

unhurried = settings(deadline=None)


class MemoryFile:
    def __init__(self, disk, path):
        self.disk, self.path = disk, path

    def write(self, position, data):
        content = self.disk.files[self.path]
        content[position : position + len(data)] = data

    def truncate(self, size):
        del self.disk.files[self.path][size:]

    def close(self):
        pass


class MemoryDisk:
    """Only what an index asks of a disk."""

    def __init__(self):
        self.files = {}

    def open(self, path, *, create=False):
        if create:
            self.files.setdefault(path, bytearray())
        return MemoryFile(self, path)

    def exists(self, path):
        return path in self.files

    def read_bytes(self, path):
        return bytes(self.files[path])

    def rename(self, source, target):
        self.files[target] = self.files.pop(source)


@unhurried
@given(st.lists(st.tuples(st.sampled_from(["begin", "complete", "advance"]), st.integers(0, 5)), max_size=60))
def test_the_first_unstable_offset_is_the_least_of_all_that_is_undecided(steps):
    transactions = OpenTransactions()
    ongoing, completed, end, high_watermark = {}, [], 0, 0
    for action, number in steps:
        if action == "begin" and number not in ongoing:
            transactions.begin(end, number)
            ongoing[number] = end
            end += 1
        elif action == "complete" and number in ongoing:
            first = ongoing.pop(number)
            assert transactions.complete(first, end) == min(ongoing.values(), default=end + 1)
            completed.append((first, end))
            end += 1
        elif action == "advance":
            high_watermark = min(end, high_watermark + number)
            transactions.on_high_watermark(high_watermark)
            completed = [(first, last) for first, last in completed if last >= high_watermark]
        undecided = [*ongoing.values(), *(first for first, _ in completed)]
        assert transactions.first_unstable_offset() == min(undecided, default=None)
        assert transactions.first_undecided_offset() == min(ongoing.values(), default=None)
        assert transactions.is_empty == (not undecided)


def test_ten_thousand_open_transactions_end_in_any_order_without_a_search():
    transactions = OpenTransactions()
    for offset in range(10_000):
        transactions.begin(offset, offset)
    for marker, first in enumerate(range(10_000), start=10_000):
        transactions.complete(first, marker)
        transactions.first_unstable_offset()
    transactions.on_high_watermark(20_000)
    assert transactions.is_empty


def history(lengths):
    """Aborted transactions as a log would make them: begun and ended at given moments, indexed at their end."""
    events = sorted(
        itertools.chain.from_iterable(
            ((begin * 2 + index * 0.001, index, "begin"), (begin * 2 + length + index * 0.001, index, "end"))
            for index, (begin, length) in enumerate(lengths)
        )
    )
    transactions, firsts, entries = OpenTransactions(), {}, []
    for offset, (_, index, what) in enumerate(events):
        if what == "begin":
            transactions.begin(offset, index)
            firsts[index] = offset
        else:
            stable = transactions.complete(firsts[index], offset)
            entries.append(AbortedTransaction(index, firsts[index], offset, stable))
    return entries


@unhurried
@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 120)), max_size=60),
    st.integers(0, 130),
    st.integers(0, 130),
)
def test_a_query_finds_every_aborted_transaction_that_touches_the_range(lengths, start, span):
    entries = history(lengths)
    index = AbortedTransactions(MemoryDisk(), "x.txnindex")
    for entry in entries:
        index.append(entry)
    found, _ = index.collect(start, start + span)
    touching = [entry for entry in entries if entry.last_offset >= start and entry.first_offset < start + span]
    assert found == touching
    packed = bytearray(b"before")
    index.pack(start, start + span, packed)
    assert packed == b"before" + b"".join(struct.pack(">qq", *entry[:2]) for entry in touching)


def test_a_query_among_a_hundred_thousand_entries_under_one_long_transaction_looks_at_few(monkeypatch):
    # One transaction spans everything, so no entry can end the search: blocks must be skipped instead.
    index = AbortedTransactions(MemoryDisk(), "x.txnindex")
    for number in range(100_000):
        index.append(AbortedTransaction(number, 1 + 2 * number, 2 + 2 * number, 0))
    index.append(AbortedTransaction(-5, 0, 300_000, 300_001))
    entry_format, looked_at = open_transactions._ENTRY, []

    class Counting:
        @staticmethod
        def unpack_from(data, position):
            looked_at.append(position)
            return entry_format.unpack_from(data, position)

        @staticmethod
        def iter_unpack(data):
            looked_at.extend(range(0, len(data), entry_format.size))
            return entry_format.iter_unpack(data)

    monkeypatch.setattr(open_transactions, "_ENTRY", Counting)
    found, complete = index.collect(1001, 1011)
    assert [entry.producer_id for entry in found] == [*range(500, 505), -5]
    assert complete
    assert len(looked_at) < 1_500


def test_an_entry_whose_stable_offset_is_past_the_range_ends_the_search():
    index = AbortedTransactions(MemoryDisk(), "x.txnindex")
    index.append(AbortedTransaction(1, 0, 10, 11))
    assert index.collect(0, 11) == ([(1, 0, 10, 11)], True)
    assert index.collect(0, 12) == ([(1, 0, 10, 11)], False)
    assert index.collect(11, 12) == ([], False)


class TestFile:
    def test_there_is_no_file_before_the_first_abort(self):
        disk = MemoryDisk()
        index = AbortedTransactions(disk, "x.txnindex")
        assert index.collect(0, 100) == ([], False)
        index.truncate_to(0)
        assert not disk.files

    def test_entries_are_read_back_by_another_object(self):
        disk = MemoryDisk()
        entries = history([(i, 3) for i in range(600)])
        index = AbortedTransactions(disk, "x.txnindex")
        for entry in entries:
            index.append(entry)
        again = AbortedTransactions(disk, "x.txnindex")
        assert again.entries() == entries
        assert again.collect(40, 60) == index.collect(40, 60)
        again.check(0)

    def test_truncation_drops_what_was_ended_at_or_above(self):
        disk = MemoryDisk()
        index = AbortedTransactions(disk, "x.txnindex")
        for number in range(600):
            index.append(AbortedTransaction(number, 10 * number, 10 * number + 5, 10 * number + 6))
        index.truncate_to(5 + 10 * 300)
        assert len(index) == 300
        assert len(disk.files["x.txnindex"]) == 300 * 34
        index.append(AbortedTransaction(9, 3000, 3005, 3006))
        assert AbortedTransactions(disk, "x.txnindex").entries()[-1].producer_id == 9

    def test_an_entry_out_of_order_is_refused(self):
        index = AbortedTransactions(MemoryDisk(), "x.txnindex")
        index.append(AbortedTransaction(1, 0, 10, 11))
        with pytest.raises(ValueError):
            index.append(AbortedTransaction(2, 5, 10, 11))

    @pytest.mark.parametrize("content", [b"\0" * 33, b"\0\1" + b"\0" * 32])
    def test_a_file_no_writer_made_is_corrupt_and_can_be_reset(self, content):
        disk = MemoryDisk()
        disk.files["x.txnindex"] = bytearray(content)
        index = AbortedTransactions(disk, "x.txnindex")
        with pytest.raises(CorruptTransactionIndex):
            index.entries()
        index.reset()
        assert len(index) == 0
        assert not disk.files["x.txnindex"]

    def test_kafkas_dump_tool_reads_it(self, tmp_path):
        disk = MemoryDisk()
        index = AbortedTransactions(disk, "x")
        index.append(AbortedTransaction(1000, 3, 12, 5))
        index.append(AbortedTransaction(1001, 5, 14, 15))
        file = tmp_path / "00000000000000000000.txnindex"
        file.write_bytes(disk.files["x"])
        printed = java.dump_log(file)
        assert "producerId: 1000 firstOffset: 3 lastOffset: 12 lastStableOffset: 5" in printed
        assert "producerId: 1001 firstOffset: 5 lastOffset: 14 lastStableOffset: 15" in printed
