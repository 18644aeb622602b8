"""InitProducerId (0-6) and DescribeProducers (0). With a transactional id the former is the coordinator's."""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.dispatch import Handler
from fencepost.broker.handlers.routing import caller_of
from fencepost.promise import Promise
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


def init_producer_id(
    node: "Node", call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse | Promise[InitProducerIdResponse]:
    refused = InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        refused.error_code = ErrorCode.INVALID_REQUEST
        return refused
    if request.transactional_id is not None:
        host = node.transactions
        return host.coordinator.init_producer_id(request, call.version, caller_of(call), host.now())
    try:
        return InitProducerIdResponse(producer_id=node.metadata.next_producer_id(), producer_epoch=0)
    except KafkaError as error:
        refused.error_code = error.code
        return refused


def describe_producers(node: "Node", call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    topic_response = DescribeProducersResponse.TopicResponse
    partition_response = topic_response.PartitionResponse
    response = DescribeProducersResponse()
    # Named twice is answered once: a partition may have many producers.
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    for name, indexes in wanted.items():
        described = topic_response(name=name)
        response.topics.append(described)
        for index in indexes:
            answer = partition_response(partition_index=index, error_message=None)
            described.partitions.append(answer)
            try:
                producers = node.partition(name, index).log.producers.producers
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
