"""Metadata (0-13), DescribeTopicPartitions (0), DescribeCluster (0-2), FindCoordinator (0-6): who and where.

Metadata creates missing topics where the client (v4 and later) and the broker allow it. An empty list of topics asks
for all of them in v0, for none later; topics have ids from v10 on and may be named by them from v12 on. FindCoordinator
asks for several keys from v4 on. DescribeCluster distinguishes broker and controller endpoints from v1 on.

Topics are shown to callers with DESCRIBE on them; to create one by asking, CREATE on it or on the cluster is needed.
FindCoordinator needs DESCRIBE on the group or transactional id. DescribeCluster is open to everybody, but for the
operations that are allowed on the cluster, which need DESCRIBE on it.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from fencepost.broker.cluster_metadata import Topic
from fencepost.broker.connection import Call
from fencepost.broker.handler import MESSAGES, Handler, Shape
from fencepost.broker.rights import (
    ERRORS,
    IN_HANDLER,
    authorized_cluster_operations,
    authorized_operations,
)
from fencepost.broker.security.access import Access
from fencepost.broker.slices import Steps
from fencepost.internal_topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from fencepost.topic_names import check_topic_name
from fencepost.wire.acls import AclOperation, ResourceType
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
CLUSTER_OPERATIONS_VERSIONS = range(8, 11)
SEVERAL_KEYS_VERSION = 4
_Described = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Coordinator = FindCoordinatorResponse.Coordinator
# By the type of a key: the topic that its coordinator keeps its state in, and the kind of resource that it names.
_COORDINATED = {0: (CONSUMER_OFFSETS, ResourceType.GROUP), 1: (TRANSACTION_STATE, ResourceType.TRANSACTIONAL_ID)}
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
    if call.version in CLUSTER_OPERATIONS_VERSIONS and request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_cluster_operations(call)
    return response


def _with_topics(
    node: "Node", call: Call, request: MetadataRequest, response: MetadataResponse, wants_all: bool
) -> Steps[MetadataResponse]:
    access = call.access
    if wants_all:
        for topic in list(node.metadata.topics.values()):
            yield None
            if access is None or access.could(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
                response.topics.append(_describe(node, topic))
        _tell_operations(call, request, response.topics)
        return response
    may_create = node.config.auto_create_topics_enable and (request.allow_auto_topic_creation or call.version < 4)
    left = CREATED_PER_REQUEST_MAX
    refusals: dict[tuple[str | None, bytes], _Topic] = {}
    # A topic that is named twice is answered once: with many partitions it is a large answer to a small request.
    for name, topic_id in dict.fromkeys((wanted.name, wanted.topic_id) for wanted in request.topics or ()):
        yield None
        if access is not None and not _may_be_shown(node, access, name, topic_id, may_create):
            # The answer reveals neither the name of an id nor whether the topic exists.
            shown_name = name if topic_id == NO_TOPIC_ID else None
            refusals[shown_name, topic_id] = _Topic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=shown_name, topic_id=topic_id
            )
        elif topic_id != NO_TOPIC_ID:
            response.topics.append(_by_id(node, topic_id))
        else:
            # Topics beyond the limit are answered like topics that are being created: the client asks again.
            before = len(node.metadata.topics)
            response.topics.append(_by_name(node, name, may_create and left > 0))
            left -= len(node.metadata.topics) - before
    _tell_operations(call, request, response.topics)
    response.topics += refusals.values()
    return response


def _may_be_shown(node: "Node", access: Access, name: str | None, topic_id: bytes, may_create: bool) -> bool:
    is_by_id = topic_id != NO_TOPIC_ID
    if is_by_id:
        name = node.metadata.name_by_id(topic_id)
    if name is None:
        return True
    if not access.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return False
    return (
        is_by_id
        or not may_create
        or name in node.metadata.topics
        or access.could_cluster(AclOperation.CREATE)
        or access.may(AclOperation.CREATE, ResourceType.TOPIC, name)
    )


def _tell_operations(call: Call, request: MetadataRequest, topics: list[_Topic]) -> None:
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name and (call.access is not None or not topic.error_code):
                topic.topic_authorized_operations = authorized_operations(call, ResourceType.TOPIC, topic.name)


def _by_id(node: "Node", topic_id: bytes) -> _Topic:
    topic = node.metadata.topics_by_id.get(topic_id)
    if topic is None:
        return _Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return _describe(node, topic)


def _by_name(node: "Node", name: str | None, may_create: bool) -> _Topic:
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
    return _describe(node, topic)


def _describe(node: "Node", topic: Topic) -> _Topic:
    me = [node.config.node_id]
    led = node.partitions[topic.name]
    return _Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            _Partition(
                partition_index=index,
                leader_id=me[0],
                leader_epoch=led[index].leader_epoch,
                replica_nodes=me,
                isr_nodes=me,
            )
            for index in range(topic.partition_count)
        ],
    )


def describe_topic_partitions(
    node: "Node", call: Call, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    """A page of partitions, in the order of the topics' names, and behind them the topics that may not be shown."""
    names = sorted({topic.name for topic in request.topics} or node.metadata.topics)
    refused: list[str] = []
    access = call.access
    if access is not None and request.topics:
        refused = [name for name in names if not access.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)]
        names = sorted({*names} - {*refused})
    elif access is not None:
        names = [name for name in names if access.could(AclOperation.DESCRIBE, ResourceType.TOPIC, name)]
    after = "" if request.cursor is None else request.cursor.topic_name
    response = yield from _page(node, call, request, [name for name in names if name >= after])
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    response.topics += [_Described(error_code=error, name=name) for name in refused if name >= after]
    return response


def _page(
    node: "Node", call: Call, request: DescribeTopicPartitionsRequest, names: list[str]
) -> Steps[DescribeTopicPartitionsResponse]:
    response = DescribeTopicPartitionsResponse()
    partition_response = _Described.DescribeTopicPartitionsResponsePartition
    me = [node.config.node_id]
    start_at = 0
    if request.cursor is not None:
        start_at = request.cursor.partition_index
        if start_at < 0:
            response.topics = [_Described(error_code=ErrorCode.INVALID_REQUEST, name=name) for name in names]
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
            operations = authorized_operations(call, ResourceType.TOPIC, name)
            response.topics.append(_Described(error_code=code, name=name, topic_authorized_operations=operations))
            continue
        first = start_at if request.cursor is not None and name == request.cursor.topic_name else 0
        last = min(topic.partition_count, first + left)
        led = node.partitions[name]
        response.topics.append(
            _Described(
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                topic_authorized_operations=authorized_operations(call, ResourceType.TOPIC, name),
                partitions=[
                    partition_response(
                        partition_index=index,
                        leader_id=me[0],
                        leader_epoch=led[index].leader_epoch,
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
        response.cluster_authorized_operations = authorized_cluster_operations(call)
    return response


def find_coordinator(node: "Node", call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.version >= SEVERAL_KEYS_VERSION else [request.key]
    refusals: list[_Coordinator] = []
    if call.access is not None and request.key_type in _COORDINATED:
        may, kind = call.access.may, _COORDINATED[request.key_type][1]
        no_coordinator = _no_coordinator(ERRORS[kind], MESSAGES[ERRORS[kind]])
        refusals = [no_coordinator(key=key) for key in keys if not may(AclOperation.DESCRIBE, kind, key)]
        refused = {refusal.key for refusal in refusals}
        keys = [key for key in keys if key not in refused]
    coordinators: list[_Coordinator] = []
    if keys or not refusals:
        coordinator = _coordinator(node, call, request.key_type)
        coordinators = [coordinator(key=key) for key in keys]
    coordinators += refusals
    if call.version >= SEVERAL_KEYS_VERSION:
        return FindCoordinatorResponse(coordinators=coordinators)
    (one,) = coordinators
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


def _coordinator(node: "Node", call: Call, key_type: int) -> Callable[..., _Coordinator]:
    """What is said of every key of a type: this broker coordinates all of them."""
    if key_type not in _COORDINATED:
        return _no_coordinator(ErrorCode.INVALID_REQUEST, f"Coordinators of type {key_type} do not exist here")
    topic = _COORDINATED[key_type][0]
    if topic not in node.metadata.topics:
        try:
            node.create_internal_topic(topic)
        except KafkaError:
            return _no_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The topic {topic} cannot be created now")
    host, port = node.advertised(call.connection.listener_name)
    return partial(_Coordinator, node_id=node.config.node_id, host=host, port=port, error_message=None)


def _no_coordinator(error: ErrorCode, message: str) -> Callable[..., _Coordinator]:
    return partial(_Coordinator, node_id=-1, host="", port=-1, error_code=error, error_message=message)


HANDLERS = {
    ApiKey.METADATA: Handler(metadata, reads_only=True, needs=IN_HANDLER),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler(describe_topic_partitions, reads_only=True, needs=IN_HANDLER),
    ApiKey.DESCRIBE_CLUSTER: Handler(describe_cluster, reads_only=True, needs=IN_HANDLER),
    ApiKey.FIND_COORDINATOR: Handler(
        find_coordinator,
        reads_only=True,
        shapes=(Shape("coordinator_keys", "coordinators", ()),),
        needs=IN_HANDLER,
    ),
}
