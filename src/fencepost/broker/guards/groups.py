"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup; DescribeGroups, ListGroups, DeleteGroups: rights on groups."""

from collections.abc import Callable
from typing import Any

from fencepost.broker.guards.visit import Guard, Visit
from fencepost.coordinators.group_coordinator import NULLABLE_PROTOCOL_NAME_VERSION
from fencepost.coordinators.rebalance import refused_join
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupResponse,
)

REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED


def join_group(visit: Visit, request: JoinGroupRequest) -> Any:
    if visit.access.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return visit.pass_on(request)
    response = refused_join(REFUSED)
    if visit.version < NULLABLE_PROTOCOL_NAME_VERSION:
        response.protocol_name = ""
    return response


def _for_members(refused: Callable[[], Any]) -> Guard:
    """READ on the one group that a request names."""

    def guard(visit: Visit, request: Any) -> Any:
        is_allowed = visit.access.may(AclOperation.READ, ResourceType.GROUP, request.group_id)
        return visit.pass_on(request) if is_allowed else refused()

    return guard


def describe_groups(visit: Visit, request: DescribeGroupsRequest) -> Any:
    access = visit.access
    allowed, refused = visit.split(
        AclOperation.DESCRIBE, ResourceType.GROUP, dict.fromkeys(request.groups), lambda group_id: group_id
    )
    request.groups = allowed

    def complete(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        if request.include_authorized_operations:
            for group in response.groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = access.operations(ResourceType.GROUP, group.group_id)
        described = DescribeGroupsResponse.DescribedGroup
        response.groups += [described(group_id=group_id, error_code=REFUSED) for group_id in refused]
        return response

    return visit.pass_on(request, complete)


def list_groups(visit: Visit, request: ListGroupsRequest) -> Any:
    """Whoever may describe the cluster sees all; others see the groups that they may describe."""
    access = visit.access

    def complete(response: ListGroupsResponse) -> ListGroupsResponse:
        if not access.could_cluster(AclOperation.DESCRIBE):
            response.groups = [
                group
                for group in response.groups
                if access.could(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
            ]
        return response

    return visit.pass_on(request, complete)


def delete_groups(visit: Visit, request: DeleteGroupsRequest) -> Any:
    allowed, refused = visit.split(
        AclOperation.DELETE, ResourceType.GROUP, dict.fromkeys(request.groups_names), lambda group_id: group_id
    )
    request.groups_names = allowed

    result = DeleteGroupsResponse.DeletableGroupResult
    return visit.pass_on_with(
        request, "results", [result(group_id=group_id, error_code=REFUSED) for group_id in refused]
    )


GUARDS: dict[ApiKey, Guard] = {
    ApiKey.JOIN_GROUP: join_group,
    ApiKey.SYNC_GROUP: _for_members(lambda: SyncGroupResponse(error_code=REFUSED)),
    ApiKey.HEARTBEAT: _for_members(lambda: HeartbeatResponse(error_code=REFUSED)),
    ApiKey.LEAVE_GROUP: _for_members(lambda: LeaveGroupResponse(error_code=REFUSED)),
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.DELETE_GROUPS: delete_groups,
}
