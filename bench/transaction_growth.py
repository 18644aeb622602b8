"""Rows of a broker that has seen many transactions, Fencepost alone; its peer is a Fencepost that has seen few."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from bench import wire
from bench.experiment import Context, Experiment, Metric, Sample
from bench.lifecycle import timed_start
from bench.load import LoadFailed
from bench.subjects import Subject
from bench.transaction_clients import RawCalls, init_producers, raw_transactions
from bench.transaction_frames import Step, TransactionalConnection, fetch, spread, transaction_steps
from fencepost.coordinators.transactions.transaction_journal import TransactionJournal
from fencepost.coordinators.transactions.transaction_states import TransactionState
from fencepost.wire.batch import build_batch, iterate_headers, seal, stamp
from fencepost.wire.records import Record, read_records

TOPIC = "growth"
VALUE_BYTES = 100
POLL_INTERVAL_SECONDS = 0.005
FINISH_TIMEOUT_SECONDS = 60.0
BATCH_BYTES_MAX = 1_048_576


class TwoSizes(Experiment):
    """Two Fenceposts that differ only in how many of something they hold."""

    pair = None
    pairs_max = 3
    in_quick = False

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}

    def _subjects(self, context: Context, large: int, small: int, noun: str) -> tuple[Subject, Subject]:
        subjects = (context.launcher.fencepost("os"), context.launcher.fencepost("os"))
        for subject, size in zip(subjects, (large, small), strict=True):
            subject.name = f"{size:,} {noun}"
            self._sizes[id(subject)] = size
        return subjects


class ManyTransactionalIds(TwoSizes):
    """One connection commits for one id after the other; with one id, always for that one."""

    IDS = 10_000
    TRANSACTIONS = 3_000
    name = f"{IDS:,} transactional ids"
    work_unit = "request"
    metrics = (
        Metric("commit p50 against one id", "us", lower_is_better=True, ratio_target=1.5),
        Metric("commit p99 against one id", "us", lower_is_better=True),
    )

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[int, RawCalls] = {}

    def subjects(self, context: Context) -> tuple[Subject, Subject]:
        return self._subjects(context, self.IDS, 1, "ids")

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            with subject.connect() as connection:
                connection.create_topic(TOPIC, 1, {})
            producers = init_producers(subject.address, "id", self._sizes[id(subject)])
            calls = raw_transactions(subject.address, producers, TOPIC, 1, records=1, size=VALUE_BYTES, connections=1)
            # Every id has had a transaction before the clock runs.
            calls.run_once()
            self._calls[id(subject)] = calls
            calls.run(warmup=0, count=1_000, seconds=30)

    def sample(self, context: Context, subject: Subject) -> Sample:
        before = subject.cpu_seconds()
        done = self._calls[id(subject)].run(warmup=100, count=self.TRANSACTIONS, seconds=30)
        cpu = subject.cpu_seconds() - before
        values = {
            "commit p50 against one id": done.commit_p50_us,
            "commit p99 against one id": done.commit_p99_us,
        }
        return Sample(values, cpu, done.client_cpu_seconds, done.seconds, done.transactions + 100)

    def finish(self, context: Context, subjects: Sequence[Subject]) -> None:
        for calls in self._calls.values():
            calls.close()


class ManyAborted(TwoSizes):
    """A read_committed reader of a partition full of aborted transactions, and of as many committed ones."""

    TRANSACTIONS = 100_000
    IDS = 50
    TAIL_BATCHES, TAIL_BATCH_BYTES = 2_000, 16_384
    name = f"{TRANSACTIONS:,} aborted transactions in a partition"
    work_unit = "MB"
    metrics = (
        Metric("read_committed fetch of all against none aborted", "MB/s", ratio_target=1 / 1.5),
        Metric("read_committed fetch of what follows them", "MB/s", ratio_target=1 / 1.5),
    )

    def __init__(self) -> None:
        super().__init__()
        self._plans: dict[int, tuple[list[int], list[int]]] = {}

    def subjects(self, context: Context) -> tuple[Subject, Subject]:
        return self._subjects(context, self.TRANSACTIONS, 0, "aborted")

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            with TransactionalConnection(subject.address) as connection:
                connection.create_topic(TOPIC, 1, {})
                aborted = self._sizes[id(subject)]
                self._fill(subject, committed=not aborted)
                middle = connection.end_offset(TOPIC, 1)
                value = b"x" * (self.TAIL_BATCH_BYTES - 100)
                request = wire.produce_request(TOPIC, 0, wire.record_batch([value], int(time.time() * 1000)))
                for _ in range(self.TAIL_BATCHES // 100):
                    connection.call_many([request] * 100)
                end = connection.end_offset(TOPIC, 1)
                whole, listed = connection.fetch_offsets(TOPIC, 0, end, BATCH_BYTES_MAX)
                tail, _ = connection.fetch_offsets(TOPIC, middle, end, BATCH_BYTES_MAX)
            if listed < aborted:
                raise LoadFailed(f"fetches listed {listed} of {aborted} aborted transactions")
            self._plans[id(subject)] = (whole, tail)

    def _fill(self, subject: Subject, *, committed: bool) -> None:
        producers = init_producers(subject.address, "id", self.IDS)
        calls = raw_transactions(subject.address, producers, TOPIC, 1, records=1, size=VALUE_BYTES, committed=committed)
        calls.run(warmup=0, count=self.TRANSACTIONS, seconds=120)
        calls.close()

    def sample(self, context: Context, subject: Subject) -> Sample:
        speeds, megabytes, seconds = [], 0.0, 0.0
        with subject.connect() as connection:
            before = subject.cpu_seconds()
            for offsets in self._plans[id(subject)]:
                requests = [fetch(TOPIC, offset, BATCH_BYTES_MAX) for offset in offsets]
                began = time.perf_counter()
                fetched = sum(len(connection.call(request)) for request in requests)
                took = time.perf_counter() - began
                speeds.append(fetched / 1e6 / took)
                megabytes += fetched / 1e6
                seconds += took
            cpu = subject.cpu_seconds() - before
        values = dict(zip((metric.key for metric in self.metrics), speeds, strict=True))
        return Sample(values, cpu, 0.0, seconds, megabytes)


class RestartWithTransactions(TwoSizes):
    """Killed with transactions open and decided, then started again: when it serves, when it has finished them."""

    ONGOING, PREPARED = 10_000, 1_000
    PARTITIONS = 20
    CONNECTIONS = 50
    pairs_max = 2
    name = f"restart with {ONGOING:,} ongoing and {PREPARED:,} prepared transactions, against none"
    metrics = (
        Metric("serving again", "s", lower_is_better=True, absolute_target=2.0),
        Metric("all prepared finished", "s", lower_is_better=True, absolute_target=10.0),
    )

    def subjects(self, context: Context) -> tuple[Subject, Subject]:
        return self._subjects(context, self.ONGOING + self.PREPARED, 0, "transactions")

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            with TransactionalConnection(subject.address) as connection:
                connection.create_topic(TOPIC, self.PARTITIONS, {})
                connection.await_coordinator("id")
            if self._sizes[id(subject)]:
                self._open_transactions(subject)
            subject.process.kill()
            prepared = prepare_transactions(subject.process.data_directory, self.PREPARED)
            if self._sizes[id(subject)] and prepared != self.PREPARED:
                raise LoadFailed(f"{prepared} transactions were prepared")
            shutil.copytree(subject.process.data_directory, _copy_of(subject))

    def _open_transactions(self, subject: Subject) -> None:
        producers = init_producers(subject.address, "id", self.ONGOING + self.PREPARED)
        scripts: list[list[Step]] = [[] for _ in range(self.CONNECTIONS)]
        for number, producer in enumerate(producers):
            batches = spread(1, self.PARTITIONS, number % self.PARTITIONS, VALUE_BYTES)
            opened = transaction_steps(producer, TOPIC, batches, number * self.PARTITIONS)[:-1]
            scripts[number % self.CONNECTIONS] += opened
        calls = RawCalls(subject.address, scripts, len(producers) * self.PARTITIONS)
        calls.run_once()
        calls.close()

    def sample(self, context: Context, subject: Subject) -> Sample:
        subject.process.kill()
        shutil.rmtree(subject.process.data_directory)
        shutil.copytree(_copy_of(subject), subject.process.data_directory)
        began = time.perf_counter()
        serving = timed_start(subject)
        with TransactionalConnection(subject.address) as connection:
            while connection.transactions_in("PrepareCommit") != 0:
                if time.perf_counter() - began > FINISH_TIMEOUT_SECONDS:
                    raise LoadFailed(f"prepared transactions are left after {FINISH_TIMEOUT_SECONDS} s")
                time.sleep(POLL_INTERVAL_SECONDS)
            finished = time.perf_counter() - began
            ongoing = connection.transactions_in("Ongoing")
        expected = self.ONGOING if self._sizes[id(subject)] else 0
        if ongoing != expected:
            raise LoadFailed(f"{ongoing} of {expected} transactions are ongoing after the restart")
        return Sample({"serving again": serving, "all prepared finished": finished})


def _copy_of(subject: Subject) -> Path:
    return subject.process.directory / "copy"


def prepare_transactions(data: Path, wanted: int) -> int:
    """Turns ongoing transactions into decided ones, as if the broker had died between deciding and doing.

    Goes through the partitions of __transaction_state of a broker that is not running and appends the next record of
    some ids. Returns how many.
    """
    journal = TransactionJournal(lambda: 2)
    prepared = 0
    for directory in sorted(data.glob("**/__transaction_state-*")):
        log = max(directory.glob("*.log"))
        stored = log.read_bytes()
        latest: dict[bytes | None, Record] = {}
        size, next_offset = 0, int(log.stem)
        for position, header in iterate_headers(stored):
            size, next_offset = position + header.size_bytes, header.next_offset
            for record in read_records(stored[position:size], BATCH_BYTES_MAX):
                latest[record.key] = record
        batches = b""
        for record in latest.values():
            entry = journal.decode_entry(record.key or b"", record.value)
            if prepared == wanted or entry.record is None or entry.record.state is not TransactionState.ONGOING:
                continue
            decided = entry.record._replace(state=TransactionState.PREPARE_COMMIT)
            written = journal.encode_entry(entry._replace(record=decided))
            batch = build_batch([(int(time.time() * 1000), written.key, written.value, ())])
            stamp(batch, 0, next_offset, 0)
            seal(batch, 0, len(batch))
            batches += bytes(batch)
            next_offset += 1
            prepared += 1
        with log.open("r+b") as file:
            file.seek(size)
            file.write(batches)
    return prepared


def experiments() -> list[Experiment]:
    return [ManyTransactionalIds(), ManyAborted(), RestartWithTransactions()]
