"""What a running pipeline has to tell: rows in and out, lag, time of a batch, where its transaction stands."""

import dataclasses
import json
from typing import Any

from fencepost.spark import batch_states


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """After a batch."""

    batch: int
    rows_in: int
    """Of this batch."""
    rows_out: int
    """Of this run so far."""
    lag: int | None
    """Records that were there and not yet read when the batch ended; None if the source does not say."""
    batch_ms: int
    transaction: str

    def document(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def progress_of(name: str, reported: Any) -> Progress:
    """From Spark's own report, `StreamingQueryProgress`, and what the driver knows of its transaction."""
    state = batch_states.state(name)
    return Progress(
        batch=int(reported.batchId),
        rows_in=int(reported.numInputRows),
        rows_out=state.rows_out,
        lag=_lag(reported.sources),
        batch_ms=int(reported.batchDuration),
        transaction=state.transaction,
    )


def _lag(sources: Any) -> int | None:
    """From offsets in the form of Kafka's source: {"topic": {"0": 17}}."""
    total = 0
    for source in sources:
        latest, end = _offsets(source.latestOffset), _offsets(source.endOffset)
        if latest is None or end is None:
            return None
        total += sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())
    return total


def _offsets(text: Any) -> dict[tuple[str, str], int] | None:
    try:
        document = json.loads(text)
        return {
            (topic, partition): int(offset)
            for topic, partitions in document.items()
            if isinstance(partitions, dict)
            for partition, offset in partitions.items()
        }
    except (TypeError, ValueError, AttributeError):
        return None
