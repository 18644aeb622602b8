"""The transaction coordinator as the broker sees it: one method per request, each answering through a Promise.

Owns the wiring of the parts, the checks that need no state, and how an answer looks in each version. The broker loads
and unloads partitions through `runtime`, and calls `on_time` at `next_deadline_ms`; `deadline_moved` tells when that
came nearer. A promise of DropConnection means: close the connection and answer nothing.
"""

from collections.abc import Callable, Collection, Generator, Iterable
from typing import Any

from fencepost.config import BrokerConfig
from fencepost.coordinators.context import Caller, Now, Topics
from fencepost.coordinators.placement import partition_for_key
from fencepost.coordinators.runtime import Append, ApplyWhen, CoordinatorRuntime
from fencepost.coordinators.timers import Timers
from fencepost.coordinators.transactions.add import AddCall, Adds
from fencepost.coordinators.transactions.add_requests import AddRequests, everywhere
from fencepost.coordinators.transactions.admin import TransactionAdmin
from fencepost.coordinators.transactions.end_requests import EndRequests
from fencepost.coordinators.transactions.events import CoordinatorBehindPartitions
from fencepost.coordinators.transactions.ghosts import DropConnection
from fencepost.coordinators.transactions.init import caught_up
from fencepost.coordinators.transactions.init_requests import InitRequests
from fencepost.coordinators.transactions.ledger import Ledger, TransactionRuntime
from fencepost.coordinators.transactions.markers import SendMarkers
from fencepost.coordinators.transactions.metadata import PROTOCOL_2, ProducerPair, TopicPartition, TransactionMetadata
from fencepost.coordinators.transactions.shard import TransactionShard
from fencepost.coordinators.transactions.sweep import BROKER_ITSELF, Sweep
from fencepost.coordinators.transactions.transaction_journal import TransactionJournal
from fencepost.coordinators.transactions.transaction_states import PREPARED
from fencepost.ports import Clock
from fencepost.promise import Promise
from fencepost.wire.batch import NO_PRODUCER_EPOCH
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

TRANSACTIONS_TOPIC = "__transaction_state"


class TransactionCoordinator:
    def __init__(
        self,
        config: BrokerConfig,
        append: Append,
        clock: Clock,
        events: Callable[[object], None],
        topics: Topics,
        *,
        next_producer_id: Callable[[], int],
        send_markers: SendMarkers,
        group_partition: Callable[[str], int],
        coordinator_epoch: Callable[[int], int],
        transaction_version: Callable[[], int],
        partition_epoch: Callable[[int], int] = lambda producer_id: NO_PRODUCER_EPOCH,
        producer_ids_loaded: Callable[[Iterable[int]], None] = lambda producer_ids: None,
        deadline_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`next_producer_id` may raise KafkaError. `group_partition` is the partition of __consumer_offsets of a group,
        `coordinator_epoch` the leader epoch of a partition of __transaction_state, `transaction_version` the finalized
        feature level, `partition_epoch` the largest epoch of a producer that any partition had when the broker started.
        `producer_ids_loaded` hears the producer ids that each partition of __transaction_state has."""
        self.partition_count = config.transaction_state_log_num_partitions
        """Partitions of __transaction_state; the broker corrects it if the topic was created with another number."""
        self.runtime: TransactionRuntime = CoordinatorRuntime(
            TRANSACTIONS_TOPIC,
            lambda partition: TransactionShard(partition, self._shard_loaded, self._shard_unloaded),
            TransactionJournal(transaction_version),
            append,
            clock,
            events,
            apply_when=ApplyWhen.DURABLE,
            decompressed_batch_bytes_max=config.decompressed_batch_max_bytes,
        )
        self._config = config
        self._clock = clock
        self._partition_epoch = partition_epoch
        self._producer_ids_loaded = producer_ids_loaded
        self._timers = Timers(deadline_moved)
        self._ledger = Ledger(
            self.runtime,
            self.partition_for,
            self._timers,
            events,
            self._now,
            topics,
            send_markers,
            coordinator_epoch,
            ghost_protection=config.transaction_ghost_protection_enable,
        )
        self._sweep = Sweep(config, self._ledger, transaction_version)
        self._adds = Adds(self._ledger, self._now)
        self._add_wait_ms = config.add_partitions_to_txn_retry_backoff_max_ms
        self._add_requests = AddRequests(self._adds, topics, group_partition, self._add_wait_ms)
        self._init_requests = InitRequests(config, self._ledger, next_producer_id, transaction_version)
        self._end_requests = EndRequests(self._ledger, next_producer_id)
        self._admin = TransactionAdmin(self._ledger)

    def partition_for(self, transactional_id: str) -> int:
        return partition_for_key(transactional_id, self.partition_count)

    # Time

    def next_deadline_ms(self) -> int | None:
        """When `on_time` is due, on the monotonic clock; it may lie in the past."""
        return self._timers.next_deadline_ms()

    def on_time(self, now: Now) -> None:
        self._timers.run_due(now)

    # Producers

    def init_producer_id(
        self, request: InitProducerIdRequest, version: int, caller: Caller, now: Now
    ) -> Promise[InitProducerIdResponse]:
        return self._init_requests.init(request, version, caller, now)

    def add_partitions_to_txn(
        self, request: AddPartitionsToTxnRequest, version: int, caller: Caller, now: Now
    ) -> Promise[AddPartitionsToTxnResponse | DropConnection]:
        return self._add_requests.add_partitions(request, version, caller, now)

    def add_partitions_to_txn_in_steps(
        self, request: AddPartitionsToTxnRequest, version: int, caller: Caller, now: Now
    ) -> Generator[Promise[Any] | None, None, Any]:
        """The same for a large request; returns the answer or a promise of it."""
        return self._add_requests.add_partitions_in_steps(request, version, caller, now)

    def add_offsets_to_txn(
        self, request: AddOffsetsToTxnRequest, version: int, caller: Caller, now: Now
    ) -> Promise[AddOffsetsToTxnResponse | DropConnection]:
        return self._add_requests.add_offsets(request, version, caller, now)

    def end_txn(
        self, request: EndTxnRequest, version: int, caller: Caller, now: Now
    ) -> Promise[EndTxnResponse | DropConnection]:
        return self._end_requests.end(request, version, caller, now)

    # Partition leaders

    def verify_or_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
        caller: Caller = BROKER_ITSELF,
    ) -> Promise[dict[TopicPartition, ErrorCode]]:
        """Before a partition's first write in a transaction: is it part of it (`add`: make it so)?"""
        given = ProducerPair(producer_id, producer_epoch)
        if not add:
            return Promise.resolved(self._adds.verify(transactional_id, given, partitions, caller))
        now = self._now()
        wanted = frozenset(partitions)
        deadline_ms = now.monotonic_ms + self._add_wait_ms
        call = AddCall("implicit add", transactional_id, given, wanted, PROTOCOL_2, caller, deadline_ms)
        return self._adds.add(call, now).map(lambda error: everywhere(wanted, error))

    # Administration

    def list_transactions(
        self, request: ListTransactionsRequest, now: Now, may_see: Callable[[str], bool] | None = None
    ) -> Generator[None, None, ListTransactionsResponse]:
        return self._admin.list_transactions(request, now, may_see)

    def describe_transactions(
        self, request: DescribeTransactionsRequest, version: int, caller: Caller, now: Now
    ) -> Promise[DescribeTransactionsResponse]:
        return Promise.resolved(self._admin.describe(request))

    # Shards

    def _shard_loaded(self, shard: TransactionShard, now: Now) -> None:
        """What was decided is carried out; what is open is left to its client or its time-out."""
        producer_ids: list[int] = []
        for metadata in list(shard.transactions.values()):
            producer_ids += (metadata.record.producer_id, metadata.record.next_producer_id)
            if not self._catch_up(shard, metadata, now):
                continue
            if metadata.record.state in PREPARED:
                self._ledger.resume(metadata, now)
            else:
                self._sweep.loaded(metadata, now)

        self._producer_ids_loaded(producer_ids)

    def _catch_up(self, shard: TransactionShard, metadata: TransactionMetadata, now: Now) -> bool:
        """Whether the id is still known after a look at what partitions have seen of its producer."""
        record = metadata.record
        partition_epoch = self._partition_epoch(record.producer_id)
        wanted = caught_up(record, partition_epoch)
        if wanted is record:
            return True
        if wanted is None:
            del shard.transactions[metadata.transactional_id]
        else:
            metadata.record = wanted
        self._ledger.events(
            CoordinatorBehindPartitions(
                metadata.transactional_id,
                record.producer_id,
                record.producer_epoch,
                partition_epoch,
                wanted is None,
                now.wall_ms,
            )
        )
        return wanted is not None

    def _shard_unloaded(self, shard: TransactionShard) -> None:
        for metadata in shard.transactions.values():
            self._ledger.abandon(metadata)

    def _now(self) -> Now:
        return Now.of(self._clock)
