"""The group calls, handed to the group coordinator.

JoinGroup (0-9), SyncGroup (0-5), Heartbeat (0-4), LeaveGroup (0-5), OffsetCommit (2-10), OffsetFetch (1-10),
OffsetDelete (0), DescribeGroups (0-6), ListGroups (0-5), DeleteGroups (0-2).
"""

from typing import TYPE_CHECKING

from fencepost.broker.dispatch import Handler
from fencepost.broker.groups import Groups
from fencepost.broker.handlers.routing import Method, routed, routed_in_slices
from fencepost.coordinators.group_coordinator import GroupCoordinator
from fencepost.wire.catalog import ApiKey

if TYPE_CHECKING:
    from fencepost.broker.node import Node


def _groups(node: "Node") -> Groups:
    return node.groups


def _routed(method: Method, *, pipelined: bool = False) -> Handler:
    return routed(_groups, method, pipelined=pipelined)


HANDLERS = {
    ApiKey.JOIN_GROUP: _routed(GroupCoordinator.join_group),
    ApiKey.SYNC_GROUP: _routed(GroupCoordinator.sync_group),
    ApiKey.HEARTBEAT: _routed(GroupCoordinator.heartbeat),
    ApiKey.LEAVE_GROUP: _routed(GroupCoordinator.leave_group),
    ApiKey.OFFSET_COMMIT: _routed(GroupCoordinator.offset_commit, pipelined=True),
    ApiKey.OFFSET_FETCH: _routed(GroupCoordinator.offset_fetch),
    ApiKey.OFFSET_DELETE: _routed(GroupCoordinator.offset_delete),
    ApiKey.DESCRIBE_GROUPS: _routed(GroupCoordinator.describe_groups),
    ApiKey.LIST_GROUPS: routed_in_slices(_groups, GroupCoordinator.list_groups),
    ApiKey.DELETE_GROUPS: _routed(GroupCoordinator.delete_groups),
}
