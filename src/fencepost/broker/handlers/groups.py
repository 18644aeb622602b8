"""The calls of consumer groups, answered by the group coordinator; those about offsets are in `group_offsets.py`.

JoinGroup (0-9), SyncGroup (0-5), Heartbeat (0-4) and LeaveGroup (0-5, several members at once from v3) are a member's
and need READ on the group. DescribeGroups (0-6) needs DESCRIBE on each group and tells the operations that the caller
is allowed from v3 on, a missing group as such from v6 on. ListGroups (0-5) shows all groups to callers with DESCRIBE on
the cluster, and to others the groups that they may describe. DeleteGroups (0-2) needs DELETE on each group.
"""

from typing import TYPE_CHECKING, Any

from fencepost.broker.connection import Call
from fencepost.broker.groups import Groups
from fencepost.broker.handler import WRITTEN_PART_ENTRIES, Function, Handler, Repeated, Shape, completed
from fencepost.broker.handlers.routing import Method, routed, routed_in_slices
from fencepost.broker.rights import IN_HANDLER, Named, each, error_code
from fencepost.coordinators.group_coordinator import NULLABLE_PROTOCOL_NAME_VERSION, GroupCoordinator
from fencepost.coordinators.rebalance import refused_join
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node


def _groups(node: "Node") -> Groups:
    return node.groups


def to_group_coordinator(method: Method) -> Function:
    return routed(_groups, method)


_describe_groups = to_group_coordinator(GroupCoordinator.describe_groups)
_list_groups = routed_in_slices(_groups, GroupCoordinator.list_groups)


def describe_groups(node: "Node", call: Call, request: DescribeGroupsRequest) -> Any:
    answer = _describe_groups(node, call, request)
    access = call.access
    if access is None or not request.include_authorized_operations:
        return answer

    def with_operations(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = access.operations(ResourceType.GROUP, group.group_id)
        return response

    return completed(answer, with_operations)


def list_groups(node: "Node", call: Call, request: ListGroupsRequest) -> Any:
    answer = _list_groups(node, call, request)
    access = call.access
    if access is None or access.could_cluster(AclOperation.DESCRIBE):
        return answer

    def visible(response: ListGroupsResponse) -> ListGroupsResponse:
        response.groups = [
            group
            for group in response.groups
            if access.could(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
        ]
        return response

    return completed(answer, visible)


def _not_joined(call: Call, request: JoinGroupRequest, error: ErrorCode) -> JoinGroupResponse:
    response = refused_join(error)
    if call.version < NULLABLE_PROTOCOL_NAME_VERSION:
        response.protocol_name = ""
    return response


READ_GROUP = Named(AclOperation.READ, ResourceType.GROUP, "group_id")

HANDLERS = {
    ApiKey.JOIN_GROUP: Handler(
        to_group_coordinator(GroupCoordinator.join_group), needs=(READ_GROUP,), on_error=_not_joined
    ),
    ApiKey.SYNC_GROUP: Handler(to_group_coordinator(GroupCoordinator.sync_group), needs=(READ_GROUP,)),
    ApiKey.HEARTBEAT: Handler(to_group_coordinator(GroupCoordinator.heartbeat), needs=(READ_GROUP,)),
    ApiKey.LEAVE_GROUP: Handler(
        to_group_coordinator(GroupCoordinator.leave_group),
        shapes=(Shape("members", "members", ("member_id", "group_instance_id")),),
        needs=(READ_GROUP,),
        on_error=error_code,
    ),
    ApiKey.DESCRIBE_GROUPS: Handler(
        describe_groups,
        reads_only=True,
        shapes=(
            Shape(
                "groups",
                "groups",
                (),
                answer=DescribeGroupsResponse.DescribedGroup,
                answer_keys=("group_id",),
                on_error={"error_message": None},
            ),
        ),
        needs=(each(AclOperation.DESCRIBE, ResourceType.GROUP, repeated=Repeated.ANSWERED_ONCE),),
    ),
    ApiKey.LIST_GROUPS: Handler(list_groups, reads_only=True, needs=IN_HANDLER),
    ApiKey.DELETE_GROUPS: Handler(
        to_group_coordinator(GroupCoordinator.delete_groups),
        shapes=(
            Shape(
                "groups_names",
                "results",
                (),
                part_entries=WRITTEN_PART_ENTRIES,
                answer=DeleteGroupsResponse.DeletableGroupResult,
                answer_keys=("group_id",),
            ),
        ),
        needs=(each(AclOperation.DELETE, ResourceType.GROUP, repeated=Repeated.ANSWERED_ONCE),),
    ),
}
