"""Whose turn it is before a query starts: the table of `batch_decisions`, asked about the batch that will come first.

What a driver that died has left open is ended here, when its successor starts: until then it holds every reader of its
topics, for as long as the transaction's timeout.
"""

import logging
import time
from collections.abc import Sequence

from fencepost.client.blocking import Admin, Client
from fencepost.client.errors import BrokerError, ClientError
from fencepost.client.kafka_types import GroupMember
from fencepost.spark.batch_decisions import Decision, View, decide
from fencepost.spark.checkpoint import Checkpoint
from fencepost.spark.commit_records import newest
from fencepost.spark.errors import FencepostSparkError, GroupInUse
from fencepost.spark.planned_batches import plans_of
from fencepost.wire.errors import ErrorCode

_log = logging.getLogger("fencepost.spark")

NEW_QUERY = "(new)"


def first_decision(admin: Admin, name: str, checkpoint: Checkpoint, adopt: str) -> Decision | None:
    """What becomes of the first batch; raises what it would be refused with. None if only the batch itself can tell:
    Spark has not planned it yet, and the group holds one of its number."""
    view, is_planned_later = first_view(admin, name, checkpoint)
    return None if is_planned_later else decide(view, adopt=adopt)


def first_view(admin: Admin, name: str, checkpoint: Checkpoint) -> tuple[View, bool]:
    """What the first batch meets, and whether only the batch itself can tell what becomes of it."""
    query_id = checkpoint.query_id_if_begun()
    batch_id = checkpoint.next_batch() if query_id is not None else 0
    stored = newest(admin.committed_offsets(name, with_notes=True))
    plans = plans_of(checkpoint)
    is_planned_later = (
        plans(batch_id) is None
        and stored is not None
        and (stored.marker.query_id, stored.marker.batch_id) == (query_id, batch_id)
    )
    started_ms = time.time_ns() // 1_000_000
    view = View(name, query_id or NEW_QUERY, batch_id, stored, planned=plans, started_ms=started_ms)
    return view, is_planned_later


def end_what_was_left(client: Client, admin: Admin, name: str, checkpoint: Checkpoint, adopt: str) -> bool:
    """End the transaction that a predecessor has left open, if it is this query's turn. As well as it goes: a refusal,
    and all that fails, is the first batch's to tell."""
    try:
        if first_decision(admin, name, checkpoint, adopt) is None or not _is_open(admin, name):
            return False
        client.init_producer_id(name)
    except (ClientError, FencepostSparkError) as error:
        _log.info("what a predecessor of %r may have left open is left to the first batch: %s", name, error)
        return False
    _log.warning("a transaction that a predecessor of %r had left open was aborted", name)
    return True


def _is_open(admin: Admin, name: str) -> bool:
    try:
        return admin.describe_transaction(name).state == "Ongoing"
    except BrokerError as error:
        if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return False
        raise


def refuse_members(group_id: str, members: Sequence[GroupMember]) -> None:
    if members:
        who = ", ".join(sorted({member.client_id for member in members}))
        raise GroupInUse(
            f"group {group_id!r} has members ({who}); their commits would destroy the sink's",
            "stop these consumers, or give the sink another name",
        )
