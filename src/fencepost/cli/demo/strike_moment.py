"""The moment for a kill: a batch is running, and a part of its output is in the log already.

Recognized by Spark's checkpoint (the batch is in `offsets` and not yet in `commits`) and by the ends of the output
topics, so that no kill depends on a clock.
"""

from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost.client.blocking import Admin
from fencepost.client.kafka_types import Reset
from fencepost.spark.checkpoint import parse_offsets
from fencepost.topic_partition import TopicPartition


class Watch:
    def __init__(self, address: str, checkpoint: Path, source: str, outputs: dict[str, int]) -> None:
        self._admin = Admin(address)
        self._checkpoint = checkpoint
        self._source = source
        self._ends = {
            TopicPartition(topic, at): int(Reset.LATEST) for topic, count in outputs.items() for at in range(count)
        }
        self._baseline = 0
        self._baseline_of = -2
        self.planned = -1
        self.committed = -1

    def __enter__(self) -> Self:
        self._admin.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admin.__exit__(kind, error, trace)

    def look(self) -> None:
        self.planned, self.committed = self._last("offsets"), self._last("commits")
        if self.committed != self._baseline_of:
            self._baseline_of, self._baseline = self.committed, self._written()

    @property
    def is_in_batch(self) -> bool:
        return self.planned > self.committed

    @property
    def is_written_in_part(self) -> bool:
        return self.is_in_batch and self._written() > self._baseline

    def has_done(self, rows: int) -> bool:
        """Whether this many input rows were processed by completed batches."""
        return not self.is_in_batch and self.planned >= 0 and self._read_rows() >= rows

    def _written(self) -> int:
        return sum(listed.offset for listed in self._admin.list_offsets(self._ends).values())

    def _last(self, directory: str) -> int:
        path = self._checkpoint / directory
        names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _read_rows(self) -> int:
        offsets = parse_offsets((self._checkpoint / "offsets" / str(self.planned)).read_text())
        return sum(offset for partition, offset in offsets.items() if partition.topic == self._source)
