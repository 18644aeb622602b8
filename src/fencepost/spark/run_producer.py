"""The driver's side of the protocol: one producer identity per query run, and all calls to coordinators.

One bare InitProducerId when the run starts; every later epoch is asked for with the own (producer id, epoch), or comes
with the answer to EndTxn (TV2), so that a driver that was replaced can only fence itself. Blocking: runs its event loop
in a thread.
"""

import collections
import dataclasses
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.client.admin import ConfigAdmin
from fencepost.client.admin_groups import GroupAdmin
from fencepost.client.admin_transactions import TransactionAdmin
from fencepost.client.cluster import Cluster
from fencepost.client.errors import (
    BrokerError,
    ClientError,
    TransactionCallTimedOut,
    TransactionError,
    TransactionOutcomeUnknown,
)
from fencepost.client.kafka_types import CommittedOffset, GroupMember, ResourceType, TopicMetadata
from fencepost.client.loop_thread import LoopThread
from fencepost.client.offsets import committed_offsets
from fencepost.client.sending import Sending
from fencepost.client.transaction_calls import MAX_BLOCK_MS, TransactionProtocol
from fencepost.client.transactions import AsyncTransactionalProducer, AsyncTransactionWriter, State, TransactionHandle
from fencepost.spark.errors import NotSupported, OutcomeUnknown
from fencepost.spark.task_errors import code_of
from fencepost.spark.transaction_timeouts import UNBOUNDED, TransactionTimeout
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import ErrorCode

_log = logging.getLogger("fencepost.spark")

TRANSACTION_TIMEOUTS_MS = (900_000, 600_000, 300_000, 120_000, 60_000, 30_000, 10_000)
"""Asked for one after the other, from the derived one down, where the broker's maximum may not be read."""
OUTCOME_TIMEOUT_SECONDS = 1_800
SETTLE_TIMEOUT_SECONDS = 60
_OFFSETS_RETENTION, _ID_EXPIRATION = "offsets.retention.minutes", "transactional.id.expiration.ms"
TIMEOUT_MAX = "transaction.max.timeout.ms"


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterLimits:
    """How long the cluster remembers what nobody touches, with Kafka's defaults where it does not say, and how long a
    transaction may be open."""

    offsets_ms: int = 7 * 24 * 3_600_000
    transactional_id_ms: int = 7 * 24 * 3_600_000
    transaction_timeout_ms_max: int | None = None
    """None if the cluster does not say."""


class OutputRecord(NamedTuple):
    topic: str
    partition: int | None
    """None: by the key, or any."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class _Questions(GroupAdmin, ConfigAdmin, TransactionAdmin):
    """What an administrator may ask, on the connections of the run."""


class RunProducer:
    """Not for use by two threads at once."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        transactional_id: str,
        options: Mapping[str, Any],
        *,
        timeout: TransactionTimeout = UNBOUNDED,
        protocol: TransactionProtocol | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.timeout = timeout
        """Of its transactions; what the broker allows of it once the id has been taken over."""
        self._options = dict(options)
        self._has_taken_over = False
        self._limits: ClusterLimits | None = None
        self._loop = LoopThread()

        async def make() -> tuple[Cluster, AsyncTransactionalProducer]:
            cluster = Cluster(bootstrap_servers, **options)
            max_block_ms = cluster.retry_timeout_ms if "retry.timeout.ms" in options else MAX_BLOCK_MS
            producer = AsyncTransactionalProducer(
                cluster, transactional_id, protocol=protocol, max_block_ms=max_block_ms
            )
            try:
                await cluster.retrying(cluster.connect)
            except BaseException:
                await cluster.close()
                raise
            return cluster, producer

        try:
            self._cluster, self._producer = self._loop.run(make())
        except BaseException:
            self._loop.close()
            raise
        self._questions = _Questions(self._cluster)

    def close(self) -> None:
        async def leave() -> None:
            self._producer.close()
            await self._cluster.close()

        try:
            self._loop.run(leave())
        finally:
            self._loop.close()

    # What is asked

    @property
    def protocol(self) -> TransactionProtocol:
        return self._producer.protocol

    @property
    def identity(self) -> tuple[int, int]:
        return self._producer.identity.producer_id, self._producer.identity.producer_epoch

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        return self._cluster.bootstrap_servers

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    def topic(self, name: str, *, fresh: bool = False) -> TopicMetadata:
        """`fresh`: as it is now, not as it was when this client last asked."""
        return self._loop.run(self._cluster.refresh_topic(name) if fresh else self._cluster.topic(name))

    def committed(self, group_id: str, *, stable: bool) -> dict[TopicPartition, CommittedOffset]:
        """With `stable` it waits until the transaction before has been decided for the group."""
        return self._loop.run(committed_offsets(self._cluster, group_id, require_stable=stable, with_notes=True))

    def members(self, group_id: str) -> Sequence[GroupMember]:
        try:
            return self._loop.run(self._questions.describe_group(group_id)).members
        except BrokerError as error:
            if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                return ()
            raise

    def is_settled(self) -> bool:
        """False if a transaction of this id is open. One that is decided is waited for: its commit is answered before
        what it has committed can be read."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
        while (state := self._transaction_state()).startswith("Prepare") and time.monotonic() < deadline:
            time.sleep(0.02)
        return state != "Ongoing"

    def _transaction_state(self) -> str:
        try:
            return self._loop.run(self._questions.describe_transaction(self.transactional_id)).state
        except BrokerError as error:
            if error.code in (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
                return ""
            raise

    def limits(self) -> ClusterLimits:
        """As far as the settings of a broker may be read. Asked once."""
        if self._limits is None:
            self._limits = self._loop.run(self._read_limits())
        return self._limits

    async def _read_limits(self) -> ClusterLimits:
        known = ClusterLimits()
        try:
            node_id = min(self._cluster.brokers)
            entries = await self._questions.describe_configs(
                ResourceType.BROKER, str(node_id), keys=(_OFFSETS_RETENTION, _ID_EXPIRATION, TIMEOUT_MAX)
            )
            values = {entry.name: int(entry.value) for entry in entries if entry.value}
        except (ClientError, ValueError) as error:
            _log.info("the limits of the cluster cannot be read: %s", error)
            return known
        minutes = values.get(_OFFSETS_RETENTION)
        return ClusterLimits(
            known.offsets_ms if minutes is None else minutes * 60_000,
            values.get(_ID_EXPIRATION, known.transactional_id_ms),
            values.get(TIMEOUT_MAX),
        )

    def call_itself(self, client_id: str) -> None:
        """Under which name the broker sees the calls from now on."""
        self._options["client.id"] = client_id
        self._cluster.rename(client_id)

    # A transaction

    def begin(self) -> None:
        """An epoch that no other attempt has. The first time in a run it takes the transactional id over."""
        producer = self._producer
        if producer.state in (State.IN_TRANSACTION, State.MUST_ABORT, State.ABORTING):
            self.abort()
        if not self._has_taken_over:
            self._take_over()
        elif producer.state is State.FAILED:
            producer.check_open()  # raises what it failed of
        self._loop.run(producer.begin())

    def take_over_again(self) -> None:
        """The next `begin` is bare. For a run that was fenced by one which has given way."""
        self._has_taken_over = False

    def _take_over(self) -> None:
        self.timeout = self.timeout.at_most(None if self.timeout.is_given else self.limits().transaction_timeout_ms_max)
        while not self._has_taken_over:
            try:
                self._loop.run(self._producer.init(transaction_timeout_ms=self.timeout.ms))
                self._has_taken_over = True
            except TransactionError as error:
                if code_of(error) != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                    raise
                shorter = [ms for ms in TRANSACTION_TIMEOUTS_MS if ms < self.timeout.ms]
                if self.timeout.is_given or not shorter:
                    raise NotSupported(
                        f"the broker does not allow a transaction to take {self.timeout.ms} ms",
                        "lower transaction_timeout_ms, or raise the broker's transaction.max.timeout.ms",
                    ) from error
                _log.info("the broker refuses a transaction timeout of %d ms; asking for less", self.timeout.ms)
                self.timeout = self.timeout.at_most(shorter[0])

    def handle(self) -> TransactionHandle:
        """What the writers need."""
        made = self._loop.run(self._producer.handle())
        return dataclasses.replace(made, options=dict(self._options))

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        self._loop.run(self._producer.add(list(partitions)))

    def write(self, records: Iterable[OutputRecord], sending: Sending) -> dict[TopicPartition, int]:
        """Write from here, in place of writers elsewhere; how many went where. What fails is as if one of them had."""
        handle = self.handle()

        async def work() -> dict[TopicPartition, int]:
            writer = AsyncTransactionWriter(handle, sending, cluster=self._cluster)
            async with writer:
                acknowledged = [
                    await writer.send(
                        record.topic, record.value, key=record.key, headers=record.headers, partition=record.partition
                    )
                    for record in records
                ]
            counts: collections.Counter[TopicPartition] = collections.Counter()
            for future in acknowledged:
                where = await future
                counts[TopicPartition(where.topic, where.partition)] += 1
            return dict(counts)

        return self._loop.run(work())

    def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._loop.run(self._producer.send_offsets(offsets, group_id))

    def commit(self) -> None:
        """Ends only when the outcome is known: an abort after a commit without an answer could tear the batch."""
        deadline = time.monotonic() + OUTCOME_TIMEOUT_SECONDS
        while True:
            try:
                self._loop.run(self._producer.commit())
                return
            except TransactionOutcomeUnknown as error:
                if time.monotonic() > deadline:
                    raise OutcomeUnknown(
                        f"no answer to the commit of {self.transactional_id!r} within {OUTCOME_TIMEOUT_SECONDS} s",
                        "restart the query when the brokers answer again: it learns the outcome before it writes",
                    ) from error
                _log.warning("no answer to the commit of %r yet; asking again", self.transactional_id)

    def abort(self) -> None:
        """Repeated like a commit: until the coordinator has said so, late writes could still arrive."""
        deadline = time.monotonic() + OUTCOME_TIMEOUT_SECONDS
        while self._producer.state in (State.IN_TRANSACTION, State.MUST_ABORT, State.ABORTING):
            try:
                self._loop.run(self._producer.abort())
                return
            except TransactionCallTimedOut:
                if time.monotonic() > deadline:
                    raise
                _log.warning("no answer to the abort of %r yet; asking again", self.transactional_id)
