"""The transaction calls.

To the transaction coordinator: AddPartitionsToTxn (0-5), AddOffsetsToTxn (0-4), EndTxn (0-5), DescribeTransactions (0),
ListTransactions (0-2). To the group coordinator, after the transaction coordinator has agreed: TxnOffsetCommit (0-5).
To the partitions: WriteTxnMarkers (1-2).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.dispatch import Handler
from fencepost.broker.handlers.routing import caller_of, routed, routed_or_dropped
from fencepost.broker.markers import write_markers
from fencepost.broker.slices import Steps
from fencepost.broker.transactions import Transactions
from fencepost.broker.verification import ask_coordinator, begin_verification
from fencepost.coordinators.transactions.coordinator import TransactionCoordinator
from fencepost.coordinators.transactions.effects import MarkerOrder
from fencepost.coordinators.write_errors import error_for_commits
from fencepost.internal_topic_names import OFFSETS_TOPIC
from fencepost.log.producers import VerificationGuard
from fencepost.promise import Promise
from fencepost.topic_partition import TopicPartition
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.batch import NO_SEQUENCE
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node

# From these versions on a client knows TRANSACTION_ABORTABLE, and has partitions added for it.
ABORTABLE_VERSION = 4
ADDING_VERSION = 5
# So many markers of one request may wait to be durable at a time.
PENDING_MARKERS_MAX = 1_000

_TopicAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_PartitionAnswer = _TopicAnswer.TxnOffsetCommitResponsePartition
_MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
_MarkerPartitionResult = _MarkerResult.WritableTxnMarkerTopicResult.WritableTxnMarkerPartitionResult


def _transactions(node: Node) -> Transactions:
    return node.transactions


def txn_offset_commit(node: Node, call: Call, request: TxnOffsetCommitRequest) -> Promise[TxnOffsetCommitResponse]:
    reply: Promise[TxnOffsetCommitResponse] = Promise()

    def commit(guard: VerificationGuard | None) -> None:
        groups = node.groups
        groups.coordinator.txn_offset_commit(request, call.version, caller_of(call), groups.now(), guard).then(
            reply.resolve
        )

    def verified(error: ErrorCode, guard: VerificationGuard) -> None:
        if error is ErrorCode.NONE:
            commit(guard)
            partition.log.producers.verified(request.producer_id, request.transactional_id)
        else:
            reply.resolve(_refused(request, _told(error, call.version)))

    if not request.group_id:
        return Promise.resolved(_refused(request, ErrorCode.INVALID_GROUP_ID))
    index = node.groups.coordinator.partition_for(request.group_id)
    adds = call.version >= ADDING_VERSION
    try:
        partition = node.partition(OFFSETS_TOPIC, index)
        guard = begin_verification(
            node,
            partition,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            NO_SEQUENCE,
            adds=adds,
        )
    except KafkaError as error:
        return Promise.resolved(_refused(request, error_for_commits(error.code)))
    if guard is None:
        commit(None)
        return reply
    known_guard = guard
    key = TopicPartition(OFFSETS_TOPIC, index)
    ask_coordinator(
        node, call, request.transactional_id, request.producer_id, request.producer_epoch, [key], adds=adds
    ).then(lambda errors: verified(errors[key], known_guard))
    return reply


def _told(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return error_for_commits(error)


def _refused(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            _TopicAnswer(
                name=topic.name,
                partitions=[
                    _PartitionAnswer(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def write_txn_markers(
    node: Node, call: Call, request: WriteTxnMarkersRequest
) -> Steps[Promise[WriteTxnMarkersResponse]]:
    """From an administrator who ends a hanging transaction by hand, or from another broker's coordinator."""
    response = WriteTxnMarkersResponse()
    reply: Promise[WriteTxnMarkersResponse] = Promise()
    now_ms = node.clock.wall_ms()
    topic_result = _MarkerResult.WritableTxnMarkerTopicResult
    partition_result = topic_result.WritableTxnMarkerPartitionResult
    left = 1
    room: Promise[None] = Promise.resolved(None)

    def one_written(answer: _MarkerPartitionResult | None, error: ErrorCode) -> None:
        nonlocal left
        if answer is not None:
            answer.error_code = error
        left -= 1
        if left <= PENDING_MARKERS_MAX and not room.done:
            room.resolve(None)
        if not left:
            reply.resolve(response)

    for marker in request.markers:
        result = _MarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        is_nobodys = marker.producer_id < 0 or marker.producer_epoch < 0
        order = MarkerOrder(
            "",
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version,
            (),
        )
        for topic in marker.topics:
            answered = topic_result(name=topic.name)
            result.topics.append(answered)
            for index in topic.partition_indexes:
                yield None
                answer = partition_result(partition_index=index)
                answered.partitions.append(answer)
                if is_nobodys:
                    answer.error_code = ErrorCode.INVALID_REQUEST
                    continue
                left += 1
                if left > PENDING_MARKERS_MAX:
                    # What is written together is answered together: not too much of it.
                    room = Promise()
                    yield room
                written = lambda _, error, answer=answer: one_written(answer, error)  # noqa: E731
                write_markers(node, TopicPartition(topic.name, index), [(order, written)], now_ms)
    one_written(None, ErrorCode.NONE)
    return reply


def list_transactions(node: Node, call: Call, request: ListTransactionsRequest) -> Steps[ListTransactionsResponse]:
    access = call.access
    may_see = None if access is None else partial(access.could, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
    transactions = node.transactions
    return transactions.coordinator.list_transactions(request, transactions.now(), may_see)


HANDLERS = {
    ApiKey.ADD_PARTITIONS_TO_TXN: routed_or_dropped(
        _transactions,
        TransactionCoordinator.add_partitions_to_txn,
        TransactionCoordinator.add_partitions_to_txn_in_steps,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: routed_or_dropped(_transactions, TransactionCoordinator.add_offsets_to_txn),
    ApiKey.END_TXN: routed_or_dropped(_transactions, TransactionCoordinator.end_txn),
    ApiKey.DESCRIBE_TRANSACTIONS: routed(_transactions, TransactionCoordinator.describe_transactions),
    ApiKey.LIST_TRANSACTIONS: Handler(list_transactions),
    ApiKey.TXN_OFFSET_COMMIT: Handler(txn_offset_commit),
    ApiKey.WRITE_TXN_MARKERS: Handler(write_txn_markers),
}
