"""OffsetCommit 2-10, TxnOffsetCommit 0-5 and OffsetDelete 0: who may change which offsets of a group.

Topics go by name inside; from version 10 clients send ids, which are resolved here and answered as they came. Offsets
of topics or partitions that do not exist are refused one by one, before the group is even looked at.
"""

from collections.abc import Callable, Sequence

from fencepost.coordinators.context import Topics
from fencepost.coordinators.group import Group, GroupState
from fencepost.coordinators.journal import ZERO_TOPIC_ID, CommittedOffset, OffsetEntry
from fencepost.coordinators.rebalance import Rebalance
from fencepost.coordinators.runtime import Written
from fencepost.coordinators.shard import GroupShard
from fencepost.coordinators.write_errors import error_for_commits
from fencepost.log.producers import VerificationGuard
from fencepost.ports import Now
from fencepost.promise import Promise
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

TOPIC_ID_VERSION = 10
GROUP_ID_NOT_FOUND_VERSION = 9
DEFAULT_RETENTION_TIME_MS = -1

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
CommitPartition = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition
CommitTopicAnswer = OffsetCommitResponse.OffsetCommitResponseTopic
CommitPartitionAnswer = OffsetCommitResponse.OffsetCommitResponseTopic.OffsetCommitResponsePartition
TxnCommitTopicAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
TxnCommitPartitionAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic.TxnOffsetCommitResponsePartition
DeleteTopicAnswer = OffsetDeleteResponse.OffsetDeleteResponseTopic
DeletePartitionAnswer = OffsetDeleteResponse.OffsetDeleteResponseTopic.OffsetDeleteResponsePartition

ShardOf = Callable[[str], GroupShard]
"""The shard that answers for a group id; raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""


class Commits:
    def __init__(self, rebalance: Rebalance, topics: Topics, shard_of: ShardOf) -> None:
        self._rebalance = rebalance
        self._runtime = rebalance.runtime
        self._config = rebalance.config
        self._topics = topics
        self._shard_of = shard_of

    # OffsetCommit

    def commit(self, request: OffsetCommitRequest, version: int, now: Now) -> Promise[OffsetCommitResponse]:
        answers: dict[tuple[str, bytes], CommitTopicAnswer] = {}
        accepted: list[tuple[CommitTopic, str, CommitPartition]] = []
        for topic in request.topics:
            name = self._topics.name_of(topic.topic_id) if version >= TOPIC_ID_VERSION else topic.name
            for partition in topic.partitions:
                error = self._check_partition(name, partition.partition_index)
                if error is not ErrorCode.NONE:
                    _answer_commit(answers, topic, partition.partition_index, error)
                else:
                    assert name is not None
                    accepted.append((topic, name, partition))
        entries: list[OffsetEntry] = []
        reply: Promise[OffsetCommitResponse] = Promise()

        def answer(error: ErrorCode, errors: Sequence[ErrorCode]) -> None:
            for (topic, _, partition), own_error in zip(accepted, errors, strict=True):
                verdict = own_error if error is ErrorCode.NONE else error
                _answer_commit(answers, topic, partition.partition_index, verdict)
            reply.resolve(OffsetCommitResponse(topics=list(answers.values())))

        errors = [self._check_metadata(partition.committed_metadata) for _, _, partition in accepted]
        if not accepted:
            answer(ErrorCode.NONE, errors)
            return reply
        try:
            shard = self._shard_of(request.group_id)
            self._check_committer(shard, request, version, now)
        except KafkaError as refusal:
            answer(refusal.code, errors)
            return reply
        expire_timestamp_ms = None
        if request.retention_time_ms != DEFAULT_RETENTION_TIME_MS:
            expire_timestamp_ms = now.wall_ms + request.retention_time_ms
        for (_, name, partition), error in zip(accepted, errors, strict=True):
            if error is ErrorCode.NONE:
                entries.append(self._entry(request.group_id, name, partition, now, expire_timestamp_ms))
        written = self._runtime.schedule_write(shard.partition, entries)
        written.then(lambda outcome: answer(error_for_commits(outcome.error), errors))
        return reply

    def _check_committer(self, shard: GroupShard, request: OffsetCommitRequest, version: int, now: Now) -> None:
        group = shard.groups.get(request.group_id)
        generation_id = request.generation_id_or_member_epoch
        if group is None:
            # Without a generation it is an administrator, or a consumer that does not use groups for membership.
            if generation_id < 0:
                return
            is_told = version >= GROUP_ID_NOT_FOUND_VERSION
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.ILLEGAL_GENERATION)
        check_commit(group, request.member_id, request.group_instance_id, generation_id, transactional=False)
        if group.is_in(GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            # A commit is as good as a heartbeat.
            self._rebalance.restart_session(group, group.members[request.member_id], now)

    def _entry(
        self,
        group_id: str,
        topic: str,
        partition: CommitPartition | TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition,
        now: Now,
        expire_timestamp_ms: int | None = None,
    ) -> OffsetEntry:
        committed = CommittedOffset(
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            now.wall_ms,
            expire_timestamp_ms,
            # The record version that holds an expiry has no room for the id, and memory shows what the log can hold.
            ZERO_TOPIC_ID if expire_timestamp_ms is not None else self._topics.id_of(topic) or ZERO_TOPIC_ID,
        )
        return OffsetEntry(group_id, topic, partition.partition_index, committed)

    def _check_partition(self, name: str | None, partition: int) -> ErrorCode:
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        count = self._topics.partition_count_of(name)
        if count is None or not 0 <= partition < count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _check_metadata(self, metadata: str | None) -> ErrorCode:
        if metadata is None or _java_length(metadata) <= self._config.offset_metadata_max_bytes:
            return ErrorCode.NONE
        return ErrorCode.OFFSET_METADATA_TOO_LARGE

    # TxnOffsetCommit

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, now: Now, guard: VerificationGuard | None
    ) -> Promise[TxnOffsetCommitResponse]:
        """Offsets that count once the transaction commits. The caller has verified that it is open."""
        reply: Promise[TxnOffsetCommitResponse] = Promise()
        answers: dict[str, TxnCommitTopicAnswer] = {}
        verdicts = [
            (topic.name, partition, self._check_transactional_partition(topic.name, partition))
            for topic in request.topics
            for partition in topic.partitions
        ]

        def answer(error: ErrorCode) -> None:
            for name, partition, own_error in verdicts:
                code = own_error if own_error is not ErrorCode.NONE else error
                topic_answer = answers.setdefault(name, TxnCommitTopicAnswer(name=name))
                topic_answer.partitions.append(
                    TxnCommitPartitionAnswer(partition_index=partition.partition_index, error_code=code)
                )
            reply.resolve(TxnOffsetCommitResponse(topics=list(answers.values())))

        entries = [
            self._entry(request.group_id, name, partition, now)
            for name, partition, error in verdicts
            if error is ErrorCode.NONE
        ]
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            shard = self._shard_of(request.group_id)
            group = shard.groups.get(request.group_id)
            if group is not None:
                check_commit(
                    group, request.member_id, request.group_instance_id, request.generation_id, transactional=True
                )
            elif request.generation_id >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        except KafkaError as refusal:
            answer(refusal.code)
            return reply
        self._runtime.schedule_write(
            shard.partition,
            entries,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            verification_guard=guard,
        ).then(lambda outcome: answer(error_for_commits(outcome.error)))
        return reply

    def _check_transactional_partition(
        self,
        name: str,
        partition: TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition,
    ) -> ErrorCode:
        error = self._check_partition(name, partition.partition_index)
        return error if error is not ErrorCode.NONE else self._check_metadata(partition.committed_metadata)

    # OffsetDelete

    def delete(self, request: OffsetDeleteRequest) -> Promise[OffsetDeleteResponse]:
        reply: Promise[OffsetDeleteResponse] = Promise()
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            shard = self._shard_of(request.group_id)
            group = shard.groups.get(request.group_id)
            if group is None:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            if not group.is_in(GroupState.EMPTY) and not group.uses_consumer_protocol:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        except KafkaError as refusal:
            reply.resolve(OffsetDeleteResponse(error_code=refusal.code))
            return reply
        answers: dict[str, DeleteTopicAnswer] = {}
        entries: list[OffsetEntry] = []
        for topic in request.topics:
            answer = answers.setdefault(topic.name, DeleteTopicAnswer(name=topic.name))
            for partition in topic.partitions:
                index = partition.partition_index
                error = self._check_partition(topic.name, index)
                if error is ErrorCode.NONE and group.is_subscribed_to(topic.name):
                    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                answer.partitions.append(DeletePartitionAnswer(partition_index=index, error_code=error))
                if error is ErrorCode.NONE and has_offset(shard, request.group_id, topic.name, index):
                    entries.append(OffsetEntry(request.group_id, topic.name, index, None))

        def written(outcome: Written) -> None:
            if outcome.error is ErrorCode.NONE:
                reply.resolve(OffsetDeleteResponse(topics=list(answers.values())))
            else:
                reply.resolve(OffsetDeleteResponse(error_code=error_for_commits(outcome.error)))

        self._runtime.schedule_write(shard.partition, entries).then(written)
        return reply


def check_commit(
    group: Group, member_id: str, group_instance_id: str | None, generation_id: int, *, transactional: bool
) -> None:
    """Whether this caller may commit for the group now."""
    if generation_id < 0 and group.is_in(GroupState.EMPTY):
        return
    if generation_id >= 0 or member_id or group_instance_id is not None:
        group.check_member(member_id, group_instance_id)
        if generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    elif not transactional and not group.is_in(GroupState.EMPTY):
        # Transactional commits of old clients name no member; a plain commit must, while there are members.
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not transactional and group.is_in(GroupState.COMPLETING_REBALANCE):
        # It knows the new generation but not its assignment; it should go on with the rebalance.
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def has_offset(shard: GroupShard, group_id: str, topic: str, partition: int) -> bool:
    """Whether there is anything that a tombstone would remove."""
    offsets = shard.offsets
    return (topic, partition) in offsets.of_group(group_id) or offsets.is_pending(group_id, topic, partition)


def _answer_commit(
    answers: dict[tuple[str, bytes], CommitTopicAnswer], topic: CommitTopic, partition: int, error: ErrorCode
) -> None:
    key = (topic.name, topic.topic_id)
    answer = answers.setdefault(key, CommitTopicAnswer(name=topic.name, topic_id=topic.topic_id))
    answer.partitions.append(CommitPartitionAnswer(partition_index=partition, error_code=error))


def _java_length(text: str) -> int:
    """Java counts UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
