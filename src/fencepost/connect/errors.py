"""What a source or its task raises: the fact in one line, and what to do about it."""

from typing import Any


class ConnectError(Exception):
    """Final: the task ends."""

    def __init__(self, fact: str, advice: str = "") -> None:
        super().__init__(fact)
        self.fact = fact
        self.advice = advice


class InvalidSource(ConnectError):
    """The declaration, or what the function yields, is not what a source may be."""


class SourceUnavailable(ConnectError):
    """The source cannot be reached now. The task tries again."""


class TaskFenced(ConnectError):
    """Another producer has the transactional id: this task has written its last record."""

    def __init__(self, task: str, by: str) -> None:
        super().__init__(f"{task} was fenced: {by}", "nothing is lost: what this task had not committed is read again")
        self.task = task
        self.by = by


class TransactionTooLong(ConnectError):
    """A source transaction cannot be written within the longest transaction that the brokers allow."""

    def __init__(self, task: str, position: Any, records: int, timeout_ms: int) -> None:
        super().__init__(
            f"{task}: a source transaction behind position {position} has {records:,} records so far and takes longer "
            f"than {timeout_ms} ms",
            "raise transaction.max.timeout.ms of the brokers and start again: it goes on at the same position",
        )
        self.position = position
        self.records = records
        self.timeout_ms = timeout_ms


class SourceRefused(ConnectError):
    """The source cannot go on from its position without losing or repeating something."""
