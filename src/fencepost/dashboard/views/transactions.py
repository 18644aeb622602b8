"""The table of transactional ids, and one of them in full."""

from typing import Any

from fencepost.dashboard.id_follower import IdFollower
from fencepost.dashboard.page_context import NotThere, Page, Parameters
from fencepost.dashboard.shortened_names import full_name
from fencepost.dashboard.transaction_lanes import lanes
from fencepost.dashboard.transaction_table import SORTS, TableQuery, choose
from fencepost.insight.cluster_facts import ClusterFacts
from fencepost.insight.cluster_view import ClusterView
from fencepost.insight.explanation import IdFacts, NothingKnown, judge_id, timeline
from fencepost.insight.pending_offsets import PendingOffset, pending_offsets
from fencepost.internal_topic_names import CONSUMER_OFFSETS
from fencepost.topic_partition import TopicPartition

LIMIT_MAX = 500
FOLLOWERS_MAX = 16
MOMENTS_MAX = 300


def table_query(parameters: Parameters) -> TableQuery:
    return TableQuery(
        text=parameters.text("q"),
        states=frozenset(state for state in parameters.text("state").split(",") if state),
        older_than_ms=parameters.number("older_than_ms", 0),
        sort=parameters.one_of("sort", SORTS, "age"),
        is_descending=parameters.one_of("order", ("asc", "desc"), "desc") == "desc",
        limit=parameters.number("limit", 100, 1, LIMIT_MAX),
        offset=parameters.number("offset", 0),
    )


async def transactions(page: Page, parameters: Parameters) -> dict[str, Any]:
    query, model = table_query(parameters), page.watch.model
    matched, rows = choose(model.rows.values(), query, page.now_ms())
    unknown = [row for row in rows if row.producer_epoch is None]
    if unknown:
        await page.watch.fill_in(unknown)
        matched, rows = choose(model.rows.values(), query, page.now_ms())
    now_ms = page.now_ms()
    return {
        "at_ms": now_ms,
        "source": page.watch.source,
        "note": page.watch.note,
        "total": len(model.rows),
        "matched": matched,
        "rows": [row.document(now_ms) for row in rows],
    }


async def transaction(page: Page, parameters: Parameters) -> dict[str, Any]:
    transactional_id = full_name(parameters.needed("id", "transactional_id"), page.watch.model.rows)
    description = await page.view.describe_transaction_if_known(transactional_id)
    if description is None:
        raise NotThere(f"no coordinator knows the transactional id {transactional_id!r}")
    follower = _follower(page, transactional_id)
    await follower.update(description)
    try:
        now = await ClusterFacts(page.view).id_facts(transactional_id)
    except NothingKnown:  # it has expired in the meantime
        raise NotThere(f"no coordinator knows the transactional id {transactional_id!r}") from None
    written = follower.written()
    moments = timeline(follower.changes, now.causes or (), written)[-MOMENTS_MAX:]
    facts = IdFacts(now.coordinator, now.parts, now.owed_markers, now.causes, moments, follower.is_hidden)
    now_ms = page.now_ms()
    leaders = {at: await _leader(page.view, at) for at in {each.partition for each in written}}
    pending = await _pending(page.view, facts)
    return {
        "at_ms": now_ms,
        "facts": facts.document(now_ms),
        "judgement": judge_id(facts, now_ms, page.stuck_after_ms, page.view.command_line).document(),
        "history_command": page.view.command_line("explain", "--id", "--history", argument=transactional_id),
        "lanes": lanes(follower.changes, written, facts.causes, pending, leaders),
        "is_truncated": follower.is_truncated,
    }


def _follower(page: Page, transactional_id: str) -> IdFollower:
    follower = page.followers.pop(transactional_id, None) or IdFollower(page.view, transactional_id)
    page.followers[transactional_id] = follower
    while len(page.followers) > FOLLOWERS_MAX:
        del page.followers[next(iter(page.followers))]
    return follower


async def _leader(view: ClusterView, at: TopicPartition) -> int:
    return (await view.partition_metadata(at)).leader


async def _pending(view: ClusterView, facts: IdFacts) -> list[PendingOffset]:
    """The group offsets that its open transaction would commit."""
    places = [at for at in facts.coordinator.partitions if at.topic == CONSUMER_OFFSETS]
    if not places:
        return []
    opened, _ = await view.open_transactions(places)
    own = [each for each in opened if each.producer.producer_id == facts.coordinator.producer_id]
    return await pending_offsets(view, own)
