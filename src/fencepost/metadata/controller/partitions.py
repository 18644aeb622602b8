"""Partitions that exist: AlterPartition, ElectLeaders, reassignments, directories, and what is looked after by itself.

Only a partition's leader changes its ISR, and only to replicas that are there. A reassignment adds the new replicas
beside the old ones; the AlterPartition that brings the last new one into the ISR ends it.
"""

from fencepost.metadata.controller.answers import RECORDS_PER_REQUEST_MAX, generic, too_large
from fencepost.metadata.controller.partition_change import RECOVERED, RECOVERING, Election, Wanted, is_reassigning
from fencepost.metadata.controller.state import (
    DIRECTORIES_SINCE,
    Call,
    ControllerState,
    Decision,
    is_online,
)
from fencepost.metadata.controller.topics import check_assignment
from fencepost.metadata.image import NO_LEADER, NO_LEADER_CHANGE, PartitionState, TopicImage
from fencepost.metadata.records import MetadataRecord
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_WantedIsr = AlterPartitionRequest.TopicData.PartitionData
_AlteredTopic = AlterPartitionResponse.TopicData
_AlteredPartition = _AlteredTopic.PartitionData
_ISR_WITH_EPOCHS_SINCE = 3
_ANY_EPOCH = -1
_PREFERRED, _UNCLEAN = 0, 1


def alter_partition(state: ControllerState, request: AlterPartitionRequest, call: Call) -> Decision:
    answer = AlterPartitionResponse()
    records: list[MetadataRecord] = []
    if not request.topics:
        return Decision(answer)
    try:
        state.checked_broker(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return Decision(AlterPartitionResponse(error_code=error.code))
    for wanted_topic in request.topics:
        altered = _AlteredTopic(topic_id=wanted_topic.topic_id)
        answer.topics.append(altered)
        topic = state.image.topics_by_id.get(wanted_topic.topic_id)
        for wanted in wanted_topic.partitions:
            result = _AlteredPartition(partition_index=wanted.partition_index)
            altered.partitions.append(result)
            if topic is None:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            isr = _wanted_isr(wanted, call.version)
            try:
                _check_isr(state, topic, request.broker_id, wanted, isr)
                record = _altered(state, topic, request.broker_id, wanted, isr, result)
            except KafkaError as error:
                result.error_code = error.code
                continue
            if record is not None:
                records.append(record)
    return Decision(answer, records)


def _wanted_isr(wanted: _WantedIsr, version: int) -> dict[int, int] | None:
    """By broker the epoch that the leader knows it in; None if one is named twice."""
    if version < _ISR_WITH_EPOCHS_SINCE:
        named = [(broker_id, _ANY_EPOCH) for broker_id in wanted.new_isr]
    else:
        named = [(each.broker_id, each.broker_epoch) for each in wanted.new_isr_with_epochs]
    isr = dict(named)
    return isr if len(isr) == len(named) else None


def _check_isr(
    state: ControllerState, topic: TopicImage, broker_id: int, wanted: _WantedIsr, isr: dict[int, int] | None
) -> None:
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        # It has heard of more than this controller.
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if wanted.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if wanted.partition_epoch < partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    if isr is None or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if wanted.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if wanted.leader_recovery_state == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    for replica, epoch in isr.items():
        known = state.image.brokers.get(replica)
        if known is None or not state.is_active(replica) or epoch not in (_ANY_EPOCH, known.epoch):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)


def _altered(
    state: ControllerState,
    topic: TopicImage,
    broker_id: int,
    wanted: _WantedIsr,
    isr: dict[int, int] | None,
    result: _AlteredPartition,
) -> MetadataRecord | None:
    index = wanted.partition_index
    change = Wanted(isr=list(isr or ()), leader_recovery_state=wanted.leader_recovery_state)
    record = state.change(topic.topic_id, index, wanted=change)
    partition = topic.partitions[index]
    if record is not None:
        partition = partition.changed_by(record.message)
        if record.message.leader not in (broker_id, NO_LEADER_CHANGE):
            # The reassignment is complete, and the leader is none of the replicas any more.
            result.error_code = ErrorCode.NEW_LEADER_ELECTED
            return record
    result.leader_id = partition.leader
    result.leader_epoch = partition.leader_epoch
    result.isr = list(partition.isr)
    result.leader_recovery_state = partition.leader_recovery_state
    result.partition_epoch = partition.partition_epoch
    return record


def elect_leaders(state: ControllerState, request: ElectLeadersRequest, call: Call) -> Decision:
    if request.topic_partitions == []:
        return Decision(ElectLeadersResponse())
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return _refused_elections(
            request, KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
        )
    election = Election.UNCLEAN if request.election_type == _UNCLEAN else Election.PREFERRED
    answer = ElectLeadersResponse()
    records: list[MetadataRecord] = []
    says_all = request.topic_partitions is not None
    if request.topic_partitions is None:
        wanted = [(topic.name, list(topic.partitions)) for topic in state.image.topics.values()]
    else:
        wanted = [(each.topic, each.partitions) for each in request.topic_partitions]
    for name, indexes in wanted:
        elected = ElectLeadersResponse.ReplicaElectionResult(topic=name)
        answer.replica_election_results.append(elected)
        for index in indexes:
            result = ElectLeadersResponse.ReplicaElectionResult.PartitionResult(partition_id=index, error_message=None)
            try:
                records.append(_elected(state, name, index, election))
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
            if says_all or result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                elected.partition_result.append(result)
    if len(records) > RECORDS_PER_REQUEST_MAX:
        return _refused_elections(request, too_large())
    return Decision(answer, records)


def _refused_elections(request: ElectLeadersRequest, error: KafkaError) -> Decision:
    results = [
        ElectLeadersResponse.ReplicaElectionResult(
            topic=each.topic,
            partition_result=[
                ElectLeadersResponse.ReplicaElectionResult.PartitionResult(
                    partition_id=index, error_code=error.code, error_message=error.message
                )
                for index in each.partitions
            ],
        )
        for each in request.topic_partitions or ()
    ]
    return Decision(ElectLeadersResponse(error_code=error.code, replica_election_results=results))


def _elected(state: ControllerState, name: str, index: int, election: Election) -> MetadataRecord:
    topic = state.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    is_preferred = election is Election.PREFERRED
    if partition.leader == partition.replicas[0] if is_preferred else partition.leader != NO_LEADER:
        raise generic(ErrorCode.ELECTION_NOT_NEEDED)
    record = state.change(topic.topic_id, index, election=election)
    if record is None:
        raise generic(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if is_preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
    return record


def balanced(state: ControllerState) -> list[MetadataRecord]:
    """Leaders go back to their first replicas, where those may lead."""
    records: list[MetadataRecord] = []
    for topic_id, index in state.imbalanced:
        if len(records) >= state.settings.elections_per_round_max:
            break
        record = state.change(topic_id, index, election=Election.PREFERRED)
        if record is not None:
            records.append(record)
    return records


def elected_uncleanly(state: ControllerState) -> list[MetadataRecord]:
    """Partitions without a leader get any replica that is there, if their topics would rather lose records."""
    records: list[MetadataRecord] = []
    for topic_id, index in state.in_sync.of_broker(NO_LEADER):
        if len(records) >= state.settings.elections_per_round_max:
            break
        name = state.image.topics_by_id[topic_id].name
        if state.elects_uncleanly(name):
            record = state.change(topic_id, index, election=Election.UNCLEAN)
            if record is not None:
                records.append(record)
    return records


def alter_partition_reassignments(
    state: ControllerState, request: AlterPartitionReassignmentsRequest, call: Call
) -> Decision:
    if not request.topics:
        return Decision(AlterPartitionReassignmentsResponse())
    answer = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    records: list[MetadataRecord] = []
    for wanted_topic in request.topics:
        response = AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=wanted_topic.name)
        answer.responses.append(response)
        for wanted in wanted_topic.partitions:
            result = AlterPartitionReassignmentsResponse.ReassignableTopicResponse.ReassignablePartitionResponse(
                partition_index=wanted.partition_index, error_message=None
            )
            response.partitions.append(result)
            try:
                record = _reassigned(
                    state,
                    wanted_topic.name,
                    wanted.partition_index,
                    wanted.replicas,
                    may_change_factor=request.allow_replication_factor_change,
                )
                if len(records) >= RECORDS_PER_REQUEST_MAX:
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
                continue
            if record is not None:
                records.append(record)
    return Decision(answer, records)


def _reassigned(
    state: ControllerState, name: str, index: int, replicas: list[int] | None, *, may_change_factor: bool
) -> MetadataRecord | None:
    topic = state.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    if replicas is None:
        return _cancelled(state, topic, index, partition)
    check_assignment(state, replicas, None)
    if not may_change_factor:
        _check_factor(partition, replicas)
    removing = sorted(set(partition.replicas) - set(replicas))
    adding = sorted(set(replicas) - set(partition.replicas))
    change = Wanted(replicas=[*replicas, *removing], removing=removing or None, adding=adding or None)
    return state.change(topic.topic_id, index, wanted=change, election=Election.ONLINE)


def _check_factor(partition: PartitionState, replicas: list[int]) -> None:
    """What counts is what an ongoing reassignment leads to."""
    current = len(partition.replicas)
    if is_reassigning(partition):
        current = len({*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas})
    if current != len(replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {current} to {len(replicas)}",
        )


def _cancelled(
    state: ControllerState, topic: TopicImage, index: int, partition: PartitionState
) -> MetadataRecord | None:
    if not is_reassigning(partition):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    isr = [replica for replica in partition.isr if replica not in partition.adding_replicas]
    if not isr:
        if not replicas:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            )
        if not state.elects_uncleanly(topic.name):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
                "leader election.",
            )
        isr = replicas[:1]
    change = Wanted(isr=isr, replicas=replicas, removing=(), adding=())
    return state.change(topic.topic_id, index, wanted=change)


def list_partition_reassignments(
    state: ControllerState, request: ListPartitionReassignmentsRequest, call: Call
) -> Decision:
    answer = ListPartitionReassignmentsResponse(error_message=None)
    if request.topics is None:
        wanted = [(state.image.topics_by_id[topic_id].name, list(each)) for topic_id, each in state.reassigning.items()]
    else:
        wanted = [(each.name, each.partition_indexes) for each in request.topics]
    for name, indexes in wanted:
        topic = state.image.topics.get(name)
        if topic is None:
            continue
        ongoing = ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=name)
        for index in indexes:
            partition = topic.partitions.get(index)
            if partition is not None and is_reassigning(partition):
                ongoing.partitions.append(
                    ListPartitionReassignmentsResponse.OngoingTopicReassignment.OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding_replicas),
                        removing_replicas=list(partition.removing_replicas),
                    )
                )
        if ongoing.partitions:
            answer.topics.append(ongoing)
    return Decision(answer)


def assign_replicas_to_dirs(state: ControllerState, request: AssignReplicasToDirsRequest, call: Call) -> Decision:
    """A broker says in which of its directories replicas are; on one that is lost, they lead no more."""
    broker_id = request.broker_id
    if state.image.metadata_version < DIRECTORIES_SINCE:
        return Decision(AssignReplicasToDirsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    try:
        known = state.checked_broker(broker_id, request.broker_epoch)
    except KafkaError as error:
        return Decision(AssignReplicasToDirsResponse(error_code=error.code))
    answer = AssignReplicasToDirsResponse()
    records: list[MetadataRecord] = []
    on_lost: dict[tuple[bytes, int], None] = {}
    _Directory = AssignReplicasToDirsResponse.DirectoryData
    for wanted in request.directories:
        directory = _Directory(id=wanted.id)
        answer.directories.append(directory)
        for wanted_topic in wanted.topics:
            topic_answer = _Directory.TopicData(topic_id=wanted_topic.topic_id)
            directory.topics.append(topic_answer)
            topic = state.image.topics_by_id.get(wanted_topic.topic_id)
            for each in wanted_topic.partitions:
                result = _Directory.TopicData.PartitionData(partition_index=each.partition_index)
                topic_answer.partitions.append(result)
                try:
                    partition = _partition_on(topic, each.partition_index, broker_id)
                except KafkaError as error:
                    result.error_code = error.code
                    continue
                change = Wanted(directories=[(broker_id, wanted.id)])
                record = state.change(partition, each.partition_index, wanted=change, election=Election.ONLINE)
                if record is not None:
                    records.append(record)
                if not is_online(wanted.id, known.directories):
                    on_lost[partition, each.partition_index] = None
    records += state.without_broker(iter(on_lost), gone=broker_id)
    return Decision(answer, records)


def _partition_on(topic: TopicImage | None, index: int, broker_id: int) -> bytes:
    """The id of the topic."""
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in partition.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return topic.topic_id
