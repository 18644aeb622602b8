"""Where replicas are: AlterPartitionReassignments (0-1), ListPartitionReassignments (0), AlterReplicaLogDirs (1-2),
ElectLeaders (0-2).

There is one broker with one data directory, so every replica is where it can be and leads its partition. A request for
exactly that succeeds and changes nothing; anything else gets the error that Kafka gives where there is no such broker
or directory. Listing needs DESCRIBE on the cluster, everything else ALTER. AlterPartitionReassignments v1 may forbid
to change the number of replicas. ElectLeaders names the kind of election, and has an error code of its own, from v1 on.
"""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.handler import MESSAGES, NEVER_SPLIT, Handler, Shape
from fencepost.broker.rights import OnCluster
from fencepost.broker.slices import Steps
from fencepost.wire.acls import AclOperation
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = _Topic.ReassignablePartitionResponse
_MovedTopic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_MovedPartition = _MovedTopic.AlterReplicaLogDirPartitionResult
_Election = ElectLeadersResponse.ReplicaElectionResult
_ELECTION_TYPES = (0, 1)
"""Preferred and unclean."""
# Kafka moves a replica by way of a directory with this much more in its name.
FUTURE_SUFFIX = f".{'x' * 32}-future"
DIRECTORY_NAME_CHARACTERS_MAX = 255


def alter_partition_reassignments(
    node: "Node", call: Call, request: AlterPartitionReassignmentsRequest
) -> Steps[AlterPartitionReassignmentsResponse]:
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            yield None
            answer = _Partition(partition_index=wanted.partition_index, error_message=None)
            answers.append(answer)
            try:
                _check_reassignment(node, topic.name, wanted.partition_index, wanted.replicas)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
        response.responses.append(_Topic(name=topic.name, partitions=answers))
    return response


def _check_reassignment(node: "Node", topic: str, index: int, replicas: list[int] | None) -> None:
    if topic not in node.metadata.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    if not 0 <= index < node.metadata.topics[topic].partition_count:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}.")
    if replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    if replicas != [node.config.node_id]:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Replicas {replicas}: the only broker of this cluster is {node.config.node_id}.",
        )


def alter_replica_log_dirs(
    node: "Node", call: Call, request: AlterReplicaLogDirsRequest
) -> Steps[AlterReplicaLogDirsResponse]:
    # As in Kafka, the last entry about a partition counts.
    wanted: dict[tuple[str, int], str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                yield None
                wanted[topic.name, index] = directory.path
    results: dict[str, _MovedTopic] = {}
    for (name, index), path in wanted.items():
        yield None
        result = results.get(name)
        if result is None:
            result = results[name] = _MovedTopic(topic_name=name, partitions=[])
        result.partitions.append(
            _MovedPartition(partition_index=index, error_code=_move_error(node, name, index, path))
        )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move_error(node: "Node", topic: str, index: int, path: str) -> ErrorCode:
    if len(f"{topic}-{index}{FUTURE_SUFFIX}") > DIRECTORY_NAME_CHARACTERS_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path != node.data_directory:
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        node.partition(topic, index)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def list_partition_reassignments(
    node: "Node", call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)


def elect_leaders(node: "Node", call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """One replica is always the preferred leader: nothing to elect."""
    topics = node.metadata.topics
    if request.topic_partitions is None:
        # All topics: named, with nothing to say about their partitions.
        return ElectLeadersResponse(replica_election_results=[_Election(topic=name) for name in topics])
    response = ElectLeadersResponse()
    is_known_type = request.election_type in _ELECTION_TYPES
    if not is_known_type:
        response.error_code = ErrorCode.INVALID_REQUEST
    for topic in request.topic_partitions:
        found = topics.get(topic.topic)
        results = []
        for index in topic.partitions:
            if not is_known_type:
                code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
            elif found is None:
                code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic.topic}"
            elif not 0 <= index < found.partition_count:
                code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic.topic}-{index}"
            else:
                code, message = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
            results.append(_Election.PartitionResult(partition_id=index, error_code=code, error_message=message))
        response.replica_election_results.append(_Election(topic=topic.topic, partition_result=results))
    return response


_REASSIGNED = Shape(
    "topics",
    "responses",
    ("name",),
    Shape("partitions", "partitions", ("partition_index",), answer=_Partition),
    part_entries=NEVER_SPLIT,
    answer=_Topic,
)
_ELECTED = Shape(
    "topic_partitions",
    "replica_election_results",
    ("topic",),
    Shape("partitions", "partition_result", (), answer=_Election.PartitionResult, answer_keys=("partition_id",)),
    answer=_Election,
)
_MOVED = Shape(
    "topics",
    "results",
    ("name",),
    Shape("partitions", "partitions", (), answer=_MovedPartition, answer_keys=("partition_index",)),
    answer=_MovedTopic,
    answer_keys=("topic_name",),
)


def _not_reassigned(
    call: Call, request: AlterPartitionReassignmentsRequest, error: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=error, error_message=MESSAGES[error], responses=_REASSIGNED.refusals(request.topics, error)
    )


def _not_elected(call: Call, request: ElectLeadersRequest, error: ErrorCode) -> ElectLeadersResponse:
    results = _ELECTED.refusals(request.topic_partitions or (), error)
    return ElectLeadersResponse(error_code=error, replica_election_results=results)


def _not_moved(call: Call, request: AlterReplicaLogDirsRequest, error: ErrorCode) -> AlterReplicaLogDirsResponse:
    topics = [topic for directory in request.dirs for topic in directory.topics]
    return AlterReplicaLogDirsResponse(results=_MOVED.refusals(topics, error))


HANDLERS = {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Handler(
        alter_partition_reassignments,
        shapes=(_REASSIGNED,),
        needs=(OnCluster(AclOperation.ALTER),),
        on_error=_not_reassigned,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Handler(
        list_partition_reassignments, reads_only=True, needs=(OnCluster(AclOperation.DESCRIBE),)
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Handler(
        alter_replica_log_dirs, needs=(OnCluster(AclOperation.ALTER),), on_error=_not_moved
    ),
    ApiKey.ELECT_LEADERS: Handler(
        elect_leaders, shapes=(_ELECTED,), needs=(OnCluster(AclOperation.ALTER),), on_error=_not_elected
    ),
}
