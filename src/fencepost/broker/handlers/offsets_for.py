"""ListOffsets (1-11) and OffsetForLeaderEpoch (2-4): the offset that belongs to a time, an end, or a leader epoch.

Both need DESCRIBE on each topic. OffsetForLeaderEpoch was once a call between brokers: CLUSTER_ACTION on the cluster
is enough, too. ListOffsets knows isolation levels from v2, leader epochs from v4, and the special times that
`_FIRST_VERSION_OF` lists.
"""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.handler import Handler, Shape
from fencepost.broker.handlers.fetch import READ_COMMITTED
from fencepost.broker.partition import Partition
from fencepost.broker.rights import each
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_FIRST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

_OffsetTopic = ListOffsetsResponse.ListOffsetsTopicResponse
_OffsetResponse = _OffsetTopic.ListOffsetsPartitionResponse
_EpochTopic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_EpochEnd = _EpochTopic.EpochEndOffset


def list_offsets(node: "Node", call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics: dict[str, dict[int, _OffsetResponse]] = {}
    for topic in request.topics:
        results = topics.setdefault(topic.name, {})
        for one in topic.partitions:
            is_repeated = one.partition_index in results
            result = _OffsetResponse(partition_index=one.partition_index, timestamp=-1, offset=-1, leader_epoch=-1)
            results[one.partition_index] = result
            try:
                if is_repeated:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                partition = node.partition(topic.name, one.partition_index)
                partition.check_leader_epoch(one.current_leader_epoch)
                _find(partition, one.timestamp, request.isolation_level, call.version, result)
            except KafkaError as error:
                result.error_code = error.code
    return ListOffsetsResponse(
        topics=[_OffsetTopic(name=name, partitions=list(results.values())) for name, results in topics.items()]
    )


def _find(partition: Partition, timestamp: int, isolation_level: int, version: int, result: _OffsetResponse) -> None:
    if partition.failure is not None:
        raise partition.failure
    if timestamp < EARLIEST_PENDING_UPLOAD or version < _FIRST_VERSION_OF.get(timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition_log = partition.log
    is_committed = isolation_level == READ_COMMITTED
    last_readable = partition_log.last_stable_offset if is_committed else partition_log.high_watermark
    if timestamp == LATEST:
        result.offset = last_readable
        result.leader_epoch = partition_log.epochs.latest
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        result.offset = partition_log.log_start_offset
        result.leader_epoch = partition_log.epochs.epoch_of(result.offset)
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return
    else:
        if timestamp == MAX_TIMESTAMP:
            found = partition_log.offset_of_max_timestamp()
        else:
            found = partition_log.offset_for_timestamp(timestamp)
        # Kafka looks at the whole log and then hides what cannot be read yet.
        if found is not None and (timestamp == MAX_TIMESTAMP or found.offset < last_readable):
            result.timestamp = found.timestamp
            result.offset = found.offset
            result.leader_epoch = found.leader_epoch


def offset_for_leader_epoch(
    node: "Node", call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        results = []
        for one in topic.partitions:
            result = _EpochEnd(partition=one.partition, leader_epoch=-1, end_offset=-1)
            results.append(result)
            try:
                partition = node.partition(topic.topic, one.partition)
                partition.check_leader_epoch(one.current_leader_epoch)
                result.leader_epoch, result.end_offset = partition.log.end_offset_for_epoch(one.leader_epoch)
            except KafkaError as error:
                result.error_code = error.code
        response.topics.append(_EpochTopic(topic=topic.topic, partitions=results))
    return response


HANDLERS = {
    ApiKey.LIST_OFFSETS: Handler(
        list_offsets,
        reads_only=True,
        shapes=(
            Shape(
                "topics",
                "topics",
                ("name",),
                Shape(
                    "partitions",
                    "partitions",
                    ("partition_index",),
                    answer=_OffsetResponse,
                    on_error={"timestamp": -1, "offset": -1, "leader_epoch": -1},
                ),
                answer=_OffsetTopic,
            ),
        ),
        needs=(each(AclOperation.DESCRIBE, ResourceType.TOPIC, "name"),),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(
        offset_for_leader_epoch,
        reads_only=True,
        shapes=(
            Shape(
                "topics",
                "topics",
                ("topic",),
                Shape(
                    "partitions",
                    "partitions",
                    ("partition",),
                    answer=_EpochEnd,
                    on_error={"leader_epoch": -1, "end_offset": -1},
                ),
                answer=_EpochTopic,
            ),
        ),
        needs=(each(AclOperation.DESCRIBE, ResourceType.TOPIC, "topic", instead=AclOperation.CLUSTER_ACTION),),
    ),
}
