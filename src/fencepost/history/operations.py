"""The values of a history: operations of processes, made of sends, polls and committed offsets.

A history is a sequence of events, one JSON object per line, in the order in which they happened:

    invoke   a process begins an operation: `op`
    step     something it does, recorded as it goes; a send is recorded before it is sent
    end      a transaction is asked to `commit` (true or false); recorded before it is asked
    ok       it happened
    fail     it did not happen and never will
    info     nobody knows

Each may list in `do` what the operation does: ["send", partition, value], ["poll", {partition: [[offset, value],
...]}], ["passed", {partition: offset}], ["offsets", group, {partition: offset}], ["fetched", group, {partition:
offset}], ["rebalanced", [partition, ...]], ["thinned", {partition: offset}]. The last event may give the offsets of
the sends, in their order, in `offsets`.

The place of an event in the sequence is its time: what was recorded earlier happened earlier.
"""

import enum
from collections.abc import Iterable
from typing import TypeAlias

Value: TypeAlias = str | int
Polled: TypeAlias = dict[str, list[list[int | Value]]]
"""What one poll returned: partition to [offset, value] pairs in the order in which they came."""
Passed: TypeAlias = dict[str, int]
"""Partition to the position of a reader: it has got everything below that it may see."""

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
NEVER = 1 << 60
"""A place in the history behind every event."""


class HistoryError(Exception):
    """The history is not one: which line, and what is wrong with it."""


class Kind(enum.Enum):
    SEND = "send"
    """Sends that do not depend on each other."""
    POLL = "poll"
    TRANSACTION = "txn"
    """Sends, polls and offsets that count together or not at all."""
    FINAL_READ = "final-read"
    """Everything in some partitions, from their beginning to their high watermark."""
    ASSIGN = "assign"
    """From here on the process reads elsewhere: nothing is known of where."""
    INIT = "init"
    """A producer takes over a transactional id."""
    COMMIT_OFFSETS = "commit-offsets"
    """Offsets committed outside a transaction."""
    FETCH_OFFSETS = "fetch-offsets"
    """A group's committed offsets, with require_stable."""


class Outcome(enum.Enum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Send:
    """One attempt to write one value."""

    __slots__ = ("earlier", "offset", "operation", "partition", "value")

    def __init__(self, operation: "Operation", partition: str, value: Value, offset: int | None) -> None:
        self.operation = operation
        self.partition = partition
        self.value = value
        self.offset = offset
        """Where it is: as acknowledged, else as read; None if neither is known."""
        self.earlier: Send | None = None
        """The attempt before this one to write the same value there: pipelines write a value again after an abort."""

    def follow(self, earlier: "Send | None") -> None:
        self.earlier = earlier

    def acknowledge(self, offset: int) -> None:
        self.offset = offset


class Operation:
    """What one process asked for, and the answer. Places (`invoked`, `ending`, `completed`) are indexes of events."""

    __slots__ = (
        "commit_asked", "commits", "completed", "ending", "fetched", "final_partitions", "invoked",
        "invoked_at", "isolation", "kind", "number", "outcome", "polls", "process", "proof", "rebalanced", "sends",
        "session", "transactional_id",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        process: str,
        kind: Kind,
        invoked: int,
        invoked_at: float,
        *,
        transactional_id: str | None = None,
        isolation: str = READ_COMMITTED,
        session: int = 0,
        final_partitions: dict[str, int] | None = None,
    ) -> None:
        self.number = number
        self.process = process
        self.kind = kind
        self.invoked = invoked
        self.invoked_at = invoked_at
        self.ending = NEVER
        self.commit_asked = False
        self.completed = NEVER
        self.outcome = Outcome.INFO
        self.transactional_id = transactional_id
        self.isolation = isolation
        self.sends: list[Send] = []
        self.polls: list[Polled] = []
        self.commits: list[tuple[str, str, int]] = []
        """(group, partition, offset)"""
        self.fetched: list[tuple[str, str, int | None]] = []
        self.final_partitions = final_partitions or {}
        """Partitions of a final read and the offset it began at."""
        self.rebalanced: frozenset[str] = frozenset()
        self.session = session
        """Polls of one process continue each other only within a session."""
        self.proof: Operation | None = None
        """Who saw something of a transaction of unknown outcome, which proves that it was committed."""

    def ask_to_end(self, place: int, *, commit: bool) -> None:
        self.ending = place
        self.commit_asked = commit

    def complete(self, outcome: Outcome, place: int) -> None:
        self.outcome = outcome
        self.completed = place

    def abandon(self) -> None:
        """Its process said nothing of its end. A transaction whose commit was never asked for was not committed."""
        if self.is_transaction and not self.commit_asked:
            self.outcome = Outcome.FAIL

    def note_rebalanced(self, partitions: Iterable[str]) -> None:
        self.rebalanced |= frozenset(partitions)

    @property
    def is_transaction(self) -> bool:
        return self.kind is Kind.TRANSACTION

    @property
    def is_committed(self) -> bool:
        """It happened, for certain."""
        return self.outcome is Outcome.OK or (self.outcome is Outcome.INFO and self.proof is not None)

    @property
    def due_at(self) -> int:
        """A reader that begins here or later must find what it did; NEVER if it may not have happened.

        Of a transaction of unknown outcome that turns out to be committed, everything was in the logs when its client
        asked for the commit, and nobody can read past what is undecided."""
        if self.outcome is Outcome.OK:
            return self.completed
        if self.outcome is Outcome.FAIL or self.proof is None:
            return NEVER
        asked = self.ending if self.commit_asked else NEVER
        return min(self.proof.completed, self.completed, asked)

    def prove(self, witness: "Operation") -> None:
        """Someone saw something of it. Of several witnesses the first to complete counts."""
        if self.outcome is Outcome.INFO and (self.proof is None or witness.completed < self.proof.completed):
            self.proof = witness
