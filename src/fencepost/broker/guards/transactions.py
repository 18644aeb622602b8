"""The transaction calls: WRITE on the transactional id, then on topics and groups; some are between brokers only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.broker.guards.visit import Guard, Visit
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
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
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ID_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
# From this version on AddPartitionsToTxn comes from brokers, for several transactions at once.
BROKERS_VERSION = 4

_AddedTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


def _may_write(visit: Visit, transactional_id: str) -> bool:
    return visit.access.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def init_producer_id(visit: Visit, request: InitProducerIdRequest) -> Any:
    """Without a transactional id any right to write is enough: some topic, or IDEMPOTENT_WRITE (KIP-679)."""
    access, transactional_id = visit.access, request.transactional_id
    error = ErrorCode.NONE
    if transactional_id is not None:
        if not _may_write(visit, transactional_id) or (
            request.enable2_pc
            and not access.may(AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id)
        ):
            error = ID_REFUSED
    elif not (
        access.could_any(AclOperation.WRITE, ResourceType.TOPIC) or access.may_cluster(AclOperation.IDEMPOTENT_WRITE)
    ):
        error = CLUSTER_REFUSED
    if error is ErrorCode.NONE:
        return visit.pass_on(request)
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


def add_partitions_to_txn(visit: Visit, request: AddPartitionsToTxnRequest) -> Any:
    if visit.version >= BROKERS_VERSION:
        if visit.access.may_cluster(AclOperation.CLUSTER_ACTION):
            return visit.pass_on(request)
        return AddPartitionsToTxnResponse(error_code=CLUSTER_REFUSED)
    topics = request.v3_and_below_topics
    if not _may_write(visit, request.v3_and_below_transactional_id):
        return _not_added(topics, lambda topic, index: ID_REFUSED)
    _, refused = visit.split(AclOperation.WRITE, ResourceType.TOPIC, topics)
    if not refused:
        return visit.pass_on(request)
    # All or nothing: what could have been added is told that it was not tried.
    names = {topic.name for topic in refused}

    def verdict(name: str, index: int) -> ErrorCode:
        if name in names:
            return TOPIC_REFUSED
        known = visit.node.metadata.topics.get(name)
        is_known = known is not None and 0 <= index < known.partition_count
        return ErrorCode.OPERATION_NOT_ATTEMPTED if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return _not_added(topics, verdict)


def _not_added(topics: list[_AddedTopic], verdict: Callable[[str, int], ErrorCode]) -> AddPartitionsToTxnResponse:
    result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    one = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            result(
                name=topic.name,
                results_by_partition=[
                    one(partition_index=index, partition_error_code=verdict(topic.name, index))
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def add_offsets_to_txn(visit: Visit, request: AddOffsetsToTxnRequest) -> Any:
    if not _may_write(visit, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ID_REFUSED)
    if not visit.access.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=GROUP_REFUSED)
    return visit.pass_on(request)


def end_txn(visit: Visit, request: EndTxnRequest) -> Any:
    if not _may_write(visit, request.transactional_id):
        return EndTxnResponse(error_code=ID_REFUSED)
    return visit.pass_on(request)


def txn_offset_commit(visit: Visit, request: TxnOffsetCommitRequest) -> Any:
    if not _may_write(visit, request.transactional_id):
        return TxnOffsetCommitResponse(topics=_uncommitted(request.topics, ID_REFUSED))
    if not visit.access.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return TxnOffsetCommitResponse(topics=_uncommitted(request.topics, GROUP_REFUSED))
    allowed, refused = visit.split(AclOperation.READ, ResourceType.TOPIC, request.topics)
    if not refused:
        return visit.pass_on(request)
    refusals = _uncommitted(refused, TOPIC_REFUSED)
    if not allowed:
        return TxnOffsetCommitResponse(topics=refusals)
    request.topics = allowed

    return visit.pass_on_with(request, "topics", refusals)


def _uncommitted(
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic], error: ErrorCode
) -> list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic]:
    answer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    return [
        answer(
            name=topic.name,
            partitions=[
                answer.TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error)
                for one in topic.partitions
            ],
        )
        for topic in topics
    ]


def write_txn_markers(visit: Visit, request: WriteTxnMarkersRequest) -> Any:
    """Between brokers, or from an administrator who ends a hanging transaction by hand (KIP-664)."""
    access = visit.access
    if access.could_cluster(AclOperation.ALTER) or access.may_cluster(AclOperation.CLUSTER_ACTION):
        return visit.pass_on(request)
    result = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic_result = result.WritableTxnMarkerTopicResult
    partition_result = topic_result.WritableTxnMarkerPartitionResult
    return WriteTxnMarkersResponse(
        markers=[
            result(
                producer_id=marker.producer_id,
                topics=[
                    topic_result(
                        name=topic.name,
                        partitions=[
                            partition_result(partition_index=index, error_code=CLUSTER_REFUSED)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def describe_transactions(visit: Visit, request: DescribeTransactionsRequest) -> Any:
    access = visit.access
    allowed, refused = visit.split(
        AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, request.transactional_ids, lambda name: name
    )
    request.transactional_ids = allowed

    def complete(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics = [
                topic for topic in state.topics if access.could(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic)
            ]
        state_of = DescribeTransactionsResponse.TransactionState
        response.transaction_states += [state_of(transactional_id=name, error_code=ID_REFUSED) for name in refused]
        return response

    return visit.pass_on(request, complete)


def list_transactions(visit: Visit, request: ListTransactionsRequest) -> Any:
    """The handler looks only at ids that may be described: the pattern is not matched against others."""
    visit.call.access = visit.access
    return visit.pass_on(request)


GUARDS: dict[ApiKey, Guard] = {
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    ApiKey.END_TXN: end_txn,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
}
