"""The overview: rates, latencies, the oldest open transaction, held partitions, what ended last."""

from typing import Any

from fencepost.dashboard.page_context import Page, Parameters
from fencepost.dashboard.partition_survey import HELD_SHOWN_MAX

EMPTY: dict[str, list[int]] = {"commits": [], "aborts": []}
NO_PERCENTILES: dict[str, list[int]] = {"p50_ms": [], "p99_ms": []}


async def overview(page: Page, parameters: Parameters) -> dict[str, Any]:
    await page.survey.refresh()
    watch, model, now_ms = page.watch, page.watch.model, page.now_ms()
    end_s = watch.as_of_ms // 1000
    held = list(page.survey.held(model, page.stuck_after_ms).values())
    has_log = watch.source == "log"
    return {
        "at_ms": now_ms,
        "source": watch.source,
        "note": watch.note,
        "states": model.state_counts(),
        "totals": model.totals(),
        "rates": model.rates(end_s) if has_log else {"from_s": end_s, **EMPTY},
        "latency": model.latency(end_s) if has_log else {"from_s": end_s, **NO_PERCENTILES},
        "duration": model.duration(end_s) if has_log else {"from_s": end_s, **NO_PERCENTILES},
        "oldest_open": await _oldest_open(page, now_ms),
        "held": held[:HELD_SHOWN_MAX],
        "held_count": len(held),
        "recent": [ending.document() for ending in reversed(model.recent)],
    }


async def _oldest_open(page: Page, now_ms: int) -> dict[str, Any] | None:
    row = page.watch.model.oldest_open()
    if row is None:
        return None
    return {
        "transactional_id": row.transactional_id,
        "state": row.state,
        "start_ms": row.start_ms,
        "age_ms": row.age_ms(now_ms),
        "timeout_ms": row.timeout_ms,
        "client": await _client(page, row.transactional_id, row.producer_epoch, row.age_ms(now_ms) or 0),
    }


ASKED_AFTER_MS = 2_000
"""The client of an open transaction is queried only if it stays open: most end quickly."""


async def _client(page: Page, transactional_id: str, epoch: int | None, age_ms: int) -> str | None:
    if epoch is None or age_ms < ASKED_AFTER_MS or not await page.is_fencepost():
        return None
    return await page.client_of_epoch(transactional_id, epoch)
