"""The list of partitions with their offsets, and the strip of one partition."""

from typing import Any

from fencepost.client.errors import UnknownPartition
from fencepost.client.fetching import AbortedTransaction
from fencepost.client.kafka_types import IsolationLevel, ProducerState, Reset
from fencepost.dashboard.page_context import Page, Parameters
from fencepost.dashboard.partition_strip import OFFSETS_MAX, PIECES_MAX, SeenBatch, Stretch, pieces_of, stretch
from fencepost.insight.cluster_facts import as_coordinator
from fencepost.insight.cluster_view import ClusterView, OpenTransaction, PartitionOffsets
from fencepost.insight.explanation import Holder, judge_holder
from fencepost.insight.hanging import why_hanging
from fencepost.topic_partition import TopicPartition

LIMIT_MAX = 500
LOOKAHEAD_MAX = 200_000
"""Maximum number of offsets after a range that are read to find out how its transactions ended."""


async def partitions(page: Page, parameters: Parameters) -> dict[str, Any]:
    """A row for each partition. Internal topics are included only on request or if searched for."""
    await page.survey.refresh()
    text, is_held_only, with_internal = parameters.text("q"), parameters.flag("held"), parameters.flag("internal")
    limit, offset = parameters.number("limit", 100, 1, LIMIT_MAX), parameters.number("offset", 0)
    surveyed = page.survey.partitions
    internal = {topic.name for topic in await page.survey.topics() if topic.is_internal}
    held = page.survey.held(page.watch.model, page.stuck_after_ms)
    matched = [
        each
        for at, each in sorted(surveyed.items(), key=lambda pair: (pair[0].topic in internal, pair[0]))
        if text in str(at) and (at in held or not is_held_only)
    ]
    hidden = 0
    if not (text or is_held_only or with_internal):
        shown = [each for each in matched if each.partition.topic not in internal]
        hidden, matched = len(matched) - len(shown), shown
    return {
        "at_ms": page.survey.at_ms,
        "total": len(surveyed),
        "matched": len(matched),
        "internal_hidden": hidden,
        "leaderless": [str(at) for at in page.survey.leaderless],
        "rows": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "leader": each.leader,
                **each.offsets._asdict(),
                "is_internal": each.partition.topic in internal,
                "is_held": each.partition in held,
                "open_transactions": page.survey.open_count(each.partition, page.watch.model),
            }
            for each in matched[offset : offset + limit]
        ],
    }


async def strip(page: Page, parameters: Parameters) -> dict[str, Any]:
    at = TopicPartition(parameters.needed("topic"), parameters.number("partition", 0))
    metadata = await page.view.cluster.topic(at.topic)
    if at.partition not in metadata.partitions:
        raise UnknownPartition(at.topic, at.partition, len(metadata.partitions))
    offsets = (await page.view.offsets([at]))[at]
    chosen = stretch(
        parameters.optional_number("from"), parameters.optional_number("to"), offsets.log_start_offset,
        offsets.high_watermark,
    )  # fmt: skip
    batches, aborted = await _read(page.view, at, chosen, offsets)
    pieces, markers = pieces_of(batches, chosen.end, offsets.last_stable_offset, aborted)
    start, end, is_truncated = chosen.start, chosen.end, chosen.is_cut
    if len(pieces) > PIECES_MAX:
        is_truncated = True
        if chosen.keeps_end:
            pieces = pieces[-PIECES_MAX:]
            start = pieces[0].first_offset
        else:
            end = pieces[PIECES_MAX].first_offset
            pieces = pieces[:PIECES_MAX]
        markers = [marker for marker in markers if start <= marker.offset < end]
    names = await page.names_of(piece.producer_id for piece in pieces)
    return {
        "at_ms": page.now_ms(),
        "topic": at.topic,
        "partition": at.partition,
        "from": start,
        "to": end,
        **offsets._asdict(),
        "pieces": [piece.document(names) for piece in pieces],
        "markers": [marker.document() for marker in markers],
        "holder": await _holder(page, at, offsets),
        "is_truncated": is_truncated,
    }


async def _holder(page: Page, at: TopicPartition, offsets: PartitionOffsets) -> dict[str, Any] | None:
    """The producer whose transaction begins at the last stable offset; None if nothing holds up the readers.

    Reads the batch there: querying all producers of the partition would cost much more.
    """
    stable = offsets.last_stable_offset
    if stable >= offsets.high_watermark:
        return None
    header = await page.view.batch_at(at, stable)
    if header is None or not header.is_transactional or header.is_control:
        return None
    name = (await page.names_of([header.producer_id])).get(header.producer_id)
    description = None if name is None else await page.view.describe_transaction_if_known(name)
    now = await page.view.list_offsets({at: int(Reset.LATEST)}, IsolationLevel.READ_COMMITTED)
    if now[at].offset != stable:
        return None  # it has ended meanwhile, so the answers may be about the next one
    producer = ProducerState(header.producer_id, header.producer_epoch, -1, -1, -1, stable)
    holder = Holder(
        at,
        header.producer_id,
        header.producer_epoch,
        stable,
        header.base_timestamp,
        0,
        None if description is None else as_coordinator(description),
        why_hanging(OpenTransaction(at, producer), description),
    )
    now_ms = page.now_ms()
    judged = judge_holder(holder, 0, now_ms, page.stuck_after_ms, page.view.command_line)
    began_ms = now_ms if holder.began_ms is None else holder.began_ms
    is_held = now_ms - began_ms >= page.stuck_after_ms
    return {
        "transactional_id": name,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "start_offset": stable,
        "start_ms": began_ms,
        "is_held": is_held,
        "hanging_because": holder.hanging_because if is_held else None,
        "is_abort_offered": is_held and judged.is_abort_offered,
    }


async def _read(
    view: ClusterView, at: TopicPartition, chosen: Stretch, offsets: PartitionOffsets
) -> tuple[list[SeenBatch], list[AbortedTransaction]]:
    """The batches of the range, later ones that show how its transactions ended, and the transactions that the broker
    lists as aborted."""
    found: dict[int, SeenBatch] = {}
    aborted: list[AbortedTransaction] = []
    position, stable_end = chosen.start, min(chosen.end, offsets.last_stable_offset)
    while position < stable_end:
        fetched = await view.fetch(at, position, IsolationLevel.READ_COMMITTED)
        if not fetched.batches:
            break
        aborted += fetched.aborted
        for batch in fetched.batches:
            if batch.header.base_offset < stable_end:
                found[batch.header.base_offset] = SeenBatch(batch.header, batch.marker())
            position = batch.header.next_offset
    begin = max(chosen.start, offsets.last_stable_offset)
    if begin < chosen.end:
        await _read_unstable(view, at, begin, chosen.end, offsets.high_watermark, found)
    return [found[offset] for offset in sorted(found)], aborted


async def _read_unstable(
    view: ClusterView, at: TopicPartition, begin: int, end: int, high_watermark: int, found: dict[int, SeenBatch]
) -> None:
    """After the last stable offset only markers show the outcome, possibly long after the range."""
    undecided: set[int] = set()
    opened: set[int] | None = None
    async for batch in view.batches(at, begin, min(high_watermark, end + LOOKAHEAD_MAX)):
        header, marker = batch.header, batch.marker()
        if header.base_offset >= end:
            if opened is None:
                opened = {each.producer.producer_id for each in (await view.open_transactions([at]))[0]}
            # An open transaction has no marker. A producer may have ended one and begun another since.
            if not undecided - opened and (header.base_offset >= end + OFFSETS_MAX or not undecided):
                return
        if header.is_control:
            undecided.discard(header.producer_id)
        elif header.is_transactional and header.base_offset < end:
            undecided.add(header.producer_id)
        if header.base_offset < end or header.is_control:
            found[header.base_offset] = SeenBatch(header, marker)
