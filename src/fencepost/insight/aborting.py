"""Ends transactions from outside: through their coordinator, or by a marker if no coordinator would."""

from fencepost.client.cluster import Backoff
from fencepost.client.kafka_types import TransactionDescription
from fencepost.client.transaction_calls import TransactionCalls
from fencepost.insight.cluster_view import ClusterView, OpenTransaction
from fencepost.insight.hanging import why_hanging
from fencepost.insight.state_changes import ONGOING, PREPARED
from fencepost.topic_partition import TopicPartition


class NothingToAbort(Exception):
    """There is nothing to abort; the text says why."""


async def open_parts(view: ClusterView, transactional_id: str) -> tuple[TransactionDescription, list[OpenTransaction]]:
    """The open transaction of an id, with its part in each partition."""
    description = await view.describe_transaction(transactional_id)
    if description.state in PREPARED:
        raise NothingToAbort(
            f"{transactional_id} is {description.state}: its outcome is decided, only markers are missing"
        )
    if description.state != ONGOING:
        raise NothingToAbort(f"{transactional_id} has no open transaction; its state is {description.state}")
    opened, _ = await view.open_transactions(description.partitions)
    return description, [each for each in opened if each.producer.producer_id == description.producer_id]


async def force_abort(view: ClusterView, description: TransactionDescription) -> None:
    """Takes over the id as a new producer would: fences its current producer and aborts its open transaction."""
    calls = TransactionCalls(view.cluster, description.transactional_id)
    # The infinite timeout of a two-phase transaction cannot be requested.
    timeout_ms = min(description.timeout_ms, 60_000)
    await calls.init(timeout_ms)


async def hanging_at(view: ClusterView, partition: TopicPartition, start_offset: int) -> OpenTransaction:
    """The transaction that begins at an offset; raises NothingToAbort unless it hangs."""
    opened, refused = await view.open_transactions([partition])
    for error in refused.values():
        raise error
    found = next((each for each in opened if each.start_offset == start_offset), None)
    if found is None:
        starts = ", ".join(str(each.start_offset) for each in opened) or "none"
        raise NothingToAbort(
            f"no open transaction of {partition} begins at {start_offset}; open transactions begin at: {starts}"
        )
    names = await view.names_of([found.producer.producer_id])
    listing = names.get(found.producer.producer_id)
    description = None
    if listing is not None:
        description = await view.describe_transaction_if_known(listing.transactional_id)
    if why_hanging(found, description) is None and listing is not None:
        raise NothingToAbort(
            f"the transaction at {start_offset} does not hang, its coordinator will end it; to abort it now:"
            f" {view.command_line('txn', 'abort', argument=listing.transactional_id)}"
        )
    return found


async def abort_hanging(view: ClusterView, opened: OpenTransaction) -> None:
    producer = opened.producer
    await view.write_abort_marker(
        opened.partition, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
    )
    backoff = Backoff(view.cluster.retry_timeout_ms)
    while True:
        still, _ = await view.open_transactions([opened.partition])
        if all((each.producer.producer_id, each.start_offset) != (producer.producer_id, opened.start_offset)
               for each in still) or not await backoff.wait():  # fmt: skip
            return
