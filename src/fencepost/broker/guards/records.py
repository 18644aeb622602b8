"""Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers: topic by topic."""

from typing import Any

from fencepost.broker.guards.visit import MESSAGES, Guard, Visit
from fencepost.broker.handlers.produce import (
    ACKS_NONE,
    TOPIC_ID_VERSION,
    carries_transactional_records,
    refuse_all,
    refuse_silently,
)
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
)

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
# From this version on a follower says who it is in a field of its own.
REPLICA_STATE_VERSION = 15


def produce(visit: Visit, request: ProduceRequest) -> Any:
    # Of any batch, not of the first only; and whoever names no id owns none (CVE-2018-17196).
    transactional_id = request.transactional_id
    if carries_transactional_records(request) and (
        transactional_id is None
        or not visit.access.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    ):
        return refuse_all(visit.call, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def name_of(topic: ProduceRequest.TopicProduceData) -> str | None:
        return visit.name_by_id(topic.topic_id) if visit.version >= TOPIC_ID_VERSION else topic.name

    allowed, refused = visit.split(AclOperation.WRITE, ResourceType.TOPIC, request.topic_data, name_of)
    if not refused:
        return visit.pass_on(request)
    request.topic_data = allowed
    if request.acks == ACKS_NONE:
        visit.pass_on(request)
        refuse_silently(visit.call)
        return None
    topic_response = ProduceResponse.TopicProduceResponse
    partition_response = topic_response.PartitionProduceResponse
    refusals = [
        topic_response(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                partition_response(index=data.index, error_code=REFUSED, base_offset=-1, log_append_time_ms=-1)
                for data in topic.partition_data
            ],
        )
        for topic in refused
    ]

    return visit.pass_on_with(request, "responses", refusals)


def fetch(visit: Visit, request: FetchRequest) -> Any:
    """A consumer's topics are looked at by the handler, which knows its session; a follower needs one right for all.

    Who claims to be a follower is not taken at their word (CVE-2018-1288).
    """
    is_old = visit.version < REPLICA_STATE_VERSION
    replica_id = request.replica_id if is_old else request.replica_state.replica_id
    if replica_id < 0:
        visit.call.access = visit.access
        return visit.pass_on(request)
    if visit.access.may_cluster(AclOperation.CLUSTER_ACTION):
        return visit.pass_on(request)
    topic_response = FetchResponse.FetchableTopicResponse
    partition_data = topic_response.PartitionData
    return FetchResponse(
        responses=[
            topic_response(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    partition_data(partition_index=one.partition, error_code=REFUSED, high_watermark=-1, records=b"")
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def list_offsets(visit: Visit, request: ListOffsetsRequest) -> Any:
    allowed, refused = visit.split(AclOperation.DESCRIBE, ResourceType.TOPIC, request.topics)
    request.topics = allowed
    topic_response = ListOffsetsResponse.ListOffsetsTopicResponse
    partition_response = topic_response.ListOffsetsPartitionResponse

    return visit.pass_on_with(
        request,
        "topics",
        [
            topic_response(
                name=topic.name,
                partitions=[
                    partition_response(
                        partition_index=one.partition_index,
                        error_code=REFUSED,
                        timestamp=-1,
                        offset=-1,
                        leader_epoch=-1,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in refused
        ],
    )


def offset_for_leader_epoch(visit: Visit, request: OffsetForLeaderEpochRequest) -> Any:
    """Once a call between brokers: the right to those is enough, as is DESCRIBE, which consumers have."""
    if visit.access.could_cluster(AclOperation.CLUSTER_ACTION):
        return visit.pass_on(request)
    allowed, refused = visit.split(AclOperation.DESCRIBE, ResourceType.TOPIC, request.topics, lambda topic: topic.topic)
    request.topics = allowed
    topic_result = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult

    return visit.pass_on_with(
        request,
        "topics",
        [
            topic_result(
                topic=topic.topic,
                partitions=[
                    topic_result.EpochEndOffset(
                        error_code=REFUSED, partition=one.partition, leader_epoch=-1, end_offset=-1
                    )
                    for one in topic.partitions
                ],
            )
            for topic in refused
        ],
    )


def delete_records(visit: Visit, request: DeleteRecordsRequest) -> Any:
    allowed, refused = visit.split(AclOperation.DELETE, ResourceType.TOPIC, request.topics)
    request.topics = allowed
    topic_result = DeleteRecordsResponse.DeleteRecordsTopicResult
    partition_result = topic_result.DeleteRecordsPartitionResult

    return visit.pass_on_with(
        request,
        "topics",
        [
            topic_result(
                name=topic.name,
                partitions=[
                    partition_result(partition_index=one.partition_index, low_watermark=-1, error_code=REFUSED)
                    for one in topic.partitions
                ],
            )
            for topic in refused
        ],
    )


def describe_producers(visit: Visit, request: DescribeProducersRequest) -> Any:
    allowed, refused = visit.split(AclOperation.READ, ResourceType.TOPIC, request.topics)
    request.topics = allowed
    topic_response = DescribeProducersResponse.TopicResponse

    return visit.pass_on_with(
        request,
        "topics",
        [
            topic_response(
                name=topic.name,
                partitions=[
                    topic_response.PartitionResponse(
                        partition_index=index, error_code=REFUSED, error_message=MESSAGES[REFUSED]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in refused
        ],
    )


GUARDS: dict[ApiKey, Guard] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers,
}
