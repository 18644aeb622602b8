"""What a running pipeline has to tell: rows in and out, lag, time of a batch, where its transaction stands."""

import dataclasses
import json
from typing import Any

from fencepost.spark import batch_states
from fencepost.spark.pipeline_plans import METRICS_PREFIX, ROWS_METRIC


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Of one batch, after it has ended."""

    batch: int
    rows_in: int
    rows_out: int
    rows_by_topic: dict[str, int]
    """The rows that were written, by topic; dead letters are those of the dead-letter topic."""
    lag: int | None
    """Records that were there and not yet read when the batch ended; None if the source does not say."""
    batch_ms: int
    """As Spark counts: planning, its checkpoint and the transaction."""
    transaction: str
    transaction_ms: int
    committed_at_ms: int | None

    def document(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def progress_of(name: str, reported: Any) -> Progress:
    """From Spark's own report, `StreamingQueryProgress`, and what the driver knows of its transaction."""
    batch = int(reported.batchId)
    outcome = batch_states.outcome(name, batch)
    return Progress(
        batch=batch,
        rows_in=_rows_in(reported),
        rows_out=sum(outcome.rows_out.values()),
        rows_by_topic=dict(outcome.rows_out),
        lag=_lag(reported.sources),
        batch_ms=int(reported.batchDuration),
        transaction=outcome.transaction,
        transaction_ms=outcome.transaction_ms,
        committed_at_ms=outcome.committed_at_ms,
    )


def _rows_in(reported: Any) -> int:
    """As they were counted on their way; Spark's own number counts again what its plan reads again."""
    observed = getattr(reported, "observedMetrics", None) or {}
    counts = [row[ROWS_METRIC] for name, row in observed.items() if name.startswith(METRICS_PREFIX)]
    return sum(counts) if counts else int(reported.numInputRows)


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
