"""Produce (3-13): append one batch per partition, answer when it is as durable as `acks` asks.

Topic ids instead of names from v13; error messages and record errors from v8; the current leader from v10.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fencepost.broker.connection import Call, Staged
from fencepost.broker.dispatch import Handler
from fencepost.broker.events import BatchRefused, DuplicateBatch
from fencepost.broker.partition import Partition
from fencepost.broker.topic_names import INTERNAL_TOPICS
from fencepost.broker.verification import TopicPartition, ask_coordinator, begin_verification
from fencepost.log.partition_log import Appended
from fencepost.log.producers import Origin, VerificationGuard
from fencepost.log.validation import NotOneBatch
from fencepost.ports import Buffer
from fencepost.promise import Promise
from fencepost.wire.batch import HEADER_BYTES, BatchHeader, has_transactional_records, read_header
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import ProduceRequest, ProduceResponse
from fencepost.wire.records import InvalidRecords

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_TopicResponse = ProduceResponse.TopicProduceResponse
_PartitionResponse = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
_ACKS = (ACKS_ALL, ACKS_LEADER, ACKS_NONE)
TOPIC_ID_VERSION = 13
# From these versions on a producer knows TRANSACTION_ABORTABLE, and has partitions added for it.
ABORTABLE_VERSION = 11
ADDING_VERSION = 12
_COORDINATOR_AWAY = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_Batch = tuple[ProduceRequest.TopicProduceData, int, BatchHeader]
"""Its topic, its partition's index and its header."""
Verdicts = dict[TopicPartition, KafkaError | VerificationGuard | None]
"""Per partition: refused, or the guard to append with."""
# Of a partition that refuses, the answer tells the log start, but not with these.
_ERRORS_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def produce(
    node: Node, call: Call, request: ProduceRequest
) -> ProduceResponse | Promise[ProduceResponse] | Staged | None:
    if request.transactional_id is None:
        if carries_transactional_records(request):
            return refuse_all(call, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if request.acks not in _ACKS:
            return refuse_all(call, request, ErrorCode.INVALID_REQUIRED_ACKS)
        return _append(node, call, request, {})
    batches = _transactional_batches(request)
    if len({header.producer_id for _, _, header in batches}) > 1:
        return refuse_all(call, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.acks not in _ACKS:
        return refuse_all(call, request, ErrorCode.INVALID_REQUIRED_ACKS)
    verdicts, to_ask = _begin_verification(node, call, batches)
    if to_ask:
        return _produce_verified(node, call, request, verdicts, to_ask)
    return _append(node, call, request, verdicts)


def _append(
    node: Node, call: Call, request: ProduceRequest, verdicts: Verdicts
) -> ProduceResponse | Promise[ProduceResponse] | None:
    """Append every batch that may be; answer when all are as durable as asked."""
    acks = request.acks
    response = ProduceResponse()
    now_ms = node.clock.wall_ms()
    waiting: list[tuple[Partition, int, _PartitionResponse]] = []
    has_error = False
    for topic in request.topic_data:
        topic_response = _TopicResponse(name=topic.name, topic_id=topic.topic_id)
        response.responses.append(topic_response)
        for data in topic.partition_data:
            answer = _PartitionResponse(index=data.index, base_offset=-1, log_append_time_ms=-1)
            topic_response.partition_responses.append(answer)
            partition: Partition | None = None
            try:
                partition = _partition_of(node, call, topic, data.index)
                if data.records is None:
                    raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
                guard = None
                if verdicts:
                    verdict = verdicts.get((partition.topic, partition.index))
                    if isinstance(verdict, KafkaError):
                        # Refused before the log was asked, which therefore says nothing of itself.
                        partition = None
                        raise verdict
                    guard = verdict
                records = data.records
                batch = records if type(records) is memoryview else memoryview(records)
                appended = partition.append(batch, Origin.CLIENT, now_ms, guard)
            except KafkaError as error:
                has_error = True
                _refuse(answer, error, partition)
                _tell_refusal(node, call, topic.name, data, request.transactional_id, error)
                continue
            answer.base_offset = appended.first_offset
            answer.log_append_time_ms = appended.log_append_time_ms
            answer.log_start_offset = appended.log_start_offset
            if appended.duplicate:
                _tell_duplicate(node, partition, data.records, appended)
            if acks == ACKS_ALL and appended.last_offset >= partition.log.high_watermark:
                waiting.append((partition, appended.last_offset, answer))
    if acks == ACKS_NONE:
        if has_error:
            refuse_silently(call)
        return None
    return _when_all_durable(response, waiting) if waiting else response


def _partition_of(node: Node, call: Call, topic: ProduceRequest.TopicProduceData, index: int) -> Partition:
    if call.version >= TOPIC_ID_VERSION:
        partition = node.partition_by_id(topic.topic_id, index)
    else:
        partition = node.partition(topic.name, index)
    if partition.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by the broker alone")
    return partition


def _begin_verification(
    node: Node, call: Call, batches: list[_Batch]
) -> tuple[Verdicts, dict[TopicPartition, BatchHeader]]:
    """Which partitions need the coordinator's word before they may open this transaction, and their guards."""
    verdicts: Verdicts = {}
    to_ask: dict[TopicPartition, BatchHeader] = {}
    adds = call.version >= ADDING_VERSION
    for topic, index, header in batches:
        try:
            partition = _partition_of(node, call, topic, index)
        except KafkaError:
            continue
        key = (partition.topic, index)
        try:
            guard = begin_verification(
                node, partition, header.producer_id, header.producer_epoch, header.base_sequence, adds=adds
            )
        except KafkaError as error:
            verdicts[key] = error
            continue
        if guard is not None:
            verdicts[key] = guard
            to_ask[key] = header
    return verdicts, to_ask


def _produce_verified(
    node: Node, call: Call, request: ProduceRequest, verdicts: Verdicts, to_ask: dict[TopicPartition, BatchHeader]
) -> ProduceResponse | Promise[ProduceResponse] | Staged | None:
    """Ask the coordinator, then append what it allows. The connection's next request waits for the append."""
    assert request.transactional_id is not None
    header = next(iter(to_ask.values()))
    asked = ask_coordinator(
        node,
        call,
        request.transactional_id,
        header.producer_id,
        header.producer_epoch,
        list(to_ask),
        adds=call.version >= ADDING_VERSION,
    )

    def append(errors: Mapping[TopicPartition, ErrorCode]) -> ProduceResponse | Promise[ProduceResponse] | None:
        for key, code in errors.items():
            if code is not ErrorCode.NONE:
                told = _told(code, call.version)
                verdicts[key] = KafkaError(told, f"the transaction coordinator answered {code.name}")
        return _append(node, call, request, verdicts)

    if asked.done:
        return append(asked.value)
    # The bytes belong to the connection, which will reuse them.
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = bytearray(data.records)
    appended: Promise[None] = Promise()
    answer: Promise[ProduceResponse | None] = Promise()

    def agreed(errors: Mapping[TopicPartition, ErrorCode]) -> None:
        result = append(errors)
        if isinstance(result, Promise):
            result.then(answer.resolve)
        else:
            answer.resolve(result)
        appended.resolve(None)

    asked.then(agreed)
    return Staged(appended, answer)


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """What a producer is told of the coordinator's answer: an error that it knows what to do with."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if code in _COORDINATOR_AWAY or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDING_VERSION):
        # Retriable, and without a look at the metadata, which is not to blame.
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code


def _when_all_durable(
    response: ProduceResponse, waiting: list[tuple[Partition, int, _PartitionResponse]]
) -> Promise[ProduceResponse]:
    promise: Promise[ProduceResponse] = Promise()
    left = len(waiting)

    def durable(answer: _PartitionResponse, error: KafkaError | None) -> None:
        nonlocal left
        if error is not None:
            answer.error_code = error.code
            answer.error_message = error.message
            answer.base_offset = -1
        left -= 1
        if not left:
            promise.resolve(response)

    for partition, last_offset, answer in waiting:
        partition.when_durable(last_offset, lambda error, answer=answer: durable(answer, error))  # type: ignore[misc]
    return promise


def _transactional_batches(request: ProduceRequest) -> list[_Batch]:
    return [
        (topic, data.index, read_header(data.records))
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records is not None and has_transactional_records(data.records)
    ]


def _tell_duplicate(node: Node, partition: Partition, records: Buffer, appended: Appended) -> None:
    header = read_header(records)
    node.events.emit(
        DuplicateBatch(
            partition.topic,
            partition.index,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            appended.first_offset,
        )
    )


def carries_transactional_records(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None and has_transactional_records(data.records):
                return True
    return False


def _refuse(answer: _PartitionResponse, error: KafkaError, partition: Partition | None) -> None:
    answer.error_code = error.code
    answer.error_message = error.message
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            _PartitionResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
            for index, why in error.record_errors
        ]
    if partition is not None and error.code not in _ERRORS_WITHOUT_LOG_START and not isinstance(error, NotOneBatch):
        answer.log_start_offset = partition.log.log_start_offset


def refuse_silently(call: Call) -> None:
    """Nobody reads an answer to acks=0; a closed connection is the only way to tell, as in Kafka."""
    call.connection.close("a batch sent with acks=0 was refused")


def refuse_all(call: Call, request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    if request.acks == ACKS_NONE:
        refuse_silently(call)
        return None
    response = ProduceResponse()
    for topic in request.topic_data:
        response.responses.append(
            _TopicResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _PartitionResponse(index=data.index, error_code=code, base_offset=-1, log_append_time_ms=-1)
                    for data in topic.partition_data
                ],
            )
        )
    return response


def _tell_refusal(
    node: Node,
    call: Call,
    topic: str,
    data: ProduceRequest.TopicProduceData.PartitionProduceData,
    transactional_id: str | None,
    error: KafkaError,
) -> None:
    producer_id, producer_epoch, base_sequence = -1, -1, -1
    if data.records is not None and len(data.records) >= HEADER_BYTES:
        header = read_header(data.records)
        producer_id, producer_epoch, base_sequence = header.producer_id, header.producer_epoch, header.base_sequence
    node.events.emit(
        BatchRefused(
            topic,
            data.index,
            error.code.name,
            error.message or "",
            producer_id,
            producer_epoch,
            base_sequence,
            transactional_id,
            call.client_host,
            call.client_id,
        )
    )


HANDLERS = {ApiKey.PRODUCE: Handler(produce, pipelined=True)}
