"""The calls of a transaction, each repeated until it is decided: coordinator lookup, back-off, errors made exceptions.

Keeps no state of the transaction: who is writing is an argument. Raises ProducerFenced, TransactionMustAbort,
TransactionFailed or TransactionCallTimedOut and nothing else that a caller would have to sort.
"""

import asyncio
import collections
import dataclasses
import enum
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol, TypeVar

from fencepost.client import apis
from fencepost.client.accumulator import ProducerIdentity
from fencepost.client.cluster import CONCURRENT_BACKOFF_MS, Backoff, Cluster
from fencepost.client.errors import BrokerError, BrokerUnreachable, ClientClosed, ClientError, RequestTimedOut
from fencepost.client.transaction_errors import (
    Call,
    ProducerFenced,
    TransactionCallTimedOut,
    TransactionFailed,
    TransactionMustAbort,
    Verdict,
    verdict,
)
from fencepost.client.values import CommittedOffset, CoordinatorKind
from fencepost.client.verdicts import check
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.errors import ErrorCode

MAX_BLOCK_MS = 60_000
TRANSACTION_VERSION = "transaction.version"
_LOOKUP_GRACE_SECONDS = 0.2
_TRANSACTION, _GROUP = CoordinatorKind.TRANSACTION, CoordinatorKind.GROUP
_OFFSETS_TOPIC = messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_PARTITIONS_TOPIC = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

T = TypeVar("T")


class TransactionProtocol(enum.IntEnum):
    TV1 = 1
    TV2 = 2
    """KIP-890: the epoch grows with every end of a transaction, and partitions are added by writing to them."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Who consumed what is being committed; without a member the commit is not fenced (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Reinitialize(TransactionMustAbort):
    """Abort by asking for a new epoch: the coordinator has forgotten this producer."""


class _Answer(Protocol):
    error_code: int


class TransactionCalls:
    def __init__(self, cluster: Cluster, transactional_id: str, max_block_ms: int = MAX_BLOCK_MS) -> None:
        self._cluster = cluster
        self.transactional_id = transactional_id
        self.max_block_ms = max_block_ms

    async def protocol(self) -> TransactionProtocol:
        """The newest the cluster has finalized. Looked at again with every new connection."""
        connection = await self._cluster.any_connection()
        newest = self._cluster.features.get(TRANSACTION_VERSION, 0) >= TransactionProtocol.TV2
        return TransactionProtocol.TV2 if newest and connection.offers(apis.END_TXN_TV2) else TransactionProtocol.TV1

    async def init(self, transaction_timeout_ms: int, previous: ProducerIdentity | None = None) -> ProducerIdentity:
        """A new epoch. Bare it takes the id over and ends what is open; with `previous` only its holder succeeds."""
        request = messages.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            producer_id=-1 if previous is None else previous.producer_id,
            producer_epoch=-1 if previous is None else previous.producer_epoch,
        )

        async def attempt(timeout_ms: int) -> ProducerIdentity:
            answer = await self._cluster.call_coordinator(
                _TRANSACTION, self.transactional_id, apis.INIT_PRODUCER_ID, request, timeout_ms=timeout_ms
            )
            self._check(answer)
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return await self._decided(Call.INIT, previous, attempt)

    async def add_partitions(self, identity: ProducerIdentity, partitions: Collection[TopicPartition]) -> None:
        """TV1 only: under TV2 the leader of a partition adds it."""
        by_topic: dict[str, list[int]] = collections.defaultdict(list)
        for partition in sorted(partitions):
            by_topic[partition.topic].append(partition.partition)
        request = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[_PARTITIONS_TOPIC(name=name, partitions=held) for name, held in by_topic.items()],
        )

        async def attempt(timeout_ms: int) -> None:
            answer = await self._cluster.call_coordinator(
                _TRANSACTION, self.transactional_id, apis.ADD_PARTITIONS_TO_TXN, request, timeout_ms=timeout_ms
            )
            refused = [
                (result.partition_error_code, TopicPartition(topic.name, result.partition_index))
                for topic in answer.results_by_topic_v3_and_below
                for result in topic.results_by_partition
                if result.partition_error_code != ErrorCode.NONE
            ]
            # "Not attempted" only says that a neighbour was refused; the neighbour says why.
            refused.sort(key=lambda found: found[0] == ErrorCode.OPERATION_NOT_ATTEMPTED)
            for number, partition in refused:
                check(number, f"partition {partition}")

        await self._decided(Call.ADD_PARTITIONS, identity, attempt)

    async def add_offsets(self, identity: ProducerIdentity, group_id: str) -> None:
        """TV1 only."""
        request = messages.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=group_id,
        )

        async def attempt(timeout_ms: int) -> None:
            answer = await self._cluster.call_coordinator(
                _TRANSACTION, self.transactional_id, apis.ADD_OFFSETS_TO_TXN, request, timeout_ms=timeout_ms
            )
            self._check(answer)

        await self._decided(Call.ADD_OFFSETS, identity, attempt)

    async def commit_offsets(
        self,
        identity: ProducerIdentity,
        protocol: TransactionProtocol,
        offsets: Mapping[TopicPartition, CommittedOffset],
        group: GroupMetadata,
    ) -> None:
        by_topic: dict[str, list[_OFFSETS_TOPIC.TxnOffsetCommitRequestPartition]] = collections.defaultdict(list)
        for partition, committed in offsets.items():
            by_topic[partition.topic].append(
                _OFFSETS_TOPIC.TxnOffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        request = messages.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[_OFFSETS_TOPIC(name=name, partitions=held) for name, held in by_topic.items()],
        )
        tv2 = protocol is TransactionProtocol.TV2
        api = apis.TXN_OFFSET_COMMIT_TV2 if tv2 else apis.TXN_OFFSET_COMMIT_TV1

        async def attempt(timeout_ms: int) -> None:
            answer = await self._cluster.call_coordinator(_GROUP, group.group_id, api, request, timeout_ms=timeout_ms)
            for topic in answer.topics:
                for result in topic.partitions:
                    check(result.error_code, f"offset of {topic.name}-{result.partition_index} in {group.group_id!r}")

        await self._decided(Call.COMMIT_OFFSETS, identity, attempt, (_GROUP, group.group_id))

    async def end(
        self, identity: ProducerIdentity, protocol: TransactionProtocol, *, committed: bool
    ) -> ProducerIdentity:
        """Commit or abort; the identity of the next transaction, which TV2 changes."""
        request = messages.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=committed,
        )
        tv2 = protocol is TransactionProtocol.TV2
        api = apis.END_TXN_TV2 if tv2 else apis.END_TXN_TV1

        async def attempt(timeout_ms: int) -> ProducerIdentity:
            answer = await self._cluster.call_coordinator(
                _TRANSACTION, self.transactional_id, api, request, timeout_ms=timeout_ms
            )
            self._check(answer)
            return ProducerIdentity(answer.producer_id, answer.producer_epoch) if tv2 else identity

        call = Call.ABORT if not committed else Call.COMMIT_TV2 if tv2 else Call.COMMIT
        return await self._decided(call, identity, attempt)

    def _check(self, answer: _Answer) -> None:
        check(answer.error_code, f"transactional id {self.transactional_id!r}")

    async def _decided(
        self,
        call: Call,
        identity: ProducerIdentity | None,
        attempt: Callable[[int], Awaitable[T]],
        coordinator: tuple[CoordinatorKind, str] | None = None,
    ) -> T:
        """Repeat `attempt` until the coordinator has said yes or no, or the time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.max_block_ms / 1000
        backoff = Backoff(self.max_block_ms)
        coordinator = coordinator or (_TRANSACTION, self.transactional_id)
        while True:
            code = None
            left_ms = max(1, round((deadline - loop.time()) * 1000))
            try:
                # The call itself ends in time, and its connection with it; this is for a lookup that goes on.
                async with asyncio.timeout_at(deadline + _LOOKUP_GRACE_SECONDS):
                    return await attempt(min(left_ms, self._cluster.request_timeout_ms))
            except TimeoutError:
                trouble: ClientError = RequestTimedOut("the coordinator", call.value, self.max_block_ms)
                raise self._timed_out(call, identity, trouble) from None
            except BrokerError as error:
                trouble, code = error, error.code
                decision = verdict(call, code)
                if decision is Verdict.LOOK_UP:
                    self._cluster.forget_coordinator(*coordinator)
                elif decision is not Verdict.RETRY:
                    raise self._refused(decision, identity, error) from error
            except (BrokerUnreachable, RequestTimedOut) as error:
                self._cluster.forget_coordinator(*coordinator)
                trouble = error
            except ClientClosed:
                raise
            except ClientError as error:
                raise TransactionFailed(self.transactional_id, identity, error) from error
            if code == ErrorCode.CONCURRENT_TRANSACTIONS and loop.time() < deadline:
                await asyncio.sleep(CONCURRENT_BACKOFF_MS / 1000)
            elif not await backoff.wait():
                raise self._timed_out(call, identity, trouble) from trouble

    def _refused(self, decision: Verdict, identity: ProducerIdentity | None, error: BrokerError) -> ClientError:
        kinds = {
            Verdict.FENCED: ProducerFenced,
            Verdict.ABORT: TransactionMustAbort,
            Verdict.REINITIALIZE: Reinitialize,
        }
        return kinds.get(decision, TransactionFailed)(self.transactional_id, identity, error)

    def _timed_out(self, call: Call, identity: ProducerIdentity | None, trouble: ClientError) -> ClientError:
        return TransactionCallTimedOut(self.transactional_id, identity, call.value, self.max_block_ms, trouble)
