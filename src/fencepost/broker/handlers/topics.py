"""CreateTopics (2-7), DeleteTopics (1-6), CreatePartitions (0-3), DeleteRecords (0-2).

CreateTopics needs CREATE on the topic or on the cluster; from v5 on it answers with the settings of the new topic, to
callers with DESCRIBE_CONFIGS on it. DeleteTopics needs DELETE on the topic or on the cluster; from v6 on a topic may be
named by its id, and only callers with DESCRIBE on it learn its name. CreatePartitions needs ALTER, and
DeleteRecords DELETE, on each topic.
"""

from collections import Counter
from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.handler import (
    JOURNAL_PART_ENTRIES,
    MESSAGES,
    NEVER_SPLIT,
    WRITTEN_PART_ENTRIES,
    Handler,
    Repeated,
    Shape,
)
from fencepost.broker.rights import IN_HANDLER, each
from fencepost.broker.security.access import Access
from fencepost.broker.slices import Steps
from fencepost.config import check_served, topic_config, topic_settings
from fencepost.internal_topic_names import INTERNAL_TOPICS
from fencepost.settings import InvalidSetting
from fencepost.topic_names import check_topic_name, colliding_name
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_CreateResult = CreateTopicsResponse.CreatableTopicResult
_Creatable = CreateTopicsRequest.CreatableTopic
_DeleteResult = DeleteTopicsResponse.DeletableTopicResult
_GrowResult = CreatePartitionsResponse.CreatePartitionsTopicResult
_RecordsTopic = DeleteRecordsResponse.DeleteRecordsTopicResult
_RecordsPartition = _RecordsTopic.DeleteRecordsPartitionResult
NO_TOPIC_ID = bytes(16)
# As in Kafka, where a request may not lead to more records in the metadata log: all of it happens at once.
CHANGES_PER_REQUEST_MAX = 10_000


def create_topics(node: "Node", call: Call, request: CreateTopicsRequest) -> Steps[CreateTopicsResponse]:
    names: Counter[str] = Counter()
    changes = 0
    for wanted in request.topics:
        yield None
        names[wanted.name] += 1
        changes += _change_count(node, wanted)
    response = CreateTopicsResponse()
    if changes > CHANGES_PER_REQUEST_MAX:
        for name in names:
            yield None
            response.topics.append(_refused(name, _too_large()))
        return response
    refused: set[str] = set()
    for wanted in request.topics:
        yield None
        if names[wanted.name] > 1:
            if wanted.name not in refused:
                refused.add(wanted.name)
                response.topics.append(
                    _refused(
                        wanted.name, KafkaError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
                    )
                )
            continue
        try:
            response.topics.append((yield from _create(node, call, wanted, request.validate_only)))
        except KafkaError as error:
            response.topics.append(_refused(wanted.name, error))
    return response


def _change_count(node: "Node", wanted: _Creatable) -> int:
    partition_count = node.config.num_partitions if wanted.num_partitions == -1 else wanted.num_partitions
    return 1 + max(partition_count, len(wanted.assignments)) + len(wanted.configs)


def _too_large() -> KafkaError:
    return KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def _refused(name: str, error: KafkaError) -> _CreateResult:
    return _CreateResult(
        name=name,
        error_code=error.code,
        error_message=error.message,
        num_partitions=-1,
        replication_factor=-1,
        configs=None,
        topic_config_error_code=ErrorCode.NONE,
    )


def _create(node: "Node", call: Call, wanted: _Creatable, validate_only: bool) -> Steps[_CreateResult]:
    check_topic_name(wanted.name)
    if wanted.name in node.metadata.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{wanted.name}' already exists.")
    node.check_not_in_the_making(wanted.name)
    other = colliding_name(wanted.name, node.metadata.topics)
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{wanted.name}' collides with existing topic: {other}"
        )
    partition_count = _partition_count(node, wanted)
    node.check_room_for(partition_count)
    overrides = {config.name: config.value for config in wanted.configs if config.value is not None}
    if len(overrides) != len(wanted.configs):
        raise KafkaError(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs")
    try:
        effective = topic_config(overrides, node.config)
        check_served(topic_settings(), overrides)
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if validate_only:
        topic = node.metadata.draft_topic(wanted.name, partition_count, overrides)
    else:
        topic = yield from node.create_topic_in_steps(wanted.name, partition_count, overrides)
    if call.access is not None and not call.access.could(
        AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, wanted.name
    ):
        return _CreateResult(
            name=wanted.name,
            error_message=None,
            topic_id=topic.topic_id,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            num_partitions=-1,
            replication_factor=-1,
            configs=[],
        )
    configs = [
        _CreateResult.CreatableTopicConfigs(
            name=name,
            value=setting.render(getattr(effective, name.replace(".", "_"))),
            read_only=False,
            config_source=1 if name in overrides else 5,
            is_sensitive=False,
        )
        for name, setting in topic_settings().items()
    ]
    return _CreateResult(
        name=wanted.name,
        error_message=None,
        topic_id=topic.topic_id,
        num_partitions=partition_count,
        replication_factor=1,
        configs=configs,
    )


def _partition_count(node: "Node", wanted: _Creatable) -> int:
    if wanted.assignments:
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions or replicationFactor was not set "
                "to -1.",
            )
        indexes = [assignment.partition_index for assignment in wanted.assignments]
        if sorted(indexes) != list(range(len(indexes))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
            )
        for assignment in wanted.assignments:
            if assignment.broker_ids != [node.config.node_id]:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The only broker is {node.config.node_id}, so every partition has that one replica",
                )
        return len(indexes)
    if wanted.replication_factor < -1 or wanted.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if wanted.num_partitions < -1 or wanted.num_partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    replicas = node.config.default_replication_factor if wanted.replication_factor == -1 else wanted.replication_factor
    if replicas > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} cannot "
            "be reached because only 1 broker(s) are registered.",
        )
    return node.config.num_partitions if wanted.num_partitions == -1 else wanted.num_partitions


def delete_topics(node: "Node", call: Call, request: DeleteTopicsRequest) -> Steps[DeleteTopicsResponse]:
    if call.version >= 6:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, NO_TOPIC_ID) for name in request.topic_names]
    response = DeleteTopicsResponse()
    refusals: list[_DeleteResult] = []
    access = call.access
    if access is not None and (not node.config.delete_topic_enable or access.could_cluster(AclOperation.DELETE)):
        access = None
    times = Counter(wanted)
    for name, topic_id in times:
        yield None
        if access is not None:
            refusal = _deletion_refusal(node, access, name, topic_id)
            if refusal is not None:
                refusals.append(refusal)
                continue
        result = _DeleteResult(name=name, topic_id=topic_id)
        response.responses.append(result)
        try:
            if (name is None) == (topic_id == NO_TOPIC_ID):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Exactly one of name and topic id must be given.")
            if times[name, topic_id] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Duplicate topic id." if name is None else "Duplicate topic name."
                )
            if not node.config.delete_topic_enable:
                raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
            if name is not None:
                topic = node.metadata.topics.get(name)
                if topic is None:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
                    )
                if (None, topic.topic_id) in times:
                    result.topic_id = topic.topic_id
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        "The provided topic name maps to an ID that was already supplied.",
                    )
            else:
                topic = node.metadata.topics_by_id.get(topic_id)
                if topic is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
                if (topic.name, NO_TOPIC_ID) in times:
                    response.responses.pop()  # the answer to its name is the answer
                    continue
            result.name, result.topic_id = topic.name, topic.topic_id
            node.check_not_in_the_making(topic.name)
            yield from node.delete_topic_in_steps(topic.name)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    response.responses += refusals
    return response


def _deletion_refusal(node: "Node", access: Access, name: str | None, topic_id: bytes) -> _DeleteResult | None:
    """Only callers who may describe a topic learn whether it exists, or which name belongs to an id."""
    is_by_id = name is None
    known_name = node.metadata.name_by_id(topic_id) if name is None else name
    if known_name is None or (not is_by_id and topic_id != NO_TOPIC_ID):
        return None
    is_describable = access.may(AclOperation.DESCRIBE, ResourceType.TOPIC, known_name)
    if is_describable and (
        known_name not in node.metadata.topics or access.may(AclOperation.DELETE, ResourceType.TOPIC, known_name)
    ):
        return None
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    shown_name = known_name if is_describable or not is_by_id else None
    return _DeleteResult(name=shown_name, topic_id=topic_id, error_code=error, error_message=MESSAGES[error])


def create_partitions(node: "Node", call: Call, request: CreatePartitionsRequest) -> Steps[CreatePartitionsResponse]:
    names = Counter(topic.name for topic in request.topics)
    response = CreatePartitionsResponse()
    left = CHANGES_PER_REQUEST_MAX
    for wanted in {topic.name: topic for topic in request.topics}.values():
        yield None
        result = _GrowResult(name=wanted.name, error_code=ErrorCode.NONE, error_message=None)
        try:
            if names[wanted.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            topic = node.metadata.topics.get(wanted.name)
            if topic is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
                )
            left -= max(0, wanted.count - topic.partition_count)
            if left < 0:
                raise _too_large()
            node.check_not_in_the_making(topic.name)
            _check_growth(node, topic.partition_count, wanted)
            if not request.validate_only:
                yield from node.add_partitions_in_steps(wanted.name, wanted.count)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        response.results.append(result)
    return response


def _check_growth(node: "Node", current: int, wanted: CreatePartitionsRequest.CreatePartitionsTopic) -> None:
    if wanted.count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if wanted.count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {current} partition(s); {wanted.count} would not be an increase.",
        )
    added = wanted.count - current
    node.check_room_for(added)
    if wanted.assignments is not None:
        if len(wanted.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(wanted.assignments)} assignment(s) "
                "were specified.",
            )
        for assignment in wanted.assignments:
            if assignment.broker_ids != [node.config.node_id]:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The only broker is {node.config.node_id}, so every partition has that one replica",
                )


def delete_records(node: "Node", call: Call, request: DeleteRecordsRequest) -> Steps[DeleteRecordsResponse]:
    """In steps only so that the client's share is charged: the checkpoint may have a line for every partition."""
    yield None
    response = DeleteRecordsResponse()
    moved = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = _RecordsPartition(partition_index=wanted.partition_index, low_watermark=-1)
            results.append(result)
            try:
                partition = node.partition(topic.name, wanted.partition_index)
                if topic.name in INTERNAL_TOPICS:
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, "Records of an internal topic cannot be deleted"
                    )
                if not partition.log.config.is_deleted:
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, "cleanup.policy of the topic does not include delete")
                log_start_offset = partition.log.log_start_offset
                result.low_watermark = partition.log.delete_records_before(wanted.offset)
                if result.low_watermark > log_start_offset:
                    moved.append(partition.log)
            except KafkaError as error:
                result.error_code = error.code
        response.topics.append(_RecordsTopic(name=topic.name, partitions=results))
    if moved:
        try:
            node.write_log_starts(moved)
        except KafkaError as error:
            for result in (each for topic in response.topics for each in topic.partitions if not each.error_code):
                result.error_code = error.code
    return response


HANDLERS = {
    ApiKey.CREATE_TOPICS: Handler(
        create_topics,
        shapes=(
            Shape(
                "topics",
                "topics",
                ("name",),
                part_entries=NEVER_SPLIT,
                answer=_CreateResult,
                on_error={
                    "error_message": "Authorization failed.",
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "configs": None,
                },
            ),
        ),
        needs=(
            each(
                AclOperation.CREATE,
                ResourceType.TOPIC,
                "name",
                instead=AclOperation.CREATE,
                repeated=Repeated.LEFT_TO_HANDLER,
            ),
        ),
    ),
    ApiKey.DELETE_TOPICS: Handler(
        delete_topics,
        shapes=(
            Shape("topics", "responses", ("name", "topic_id"), part_entries=JOURNAL_PART_ENTRIES),
            Shape("topic_names", "responses", (), part_entries=JOURNAL_PART_ENTRIES),
        ),
        needs=IN_HANDLER,
    ),
    ApiKey.CREATE_PARTITIONS: Handler(
        create_partitions,
        shapes=(Shape("topics", "results", ("name",), part_entries=NEVER_SPLIT, answer=_GrowResult),),
        needs=(each(AclOperation.ALTER, ResourceType.TOPIC, "name", repeated=Repeated.LEFT_TO_HANDLER),),
    ),
    ApiKey.DELETE_RECORDS: Handler(
        delete_records,
        shapes=(
            Shape(
                "topics",
                "topics",
                ("name",),
                Shape(
                    "partitions",
                    "partitions",
                    ("partition_index",),
                    answer=_RecordsPartition,
                    on_error={"low_watermark": -1},
                ),
                part_entries=WRITTEN_PART_ENTRIES,
                answer=_RecordsTopic,
            ),
        ),
        needs=(each(AclOperation.DELETE, ResourceType.TOPIC, "name"),),
    ),
}
