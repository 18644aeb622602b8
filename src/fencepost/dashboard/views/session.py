"""The cluster of the page, the allowed actions, and what this cluster does not show."""

from typing import Any

from fencepost.dashboard.page_context import Page
from fencepost.version import __version__


async def session(page: Page) -> dict[str, Any]:
    cluster = await page.view.describe_cluster()
    is_fencepost = await page.is_fencepost()
    notes = []
    if not is_fencepost:
        notes.append("Apache Kafka keeps no journal of causes: who fenced whom, and which client did it, is not shown.")
    if page.watch.note:
        notes.append(page.watch.note[0].upper() + page.watch.note[1:] + ".")
    return {
        "version": __version__,
        "bootstrap": ",".join(page.view.cluster.bootstrap_servers),
        "cluster_id": cluster.cluster_id,
        "is_fencepost": is_fencepost,
        "brokers": [{"id": each.node_id, "host": each.host, "port": each.port} for each in cluster.brokers],
        "actions_allowed": page.are_actions_allowed,
        "needs_token": False,
        "notes": notes,
    }


def locked_session() -> dict[str, Any]:
    """The session document for a browser that has not sent the token yet."""
    return {
        "version": __version__,
        "bootstrap": "",
        "cluster_id": "",
        "is_fencepost": False,
        "brokers": [],
        "actions_allowed": False,
        "needs_token": True,
        "notes": [],
    }
