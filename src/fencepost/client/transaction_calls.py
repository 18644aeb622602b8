"""The requests of a transaction to its coordinators, each repeated until there is a definite answer.

The table of verdicts is the whole policy: it sorts errors into retry, abort and fatal as Kafka's Java producer does.
There is one difference: INVALID_TXN_STATE as the answer to a TV2 commit means that the coordinator has ended the
transaction itself (it timed out), and such a producer can go on.

Keeps no state of the transaction, only whether a call of it may still arrive late: the identity is an argument. The
calls raise only ProducerFenced, TransactionMustAbort, TransactionFailed and TransactionCallTimedOut.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol, TypeVar

from fencepost.client import apis
from fencepost.client.cluster import CONCURRENT_BACKOFF_MS, Backoff, Cluster
from fencepost.client.errors import (
    BrokerError,
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    ProducerFenced,
    RequestTimedOut,
    TransactionCallTimedOut,
    TransactionError,
    TransactionFailed,
    TransactionMustAbort,
    check,
)
from fencepost.client.kafka_types import CommittedOffset, CoordinatorKind, GroupMetadata, ProducerIdentity, by_topic
from fencepost.client.offsets import topics_to_commit
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.errors import RETRIABLE, ErrorCode

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


class Call(enum.Enum):
    """The calls that make up a transaction."""

    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    COMMIT = "EndTxn (commit, TV1)"
    COMMIT_TV2 = "EndTxn (commit, TV2)"
    ABORT = "EndTxn (abort)"
    PRODUCE = "Produce"


class Verdict(enum.Enum):
    RETRY = enum.auto()
    LOOK_UP = enum.auto()
    """Look up the coordinator again, then retry."""
    ABORT = enum.auto()
    REINITIALIZE = enum.auto()
    """Abort; the coordinator no longer knows the producer, so instead of EndTxn ask for a new epoch."""
    FENCED = enum.auto()
    FATAL = enum.auto()


_E = ErrorCode
_EVERYWHERE = {
    _E.NOT_COORDINATOR: Verdict.LOOK_UP,
    _E.COORDINATOR_NOT_AVAILABLE: Verdict.LOOK_UP,
    _E.INVALID_PRODUCER_EPOCH: Verdict.FENCED,
    _E.PRODUCER_FENCED: Verdict.FENCED,
    _E.INVALID_TXN_STATE: Verdict.FATAL,
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
    _E.INVALID_PRODUCER_ID_MAPPING: Verdict.REINITIALIZE,
    _E.UNKNOWN_PRODUCER_ID: Verdict.REINITIALIZE,
    _E.TRANSACTION_ABORTABLE: Verdict.ABORT,
    _E.TOPIC_AUTHORIZATION_FAILED: Verdict.ABORT,
    _E.GROUP_AUTHORIZATION_FAILED: Verdict.ABORT,
}
_BY_CALL: dict[Call, dict[ErrorCode, Verdict]] = {
    Call.INIT: {_E.INVALID_PRODUCER_ID_MAPPING: Verdict.FATAL, _E.UNKNOWN_PRODUCER_ID: Verdict.FATAL},
    Call.ADD_PARTITIONS: {_E.OPERATION_NOT_ATTEMPTED: Verdict.ABORT, _E.UNKNOWN_SERVER_ERROR: Verdict.ABORT},
    Call.ADD_OFFSETS: {},
    Call.COMMIT_OFFSETS: {
        _E.REQUEST_TIMED_OUT: Verdict.LOOK_UP,
        _E.UNKNOWN_MEMBER_ID: Verdict.ABORT,
        _E.ILLEGAL_GENERATION: Verdict.ABORT,
        _E.FENCED_INSTANCE_ID: Verdict.ABORT,
        _E.GROUP_ID_NOT_FOUND: Verdict.ABORT,
        _E.STALE_MEMBER_EPOCH: Verdict.ABORT,
        _E.OFFSET_METADATA_TOO_LARGE: Verdict.ABORT,
        _E.INVALID_COMMIT_OFFSET_SIZE: Verdict.ABORT,
    },
    Call.COMMIT: {},
    Call.COMMIT_TV2: {_E.INVALID_TXN_STATE: Verdict.ABORT},
    Call.ABORT: {},
    Call.PRODUCE: {
        # A leader cannot tell a takeover from a transaction that timed out: the abort will show which of them it was.
        _E.INVALID_PRODUCER_EPOCH: Verdict.ABORT,
        _E.INVALID_TXN_STATE: Verdict.ABORT,
        _E.UNKNOWN_PRODUCER_ID: Verdict.ABORT,
        _E.INVALID_PRODUCER_ID_MAPPING: Verdict.FATAL,
        _E.CLUSTER_AUTHORIZATION_FAILED: Verdict.FATAL,
        _E.UNSUPPORTED_VERSION: Verdict.FATAL,
        _E.NOT_COORDINATOR: Verdict.RETRY,
        _E.COORDINATOR_NOT_AVAILABLE: Verdict.RETRY,
    },
}


def verdict(call: Call, code: ErrorCode) -> Verdict:
    found = _BY_CALL[call].get(code) or _EVERYWHERE.get(code)
    if found is not None:
        return found
    if code in RETRIABLE:
        return Verdict.RETRY
    return Verdict.ABORT if call is Call.PRODUCE else Verdict.FATAL


class Reinitialize(TransactionMustAbort):
    """Abort by asking for a new epoch: the coordinator has forgotten this producer."""


def error_for(
    decision: Verdict, transactional_id: str, identity: ProducerIdentity | None, cause: ClientError
) -> TransactionError:
    """The error for the application if a call fails and is not retried."""
    kinds = {
        Verdict.FENCED: ProducerFenced,
        Verdict.ABORT: TransactionMustAbort,
        Verdict.REINITIALIZE: Reinitialize,
        Verdict.FATAL: TransactionFailed,
    }
    return kinds[decision](transactional_id, identity, cause)


class _Answer(Protocol):
    error_code: int


class TransactionCalls:
    def __init__(self, cluster: Cluster, transactional_id: str, max_block_ms: int = MAX_BLOCK_MS) -> None:
        self._cluster = cluster
        self.transactional_id = transactional_id
        self.max_block_ms = max_block_ms
        self.may_arrive_late = False
        """A call had no answer, so it may still reach the coordinator, after what has followed it."""

    def forget_late_calls(self) -> None:
        """There is a new epoch: what arrives late has the one before."""
        self.may_arrive_late = False

    async def protocol(self) -> TransactionProtocol:
        """The newest protocol that the cluster has finalized, according to the newest connection."""
        connection = await self._cluster.any_connection()
        newest = self._cluster.features.get(TRANSACTION_VERSION, 0) >= TransactionProtocol.TV2
        return TransactionProtocol.TV2 if newest and connection.offers(apis.END_TXN_TV2) else TransactionProtocol.TV1

    async def init(self, transaction_timeout_ms: int, previous: ProducerIdentity | None = None) -> ProducerIdentity:
        """Get a new epoch. Without `previous` this takes the id over and ends its open transaction; with it, only the
        producer that has this identity succeeds."""
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
        wanted = by_topic(sorted(partitions))
        request = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[_PARTITIONS_TOPIC(name=name, partitions=held) for name, held in wanted.items()],
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
            # "Not attempted" only means that another partition was refused, whose error says why.
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
        request = messages.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=topics_to_commit(offsets, _OFFSETS_TOPIC, _OFFSETS_TOPIC.TxnOffsetCommitRequestPartition),
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
        """Commits or aborts. Returns the identity for the next transaction, which changes with TV2."""
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
        """Repeats `attempt` until the coordinator accepts or refuses, or the time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.max_block_ms / 1000
        backoff = Backoff(self.max_block_ms)
        coordinator = coordinator or (_TRANSACTION, self.transactional_id)
        while True:
            code = None
            left_ms = max(1, round((deadline - loop.time()) * 1000))
            try:
                # The request has its own timeout; this one ends an endless coordinator lookup.
                async with asyncio.timeout_at(deadline + _LOOKUP_GRACE_SECONDS):
                    return await attempt(min(left_ms, self._cluster.request_timeout_ms))
            except TimeoutError:
                failure: ClientError = RequestTimedOut("the coordinator", call.value, self.max_block_ms)
                raise self._timed_out(call, identity, failure) from None
            except BrokerError as error:
                failure, code = error, error.code
                decision = verdict(call, code)
                if decision is Verdict.LOOK_UP:
                    self._cluster.forget_coordinator(*coordinator)
                elif decision is not Verdict.RETRY:
                    raise error_for(decision, self.transactional_id, identity, error) from error
            except (BrokerUnreachable, RequestTimedOut) as error:
                self.may_arrive_late = True
                self._cluster.forget_coordinator(*coordinator)
                failure = error
            except ClientClosed:
                raise
            except ClientError as error:
                raise TransactionFailed(self.transactional_id, identity, error) from error
            if code == ErrorCode.CONCURRENT_TRANSACTIONS and loop.time() < deadline:
                await asyncio.sleep(CONCURRENT_BACKOFF_MS / 1000)
            elif not await backoff.wait():
                raise self._timed_out(call, identity, failure) from failure

    def _timed_out(self, call: Call, identity: ProducerIdentity | None, failure: ClientError) -> ClientError:
        return TransactionCallTimedOut(self.transactional_id, identity, call.value, self.max_block_ms, failure)
