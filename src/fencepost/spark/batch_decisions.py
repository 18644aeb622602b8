"""What follows for a batch from what its group and its checkpoint hold: it is written, skipped or refused.

`RULES` is the whole of it. Each situation says what the checkpoint and the group hold, and what is done about it;
`situation_of` only finds out which one it is. docs/pipelines.md shows the same table, and a test compares them. Pure.
"""

import dataclasses
import datetime
import enum
import json
from collections.abc import Callable, Mapping

from fencepost.spark.commit_records import Marker, Positions, Record, nested
from fencepost.spark.errors import BatchRefused
from fencepost.spark.planned_batches import Planned
from fencepost.topic_partition import TopicPartition

REFUSE, CONTINUE = "refuse", "continue"
ADOPT_CHOICES = (REFUSE, CONTINUE)
PARTITIONS_NAMED_MAX = 4
STARTING_OFFSETS_CHARACTERS_MAX = 400


class Step(enum.Enum):
    WRITE = "written"
    SKIP = "skipped"
    """The batch was committed: write nothing, but let its plan run so that state advances."""


class Situation(enum.Enum):
    NEW = enum.auto()
    NEW_BUT_OLD = enum.auto()
    FORGOTTEN = enum.auto()
    NEXT = enum.auto()
    NEXT_UNCOMPARED = enum.auto()
    FORKED = enum.auto()
    UNREADABLE = enum.auto()
    REPLAYED = enum.auto()
    REPLAYED_UNCOMPARED = enum.auto()
    REPLANNED = enum.auto()
    PASSED_BY = enum.auto()
    MISSING = enum.auto()
    BEHIND = enum.auto()
    OVERTAKEN = enum.auto()
    OTHER_QUERY = enum.auto()
    OTHER_DRIVER = enum.auto()
    TAKEN_OVER = enum.auto()
    WRITTEN_TWICE = enum.auto()
    MADE_AGAIN = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """`checkpoint` and `group` are what the docs say; `fact` and `advice` are what a person reads."""

    checkpoint: str
    group: str
    step: Step | None
    fact: str = ""
    advice: str = ""
    may_adopt: bool = False


_ADOPT = "to go on from this checkpoint all the same, start once with adopt='continue'"
_GO_ON = "or start a new checkpoint at {starting_offsets} with adopt='continue' (state is lost, rows are not)"
_ONE_OF_TWO = "stop one of the two drivers; adopt= is not possible while both run"

RULES: Mapping[Situation, Rule] = {
    Situation.NEW: Rule("begins with batch 0", "holds nothing", Step.WRITE),
    Situation.NEW_BUT_OLD: Rule(
        "begins with batch 0, and was planned longer ago than half the time that the group's offsets are kept, or as "
        "far in the future",
        "holds nothing: the record may have expired",
        None,
        "batch 0 was planned {planned_at}, group {group!r} holds nothing, and the cluster keeps offsets for "
        "{retention}: the record of the batch may have expired, so whether it was written cannot be known",
        f"see whether its rows are there; if they are not, {_ADOPT}",
        may_adopt=True,
    ),
    Situation.FORGOTTEN: Rule(
        "goes on with batch N",
        "holds nothing: its offsets expired or were deleted, or another sink wrote before",
        None,
        "batch {batch} is to be written, but group {group!r} holds no marker of batch {before}: its offsets have "
        "expired (offsets.retention.minutes) or were deleted, or the query was written by another sink before",
        "if nothing else has written under this name since, start once with adopt='continue': it goes on where the "
        "checkpoint says ({planned_positions}), and if batch {batch} was committed before the stop, its rows are "
        "written again",
        may_adopt=True,
    ),
    Situation.NEXT: Rule(
        "goes on with batch N", "holds batch N-1, and both say that it ended at the same offsets", Step.WRITE
    ),
    Situation.NEXT_UNCOMPARED: Rule(
        "goes on with batch N", "holds batch N-1, and one of the two has no offsets to compare", Step.WRITE
    ),
    Situation.FORKED: Rule(
        "goes on with batch N, and says that batch N-1 ended elsewhere: two checkpoints have parted",
        "holds batch N-1",
        None,
        "batch {stored_batch} in group {group!r} ended at other offsets than in this checkpoint ({difference}); it was "
        "written {written}",
        f"two copies of one checkpoint have gone different ways; go on with the one that wrote last, {_GO_ON}",
        may_adopt=True,
    ),
    Situation.UNREADABLE: Rule(
        "goes on with batch N, and offsets/N-1 (or offsets/N of a batch that is there) cannot be read",
        "holds that batch",
        None,
        "group {group!r} holds batch {stored_batch}, and offsets/{stored_batch} of the checkpoint cannot be read, so "
        "whether they agree cannot be known",
        f"restore the file; {_ADOPT} (rows may then be missing or written twice)",
        may_adopt=True,
    ),
    Situation.REPLAYED: Rule(
        "repeats batch N", "holds batch N, and both say that it ended at the same offsets", Step.SKIP
    ),
    Situation.REPLAYED_UNCOMPARED: Rule(
        "repeats batch N", "holds batch N, and one of the two has no offsets to compare", Step.SKIP
    ),
    Situation.REPLANNED: Rule(
        "is one batch behind: it has planned batch N anew, with other offsets",
        "holds batch N",
        None,
        "batch {batch} was committed to group {group!r} {written}, but it ended at other offsets than batch {batch} of "
        "this checkpoint ({difference})",
        "the checkpoint was restored from a copy, or files of it were deleted; restore the one in which batch {batch} "
        f"ends where the group says, {_GO_ON}",
        may_adopt=True,
    ),
    Situation.PASSED_BY: Rule(
        "goes on with batch N; the batches after M moved no offsets, or this run has seen them pass without the sink",
        "holds batch M, before N-1",
        Step.WRITE,
    ),
    Situation.MISSING: Rule(
        "goes on with batch N: it is ahead",
        "holds batch M, before N-1",
        None,
        "batch {batch} comes next, but group {group!r} holds batch {stored_batch} of this query, written {written}: "
        "what the batches between have read would be missing ({difference})",
        "the group was set back, or foreachBatch has ended these batches without the sink (`if df.isEmpty(): return`: "
        f"open a transaction for every batch, and return inside its block); if their rows are not wanted, {_ADOPT}; "
        "else {go_on}",
        may_adopt=True,
    ),
    Situation.BEHIND: Rule(
        "goes on with batch N: it is two or more batches behind",
        "holds batch M, after N",
        None,
        "batch {batch} comes next, but group {group!r} holds batch {stored_batch} of this query, written {written}: "
        "rows would be written twice ({difference})",
        "the checkpoint was restored from a copy or damaged; restore the one that ends with batch {stored_batch}, "
        f"{_GO_ON}",
        may_adopt=True,
    ),
    Situation.OVERTAKEN: Rule(
        "goes on with batch N, but by now holds batch M as well: another driver uses it",
        "holds batch M, after N",
        None,
        "batch {batch} comes next, but batch {stored_batch} is in this checkpoint and in group {group!r} already, "
        "written {written}: another driver runs this query",
        _ONE_OF_TWO,
    ),
    Situation.OTHER_QUERY: Rule(
        "is of another query, or new",
        "holds a batch",
        None,
        "group {group!r} was written by query {stored_query} up to batch {stored_batch}, {written}, and this is query "
        "{query} at batch {batch}",
        "two checkpoints use the same name, or the checkpoint is new; use another name, or start once with "
        "adopt='continue': it reads from where this checkpoint says, and rows that the other query has written are "
        "then written twice ({difference}). A new checkpoint that starts at {starting_offsets} repeats nothing",
        may_adopt=True,
    ),
    Situation.OTHER_DRIVER: Rule(
        "does not fit in one of the ways above",
        "holds a batch that was committed after this driver had first looked",
        None,
        "batch {batch} of query {query} does not follow batch {stored_batch} of query {stored_query}, which was "
        "committed to group {group!r} after this driver had first looked, {written}: another driver is at work under "
        "this name",
        _ONE_OF_TWO,
    ),
    Situation.TAKEN_OVER: Rule(
        "of a query that runs",
        "holds a batch of another term: another query has adopted the group meanwhile",
        None,
        "group {group!r} now holds term {stored_term} of query {stored_query}, written {written}, but this run wrote "
        "under term {held_term}: another took over",
        "stop one of the two; whichever is to go on starts anew with adopt='continue'",
    ),
    Situation.WRITTEN_TWICE: Rule(
        "of a query whose function asks for a second transaction in one batch",
        "holds batch N, written by the first",
        None,
        "batch {batch} has had its transaction under {group!r}, and foreachBatch asks for another: one transaction per "
        "batch and name",
        "use transaction() and write both, so that they become visible together; or give each sink a name of its own, "
        "and each is exactly once by itself",
    ),
    Situation.MADE_AGAIN: Rule(
        "would be written, but a topic that it reads was deleted and created again since, and its source has not "
        "`failOnDataLoss=false`",
        "holds a batch, and the ids of the topics as they were then",
        None,
        "{made_again} was deleted and created again since batch {stored_batch} was written {written}: rows that were "
        "not read yet are lost, and the checkpoint's offsets ({planned_positions}) are those of the old topic",
        "to read on in the new topic, set failOnDataLoss to false for the source: if the new topic is shorter than the "
        f"old one was, it is read from its beginning, else from the checkpoint's offset. Or, once, {_ADOPT}",
        may_adopt=True,
    ),
}
"""A group that expired while a run was writing is judged by the run's own record, which is the newest there is."""

_WHERE_ADOPTING_MEETS_A_DRIVER = frozenset(
    {Situation.FORKED, Situation.REPLANNED, Situation.BEHIND, Situation.OTHER_QUERY, Situation.MISSING}
)


@dataclasses.dataclass(frozen=True)
class View:
    """All that a decision is made of."""

    group_id: str
    query_id: str
    batch_id: int
    stored: Record | None
    """What the group holds."""
    held: Record | None = None
    """What this run has committed, or found committed, last; None before. Only then may it adopt."""
    finished: int | None = None
    """The batch that this run has finished last."""
    planned: Callable[[int], Planned | None] = lambda _: None
    """What the checkpoint says about a batch; None if that cannot be read."""
    has_changed: bool = False
    """Whether the group's record is another than when this run first looked."""
    made_again: tuple[str, ...] = ()
    """Topics that were deleted and created again since the record was written, and whose source is to fail then."""
    started_ms: int = 0
    retention_ms: int | None = None

    @property
    def record(self) -> Record | None:
        """The newest record there is. A group that forgot while this run held its epoch has expired."""
        return self.held if self.stored is None else self.stored

    @property
    def has_expired(self) -> bool:
        return self.stored is None and self.held is not None


class _Compared(enum.Enum):
    SAME = enum.auto()
    DIFFERENT = enum.auto()
    UNCOMPARED = enum.auto()
    UNREADABLE = enum.auto()


def _compared(record: Record, planned: Planned | None) -> _Compared:
    if planned is None:
        return _Compared.UNREADABLE
    if record.marker.digest and planned.digest:
        return _Compared.SAME if record.marker.digest == planned.digest else _Compared.DIFFERENT
    if not planned.offsets or record.marker.positions is not None:
        return _Compared.UNCOMPARED
    return _Compared.SAME if record.positions == dict(planned.offsets) else _Compared.DIFFERENT


def situation_of(view: View) -> Situation:
    found = _situation_of(view)
    if view.held is None and view.has_changed and found in _WHERE_ADOPTING_MEETS_A_DRIVER:
        return Situation.OTHER_DRIVER
    return Situation.MADE_AGAIN if view.made_again and RULES[found].step is Step.WRITE else found


def _situation_of(view: View) -> Situation:
    record, held, batch_id = view.record, view.held, view.batch_id
    if view.finished == batch_id:
        return Situation.WRITTEN_TWICE
    if record is None:
        return Situation.FORGOTTEN if batch_id > 0 else _first(view)
    marker = record.marker
    if held is not None and marker.term != held.marker.term:
        return Situation.TAKEN_OVER
    if marker.query_id != view.query_id:
        return Situation.OTHER_QUERY
    if marker.batch_id == batch_id:
        return {
            _Compared.SAME: Situation.REPLAYED,
            _Compared.UNCOMPARED: Situation.REPLAYED_UNCOMPARED,
            _Compared.DIFFERENT: Situation.REPLANNED,
            _Compared.UNREADABLE: Situation.UNREADABLE,
        }[_compared(record, view.planned(batch_id))]
    if marker.batch_id > batch_id:
        is_here = _compared(record, view.planned(marker.batch_id)) is _Compared.SAME
        return Situation.OVERTAKEN if is_here else Situation.BEHIND
    is_next = marker.batch_id == batch_id - 1
    if held is not None and marker.is_of == held.marker.is_of:
        return Situation.NEXT if is_next else Situation.PASSED_BY
    compared = _compared(record, view.planned(batch_id - 1))
    if not is_next:
        return Situation.PASSED_BY if compared is _Compared.SAME else Situation.MISSING
    return {
        _Compared.SAME: Situation.NEXT,
        _Compared.UNCOMPARED: Situation.NEXT_UNCOMPARED,
        _Compared.DIFFERENT: Situation.FORKED,
        _Compared.UNREADABLE: Situation.UNREADABLE,
    }[compared]


def _first(view: View) -> Situation:
    """Two hosts tell the two times. The record is older than `retention_ms` if it has expired, so with half of that as
    the limit an expired one is seen for what it is as long as their clocks differ by less than the other half."""
    planned = view.planned(0)
    if planned is None or planned.planned_ms <= 0 or view.retention_ms is None:
        return Situation.NEW
    may_have_expired = abs(view.started_ms - planned.planned_ms) > view.retention_ms / 2
    return Situation.NEW_BUT_OLD if may_have_expired else Situation.NEW


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    step: Step
    marker: Marker
    """What the batch leaves behind when it is committed, or has left behind."""
    situation: Situation
    record: Record | None = None
    """Of a batch that is skipped."""


def decide(view: View, *, adopt: str = REFUSE) -> Decision:
    """Raises BatchRefused with what a person has to know."""
    found = situation_of(view)
    rule, record = RULES[found], view.record
    term = record.marker.term if record is not None else 0
    if rule.step is Step.SKIP:
        assert record is not None
        return Decision(Step.SKIP, record.marker, found, record)
    if rule.step is Step.WRITE:
        return Decision(Step.WRITE, Marker(max(term, 1), view.batch_id, view.query_id), found)
    if rule.may_adopt and adopt == CONTINUE and (view.held is None or found is Situation.MADE_AGAIN):
        return Decision(Step.WRITE, Marker(term + 1, view.batch_id, view.query_id), found)
    words = _words(view, found)
    raise BatchRefused(rule.fact.format_map(words), rule.advice.format_map(words))


# Words


def _words(view: View, found: Situation) -> dict[str, object]:
    record = view.record
    compared_with = view.batch_id if found is Situation.REPLANNED else view.batch_id - 1
    planned = view.planned(compared_with) if compared_with >= 0 else None
    checkpoint = planned.offsets if planned is not None else {}
    first = view.planned(0) if found is Situation.NEW_BUT_OLD else None
    words: dict[str, object] = {
        "group": view.group_id,
        "query": view.query_id,
        "batch": view.batch_id,
        "before": view.batch_id - 1,
        "planned_positions": _offsets_in_words(checkpoint) or "its offsets are not Kafka's",
        "planned_at": moment(first.planned_ms if first is not None else 0),
        "retention": _duration(view.retention_ms or 0),
        "made_again": " and ".join(f"topic {topic}" for topic in view.made_again),
        "held_term": view.held.marker.term if view.held is not None else 0,
    }
    if record is not None:
        marker = record.marker
        words |= {
            "stored_batch": marker.batch_id,
            "stored_query": marker.query_id,
            "stored_term": marker.term,
            "written": written(marker),
            "difference": difference(record.positions, checkpoint),
            "starting_offsets": _starting_offsets(record.positions),
        }
        words["go_on"] = _GO_ON.removeprefix("or ").format_map(words)
    return words


def moment(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).strftime("on %Y-%m-%d at %H:%M:%S UTC")


def _duration(ms: int) -> str:
    minutes = ms // 60_000
    for unit, size in (("days", 24 * 60), ("hours", 60)):
        if minutes >= 2 * size:
            return f"{minutes / size:.3g} {unit}"
    return f"{minutes} min"


def written(marker: Marker) -> str:
    if not marker.writer:
        return "by an earlier version of this sink"
    return f"{moment(marker.committed_ms)} by {marker.writer}"


def difference(group: Positions, checkpoint: Positions) -> str:
    """Which offsets would be read again, or not at all, by whoever goes on from the checkpoint."""
    if not group:
        return "the group does not say at which"
    said = []
    for partition in sorted({*group, *checkpoint}):
        here, there = checkpoint.get(partition), group.get(partition)
        if here != there:
            said.append(f"{partition}: {_consequence(here, there)}")
    if not said:
        return "Kafka's are the same, those of another source differ"
    more = len(said) - PARTITIONS_NAMED_MAX
    return "; ".join(said[:PARTITIONS_NAMED_MAX]) + (f"; and {more} partitions more" if more > 0 else "")


def _consequence(checkpoint: int | None, group: int | None) -> str:
    if checkpoint is None:
        return f"group {group}, checkpoint none"
    if group is None:
        return f"group none, checkpoint {checkpoint}"
    count = abs(group - checkpoint)
    what = "read again" if group > checkpoint else "skipped"
    return f"group {group}, checkpoint {checkpoint}, {count} would be {what}"


def _offsets_in_words(offsets: Positions) -> str:
    shown = [f"{partition} at {offset}" for partition, offset in sorted(offsets.items())]
    more = len(shown) - PARTITIONS_NAMED_MAX
    return ", ".join(shown[:PARTITIONS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _starting_offsets(positions: Mapping[TopicPartition, int]) -> str:
    text = json.dumps(nested(positions), separators=(",", ":"))
    if not positions or len(text) > STARTING_OFFSETS_CHARACTERS_MAX:
        return "the offsets of the group (startingOffsets)"
    return f"startingOffsets='{text}'"


def docs_table() -> str:
    """For docs/pipelines.md."""
    lines = ["| the checkpoint | the group | batch N is | with `adopt` |", "|---|---|---|---|"]
    for rule in RULES.values():
        done = rule.step.value if rule.step is not None else "refused"
        adopted = "" if rule.step is not None else "written" if rule.may_adopt else "refused"
        lines.append(f"| {rule.checkpoint} | {rule.group} | {done} | {adopted} |")
    return "\n".join(lines) + "\n"
