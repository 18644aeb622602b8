"""Spark pipelines by group: their batches, their lag, the state of their transaction."""

import asyncio
from typing import Any

from fencepost.client.errors import BrokerError
from fencepost.dashboard import pipeline_traces as traces
from fencepost.dashboard.page_context import Page, Parameters
from fencepost.dashboard.views.consumer_groups import total_lag
from fencepost.insight.causes import Cause, causes_of
from fencepost.insight.lag import group_lag

PIPELINES_MAX = 50


async def pipelines(page: Page, parameters: Parameters) -> dict[str, Any]:
    text = parameters.text("q")
    causes = (await causes_of(page.view, "") or []) if await page.is_fencepost() else []
    groups = {each.group_id for each in await page.view.list_groups()}
    names = [
        name for name in traces.candidates(page.watch.model.rows, groups, causes) if text in name
    ]  # fmt: skip
    rows = await asyncio.gather(*(_row(page, name, name in groups, causes) for name in names[:PIPELINES_MAX]))
    return {
        "at_ms": page.now_ms(),
        "rows": [row for row in rows if row is not None],
        "not_shown": max(len(names) - PIPELINES_MAX, 0),
    }


async def _row(page: Page, name: str, has_group: bool, causes: list[Cause]) -> dict[str, Any] | None:
    """None if no pipeline has left traces under this name."""
    clients = traces.clients_by_epoch(cause for cause in causes if cause.transactional_id == name)
    client = traces.latest_client(clients, name)
    batch, least, most = None, None, None
    if has_group:
        try:
            committed = await page.view.committed_offsets(name, with_notes=True)
            batch = traces.marked_batch(each.metadata for each in committed.values())
            if batch is not None or client is not None:
                least, most = total_lag(await group_lag(page.view, name))
        except BrokerError:
            pass  # the group was deleted or is hidden: show the rest
    if batch is None and client is None:
        return None
    row = page.watch.model.rows.get(name)
    endings = [] if row is None else list(row.endings)
    commits = [each for each in endings if each.is_commit]
    return {
        "pipeline": name,
        "group_id": name if has_group else None,
        "application": None if client is None else client.application,
        "batch": batch,
        "state": None if row is None else row.state,
        "lag_min": least,
        "lag_max": most,
        "last_commit_ms": commits[-1].completed_ms if commits else None,
        "last_batch_took_ms": traces.took_ms(commits[-1]) if commits else None,
        "transactional_ids": [name],
        "batches": traces.batches(endings, batch, clients),
    }
