"""Topics: CreateTopics, DeleteTopics, CreatePartitions.

A topic is created with its settings and all its partitions in one batch, or not at all. Partitions begin with those
replicas in sync that are on active brokers, and the first of them leads.
"""

from collections import Counter
from collections.abc import Sequence

from fencepost.internal_topic_names import CLUSTER_METADATA
from fencepost.metadata.controller.answers import (
    RECORDS_PER_REQUEST_MAX,
    generic,
    too_large,
)
from fencepost.metadata.controller.configs import SET, changed_settings, effective_settings
from fencepost.metadata.controller.state import Call, ControllerState, Decision
from fencepost.metadata.image import TOPIC_CONFIG, PartitionState
from fencepost.metadata.records import MetadataRecord
from fencepost.topic_names import check_topic_name
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    RemoveTopicRecord,
    TopicRecord,
)

_Wanted = CreateTopicsRequest.CreatableTopic
_Created = CreateTopicsResponse.CreatableTopicResult
_Deleted = DeleteTopicsResponse.DeletableTopicResult
_Widened = CreatePartitionsResponse.CreatePartitionsTopicResult
NO_TOPIC_ID = bytes(16)
PARTITIONS_PER_REQUEST_MAX = 10_000
_FROM_DEFAULT = -1


def create_topics(state: ControllerState, request: CreateTopicsRequest, call: Call) -> Decision:
    names = Counter(wanted.name for wanted in request.topics)
    topics = [wanted for wanted in request.topics if names[wanted.name] == 1 and wanted.name != CLUSTER_METADATA]
    answer = CreateTopicsResponse()
    records: list[MetadataRecord] = []
    try:
        _check_partition_count(state, topics)
        for wanted in topics:
            try:
                result, made = _create(state, wanted)
            except KafkaError as error:
                result, made = _refused(wanted.name, error), []
            answer.topics.append(result)
            records += made
            if len(records) > RECORDS_PER_REQUEST_MAX:
                raise too_large()
    except KafkaError as error:
        return Decision(CreateTopicsResponse(topics=[_refused(wanted.name, error) for wanted in request.topics]))
    for name, count in names.items():
        if count > 1:
            answer.topics.append(_refused(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")))
        elif name == CLUSTER_METADATA:
            reason = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
            answer.topics.append(_refused(name, KafkaError(ErrorCode.INVALID_REQUEST, reason)))
    return Decision(answer, [] if request.validate_only else records)


def _refused(name: str, error: KafkaError) -> _Created:
    return _Created(name=name, error_code=error.code, error_message=error.message)


def _check_partition_count(state: ControllerState, topics: Sequence[_Wanted]) -> None:
    total = 0
    for wanted in topics:
        if wanted.assignments:
            total += len(wanted.assignments)
        elif wanted.num_partitions == _FROM_DEFAULT:
            total += state.settings.config.num_partitions
        else:
            total += max(0, wanted.num_partitions)
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _create(state: ControllerState, wanted: _Wanted) -> tuple[_Created, list[MetadataRecord]]:
    _check_name(state, wanted.name)
    resource = (TOPIC_CONFIG, wanted.name)
    without_value = [config.name for config in wanted.configs if config.value is None]
    if without_value:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(without_value)}"
        )
    texts = {config.name: config.value or "" for config in wanted.configs}
    settings = changed_settings(
        state, resource, {name: (SET, text) for name, text in texts.items()}, is_new=True, is_forwarded=True
    )
    partitions = _assigned(state, wanted) if wanted.assignments else _placed(state, wanted)
    topic_id = state.new_id()
    records = [MetadataRecord(TopicRecord(name=wanted.name, topic_id=topic_id)), *settings]
    level = state.image.metadata_version
    records += [partition.to_record(topic_id, index, level) for index, partition in sorted(partitions.items())]
    result = _Created(
        name=wanted.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(next(iter(partitions.values())).replicas),
        configs=[
            _Created.CreatableTopicConfigs(
                name=name, value=text, read_only=False, config_source=source, is_sensitive=False
            )
            for name, (text, source) in sorted(effective_settings(state, texts).items())
        ],
    )
    return result, records


def _check_name(state: ControllerState, name: str) -> None:
    if name in state.image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = state.colliding_name(name)
    if other is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
    check_topic_name(name)


def _assigned(state: ControllerState, wanted: _Wanted) -> dict[int, PartitionState]:
    for value, name in ((wanted.replication_factor, "replication factor"), (wanted.num_partitions, "numPartitions")):
        if value != _FROM_DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    partitions: dict[int, PartitionState] = {}
    replication_factor = None
    for assignment in wanted.assignments:
        index = assignment.partition_index
        if index in partitions:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_assignment(state, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        partitions[index] = _assigned_partition(state, index, assignment.broker_ids)
    if set(partitions) != set(range(len(partitions))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return partitions


def check_assignment(state: ControllerState, broker_ids: Sequence[int], replication_factor: int | None) -> None:
    reason = None
    before = None
    if not broker_ids:
        reason = "The manual partition assignment includes an empty replica list."
    for broker_id in sorted(broker_ids):
        if broker_id not in state.image.brokers:
            reason = f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            break
        if broker_id == before:
            reason = f"The manual partition assignment includes the broker {broker_id} more than once."
            break
        before = broker_id
    if reason is None and replication_factor not in (None, len(broker_ids)):
        reason = (
            f"The manual partition assignment includes a partition with {len(broker_ids)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _assigned_partition(state: ControllerState, index: int, broker_ids: Sequence[int]) -> PartitionState:
    partition = _new_partition(state, broker_ids)
    if partition is None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown.",
        )
    return partition


def _new_partition(state: ControllerState, broker_ids: Sequence[int]) -> PartitionState | None:
    isr = tuple(broker_id for broker_id in broker_ids if state.is_active(broker_id))
    if not isr:
        return None
    directories = tuple(state.default_directory(broker_id) for broker_id in broker_ids)
    return PartitionState(tuple(broker_ids), directories, isr, isr[0], leader_epoch=0, partition_epoch=0)


def _placed(state: ControllerState, wanted: _Wanted) -> dict[int, PartitionState]:
    config = state.settings.config
    replication_factor, partition_count = wanted.replication_factor, wanted.num_partitions
    if replication_factor < _FROM_DEFAULT or replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partition_count < _FROM_DEFAULT or partition_count == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if replication_factor == _FROM_DEFAULT:
        replication_factor = config.default_replication_factor
    if partition_count == _FROM_DEFAULT:
        partition_count = config.num_partitions
    try:
        placement = state.placer.place(partition_count, replication_factor, state.candidates())
    except KafkaError as error:
        reason = f"Unable to replicate the partition {replication_factor} time(s): {error.message}"
        raise KafkaError(error.code, reason) from None
    return dict(enumerate(_placed_partitions(state, placement, replication_factor)))


def _placed_partitions(
    state: ControllerState, placement: Sequence[Sequence[int]], replication_factor: int
) -> list[PartitionState]:
    partitions = []
    for broker_ids in placement:
        partition = _new_partition(state, broker_ids)
        if partition is None:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced or "
                "in controlled shutdown.",
            )
        partitions.append(partition)
    return partitions


def delete_topics(state: ControllerState, request: DeleteTopicsRequest, call: Call) -> Decision:
    """By names or, from v6 on, by names or ids. One that is named twice, in whatever way, is not deleted."""
    wanted: list[tuple[str | None, bytes]] = [(name, NO_TOPIC_ID) for name in request.topic_names]
    wanted += [(topic.name, topic.topic_id) for topic in request.topics]
    if not state.settings.config.delete_topic_enable:
        return Decision(DeleteTopicsResponse(responses=_deletion_disabled(wanted, call.version)))
    answer = DeleteTopicsResponse()

    def refuse(name: str | None, topic_id: bytes, error: KafkaError) -> None:
        answer.responses.append(
            _Deleted(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
        )

    counts: Counter[tuple[str | None, bytes]] = Counter()
    for name, topic_id in wanted:
        if (name is None) == (topic_id == NO_TOPIC_ID):
            reason = "You may not specify both topic name and topic id."
            if name is None:
                reason = "Neither topic name nor id were specified."
            refuse(name, topic_id, KafkaError(ErrorCode.INVALID_REQUEST, reason))
        else:
            counts[name, topic_id] += 1
    by_id: dict[bytes, str] = {}
    refused_ids: set[bytes] = set()
    # Ids first: a name must not mean a topic that an id has named.
    for (name, topic_id), count in sorted(counts.items(), key=lambda item: item[0][0] is not None):
        if count > 1:
            reason = "Duplicate topic id." if name is None else "Duplicate topic name."
            refuse(name, topic_id, KafkaError(ErrorCode.INVALID_REQUEST, reason))
            refused_ids.add(topic_id)
        elif name is None:
            known = state.image.topics_by_id.get(topic_id)
            if known is None:
                refuse(None, topic_id, generic(ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                by_id[topic_id] = known.name
        elif name not in state.image.topics:
            refuse(name, NO_TOPIC_ID, generic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            known_id = state.image.topics[name].topic_id
            if known_id in refused_ids or known_id in by_id:
                by_id.pop(known_id, None)
                refused_ids.add(known_id)
                reason = "The provided topic name maps to an ID that was already supplied."
                refuse(name, known_id, KafkaError(ErrorCode.INVALID_REQUEST, reason))
            else:
                by_id[known_id] = name
    records = [MetadataRecord(RemoveTopicRecord(topic_id=topic_id)) for topic_id in by_id]
    answer.responses += [_Deleted(name=name, topic_id=topic_id, error_message=None) for topic_id, name in by_id.items()]
    if len(records) > RECORDS_PER_REQUEST_MAX:
        code = ErrorCode.POLICY_VIOLATION
        return Decision(
            DeleteTopicsResponse(
                responses=[_Deleted(name=name, topic_id=topic_id, error_code=code) for name, topic_id in wanted]
            )
        )
    return Decision(answer, records)


def _deletion_disabled(wanted: list[tuple[str | None, bytes]], version: int) -> list[_Deleted]:
    code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
    return [_Deleted(name=name, topic_id=topic_id, error_code=code) for name, topic_id in wanted]


def create_partitions(state: ControllerState, request: CreatePartitionsRequest, call: Call) -> Decision:
    names = Counter(wanted.name for wanted in request.topics)
    answer = CreatePartitionsResponse()
    records: list[MetadataRecord] = []
    for wanted in {topic.name: topic for topic in request.topics}.values():
        result = _Widened(name=wanted.name, error_message=None)
        answer.results.append(result)
        try:
            if names[wanted.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            records += _widened(state, wanted)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        if len(records) > RECORDS_PER_REQUEST_MAX:
            refusal = too_large()
            for each in answer.results:
                each.error_code, each.error_message = refusal.code, refusal.message
            return Decision(answer)
    return Decision(answer, [] if request.validate_only else records)


def _widened(state: ControllerState, wanted: CreatePartitionsRequest.CreatePartitionsTopic) -> list[MetadataRecord]:
    topic = state.image.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    count = len(topic.partitions)
    added = wanted.count - count
    if added == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if added < 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {count} partition(s); {wanted.count} would not be an increase.",
        )
    if wanted.assignments is not None and len(wanted.assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only {len(wanted.assignments)} assignment(s) were "
            "specified.",
        )
    if added > RECORDS_PER_REQUEST_MAX:
        raise too_large()
    replication_factor = len(topic.partitions[0].replicas)
    partitions = []
    if wanted.assignments is not None:
        for index, assignment in enumerate(wanted.assignments, count):
            check_assignment(state, assignment.broker_ids, replication_factor)
            partitions.append(_assigned_partition(state, index, assignment.broker_ids))
    else:
        placement = state.placer.place(added, replication_factor, state.candidates())
        partitions = _placed_partitions(state, placement, replication_factor)
    level = state.image.metadata_version
    return [partition.to_record(topic.topic_id, index, level) for index, partition in enumerate(partitions, count)]
