"""OffsetFetch 1-10: what a group, or several (version 8), have committed.

A fetch never shows an offset that a crash could take back: its answer waits for what was written before it. A
client that requires stable offsets (version 7) gets an error while a transaction holds a newer one, and asks again.
"""

from collections.abc import Callable, Iterable
from functools import partial

from fencepost.coordinators.context import Topics
from fencepost.coordinators.rebalance import GroupRuntime
from fencepost.coordinators.runtime import Written
from fencepost.coordinators.shard import GroupShard
from fencepost.coordinators.write_errors import error_for_commits
from fencepost.promise import Promise
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import OffsetFetchRequest, OffsetFetchResponse

GROUP_ERROR_VERSION = 2
SEVERAL_GROUPS_VERSION = 8
TOPIC_ID_VERSION = 10
NO_OFFSET = -1
NO_LEADER_EPOCH = -1

Wanted = OffsetFetchRequest.OffsetFetchRequestGroup
GroupAnswer = OffsetFetchResponse.OffsetFetchResponseGroup
TopicAnswer = GroupAnswer.OffsetFetchResponseTopics
PartitionAnswer = TopicAnswer.OffsetFetchResponsePartitions


class Fetches:
    def __init__(self, runtime: GroupRuntime, topics: Topics, shard_of: Callable[[str], GroupShard]) -> None:
        self._runtime = runtime
        self._topics = topics
        self._shard_of = shard_of

    def fetch(self, request: OffsetFetchRequest, version: int) -> Promise[OffsetFetchResponse]:
        # Named twice is answered once.
        groups = list({group.group_id: group for group in request.groups}.values())
        if version < SEVERAL_GROUPS_VERSION:
            groups = [as_fetch_group(request)]
        answers: list[GroupAnswer | None] = [None] * len(groups)
        left = len(groups)
        reply: Promise[OffsetFetchResponse] = Promise()

        def arrived(index: int, answer: GroupAnswer) -> None:
            nonlocal left
            answers[index] = answer
            left -= 1
            if not left:
                reply.resolve(fetch_response([one for one in answers if one is not None], version))

        if not groups:
            reply.resolve(fetch_response([], version))
        for index, group in enumerate(groups):
            self._fetch_group(group, version, request.require_stable, partial(arrived, index))
        return reply

    def _fetch_group(
        self, wanted: Wanted, version: int, require_stable: bool, arrived: Callable[[GroupAnswer], None]
    ) -> None:
        try:
            shard = self._shard_of(wanted.group_id)
        except KafkaError as refusal:
            arrived(refused_fetch(wanted, refusal.code, version))
            return
        if wanted.topics is None:
            topics = self._all_offsets(shard, wanted.group_id, version, require_stable)
        else:
            topics = self._some_offsets(shard, wanted, version, require_stable)
        answer = GroupAnswer(group_id=wanted.group_id, topics=topics)

        def settled(written: Written) -> None:
            if written.error is ErrorCode.NONE:
                arrived(answer)
            else:
                # Consumers before 3.9 do not know what to do about a time-out here.
                moved = ErrorCode.NOT_COORDINATOR
                error = moved if written.error is ErrorCode.REQUEST_TIMED_OUT else error_for_commits(written.error)
                arrived(refused_fetch(wanted, error, version))

        self._runtime.schedule_write(shard.partition, ()).then(settled)

    def _some_offsets(self, shard: GroupShard, wanted: Wanted, version: int, require_stable: bool) -> list[TopicAnswer]:
        found: list[TopicAnswer] = []
        unknown: list[TopicAnswer] = []
        for topic in wanted.topics or ():
            name = self._topics.name_of(topic.topic_id) if version >= TOPIC_ID_VERSION else topic.name
            if name is None:
                partitions = [no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes]
                unknown.append(TopicAnswer(topic_id=topic.topic_id, partitions=partitions))
                continue
            partitions = [
                _offset_answer(shard, wanted.group_id, name, index, require_stable) for index in topic.partition_indexes
            ]
            found.append(TopicAnswer(name=name, topic_id=topic.topic_id, partitions=partitions))
        return found + unknown

    def _all_offsets(self, shard: GroupShard, group_id: str, version: int, require_stable: bool) -> list[TopicAnswer]:
        answers: dict[str, TopicAnswer] = {}
        for name, index in shard.offsets.of_group(group_id):
            topic_id = self._topics.id_of(name)
            if topic_id is None and version >= TOPIC_ID_VERSION:
                continue
            topic = answers.setdefault(name, TopicAnswer(name=name, topic_id=topic_id or bytes(16)))
            topic.partitions.append(_offset_answer(shard, group_id, name, index, require_stable))
        return list(answers.values())


def _offset_answer(
    shard: GroupShard, group_id: str, topic: str, partition: int, require_stable: bool
) -> PartitionAnswer:
    if require_stable and shard.offsets.is_pending(group_id, topic, partition):
        return no_offset(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = shard.offsets.get(group_id, topic, partition)
    if committed is None:
        return no_offset(partition, ErrorCode.NONE)
    return PartitionAnswer(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def no_offset(partition: int, error: ErrorCode) -> PartitionAnswer:
    return PartitionAnswer(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_LEADER_EPOCH,
        metadata="",
        error_code=error,
    )


def as_fetch_group(request: OffsetFetchRequest) -> Wanted:
    topics = None
    if request.topics is not None:
        topics = [
            Wanted.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return Wanted(group_id=request.group_id, topics=topics)


def refused_fetch(wanted: Wanted, error: ErrorCode, version: int) -> GroupAnswer:
    if version >= GROUP_ERROR_VERSION:
        return GroupAnswer(group_id=wanted.group_id, error_code=error)
    # Version 1 has no error of its own, so every partition carries it.
    topics = [
        TopicAnswer(name=topic.name, partitions=[no_offset(index, error) for index in topic.partition_indexes])
        for topic in wanted.topics or ()
    ]
    return GroupAnswer(group_id=wanted.group_id, topics=topics, error_code=error)


def fetch_response(groups: Iterable[GroupAnswer], version: int) -> OffsetFetchResponse:
    if version >= SEVERAL_GROUPS_VERSION:
        return OffsetFetchResponse(groups=list(groups))
    (group,) = groups
    topic_answer = OffsetFetchResponse.OffsetFetchResponseTopic
    topics = [
        topic_answer(
            name=topic.name,
            partitions=[
                topic_answer.OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)
