"""The list of groups, and one group with its lag in records."""

import asyncio
from collections.abc import Iterable
from typing import Any

from fencepost.client.errors import BrokerError
from fencepost.client.kafka_types import GroupDescription
from fencepost.dashboard.page_context import NotThere, Page, Parameters
from fencepost.dashboard.shortened_names import full_name, is_shortened
from fencepost.insight.cluster_view import ClusterView
from fencepost.insight.lag import PartitionLag, group_lag
from fencepost.wire.errors import ErrorCode

LIMIT_MAX = 500
DESCRIBED_MAX = 50
"""Maximum number of groups whose members are counted: each needs a request."""


async def groups(page: Page, parameters: Parameters) -> dict[str, Any]:
    text = parameters.text("q")
    limit, offset = parameters.number("limit", 100, 1, LIMIT_MAX), parameters.number("offset", 0)
    listed = await page.view.list_groups()
    matched = [each for each in listed if text in each.group_id]
    shown = matched[offset : offset + limit]
    described = await asyncio.gather(*(_members(page.view, each.group_id) for each in shown[:DESCRIBED_MAX]))
    members = dict(zip((each.group_id for each in shown), described, strict=False))
    return {
        "at_ms": page.now_ms(),
        "total": len(listed),
        "matched": len(matched),
        "rows": [
            {
                "group_id": each.group_id,
                "state": each.state,
                "protocol_type": each.protocol_type,
                "members": members.get(each.group_id),
            }
            for each in shown
        ],
    }


async def _members(view: ClusterView, group_id: str) -> int | None:
    try:
        return len((await view.describe_group(group_id)).members)
    except BrokerError:
        return None


async def group(page: Page, parameters: Parameters) -> dict[str, Any]:
    group_id = parameters.needed("id", "group_id")
    if is_shortened(group_id):
        group_id = full_name(group_id, [each.group_id for each in await page.view.list_groups()])
    try:
        description: GroupDescription = await page.view.describe_group(group_id)
    except BrokerError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise NotThere(f"the group {group_id!r} does not exist") from None
        raise
    lags = await group_lag(page.view, group_id)
    least, most = total_lag(lags)
    return {
        "at_ms": page.now_ms(),
        "group_id": group_id,
        "state": description.state,
        "protocol_type": description.protocol_type,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "partitions": [str(at) for at in member.assignment],
            }
            for member in description.members
        ],
        "lag_min": least,
        "lag_max": most,
        "partitions": [lag.document() for lag in lags],
        "exact_command": page.view.command_line("lag", "--exact", argument=group_id),
    }


def total_lag(lags: Iterable[PartitionLag]) -> tuple[int | None, int | None]:
    """None when the group has no partitions."""
    counted = [(each.lag_min, each.lag_max) for each in lags]
    if not counted:
        return None, None
    return sum(least for least, _ in counted), sum(most for _, most in counted)
