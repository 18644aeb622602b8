"""The group calls, handed to the group coordinator.

JoinGroup (0-9), SyncGroup (0-5), Heartbeat (0-4), LeaveGroup (0-5), OffsetCommit (2-10), OffsetFetch (1-10),
OffsetDelete (0), DescribeGroups (0-6), ListGroups (0-5), DeleteGroups (0-2).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencepost.broker.connection import Call
from fencepost.broker.dispatch import Handler
from fencepost.coordinators.context import Caller, Now
from fencepost.coordinators.group_coordinator import GroupCoordinator
from fencepost.promise import Promise
from fencepost.wire.catalog import ApiKey

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_Method = Callable[[GroupCoordinator, Any, int, Caller, Now], Promise[Any]]


def _routed(method: _Method, *, pipelined: bool = False) -> Handler:
    def handle(node: "Node", call: Call, request: Any) -> Promise[Any]:
        groups = node.groups
        caller = Caller(call.client_id or "", call.client_host)
        answer = method(groups.coordinator, request, call.version, caller, groups.now())
        groups.schedule()
        return answer

    return Handler(handle, pipelined)


HANDLERS = {
    ApiKey.JOIN_GROUP: _routed(GroupCoordinator.join_group),
    ApiKey.SYNC_GROUP: _routed(GroupCoordinator.sync_group),
    ApiKey.HEARTBEAT: _routed(GroupCoordinator.heartbeat),
    ApiKey.LEAVE_GROUP: _routed(GroupCoordinator.leave_group),
    ApiKey.OFFSET_COMMIT: _routed(GroupCoordinator.offset_commit, pipelined=True),
    ApiKey.OFFSET_FETCH: _routed(GroupCoordinator.offset_fetch),
    ApiKey.OFFSET_DELETE: _routed(GroupCoordinator.offset_delete),
    ApiKey.DESCRIBE_GROUPS: _routed(GroupCoordinator.describe_groups),
    ApiKey.LIST_GROUPS: _routed(GroupCoordinator.list_groups),
    ApiKey.DELETE_GROUPS: _routed(GroupCoordinator.delete_groups),
}
