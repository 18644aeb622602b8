"""OffsetCommit, OffsetFetch, OffsetDelete: the group first, then topic by topic."""

from __future__ import annotations

from typing import Any

from fencepost.broker.guards.visit import Guard, Visit
from fencepost.coordinators.commits import TOPIC_ID_VERSION
from fencepost.coordinators.fetches import (
    SEVERAL_GROUPS_VERSION,
    as_fetch_group,
    fetch_response,
    no_offset,
    refused_fetch,
)
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

_Commit = OffsetCommitRequest.OffsetCommitRequestTopic
_Group = OffsetFetchRequest.OffsetFetchRequestGroup
_GroupAnswer = OffsetFetchResponse.OffsetFetchResponseGroup


def offset_commit(visit: Visit, request: OffsetCommitRequest) -> Any:
    if not visit.access.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return OffsetCommitResponse(topics=_uncommitted(request.topics, GROUP_REFUSED))

    def name_of(topic: _Commit) -> str | None:
        return visit.name_by_id(topic.topic_id) if visit.version >= TOPIC_ID_VERSION else topic.name

    allowed, refused = visit.split(AclOperation.READ, ResourceType.TOPIC, request.topics, name_of)
    if not refused:
        return visit.pass_on(request)
    request.topics = allowed

    return visit.pass_on_with(request, "topics", _uncommitted(refused, TOPIC_REFUSED))


def _uncommitted(topics: list[_Commit], error: ErrorCode) -> list[OffsetCommitResponse.OffsetCommitResponseTopic]:
    answer = OffsetCommitResponse.OffsetCommitResponseTopic
    return [
        answer(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                answer.OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error)
                for one in topic.partitions
            ],
        )
        for topic in topics
    ]


def offset_fetch(visit: Visit, request: OffsetFetchRequest) -> Any:
    """An old request is one about a single group; it is answered in its own form, too."""
    several = list({group.group_id: group for group in request.groups}.values())
    groups = several if visit.version >= SEVERAL_GROUPS_VERSION else [as_fetch_group(request)]
    allowed, refused = visit.split(AclOperation.DESCRIBE, ResourceType.GROUP, groups, lambda group: group.group_id)
    refusals = [refused_fetch(group, GROUP_REFUSED, visit.version) for group in refused]
    if not allowed:
        return fetch_response(refusals, visit.version)
    hidden = {group.group_id: _hide_topics(visit, group) for group in allowed}
    if visit.version >= SEVERAL_GROUPS_VERSION:
        request.groups = allowed
    elif request.topics is not None:
        visible = {topic.name for topic in allowed[0].topics or ()}
        request.topics = [topic for topic in request.topics if topic.name in visible]

    def complete(response: OffsetFetchResponse) -> OffsetFetchResponse:
        if visit.version < SEVERAL_GROUPS_VERSION:
            return _complete_one(visit, response, hidden[request.group_id], shows_all=request.topics is None)
        shows_all = {group.group_id for group in allowed if group.topics is None}
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                if group.group_id in shows_all:
                    group.topics = [topic for topic in group.topics if _is_visible(visit, topic.name, topic.topic_id)]
                group.topics += hidden[group.group_id]
        response.groups += refusals
        return response

    return visit.pass_on(request, complete)


def _hide_topics(visit: Visit, group: _Group) -> list[_GroupAnswer.OffsetFetchResponseTopics]:
    """Takes the topics that may not be seen out of a group's question; what is answered instead."""
    if group.topics is None:
        return []

    def name_of(topic: _Group.OffsetFetchRequestTopics) -> str | None:
        return visit.name_by_id(topic.topic_id) if visit.version >= TOPIC_ID_VERSION else topic.name

    group.topics, refused = visit.split(AclOperation.DESCRIBE, ResourceType.TOPIC, group.topics, name_of)
    return [
        _GroupAnswer.OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[no_offset(index, TOPIC_REFUSED) for index in topic.partition_indexes],
        )
        for topic in refused
    ]


def _complete_one(
    visit: Visit,
    response: OffsetFetchResponse,
    hidden: list[_GroupAnswer.OffsetFetchResponseTopics],
    *,
    shows_all: bool,
) -> OffsetFetchResponse:
    if response.error_code == ErrorCode.NONE:
        if shows_all:
            response.topics = [topic for topic in response.topics if _is_visible(visit, topic.name, None)]
        response.topics += fetch_response([_GroupAnswer(topics=hidden)], visit.version).topics
    return response


def _is_visible(visit: Visit, name: str, topic_id: bytes | None) -> bool:
    if not name and topic_id is not None:
        name = visit.name_by_id(topic_id) or ""
    return visit.access.could(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def offset_delete(visit: Visit, request: OffsetDeleteRequest) -> Any:
    if not visit.access.may(AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=GROUP_REFUSED)
    allowed, refused = visit.split(AclOperation.READ, ResourceType.TOPIC, request.topics)
    answer = OffsetDeleteResponse.OffsetDeleteResponseTopic
    refusals = [
        answer(
            name=topic.name,
            partitions=[
                answer.OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=TOPIC_REFUSED)
                for one in topic.partitions
            ],
        )
        for topic in refused
    ]
    if refused and not allowed:
        return OffsetDeleteResponse(topics=refusals)
    request.topics = allowed

    def complete(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if response.error_code == ErrorCode.NONE:
            response.topics += refusals
        return response

    return visit.pass_on(request, complete)


GUARDS: dict[ApiKey, Guard] = {
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.OFFSET_DELETE: offset_delete,
}
