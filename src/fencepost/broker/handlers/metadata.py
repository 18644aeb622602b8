"""Metadata (0-13), DescribeTopicPartitions (0), DescribeCluster (0-2), FindCoordinator (0-6): who and where.

Metadata creates missing topics where the client and the broker allow it; topic ids from v10, null names from v12.
"""

from typing import TYPE_CHECKING

from fencepost.broker.cluster_metadata import Topic
from fencepost.broker.connection import Call
from fencepost.broker.dispatch import Handler
from fencepost.broker.slices import Steps
from fencepost.broker.topic_names import check_topic_name
from fencepost.internal_topic_names import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_Topic = MetadataResponse.MetadataResponseTopic
_Partition = _Topic.MetadataResponsePartition
NO_TOPIC_ID = bytes(16)
# These have a field for the topic's id, but it may not be used yet.
NAMES_ONLY_VERSIONS = (10, 11)
OPERATIONS_NOT_ASKED = -(2**31)
# Without an authorizer everyone may do everything: bit n is operation n of Kafka's AclOperation.
TOPIC_OPERATIONS = sum(1 << n for n in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))
# Whose coordinator a key asks for: groups are 0, transactional ids 1.
_COORDINATOR_TOPICS = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
PARTITIONS_PER_PAGE_MAX = 2000
# Everybody waits while topics are created.
CREATED_PER_REQUEST_MAX = 100


def metadata(node: "Node", call: Call, request: MetadataRequest) -> MetadataResponse | Steps[MetadataResponse]:
    response = _about_cluster(node, call, request)
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    if call.version in NAMES_ONLY_VERSIONS and any(
        wanted.name is None or wanted.topic_id != NO_TOPIC_ID for wanted in request.topics or ()
    ):
        return MetadataResponse(
            topics=[
                _Topic(error_code=ErrorCode.INVALID_REQUEST, name=wanted.name or "", topic_id=wanted.topic_id)
                for wanted in request.topics or ()
            ]
        )
    if not wants_all and not request.topics:
        return response
    return _with_topics(node, call, request, response, wants_all)


def _about_cluster(node: "Node", call: Call, request: MetadataRequest) -> MetadataResponse:
    host, port = node.advertised(call.connection.listener_name)
    response = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=node.config.node_id, host=host, port=port, rack=node.config.broker_rack or None
            )
        ],
        cluster_id=node.cluster_id,
        controller_id=node.config.node_id,
    )
    if call.version in range(8, 11) and request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _with_topics(
    node: "Node", call: Call, request: MetadataRequest, response: MetadataResponse, wants_all: bool
) -> Steps[MetadataResponse]:
    if wants_all:
        for topic in list(node.metadata.topics.values()):
            yield None
            response.topics.append(_describe(node, topic, request))
        return response
    may_create = node.config.auto_create_topics_enable and (request.allow_auto_topic_creation or call.version < 4)
    left = CREATED_PER_REQUEST_MAX
    # Named twice is answered once: a topic of many partitions is a large answer to a small request.
    for name, topic_id in dict.fromkeys((wanted.name, wanted.topic_id) for wanted in request.topics or ()):
        yield None
        if topic_id != NO_TOPIC_ID:
            response.topics.append(_by_id(node, topic_id, request))
        else:
            # Those that are too many for once answer as topics do that are being created: ask again.
            before = len(node.metadata.topics)
            response.topics.append(_by_name(node, name, request, may_create and left > 0))
            left -= len(node.metadata.topics) - before
    return response


def _by_id(node: "Node", topic_id: bytes, request: MetadataRequest) -> _Topic:
    topic = node.metadata.topics_by_id.get(topic_id)
    if topic is None:
        return _Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return _describe(node, topic, request)


def _by_name(node: "Node", name: str | None, request: MetadataRequest, may_create: bool) -> _Topic:
    if name is None:
        return _Topic(error_code=ErrorCode.INVALID_REQUEST, name="")
    topic = node.metadata.topics.get(name)
    try:
        if topic is None:
            if not may_create:
                check_topic_name(name)
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topic = node.create_topic_automatically(name)
    except KafkaError as error:
        return _Topic(error_code=error.code, name=name, is_internal=name in INTERNAL_TOPICS)
    return _describe(node, topic, request)


def _describe(node: "Node", topic: Topic, request: MetadataRequest) -> _Topic:
    me = [node.config.node_id]
    epoch = node.metadata.leader_epoch(topic)
    described = _Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            _Partition(partition_index=index, leader_id=me[0], leader_epoch=epoch, replica_nodes=me, isr_nodes=me)
            for index in range(topic.partition_count)
        ],
    )
    if request.include_topic_authorized_operations:
        described.topic_authorized_operations = TOPIC_OPERATIONS
    return described


def describe_topic_partitions(
    node: "Node", call: Call, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    response = DescribeTopicPartitionsResponse()
    topic_response = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    partition_response = topic_response.DescribeTopicPartitionsResponsePartition
    me = [node.config.node_id]
    names = sorted({topic.name for topic in request.topics} or node.metadata.topics)
    start_at = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        start_at = request.cursor.partition_index
        if start_at < 0:
            response.topics = [topic_response(error_code=ErrorCode.INVALID_REQUEST, name=name) for name in names]
            return response
    left = max(1, min(request.response_partition_limit, PARTITIONS_PER_PAGE_MAX))
    for name in names:
        yield None
        if left == 0:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=0)
            break
        topic = node.metadata.topics.get(name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            try:
                check_topic_name(name)
            except KafkaError as error:
                code = error.code
            response.topics.append(
                topic_response(error_code=code, name=name, topic_authorized_operations=TOPIC_OPERATIONS)
            )
            continue
        first = start_at if request.cursor is not None and name == request.cursor.topic_name else 0
        last = min(topic.partition_count, first + left)
        epoch = node.metadata.leader_epoch(topic)
        response.topics.append(
            topic_response(
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                topic_authorized_operations=TOPIC_OPERATIONS,
                partitions=[
                    partition_response(
                        partition_index=index,
                        leader_id=me[0],
                        leader_epoch=epoch,
                        replica_nodes=me,
                        isr_nodes=me,
                        eligible_leader_replicas=[],
                        last_known_elr=[],
                    )
                    for index in range(first, last)
                ],
            )
        )
        left -= max(0, last - first)
        if last < topic.partition_count:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=last)
            break
    return response


def describe_cluster(node: "Node", call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != 1:
        is_known = request.endpoint_type == 2
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="This is a broker endpoint",
        )
    host, port = node.advertised(call.connection.listener_name)
    response = DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.config.node_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node.config.node_id, host=host, port=port, rack=node.config.broker_rack or None
            )
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def find_coordinator(node: "Node", call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.version >= 4 else [request.key]
    host, port = node.advertised(call.connection.listener_name)
    error, message = ErrorCode.NONE, None
    topic = _COORDINATOR_TOPICS.get(request.key_type)
    if topic is not None:
        if topic not in node.metadata.topics:
            try:
                node.create_internal_topic(topic)
            except KafkaError:
                error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The topic {topic} cannot be made now"
    else:
        error, message = ErrorCode.INVALID_REQUEST, f"Coordinators of type {request.key_type} do not exist here"
    if error:
        host, port, node_id = "", -1, -1
    else:
        node_id = node.config.node_id
    if call.version < 4:
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=message
            )
            for key in keys
        ]
    )


HANDLERS = {
    ApiKey.METADATA: Handler(metadata),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler(describe_topic_partitions),
    ApiKey.DESCRIBE_CLUSTER: Handler(describe_cluster),
    ApiKey.FIND_COORDINATOR: Handler(find_coordinator),
}
