"""Checks which records may be missing from the topics that administrators change.

The history's checker does not judge what deletion and compaction may have taken. They may not take the newest
value of a key, records at or above the highest offset requested to be deleted, or topics that were not deleted.
"""

from collections.abc import Iterator

from fencepost.history.evidence import Evidence, PartitionEvidence
from fencepost.history.operations import Outcome, Send
from fencepost.history.reading import History
from fencepost.simulation.administered_clients import FinalSurvey, is_tombstone
from fencepost.simulation.administered_topics import AdministeredTopics, key_of, name_of, plan_of
from fencepost.simulation.client_journal import partition_name
from fencepost.topic_partition import TopicPartition


def check_thinning(topics: AdministeredTopics, survey: FinalSurvey, history: History) -> Iterator[str]:
    yield from _check_topics(topics)
    evidence = Evidence(history)
    for key, start in survey.starts.items():
        yield from _check_start(topics, key, start, survey.ends.get(key, start))
        partition = evidence.partitions.get(partition_name(key))
        if partition is not None and plan_of(key[0]).may_be_compacted:
            yield from _check_newest(key, start, partition, dict(survey.committed[key]))


def _check_topics(topics: AdministeredTopics) -> Iterator[str]:
    existing = set(topics.current.values())
    for label in topics.ids:
        if label not in existing and label not in topics.deletion_asked:
            yield f"topic-lost: {label} is gone, and nobody has deleted it"
        if label in existing and label in topics.deletion_done:
            yield f"topic-back: {label} was deleted and is back"


def _check_start(topics: AdministeredTopics, key: TopicPartition, start: int, end: int) -> Iterator[str]:
    name = name_of(key[0])
    asked = topics.trim_asked.get(TopicPartition(name, key.partition), 0)
    if start > asked and name not in topics.retention_asked:
        yield f"deleted-too-much: {key} begins at {start}, but nobody asked to delete more than up to {asked}"
    if start > end:
        yield f"deleted-too-much: {key} begins at {start}, behind its end {end}"
    done = topics.trim_done.get(key, 0)
    if start < done:
        yield f"deleted-records-back: {key} begins at {start} after its records were deleted up to {done}"


def _check_newest(
    key: TopicPartition, start: int, partition: PartitionEvidence, final: dict[int, str]
) -> Iterator[str]:
    """Of every key, the newest value that certainly counts, unless one that may count came after it."""
    newest: dict[str, tuple[int, str]] = {}
    for offset, value in _certain(partition):
        found = newest.get(key_of(value))
        if found is None or offset > found[0]:
            newest[key_of(value)] = (offset, value)
    kept: dict[str, int] = {}
    for offset, value in final.items():
        kept[key_of(value)] = max(kept.get(key_of(value), -1), offset)
    for record_key, (offset, value) in newest.items():
        if offset < start or offset in final or is_tombstone(value) or kept.get(record_key, -1) > offset:
            continue
        if any(_may_supersede(send, record_key, offset) for send in _sends(partition)):
            continue
        yield f"compacted-too-much: {value} at {offset} of {key} is the newest of {record_key} and is gone"


def _certain(partition: PartitionEvidence) -> Iterator[tuple[int, str]]:
    """What an answer has said is there."""
    for offset, send in partition.acknowledged.items():
        if send.operation.is_committed:
            yield offset, str(send.value)
    for offset, entry in partition.entries.items():
        if entry.committed_by is not None:
            yield offset, str(entry.value)


def _sends(partition: PartitionEvidence) -> Iterator[Send]:
    for value in partition.attempts:
        yield from partition.tries(value)


def _may_supersede(send: Send, record_key: str, offset: int) -> bool:
    """A tombstone of that key that may have been written later: compaction drops it in the end, too."""
    return (
        is_tombstone(str(send.value))
        and key_of(str(send.value)) == record_key
        and (send.offset is None or send.offset > offset)
        and send.operation.outcome is not Outcome.FAIL
    )
