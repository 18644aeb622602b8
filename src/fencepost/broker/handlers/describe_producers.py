"""DescribeProducers (0): the producers that write to a partition. Needs READ on each topic."""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.handler import Handler, Shape
from fencepost.broker.rights import each
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import KafkaError
from fencepost.wire.messages import DescribeProducersRequest, DescribeProducersResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_Topic = DescribeProducersResponse.TopicResponse
_Partition = _Topic.PartitionResponse


def describe_producers(node: "Node", call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    # A partition that is named twice is answered once: it may have many producers.
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    for name, indexes in wanted.items():
        described = _Topic(name=name)
        response.topics.append(described)
        for index in indexes:
            answer = _Partition(partition_index=index, error_message=None)
            described.partitions.append(answer)
            try:
                producers = node.partition(name, index).log.producers.producers
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
                continue
            answer.active_producers = [
                _Partition.ProducerState(
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
    ApiKey.DESCRIBE_PRODUCERS: Handler(
        describe_producers,
        reads_only=True,
        shapes=(
            Shape(
                "topics",
                "topics",
                ("name",),
                Shape("partition_indexes", "partitions", (), answer=_Partition, answer_keys=("partition_index",)),
                answer=_Topic,
            ),
        ),
        needs=(each(AclOperation.READ, ResourceType.TOPIC, "name"),),
    )
}
