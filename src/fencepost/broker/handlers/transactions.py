"""The calls of transactions.

To the transaction coordinator: AddPartitionsToTxn (0-5), AddOffsetsToTxn (0-4), EndTxn (0-5), DescribeTransactions (0),
ListTransactions (0-2). To the group coordinator, after the transaction coordinator has agreed: TxnOffsetCommit (0-5).
To the partitions: WriteTxnMarkers (1-2).

A producer's calls need WRITE on the transactional id; besides it, AddPartitionsToTxn needs WRITE on every topic (one
that is missing fails them all), AddOffsetsToTxn READ on the group, and TxnOffsetCommit READ on the group and on each
topic. From v4 on AddPartitionsToTxn comes from brokers, for several transactions at once, and needs CLUSTER_ACTION.
WriteTxnMarkers needs CLUSTER_ACTION, as a call between brokers, or ALTER, for an administrator who ends a hanging
transaction (KIP-664). DescribeTransactions needs DESCRIBE on each transactional id and shows the topics that the caller
may describe; ListTransactions shows the transactional ids that the caller may describe.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.broker.connection import Call
from fencepost.broker.handler import (
    WRITTEN_PART_ENTRIES,
    Function,
    Handler,
    Shape,
    completed,
)
from fencepost.broker.handlers.routing import Method, MethodInSteps
from fencepost.broker.rights import IN_HANDLER, Named, OnCluster, each
from fencepost.broker.security.access import Access
from fencepost.broker.slices import Steps
from fencepost.broker.verification import ask_coordinator, begin_verification
from fencepost.coordinators.transactions.coordinator import TransactionCoordinator
from fencepost.coordinators.transactions.effects import MarkerOrder
from fencepost.coordinators.transactions.ghosts import DropConnection
from fencepost.coordinators.write_errors import error_for_commits
from fencepost.internal_topic_names import CONSUMER_OFFSETS
from fencepost.log.producers import VerificationGuard
from fencepost.ports import Now
from fencepost.promise import Promise
from fencepost.topic_partition import TopicPartition
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.batch import NO_SEQUENCE
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
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
# From this version on AddPartitionsToTxn comes from brokers.
BROKERS_VERSION = 4
# How many markers of one request may wait to be durable at a time.
PENDING_MARKERS_MAX = 1_000

_TopicAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_PartitionAnswer = _TopicAnswer.TxnOffsetCommitResponsePartition
_Added = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_AddedPartition = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
_MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
_MarkerTopicResult = _MarkerResult.WritableTxnMarkerTopicResult
_MarkerPartitionResult = _MarkerTopicResult.WritableTxnMarkerPartitionResult


def _or_dropped(method: Method, in_steps: MethodInSteps | None = None) -> Function:
    """Hands the request to a method of the coordinator, `in_steps` if it is large and there is a method for that.

    A call may come late, on a connection that its client has replaced: it gets no answer, and the connection is closed.
    """

    def handle(node: Node, call: Call, request: Any) -> Any:
        coordinator, now = node.transactions.coordinator, Now.of(node.clock)
        if in_steps is not None and call.is_large:
            return _sliced_unless_dropped(call, in_steps(coordinator, request, call.version, call.caller, now))
        answer = method(coordinator, request, call.version, call.caller, now)
        if answer.done:
            message = answer.value
            if type(message) is not DropConnection:
                return message
        return _unless_dropped(call, answer)

    return handle


def _sliced_unless_dropped(call: Call, steps: Steps[Any]) -> Steps[Any]:
    message = yield from steps
    return _unless_dropped(call, Promise.resolved(message)) if type(message) is DropConnection else message


def _unless_dropped(call: Call, answer: Promise[Any]) -> Promise[Any]:
    reply: Promise[Any] = Promise()

    def answered(message: Any) -> None:
        if type(message) is DropConnection:
            call.connection.close("a delayed call on a connection that its client has replaced")
        else:
            reply.resolve(message)

    answer.then(answered)
    return reply


def txn_offset_commit(node: Node, call: Call, request: TxnOffsetCommitRequest) -> Promise[TxnOffsetCommitResponse]:
    reply: Promise[TxnOffsetCommitResponse] = Promise()

    def commit(guard: VerificationGuard | None) -> None:
        groups = node.groups
        groups.coordinator.txn_offset_commit(request, call.version, call.caller, groups.now(), guard).then(
            reply.resolve
        )

    def verified(error: ErrorCode, guard: VerificationGuard) -> None:
        if error is ErrorCode.NONE:
            commit(guard)
            partition.log.producers.verified(request.producer_id, request.transactional_id)
        else:
            reply.resolve(_uncommitted(request, _error_for(error, call.version)))

    if not request.group_id:
        return Promise.resolved(_uncommitted(request, ErrorCode.INVALID_GROUP_ID))
    index = node.groups.coordinator.partition_for(request.group_id)
    adds = call.version >= ADDING_VERSION
    try:
        partition = node.partition(CONSUMER_OFFSETS, index)
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
        return Promise.resolved(_uncommitted(request, error_for_commits(error.code)))
    if guard is None:
        commit(None)
        return reply
    known_guard = guard
    key = TopicPartition(CONSUMER_OFFSETS, index)
    ask_coordinator(
        node, call, request.transactional_id, request.producer_id, request.producer_epoch, [key], adds=adds
    ).then(lambda errors: verified(errors[key], known_guard))
    return reply


def _error_for(error: ErrorCode, version: int) -> ErrorCode:
    """The error that a producer gets for the transaction coordinator's."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return error_for_commits(error)


def _uncommitted(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=_COMMITTED.refusals(request.topics, error))


def write_txn_markers(
    node: Node, call: Call, request: WriteTxnMarkersRequest
) -> Steps[Promise[WriteTxnMarkersResponse]]:
    """From an administrator who ends a hanging transaction by hand, or from another broker's coordinator."""
    response = WriteTxnMarkersResponse()
    reply: Promise[WriteTxnMarkersResponse] = Promise()
    now_ms = node.clock.wall_ms()
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
        named: set[tuple[str, int]] = set()
        for topic in marker.topics:
            answered = _MarkerTopicResult(name=topic.name)
            result.topics.append(answered)
            for index in topic.partition_indexes:
                yield None
                # As in Kafka, a partition that is named twice gets one marker and one answer.
                if (topic.name, index) in named:
                    continue
                named.add((topic.name, index))
                answer = _MarkerPartitionResult(partition_index=index)
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
                node.markers.write(TopicPartition(topic.name, index), [(order, written)], now_ms)
    one_written(None, ErrorCode.NONE)
    return reply


def list_transactions(node: Node, call: Call, request: ListTransactionsRequest) -> Steps[ListTransactionsResponse]:
    access = call.access
    may_see = None if access is None else partial(access.could, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
    transactions = node.transactions
    return transactions.coordinator.list_transactions(request, transactions.now(), may_see)


def describe_transactions(node: Node, call: Call, request: DescribeTransactionsRequest) -> Any:
    coordinator, now = node.transactions.coordinator, Now.of(node.clock)
    answer = coordinator.describe_transactions(request, call.version, call.caller, now).value
    access = call.access
    if access is None:
        return answer

    def with_visible_topics(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics = [
                topic for topic in state.topics if access.could(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic)
            ]
        return response

    return completed(answer, with_visible_topics)


_add_partitions_to_txn = _or_dropped(
    TransactionCoordinator.add_partitions_to_txn,
    TransactionCoordinator.add_partitions_to_txn_in_steps,
)


def add_partitions_to_txn(node: Node, call: Call, request: AddPartitionsToTxnRequest) -> Any:
    """All or nothing: where the right to one topic is missing, the others are answered as not attempted."""
    access = call.access
    if access is not None and call.version < BROKERS_VERSION:
        names = dict.fromkeys(topic.name for topic in request.v3_and_below_topics)
        refused = {name for name in names if not access.may(AclOperation.WRITE, ResourceType.TOPIC, name)}
        if refused:
            return _not_added(request, partial(_not_attempted, node, refused))
    return _add_partitions_to_txn(node, call, request)


def _not_attempted(node: Node, refused: set[str], name: str, index: int) -> ErrorCode:
    if name in refused:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = node.metadata.topics.get(name)
    is_known = known is not None and 0 <= index < known.partition_count
    return ErrorCode.OPERATION_NOT_ATTEMPTED if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _not_added(
    request: AddPartitionsToTxnRequest, error_for: Callable[[str, int], ErrorCode]
) -> AddPartitionsToTxnResponse:
    """The answer of v3 and below, with an error for each partition."""
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            _Added(
                name=topic.name,
                results_by_partition=[
                    _AddedPartition(partition_index=index, partition_error_code=error_for(topic.name, index))
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


# What is declared


def _may_add(access: Access, call: Call, request: AddPartitionsToTxnRequest) -> ErrorCode:
    if call.version >= BROKERS_VERSION:
        return OnCluster(AclOperation.CLUSTER_ACTION)(access, call, request)
    return Named(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "v3_and_below_transactional_id")(
        access, call, request
    )


def _none_added(call: Call, request: AddPartitionsToTxnRequest, error: ErrorCode) -> AddPartitionsToTxnResponse:
    if call.version >= BROKERS_VERSION:
        return AddPartitionsToTxnResponse(error_code=error)
    return _not_added(request, lambda name, index: error)


_WRITE_ID = Named(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")
_READ_GROUP = Named(AclOperation.READ, ResourceType.GROUP, "group_id")

_COMMITTED = Shape(
    "topics",
    "topics",
    ("name",),
    Shape("partitions", "partitions", ("partition_index",), answer=_PartitionAnswer),
    part_entries=WRITTEN_PART_ENTRIES,
    answer=_TopicAnswer,
)
_MARKED = Shape(
    "markers",
    "markers",
    ("producer_id",),
    Shape(
        "topics",
        "topics",
        ("name",),
        Shape("partition_indexes", "partitions", (), answer=_MarkerPartitionResult, answer_keys=("partition_index",)),
        answer=_MarkerTopicResult,
    ),
    answer=_MarkerResult,
)
_DESCRIBED = Shape(
    "transactional_ids",
    "transaction_states",
    (),
    answer=DescribeTransactionsResponse.TransactionState,
    answer_keys=("transactional_id",),
)

HANDLERS = {
    ApiKey.ADD_PARTITIONS_TO_TXN: Handler(
        add_partitions_to_txn,
        shapes=(Shape("transactions", "results_by_transaction", ("transactional_id",)),),
        needs=(_may_add,),
        on_error=_none_added,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Handler(
        _or_dropped(TransactionCoordinator.add_offsets_to_txn), needs=(_WRITE_ID, _READ_GROUP)
    ),
    ApiKey.END_TXN: Handler(_or_dropped(TransactionCoordinator.end_txn), needs=(_WRITE_ID,)),
    ApiKey.DESCRIBE_TRANSACTIONS: Handler(
        describe_transactions,
        reads_only=True,
        shapes=(_DESCRIBED,),
        needs=(each(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),),
    ),
    ApiKey.LIST_TRANSACTIONS: Handler(list_transactions, reads_only=True, needs=IN_HANDLER),
    ApiKey.TXN_OFFSET_COMMIT: Handler(
        txn_offset_commit,
        shapes=(_COMMITTED,),
        needs=(_WRITE_ID, _READ_GROUP, each(AclOperation.READ, ResourceType.TOPIC, "name")),
    ),
    ApiKey.WRITE_TXN_MARKERS: Handler(
        write_txn_markers,
        shapes=(_MARKED,),
        needs=(OnCluster(AclOperation.CLUSTER_ACTION, instead=AclOperation.ALTER),),
    ),
}
