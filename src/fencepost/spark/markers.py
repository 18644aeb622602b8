"""What a committed batch leaves behind in its group, and what follows from it for the batch that comes next.

Every committed input partition carries `{term, query id, batch}` in its metadata. The pair (query id, batch) says how
far the group's writer came; the term counts how often another writer was allowed to take over (`adopt=`), so that a
writer that was replaced finds out. Pure: values in, a decision out.
"""

import dataclasses
import enum
import json
from collections.abc import Iterable, Mapping

from fencepost.client.values import CommittedOffset, TopicPartition
from fencepost.spark.errors import BatchRefused

REFUSE, CONTINUE = "refuse", "continue"
ADOPT_CHOICES = (REFUSE, CONTINUE)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Marker:
    term: int
    batch_id: int
    query_id: str

    def text(self) -> str:
        return json.dumps({"term": self.term, "query": self.query_id, "batch": self.batch_id}, separators=(",", ":"))

    def on(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommittedOffset]:
        """The offsets of a batch, each with the marker."""
        text = self.text()
        return {partition: CommittedOffset(offset, metadata=text) for partition, offset in offsets.items()}


def parse(text: str) -> Marker | None:
    """Metadata of other origin is nobody's marker."""
    try:
        found = json.loads(text)
        return Marker(int(found["term"]), int(found["batch"]), str(found["query"]))
    except (ValueError, TypeError, KeyError):
        return None


def newest(committed: Iterable[CommittedOffset]) -> Marker | None:
    """A batch marks all its partitions at once; older markers are those of partitions it no longer reads."""
    return max((marker for offset in committed if (marker := parse(offset.metadata)) is not None), default=None)


class Step(enum.Enum):
    WRITE = enum.auto()
    SKIP = enum.auto()
    """The batch was committed: write nothing, but let its plan run so that state advances."""


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    step: Step
    marker: Marker
    """What the batch leaves behind when it is committed, or has left behind."""


def decide(
    group_id: str, stored: Marker | None, query_id: str, batch_id: int, *, adopt: str = REFUSE, held_term: int | None
) -> Decision:
    """`held_term`: of the batches this run has committed; None before the first, and only then may it adopt."""
    if held_term is not None and (stored is None or stored.term != held_term):
        found = "nothing" if stored is None else f"term {stored.term} of query {stored.query_id}"
        raise BatchRefused(
            f"group {group_id!r} now holds {found}, but this run wrote under term {held_term}: another took over",
            "stop one of the two; whoever is to go on starts anew with adopt='continue'",
        )
    if stored is not None and stored.query_id == query_id:
        if stored.batch_id == batch_id:
            return Decision(Step.SKIP, stored)
        if stored.batch_id == batch_id - 1:
            return Decision(Step.WRITE, Marker(stored.term, batch_id, query_id))
    elif stored is None and batch_id == 0:
        return Decision(Step.WRITE, Marker(1, batch_id, query_id))
    if adopt == CONTINUE and held_term is None:
        return Decision(Step.WRITE, Marker((stored.term if stored is not None else 0) + 1, batch_id, query_id))
    raise _refusal(group_id, stored, query_id, batch_id)


def _refusal(group_id: str, stored: Marker | None, query_id: str, batch_id: int) -> BatchRefused:
    adopt = "to go on from this checkpoint all the same, start once with adopt='continue'"
    if stored is None:
        return BatchRefused(
            f"batch {batch_id} is to be written, but group {group_id!r} holds no marker of batch {batch_id - 1}",
            f"the offsets of the group expired, were deleted, or the query was written by another sink before; {adopt}",
        )
    if stored.query_id != query_id:
        return BatchRefused(
            f"group {group_id!r} was written by query {stored.query_id} up to batch {stored.batch_id}, and this is "
            f"query {query_id} at batch {batch_id}",
            f"two checkpoints use the same name, or the checkpoint is new; use another name, or {adopt} "
            "(rows that the other query has written and this one reads again are written twice)",
        )
    if stored.batch_id < batch_id:
        return BatchRefused(
            f"batch {batch_id} comes next, but group {group_id!r} holds batch {stored.batch_id} of this query: what "
            "was read since may be missing",
            "if foreachBatch returned without a transaction (`if df.isEmpty(): return`), open one for every batch and "
            "return inside its block; otherwise offsets of the group were lost, or the checkpoint was restored from a "
            f"copy. If nothing is missing, {adopt}",
        )
    return BatchRefused(
        f"batch {batch_id} comes next, but group {group_id!r} holds batch {stored.batch_id} of this query: rows "
        "would be written twice",
        f"the checkpoint was restored from a copy or damaged; restore the one that ends with batch {stored.batch_id}, "
        f"or, {adopt}",
    )
