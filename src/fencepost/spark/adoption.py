"""What `adopt="continue"` would do to a pipeline that is about to start, offset by offset, for a person to decide."""

import dataclasses
import json
from typing import Any

from fencepost.client.blocking import Admin
from fencepost.client.errors import ClientError
from fencepost.spark.batch_decisions import CONTINUE, REFUSE, decide
from fencepost.spark.checkpoint import Checkpoint
from fencepost.spark.commit_records import Positions, Record
from fencepost.spark.errors import BatchRefused
from fencepost.spark.ownership import first_view
from fencepost.spark.planned_batches import Planned
from fencepost.spark.source_offsets import offsets_of
from fencepost.topic_partition import TopicPartition

_EARLIEST, _LATEST = -2, -1
_PLAN_IT = (
    "without adopt it is planned, compared with the group, and skipped if it is the same; if it is not, restore the "
    "checkpoint that ends with it"
)


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionDifference:
    partition: TopicPartition
    group: int | None
    """Up to where rows have been written, by the group's record; None if it does not say."""
    begin: int | None
    """Where the query would go on; None if only Spark will know."""

    @property
    def read_again(self) -> int | None:
        return None if self.group is None or self.begin is None else max(0, self.group - self.begin)

    @property
    def skipped(self) -> int | None:
        return None if self.group is None or self.begin is None else max(0, self.begin - self.group)

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "group": self.group,
            "begin": self.begin,
            "read_again": self.read_again,
            "skipped": self.skipped,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Adoption:
    fact: str
    """What does not fit, in the words of the refusal."""
    advice: str
    partitions: tuple[PartitionDifference, ...]

    @property
    def is_known(self) -> bool:
        return all(each.read_again is not None for each in self.partitions)

    @property
    def read_again(self) -> int:
        return sum(each.read_again or 0 for each in self.partitions)

    @property
    def skipped(self) -> int:
        return sum(each.skipped or 0 for each in self.partitions)


def adoption_of(admin: Admin, name: str, checkpoint: Checkpoint, starting_offsets: str) -> Adoption | None:
    """None if the pipeline would start without `adopt` as well. Raises BatchRefused for what `adopt` does not help."""
    view, is_planned_later = first_view(admin, name, checkpoint)
    begin = _begin(admin, view.planned(view.batch_id - 1), view.batch_id, starting_offsets, view.record)
    written = view.record.positions if view.record is not None else {}
    partitions = tuple(PartitionDifference(at, written.get(at), begin.get(at)) for at in sorted({*written, *begin}))
    if is_planned_later:
        # Spark has not planned the batch yet, so it may come out as it was: then adopt has nothing to do.
        return Adoption(
            f"batch {view.batch_id} was committed to group {name!r}, and this checkpoint has yet to plan it",
            _PLAN_IT,
            partitions,
        )
    try:
        decide(view, adopt=REFUSE)
    except BatchRefused as refused:
        decide(view, adopt=CONTINUE)
        return Adoption(refused.fact, refused.advice, partitions)
    return None


def _begin(
    admin: Admin, planned: Planned | None, batch_id: int, starting_offsets: str, record: Record | None
) -> Positions:
    """Where the first batch begins."""
    if batch_id > 0:
        return planned.offsets if planned is not None else {}
    try:
        return offsets_of(json.loads(starting_offsets))
    except (ValueError, AttributeError, TypeError):
        pass
    number = {"earliest": _EARLIEST, "latest": _LATEST}.get(starting_offsets)
    if number is None or record is None or not record.positions:
        return {}
    try:
        listed = admin.list_offsets(dict.fromkeys(record.positions, number))
    except ClientError:
        return {}  # Of another cluster.
    return {at: found.offset for at, found in listed.items()}
