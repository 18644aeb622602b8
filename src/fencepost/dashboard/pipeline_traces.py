"""Recognizes Spark pipelines by their traces in any cluster. Pure.

The name of a pipeline is its transactional id and its group; every offset it commits has a marker with the batch in its
metadata; its client id is `spark/application/pipeline/batch`, which Fencepost records in its journal of causes.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from fencepost.dashboard.transaction_model import Ending
from fencepost.insight.causes import Cause

_CLIENT = re.compile(r"^spark/([^/]+)/(.+)/([^/]+)$")
BATCHES_MAX = 20


@dataclasses.dataclass(frozen=True, slots=True)
class SparkClient:
    application: str
    pipeline: str
    batch: str


def spark_client(client_id: str | None) -> SparkClient | None:
    matched = _CLIENT.match(client_id or "")
    return None if matched is None else SparkClient(matched[1], matched[2], matched[3])


def marked_batch(metadata: Iterable[str]) -> int | None:
    """The batch in the newest marker of a group's offsets; None if no pipeline wrote them."""
    found: list[tuple[int, int]] = []
    for text in metadata:
        try:
            marker = json.loads(text)
            found.append((int(marker["term"]), int(marker["batch"])))
        except (ValueError, TypeError, KeyError):
            continue
    return max(found)[1] if found else None


def clients_by_epoch(causes: Iterable[Cause]) -> dict[tuple[str, int], SparkClient]:
    """The client of a pipeline by transactional id and epoch."""
    found = {}
    for cause in causes:
        client = spark_client(cause.fields.get("client_id"))
        epoch = cause.fields.get("new_epoch", cause.fields.get("producer_epoch"))
        if client is not None and cause.is_beginning and isinstance(epoch, int):
            found[cause.transactional_id, epoch] = client
    return found


def candidates(transactional_ids: Iterable[str], group_ids: Iterable[str], causes: Iterable[Cause]) -> list[str]:
    """Names of possible pipelines: ids that are also groups, and ids whose client id is that of a pipeline."""
    ids, groups = set(transactional_ids), set(group_ids)
    said = {
        cause.transactional_id for cause in causes if spark_client(cause.fields.get("client_id")) is not None
    }  # fmt: skip
    return sorted((ids & groups) | (said & ids))


def batches(
    endings: Sequence[Ending], last_batch: int | None, clients: dict[tuple[str, int], SparkClient]
) -> list[dict[str, Any]]:
    """The last transactions of a pipeline, newest first. Each commit is a batch, the last one that of the marker; an
    abort was an attempt at the next batch. If the journal names the batch, that is used."""
    found = []
    batch = last_batch
    for ending in reversed(endings):
        number = batch
        if not ending.is_commit and batch is not None:
            number = batch + 1
        named = _named(ending, clients)
        found.append(
            {
                "batch": named if named is not None else number,
                "outcome": ending.outcome,
                "start_ms": ending.start_ms,
                "completed_ms": ending.completed_ms,
            }
        )
        if ending.is_commit and batch is not None:
            batch = batch - 1 if batch else None
    return found[:BATCHES_MAX]


def took_ms(ending: Ending) -> int | None:
    """From the transaction's first write to its markers; None if its beginning is unknown."""
    return ending.completed_ms - ending.start_ms if ending.start_ms is not None and ending.start_ms > 0 else None


def _named(ending: Ending, clients: dict[tuple[str, int], SparkClient]) -> int | None:
    # A transaction ends with its own epoch, or with the next one if it was raised at the decision.
    for epoch in (ending.producer_epoch, ending.producer_epoch - 1):
        client = clients.get((ending.transactional_id, epoch))
        if client is not None:
            return int(client.batch) if client.batch.isascii() and client.batch.isdigit() else None
    return None


def latest_client(clients: dict[tuple[str, int], SparkClient], transactional_id: str) -> SparkClient | None:
    """The latest client: the journal is ordered by time."""
    found = [client for (name, _), client in clients.items() if name == transactional_id]
    return found[-1] if found else None
