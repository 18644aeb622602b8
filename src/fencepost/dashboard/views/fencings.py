"""Producers according to the leaders of partitions, and which ones were fenced or refused, and why."""

from typing import Any

from fencepost.client.errors import ClientError, UnknownTopic
from fencepost.dashboard.page_context import Page, Parameters
from fencepost.insight.causes import Cause, causes_of
from fencepost.topic_partition import TopicPartition

LIMIT_MAX = 500
PARTITIONS_MAX = 200
"""Number of partitions whose producers are queried at a time."""
FENCINGS_MAX = 100


async def producers(page: Page, parameters: Parameters) -> dict[str, Any]:
    text, topic = parameters.text("q"), parameters.text("topic")
    limit, offset = parameters.number("limit", 100, 1, LIMIT_MAX), parameters.number("offset", 0)
    partitions = await _partitions(page, topic)
    described = await page.view.describe_producers(partitions[:PARTITIONS_MAX])
    found = [
        (at, producer)
        for at, listed in sorted(described.items())
        if not isinstance(listed, ClientError)
        for producer in listed
    ]
    names = await page.names_of(producer.producer_id for _, producer in found)
    matched = [
        (at, producer)
        for at, producer in found
        if not text or text == str(producer.producer_id) or text in (names.get(producer.producer_id) or "")
    ]
    causes = await causes_of(page.view, "") if await page.is_fencepost() else None
    return {
        "at_ms": page.now_ms(),
        "total": len(found),
        "matched": len(matched),
        "rows": [
            {
                "topic": at.topic,
                "partition": at.partition,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp_ms": producer.last_timestamp_ms,
                "transaction_start_offset": producer.transaction_start_offset,
                "transactional_id": names.get(producer.producer_id),
            }
            for at, producer in matched[offset : offset + limit]
        ],
        "not_asked_partitions": max(len(partitions) - PARTITIONS_MAX, 0),
        "not_seen": [
            {"partition": str(at), "reason": str(why)}
            for at, why in sorted(described.items())
            if isinstance(why, ClientError)
        ],
        "fencings": None if causes is None else [cause.document() for cause in _fencings(causes, text)],
    }


async def _partitions(page: Page, topic: str) -> list[TopicPartition]:
    topics = await page.survey.topics()
    found = [
        TopicPartition(each.name, number)
        for each in topics
        # All producers of the cluster write to the internal topics, which are shown only on request.
        if (each.name == topic if topic else not each.is_internal)
        for number in each.partitions
    ]
    if topic and not found:
        raise UnknownTopic(topic)
    return found


def _fencings(causes: list[Cause], text: str) -> list[Cause]:
    """The latest first."""
    wanted = [
        cause
        for cause in causes
        if (cause.event in ("ProducerFenced", "TransactionTimedOut") or cause.is_refusal)
        and (not text or text in cause.transactional_id or (text.isdigit() and cause.concerns(int(text))))
    ]
    return wanted[: -FENCINGS_MAX - 1 : -1]
