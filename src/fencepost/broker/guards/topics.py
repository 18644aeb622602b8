"""Metadata, DescribeTopicPartitions, CreateTopics, DeleteTopics, CreatePartitions: not every topic is for everybody."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fencepost.broker.guards.visit import MESSAGES, Guard, Visit
from fencepost.broker.handlers.metadata import NAMES_ONLY_VERSIONS, NO_TOPIC_ID
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER_OPERATIONS_VERSIONS = range(8, 11)

_MetadataTopic = MetadataResponse.MetadataResponseTopic
_DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Deleted = DeleteTopicsResponse.DeletableTopicResult


# Metadata


def metadata(visit: Visit, request: MetadataRequest) -> Any:
    access = visit.access
    wants_all = request.topics is None or (visit.version == 0 and not request.topics)
    refused: list[_MetadataTopic] = []
    if not wants_all and not _is_misuse(visit, request):
        request.topics, refused = _shown(visit, request)
        if not request.topics and visit.version == 0:
            # To the handler an empty list of this version is a question for all of them.
            request.topics = [MetadataRequest.MetadataRequestTopic(name="")]

    def complete(response: MetadataResponse) -> MetadataResponse:
        if wants_all:
            response.topics = [
                topic
                for topic in response.topics
                if access.could(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name or "")
            ]
        elif visit.version == 0 and refused:
            response.topics = [topic for topic in response.topics if topic.name]
        if request.include_topic_authorized_operations:
            for topic in response.topics:
                if topic.name:
                    topic.topic_authorized_operations = access.operations(ResourceType.TOPIC, topic.name)
        if visit.version in CLUSTER_OPERATIONS_VERSIONS and request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(visit)
        response.topics += refused
        return response

    return visit.pass_on(request, complete)


def cluster_operations(visit: Visit) -> int:
    from fencepost.wire.acls import CLUSTER_NAME

    if not visit.access.may_cluster(AclOperation.DESCRIBE):
        return 0
    return visit.access.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def _is_misuse(visit: Visit, request: MetadataRequest) -> bool:
    """What the handler refuses as a whole."""
    return visit.version in NAMES_ONLY_VERSIONS and any(
        wanted.name is None or wanted.topic_id != NO_TOPIC_ID for wanted in request.topics or ()
    )


def _shown(
    visit: Visit, request: MetadataRequest
) -> tuple[list[MetadataRequest.MetadataRequestTopic], list[_MetadataTopic]]:
    """What of the request may be answered, and what is said of the rest: neither its id nor whether it exists."""
    allowed: list[MetadataRequest.MetadataRequestTopic] = []
    refused: dict[tuple[str | None, bytes], _MetadataTopic] = {}
    creates = visit.node.config.auto_create_topics_enable and (request.allow_auto_topic_creation or visit.version < 4)
    for wanted in request.topics or ():
        is_by_id = wanted.topic_id != NO_TOPIC_ID
        name = visit.name_by_id(wanted.topic_id) if is_by_id else wanted.name
        if name is None or _may_be_shown(visit, name, creates and not is_by_id):
            allowed.append(wanted)
        else:
            told_name = None if is_by_id else name
            refused[told_name, wanted.topic_id] = _MetadataTopic(
                error_code=REFUSED, name=told_name, topic_id=wanted.topic_id
            )
    return allowed, list(refused.values())


def _may_be_shown(visit: Visit, name: str, creates: bool) -> bool:
    access = visit.access
    if not access.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return False
    return (
        not creates
        or name in visit.node.metadata.topics
        or access.could_cluster(AclOperation.CREATE)
        or access.may(AclOperation.CREATE, ResourceType.TOPIC, name)
    )


def describe_topic_partitions(visit: Visit, request: DescribeTopicPartitionsRequest) -> Any:
    access = visit.access
    wanted = DescribeTopicPartitionsRequest.TopicRequest
    after = "" if request.cursor is None else request.cursor.topic_name
    refused: list[str] = []
    if request.topics:
        names = sorted({topic.name for topic in request.topics})
        allowed, refused = visit.split(AclOperation.DESCRIBE, ResourceType.TOPIC, names, lambda name: name)
    else:
        allowed = [
            name for name in visit.node.metadata.topics if access.could(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ]
    refusals = [_DescribedTopic(error_code=REFUSED, name=name) for name in refused if name >= after]
    if not allowed:
        # An empty list would ask for all of them.
        return DescribeTopicPartitionsResponse(topics=refusals)
    request.topics = [wanted(name=name) for name in allowed]

    def complete(response: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        for topic in response.topics:
            topic.topic_authorized_operations = access.operations(ResourceType.TOPIC, topic.name or "")
        response.topics += refusals
        return response

    return visit.pass_on(request, complete)


# Changes


def create_topics(visit: Visit, request: CreateTopicsRequest) -> Any:
    """The right may be on the cluster or on the topic. Its settings are told to who may see them."""
    access = visit.access
    counts = Counter(topic.name for topic in request.topics)
    refused: list[str] = []
    if not access.could_cluster(AclOperation.CREATE):
        creatable, rest = visit.split(AclOperation.CREATE, ResourceType.TOPIC, request.topics)
        # One that is named twice is a mistake whoever makes it.
        refused = [topic.name for topic in rest if counts[topic.name] == 1]
        request.topics = creatable + [topic for topic in rest if counts[topic.name] > 1]

    def complete(response: CreateTopicsResponse) -> CreateTopicsResponse:
        result = CreateTopicsResponse.CreatableTopicResult
        for made in response.topics:
            if made.error_code == ErrorCode.NONE and not access.could(
                AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, made.name
            ):
                made.topic_config_error_code = REFUSED
                made.num_partitions = made.replication_factor = -1
                made.configs = []
        response.topics += [
            result(
                name=name,
                error_code=REFUSED,
                error_message="Authorization failed.",
                num_partitions=-1,
                replication_factor=-1,
                configs=None,
            )
            for name in refused
        ]
        return response

    return visit.pass_on(request, complete)


def delete_topics(visit: Visit, request: DeleteTopicsRequest) -> Any:
    """By name or by id. A name is told only to who may see it, and so is that a topic does not exist."""
    access = visit.access
    if not visit.node.config.delete_topic_enable or access.could_cluster(AclOperation.DELETE):
        return visit.pass_on(request)
    refused: list[_Deleted] = []

    def is_allowed(name: str | None, topic_id: bytes) -> bool:
        is_by_id = name is None
        known_name = visit.name_by_id(topic_id) if name is None else name
        if known_name is None or (not is_by_id and topic_id != NO_TOPIC_ID):
            return True
        is_describable = access.may(AclOperation.DESCRIBE, ResourceType.TOPIC, known_name)
        if is_describable and (
            known_name not in visit.node.metadata.topics
            or access.may(AclOperation.DELETE, ResourceType.TOPIC, known_name)
        ):
            return True
        told_name = known_name if is_describable or not is_by_id else None
        refused.append(_Deleted(name=told_name, topic_id=topic_id, error_code=REFUSED, error_message=MESSAGES[REFUSED]))
        return False

    request.topics = [topic for topic in request.topics if is_allowed(topic.name, topic.topic_id)]
    request.topic_names = [name for name in request.topic_names if is_allowed(name, NO_TOPIC_ID)]

    return visit.pass_on_with(request, "responses", refused)


def create_partitions(visit: Visit, request: CreatePartitionsRequest) -> Any:
    counts = Counter(topic.name for topic in request.topics)
    allowed, rest = visit.split(AclOperation.ALTER, ResourceType.TOPIC, request.topics)
    refused = [topic.name for topic in rest if counts[topic.name] == 1]
    request.topics = allowed + [topic for topic in rest if counts[topic.name] > 1]

    result = CreatePartitionsResponse.CreatePartitionsTopicResult
    return visit.pass_on_with(
        request, "results", [result(name=name, error_code=REFUSED, error_message=MESSAGES[REFUSED]) for name in refused]
    )


GUARDS: dict[ApiKey, Guard] = {
    ApiKey.METADATA: metadata,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.CREATE_PARTITIONS: create_partitions,
}
