"""The model built from the changes in __transaction_state: a table of ids, rates, latencies, open transactions.

Pure: changes, listings and times in, documents out. A repeated change has no effect, so a tail may be read again from
any position.
"""

import dataclasses
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from fencepost.client.kafka_types import TransactionDescription, TransactionListing
from fencepost.dashboard.event_series import KEPT_SECONDS, Durations, PerSecond
from fencepost.insight.state_changes import COMPLETE, ONGOING, PREPARED, StateChange
from fencepost.topic_partition import TopicPartition

RECENT_MAX = 30
ENDINGS_PER_ID_MAX = 20
OPEN = (ONGOING, *PREPARED)


@dataclasses.dataclass(frozen=True, slots=True)
class Ending:
    """An ended transaction. Times are None if the change was before the start of the tail."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    start_ms: int | None
    prepared_ms: int | None
    completed_ms: int
    partition_count: int

    @property
    def outcome(self) -> str:
        return "commit" if self.is_commit else "abort"

    def document(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "outcome": self.outcome,
            "start_ms": self.start_ms,
            "prepared_ms": self.prepared_ms,
            "completed_ms": self.completed_ms,
            "partition_count": self.partition_count,
        }


@dataclasses.dataclass(slots=True)
class IdRow:
    """The current state of a transactional id. Fields known only from a change or a description are None until then."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int | None = None
    timeout_ms: int | None = None
    start_ms: int | None = None
    prepared_ms: int | None = None
    changed_ms: int | None = None
    partitions: tuple[TopicPartition, ...] = ()
    coordinator_id: int | None = None
    offset: int = -1
    """The offset of its last change."""
    touched: int = 0
    """When it last changed, on the model's own clock."""
    endings: deque[Ending] = dataclasses.field(default_factory=lambda: deque(maxlen=ENDINGS_PER_ID_MAX))

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    def age_ms(self, now_ms: int) -> int | None:
        return max(now_ms - self.start_ms, 0) if self.is_open and self.start_ms is not None else None

    def document(self, now_ms: int) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "state": self.state,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "timeout_ms": self.timeout_ms,
            "start_ms": self.start_ms if self.is_open else None,
            "age_ms": self.age_ms(now_ms),
            "changed_ms": self.changed_ms,
            "partition_count": len(self.partitions),
        }


class TransactionModel:
    def __init__(self) -> None:
        self.rows: dict[str, IdRow] = {}
        self.producers: dict[int, str] = {}
        """Every known producer id, with the transactional id that had it last."""
        self.open_in: dict[TopicPartition, set[str]] = {}
        """The ids with an open transaction, by partition."""
        self.states: Counter[str] = Counter()
        self.commits = self.aborts = 0
        self.recent: deque[Ending] = deque(maxlen=RECENT_MAX)
        self._commits, self._aborts = PerSecond(), PerSecond()
        self._latencies, self._durations = Durations(), Durations()
        self._clock = 0

    # Updates

    def apply(self, change: StateChange, now_ms: int, *, is_live: bool = True) -> None:
        """`is_live` is False for changes before the page was started: they are shown, but not counted in the totals."""
        row = self.rows.get(change.transactional_id)
        if row is not None and change.offset <= row.offset:
            return
        if change.state is None:
            self._drop(change.transactional_id)
            return
        self._clock += 1
        if row is None:
            row = self.rows[change.transactional_id] = IdRow(change.transactional_id, change.state, change.producer_id)
            self.states[change.state] += 1
        # A change from a broker whose clock is ahead is not shown in the future.
        time_ms = min(change.timestamp_ms, now_ms)
        before, started_ms = row.partitions, row.start_ms
        self._leave(row)
        self._set_state(row, change.state, change.producer_id)
        row.producer_epoch, row.timeout_ms = change.producer_epoch, change.timeout_ms
        row.changed_ms, row.offset, row.touched = time_ms, change.offset, self._clock
        row.start_ms = change.start_ms if change.start_ms >= 0 else started_ms
        row.partitions = change.partitions
        if change.state in PREPARED:
            row.prepared_ms = time_ms
            if row.start_ms is not None:
                self._durations.add(time_ms, time_ms - row.start_ms)
        elif change.state in COMPLETE:
            self._end(row, change, time_ms, before, is_live)
            row.partitions, row.start_ms, row.prepared_ms = (), None, None
        elif change.state != ONGOING:
            row.partitions, row.start_ms, row.prepared_ms = (), None, None
        self._enter(row)

    def mark(self) -> int:
        """A point in the model's time. A listing that was requested after it may be older than changes after it."""
        return self._clock

    def apply_listing(self, listed: Iterable[TransactionListing], since: int) -> None:
        """Applies a ListTransactions answer that was requested at `since`; changes that arrived meanwhile take
        precedence."""
        there = set()
        for each in listed:
            there.add(each.transactional_id)
            row = self.rows.get(each.transactional_id)
            if row is None:
                row = self.rows[each.transactional_id] = IdRow(each.transactional_id, each.state, each.producer_id)
                self.states[each.state] += 1
                self.producers[each.producer_id] = each.transactional_id
            elif row.touched <= since and (row.state, row.producer_id) != (each.state, each.producer_id):
                self._leave(row)
                self._set_state(row, each.state, each.producer_id)
                row.producer_epoch = row.start_ms = row.prepared_ms = row.changed_ms = None
                row.partitions = ()
            row.coordinator_id = each.coordinator_id
        for gone in [row for name, row in self.rows.items() if name not in there and row.touched <= since]:
            self._drop(gone.transactional_id)

    def apply_description(self, description: TransactionDescription) -> None:
        """Adds what a listing does not tell, if the id has not changed meanwhile."""
        row = self.rows.get(description.transactional_id)
        if row is None or (row.state, row.producer_id) != (description.state, description.producer_id):
            return
        self._leave(row)
        row.producer_epoch, row.timeout_ms = description.producer_epoch, description.timeout_ms
        row.coordinator_id = description.coordinator_id
        if row.is_open:
            row.start_ms = description.start_ms if description.start_ms >= 0 else None
            row.partitions = tuple(description.partitions)
        self._enter(row)

    def forget_offsets(self) -> None:
        """The log is no longer the same: the next change of every id counts, whatever its offset."""
        for row in self.rows.values():
            row.offset = -1

    def _set_state(self, row: IdRow, state: str, producer_id: int) -> None:
        self.states[row.state] -= 1
        self.states[state] += 1
        row.state, row.producer_id = state, producer_id
        self.producers[producer_id] = row.transactional_id

    def _end(
        self, row: IdRow, change: StateChange, time_ms: int, partitions: tuple[TopicPartition, ...], is_live: bool
    ) -> None:
        ending = Ending(
            change.transactional_id,
            change.producer_id,
            change.producer_epoch,
            change.is_commit,
            row.start_ms,
            row.prepared_ms,
            time_ms,
            len(partitions),
        )
        row.endings.append(ending)
        self.recent.append(ending)
        (self._commits if change.is_commit else self._aborts).add(time_ms)
        if is_live and change.is_commit:
            self.commits += 1
        elif is_live:
            self.aborts += 1
        if row.prepared_ms is not None:
            self._latencies.add(time_ms, time_ms - row.prepared_ms)

    def _drop(self, transactional_id: str) -> None:
        row = self.rows.pop(transactional_id, None)
        if row is not None:
            self._leave(row)
            self.states[row.state] -= 1

    def _enter(self, row: IdRow) -> None:
        if row.is_open:
            for at in row.partitions:
                self.open_in.setdefault(at, set()).add(row.transactional_id)

    def _leave(self, row: IdRow) -> None:
        for at in row.partitions:
            here = self.open_in.get(at)
            if here is not None:
                here.discard(row.transactional_id)
                if not here:
                    del self.open_in[at]

    # Queries

    def open_rows(self) -> list[IdRow]:
        return [row for row in self.rows.values() if row.is_open]

    def oldest_open(self) -> IdRow | None:
        started = [row for row in self.open_rows() if row.start_ms is not None]
        return min(started, key=lambda row: (row.start_ms or 0, row.transactional_id), default=None)

    def holder_of(self, partition: TopicPartition) -> IdRow | None:
        """The id whose transaction in a partition began first, probably the one that readers wait for."""
        here = [self.rows[name] for name in self.open_in.get(partition, ())]
        started = [row for row in here if row.start_ms is not None]
        return min(started, key=lambda row: (row.start_ms or 0, row.transactional_id), default=None)

    def row_of_producer(self, producer_id: int) -> IdRow | None:
        row = self.rows.get(self.producers.get(producer_id, ""))
        return row if row is not None and row.producer_id == producer_id else None

    def state_counts(self) -> dict[str, int]:
        return {state: count for state, count in sorted(self.states.items()) if count}

    def totals(self) -> dict[str, int]:
        return {
            "ids": len(self.rows),
            "open": self.states[ONGOING],
            "prepared": sum(self.states[state] for state in PREPARED),
            "commits": self.commits,
            "aborts": self.aborts,
        }

    def rates(self, end_s: int) -> dict[str, Any]:
        return {
            "from_s": end_s - KEPT_SECONDS,
            "commits": self._commits.window(end_s),
            "aborts": self._aborts.window(end_s),
        }

    def latency(self, end_s: int) -> dict[str, Any]:
        """From Prepare to Complete, by the second of Complete."""
        return _percentiles(self._latencies, end_s)

    def duration(self, end_s: int) -> dict[str, Any]:
        """From the beginning to Prepare, by the second of Prepare."""
        return _percentiles(self._durations, end_s)


def _percentiles(durations: Durations, end_s: int) -> dict[str, Any]:
    return {
        "from_s": end_s - KEPT_SECONDS,
        "p50_ms": durations.window(end_s, 50),
        "p99_ms": durations.window(end_s, 99),
    }
