"""What the Spark side raises: typed, the fact in one line, and what to do next in `advice`; `str()` gives both."""

from typing import Any, Self


class FencepostSparkError(Exception):
    """Base of all refusals and failures. Spark shows only the text of an exception, so the advice is part of it."""

    advice = ""

    def __init__(self, fact: str, advice: str = "") -> None:
        self.fact = fact
        self.advice = advice or self.advice
        super().__init__(f"{fact}. {_sentence(self.advice)}" if self.advice else fact)

    def __reduce__(self) -> tuple[Any, ...]:
        return _revived, (type(self), self.args, self.__dict__)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _revived(kind: type[FencepostSparkError], args: tuple[Any, ...], facts: dict[str, Any]) -> FencepostSparkError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class RequirementNotMet(FencepostSparkError):
    """Something that has to be there before anything starts is not: Java, a PySpark version, slots."""


class NotSupported(FencepostSparkError):
    """The query is set up in a way that cannot be exactly-once."""


class InvalidOutput(FencepostSparkError):
    """The rows to be written do not have the columns of Spark's Kafka sink, or name no topic."""

    @classmethod
    def of_partition(cls, topic: str, partition: int, count: int) -> Self:
        return cls(
            f"a row is to go to partition {partition} of topic {topic!r}, which has {count}",
            "correct the column `partition`, or leave it null to place rows by key",
        )


class BatchRefused(FencepostSparkError):
    """What the group has stored and the batch that is to be written do not fit; writing could lose or repeat rows."""


class GroupInUse(FencepostSparkError):
    """Consumers are members of the group in which the input offsets are to be committed."""


class FencedBySuccessor(FencepostSparkError):
    """Another driver has taken the transactional id over; this one must stop."""


class TransactionTimedOut(FencepostSparkError):
    """The coordinator ended the transaction because it took longer than its timeout."""


class WriteFailed(FencepostSparkError):
    """The batch could not be written; its transaction was aborted and nothing of it is visible."""


class OutcomeUnknown(FencepostSparkError):
    """A commit was sent and no answer came for a very long time; the next start of the query learns the outcome."""
