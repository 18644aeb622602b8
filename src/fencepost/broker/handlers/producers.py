"""InitProducerId (0-5) without a transactional id, and DescribeProducers (0)."""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.dispatch import Handler
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node


def init_producer_id(node: "Node", call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    refused = InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        refused.error_code = ErrorCode.INVALID_REQUEST
        return refused
    if request.transactional_id is not None:
        refused.error_code = (
            ErrorCode.COORDINATOR_NOT_AVAILABLE if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return refused
    try:
        return InitProducerIdResponse(producer_id=node.metadata.next_producer_id(), producer_epoch=0)
    except KafkaError as error:
        refused.error_code = error.code
        return refused


def describe_producers(node: "Node", call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    topic_response = DescribeProducersResponse.TopicResponse
    partition_response = topic_response.PartitionResponse
    response = DescribeProducersResponse()
    for topic in request.topics:
        described = topic_response(name=topic.name)
        response.topics.append(described)
        for index in topic.partition_indexes:
            answer = partition_response(partition_index=index, error_message=None)
            described.partitions.append(answer)
            try:
                producers = node.partition(topic.name, index).log.producers.producers
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
                continue
            answer.active_producers = [
                partition_response.ProducerState(
                    producer_id=producer_id,
                    producer_epoch=entry.producer_epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_timestamp,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=entry.current_txn_first_offset,
                )
                for producer_id, entry in producers.items()
            ]
    return response


HANDLERS = {
    ApiKey.INIT_PRODUCER_ID: Handler(init_producer_id),
    ApiKey.DESCRIBE_PRODUCERS: Handler(describe_producers),
}
