"""Produce (3-13): append one batch per partition, answer when it is as durable as `acks` asks.

Topic ids instead of names from v13; error messages and record errors from v8; the current leader from v10.
"""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.dispatch import Handler
from fencepost.broker.events import BatchRefused, DuplicateBatch
from fencepost.broker.partition import Partition
from fencepost.broker.topic_names import INTERNAL_TOPICS
from fencepost.log.producers import Origin
from fencepost.log.validation import NotOneBatch
from fencepost.promise import Promise
from fencepost.wire.batch import HEADER_BYTES, has_transactional_records, read_header
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import ProduceRequest, ProduceResponse
from fencepost.wire.records import InvalidRecords

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_TopicResponse = ProduceResponse.TopicProduceResponse
_PartitionResponse = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
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


def produce(node: "Node", call: Call, request: ProduceRequest) -> ProduceResponse | Promise[ProduceResponse] | None:
    acks = request.acks
    if request.transactional_id is None and _has_transactional_records(request):
        return _refuse_all(call, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
        return _refuse_all(call, request, ErrorCode.INVALID_REQUIRED_ACKS)
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
            partition = None
            try:
                if call.version >= 13:
                    partition = node.partition_by_id(topic.topic_id, data.index)
                else:
                    partition = node.partition(topic.name, data.index)
                if partition.topic in INTERNAL_TOPICS:
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by the broker alone"
                    )
                if data.records is None:
                    raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
                appended = partition.append(memoryview(data.records), Origin.CLIENT, now_ms)
            except KafkaError as error:
                has_error = True
                _refuse(answer, error, partition)
                _tell_refusal(node, call, topic.name, data, error)
                continue
            answer.base_offset = appended.first_offset
            answer.log_append_time_ms = appended.log_append_time_ms
            answer.log_start_offset = appended.log_start_offset
            if appended.duplicate:
                header = read_header(data.records)
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
            if acks == ACKS_ALL and appended.last_offset >= partition.log.high_watermark:
                waiting.append((partition, appended.last_offset, answer))
    if acks == ACKS_NONE:
        if has_error:
            _refuse_silently(call)
        return None
    return _when_all_durable(response, waiting) if waiting else response


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


def _has_transactional_records(request: ProduceRequest) -> bool:
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


def _refuse_silently(call: Call) -> None:
    """Nobody reads an answer to acks=0; a closed connection is the only way to tell, as in Kafka."""
    call.connection.close("a batch sent with acks=0 was refused")


def _refuse_all(call: Call, request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    if request.acks == ACKS_NONE:
        _refuse_silently(call)
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
    node: "Node", call: Call, topic: str, data: ProduceRequest.TopicProduceData.PartitionProduceData, error: KafkaError
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
            call.client_host,
            call.client_id,
        )
    )


HANDLERS = {ApiKey.PRODUCE: Handler(produce, pipelined=True)}
