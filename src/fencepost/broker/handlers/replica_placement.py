"""AlterPartitionReassignments (0-1) and AlterReplicaLogDirs (1-2): where replicas are.

There is one broker with one data directory, so every replica is where it can be. Asking for exactly that succeeds and
changes nothing; anything else gets the error that Kafka gives where there is no such broker or directory.
"""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.dispatch import Handler
from fencepost.broker.slices import Steps
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = _Topic.ReassignablePartitionResponse
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
    # As in Kafka, the last word about a partition counts.
    wanted: dict[tuple[str, int], str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                yield None
                wanted[topic.name, index] = directory.path
    topic_result = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
    partition_result = topic_result.AlterReplicaLogDirPartitionResult
    results: dict[str, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
    for (name, index), path in wanted.items():
        yield None
        result = results.get(name)
        if result is None:
            result = results[name] = topic_result(topic_name=name, partitions=[])
        result.partitions.append(
            partition_result(partition_index=index, error_code=_move_error(node, name, index, path))
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


HANDLERS = {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Handler(alter_partition_reassignments),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Handler(alter_replica_log_dirs),
}
