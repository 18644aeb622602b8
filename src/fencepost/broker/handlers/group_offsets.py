"""OffsetCommit (2-10), OffsetFetch (1-10), OffsetDelete (0): the offsets of consumer groups.

OffsetCommit needs READ on the group and on each topic. OffsetFetch needs DESCRIBE on each group and on each topic;
asked for all topics, it shows those that the caller may describe. OffsetDelete needs DELETE on the group and READ on
each topic. OffsetFetch is about several groups from v8 on. Topics have ids instead of names from v10 on.
"""

from typing import TYPE_CHECKING, Any

from fencepost.broker.connection import Call
from fencepost.broker.handler import WRITTEN_PART_ENTRIES, Handler, Shape, completed
from fencepost.broker.handlers.groups import READ_GROUP, to_group_coordinator
from fencepost.broker.rights import IN_HANDLER, Named, each, error_code
from fencepost.broker.security.access import Access
from fencepost.coordinators.commits import TOPIC_ID_VERSION
from fencepost.coordinators.fetches import (
    SEVERAL_GROUPS_VERSION,
    as_fetch_group,
    fetch_response,
    no_offset,
    refused_fetch,
)
from fencepost.coordinators.group_coordinator import GroupCoordinator
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_Group = OffsetFetchRequest.OffsetFetchRequestGroup
_GroupAnswer = OffsetFetchResponse.OffsetFetchResponseGroup
_TopicAnswer = _GroupAnswer.OffsetFetchResponseTopics
_Committed = OffsetCommitResponse.OffsetCommitResponseTopic
_Deleted = OffsetDeleteResponse.OffsetDeleteResponseTopic

_offset_fetch = to_group_coordinator(GroupCoordinator.offset_fetch)


def offset_fetch(node: "Node", call: Call, request: OffsetFetchRequest) -> Any:
    if call.access is None:
        return _offset_fetch(node, call, request)
    return _fetch_visible(node, call, call.access, request)


def _fetch_visible(node: "Node", call: Call, access: Access, request: OffsetFetchRequest) -> Any:
    """A request before v8 is one about a single group, and is answered in its own form."""
    has_several = call.version >= SEVERAL_GROUPS_VERSION
    groups = {group.group_id: group for group in request.groups} if has_several else {"": as_fetch_group(request)}
    allowed: list[_Group] = []
    refusals: list[_GroupAnswer] = []
    for group in groups.values():
        if access.may(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            allowed.append(group)
        else:
            refusals.append(refused_fetch(group, ErrorCode.GROUP_AUTHORIZATION_FAILED, call.version))
    if not allowed:
        return fetch_response(refusals, call.version)
    hidden = {group.group_id: _hide_topics(node, call, access, group) for group in allowed}
    if has_several:
        request.groups = allowed
    elif request.topics is not None:
        visible = {topic.name for topic in allowed[0].topics or ()}
        request.topics = [topic for topic in request.topics if topic.name in visible]

    def is_visible(name: str, topic_id: bytes) -> bool:
        return access.could(AclOperation.DESCRIBE, ResourceType.TOPIC, name or node.metadata.name_by_id(topic_id) or "")

    def complete(response: OffsetFetchResponse) -> OffsetFetchResponse:
        if not has_several:
            if response.error_code == ErrorCode.NONE:
                if request.topics is None:
                    response.topics = [topic for topic in response.topics if is_visible(topic.name, b"")]
                response.topics += fetch_response([_GroupAnswer(topics=hidden[request.group_id])], call.version).topics
            return response
        shows_all = {group.group_id for group in allowed if group.topics is None}
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                if group.group_id in shows_all:
                    group.topics = [topic for topic in group.topics if is_visible(topic.name, topic.topic_id)]
                group.topics += hidden[group.group_id]
        response.groups += refusals
        return response

    return completed(_offset_fetch(node, call, request), complete)


def _hide_topics(node: "Node", call: Call, access: Access, group: _Group) -> list[_TopicAnswer]:
    """Takes the topics that may not be seen out of a group's question. Returns the answers for them."""
    if group.topics is None:
        return []
    visible: list[_Group.OffsetFetchRequestTopics] = []
    hidden: list[_TopicAnswer] = []
    for topic in group.topics:
        name = node.metadata.name_by_id(topic.topic_id) if call.version >= TOPIC_ID_VERSION else topic.name
        if name is None or access.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            visible.append(topic)
        else:
            partitions = [no_offset(each, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for each in topic.partition_indexes]
            hidden.append(_TopicAnswer(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    group.topics = visible
    return hidden


HANDLERS = {
    ApiKey.OFFSET_COMMIT: Handler(
        to_group_coordinator(GroupCoordinator.offset_commit),
        pipelined=True,
        shapes=(
            Shape(
                "topics",
                "topics",
                ("name", "topic_id"),
                Shape(
                    "partitions", "partitions", ("partition_index",), answer=_Committed.OffsetCommitResponsePartition
                ),
                part_entries=WRITTEN_PART_ENTRIES,
                answer=_Committed,
            ),
        ),
        needs=(
            READ_GROUP,
            each(AclOperation.READ, ResourceType.TOPIC, "name", topic_id_version=TOPIC_ID_VERSION),
        ),
    ),
    ApiKey.OFFSET_FETCH: Handler(
        offset_fetch,
        reads_only=True,
        shapes=(
            Shape("groups", "groups", ("group_id",), Shape("topics", "topics", ("name", "topic_id"))),
            Shape("topics", "topics", ("name",), Shape("partition_indexes", "partitions", ())),
        ),
        needs=IN_HANDLER,
    ),
    ApiKey.OFFSET_DELETE: Handler(
        to_group_coordinator(GroupCoordinator.offset_delete),
        shapes=(
            Shape(
                "topics",
                "topics",
                ("name",),
                Shape("partitions", "partitions", ("partition_index",), answer=_Deleted.OffsetDeleteResponsePartition),
                part_entries=WRITTEN_PART_ENTRIES,
                answer=_Deleted,
            ),
        ),
        needs=(
            Named(AclOperation.DELETE, ResourceType.GROUP, "group_id"),
            each(AclOperation.READ, ResourceType.TOPIC, "name"),
        ),
        on_error=error_code,
    ),
}
