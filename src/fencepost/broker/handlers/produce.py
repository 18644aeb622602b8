"""Produce (3-13): append one batch per partition, answer when it is as durable as `acks` asks.

Topic ids instead of names from v13; error messages and record errors from v8; the current leader from v10.
Where a topic's settings ask for it, batches are opened before they are appended: decompressed and compressed in helper
threads, their records checked in slices. What one request may have opened is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.broker.connection import Call, Staged
from fencepost.broker.dispatch import Handler
from fencepost.broker.events import BatchRefused, DuplicateBatch
from fencepost.broker.handlers.produce_answers import ACCEPTED, PartitionResponse, TopicResponse, lost, refusal
from fencepost.broker.partition import Partition
from fencepost.broker.slices import Steps
from fencepost.broker.verification import ask_coordinator, is_verified
from fencepost.internal_topic_names import INTERNAL_TOPICS
from fencepost.log.partition_log import Appended
from fencepost.log.producers import Origin, VerificationGuard
from fencepost.log.side_files import encode_uuid
from fencepost.log.validation import needs_opening, open_in_steps, opens_records
from fencepost.promise import Promise
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    TRANSACTIONAL_MASK,
    BatchHeader,
    has_transactional_records,
    read_header,
)
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node

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
# Opened by the append itself, without a slice of its own: batches that are not compressed and have few records.
OPENED_RECORDS_MIN = 128
# Opened without a helper thread: batches that are small, and unpack to no more than this.
SMALL_BATCH_BYTES = 16_384
SMALL_PAYLOAD_BYTES = 262_144

_Batch = tuple[Partition | KafkaError, BatchHeader | None]
"""The partition it goes to, or why there is none, and its header if all of that is there."""
_WholeBatch = tuple[Partition | KafkaError, BatchHeader]
Verdicts = dict[TopicPartition, KafkaError | VerificationGuard]
"""Per partition: refused, or the guard to append with."""
_Opened = dict[int, BatchHeader | KafkaError]
"""By the identity of its part of the request: the header of a batch that has been opened, or why it is refused."""
_Waiting = tuple[Partition, Appended, list[Any], int]
"""What was appended, and the place of its answer among those of its topic."""


def produce(
    node: Node, call: Call, request: ProduceRequest
) -> ProduceResponse | Promise[ProduceResponse] | Staged | None:
    batches = _batches(node, call, request)
    transactional: list[_WholeBatch] = []
    for partition, header in batches:
        if header is None:
            continue
        attributes = header.attributes
        is_long = attributes & COMPRESSION_MASK or header.record_count > OPENED_RECORDS_MIN
        if is_long and _is_opened_before(partition, header):
            return _produce_opened(node, call, request)  # type: ignore[return-value]
        if attributes & TRANSACTIONAL_MASK:
            transactional.append((partition, header))
    return _produce(node, call, request, batches, transactional)


def _produce(
    node: Node,
    call: Call,
    request: ProduceRequest,
    batches: list[_Batch],
    transactional: list[_WholeBatch],
    opened: _Opened | None = None,
) -> ProduceResponse | Promise[ProduceResponse] | Staged | None:
    if request.transactional_id is None:
        if transactional:
            return refuse_all(call, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif len({header.producer_id for _, header in transactional}) > 1:
        return refuse_all(call, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.acks not in _ACKS:
        return refuse_all(call, request, ErrorCode.INVALID_REQUIRED_ACKS)
    if not transactional:
        return _append(node, call, request, batches, {}, opened)
    assert request.transactional_id is not None
    verdicts, to_ask = _begin_verification(node, call, request.transactional_id, transactional)
    if to_ask:
        return _produce_verified(node, call, request, batches, verdicts, to_ask, opened)
    return _append(node, call, request, batches, verdicts, opened)


def _is_opened_before(partition: Partition | KafkaError, header: BatchHeader) -> bool:
    """Whether a batch that may take long to open has to be opened, so that it is done before the append."""
    if isinstance(partition, KafkaError):
        return False
    config = partition.log.config
    return needs_opening(config) and opens_records(header, config)


def _produce_opened(
    node: Node, call: Call, request: ProduceRequest
) -> Steps[ProduceResponse | Promise[ProduceResponse] | Staged | None]:
    """Open what has to be, then append. The connection's next request waits for the append."""
    _own_bytes(request)
    opened: _Opened = {}
    left_bytes, left_records = node.config.decompressed_batch_max_bytes, node.config.opened_records_max
    parts = [data for topic in request.topic_data for data in topic.partition_data]
    for data, (partition, header) in zip(parts, _batches(node, call, request), strict=True):
        if header is None or isinstance(partition, KafkaError):
            continue
        if not header.attributes & COMPRESSION_MASK and header.record_count <= OPENED_RECORDS_MIN:
            continue
        if not _is_opened_before(partition, header):
            continue
        try:
            assert data.records is not None
            batch = memoryview(data.records)
            batch, known, size = yield from _open(node, batch, header, partition, left_bytes, left_records)
            left_bytes -= size
            left_records -= header.record_count
            data.records, opened[id(data)] = batch, known
        except KafkaError as error:
            data.records, opened[id(data)] = None, error
    # Looked up anew: a topic may have been deleted meanwhile, and made again.
    batches = _batches(node, call, request, opened)
    whole = [(partition, header) for partition, header in batches if header is not None]
    transactional = [batch for batch in whole if batch[1].attributes & TRANSACTIONAL_MASK]
    return _produce(node, call, request, batches, transactional, opened)


def _open(
    node: Node, batch: memoryview, header: BatchHeader, partition: Partition, max_bytes: int, max_records: int
) -> Generator[Any, None, tuple[memoryview, BatchHeader, int]]:
    config, now_ms = partition.log.config, node.clock.wall_ms()
    if len(batch) <= SMALL_BATCH_BYTES:
        try:
            small = min(max_bytes, SMALL_PAYLOAD_BYTES)
            return (yield from open_in_steps(batch, header, config, now_ms, small, max_records, _at_once))
        except KafkaError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE or max_bytes <= SMALL_PAYLOAD_BYTES:
                raise
    offload = partial(_in_a_thread, node)
    return (yield from open_in_steps(batch, header, config, now_ms, max_bytes, max_records, offload))


def _at_once(function: Callable[[], Any]) -> Generator[Any, None, Any]:
    yield None
    return function()


def _in_a_thread(node: Node, function: Callable[[], Any]) -> Generator[Any, None, Any]:
    done: Promise[Any] = Promise()
    node.workers.run(function, done.resolve)
    yield done
    if isinstance(done.value, Exception):
        raise done.value
    return done.value


def _own_bytes(request: ProduceRequest) -> None:
    """The bytes belong to the connection, which will reuse them."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = bytearray(data.records)


def _batches(node: Node, call: Call, request: ProduceRequest, opened: _Opened | None = None) -> list[_Batch]:
    """Where each batch goes and what its header says, in the order of the request: read once for all that follows."""
    batches: list[_Batch] = []
    for topic in request.topic_data:
        partitions, absent = _partitions_of(node, call, topic)
        count = len(partitions)
        for data in topic.partition_data:
            partition = partitions[data.index] if 0 <= data.index < count else KafkaError(absent)
            records = data.records
            if opened and isinstance(known := opened.get(id(data)), BatchHeader):
                batches.append((partition, known))
            elif records is None or len(records) < HEADER_BYTES:
                batches.append((partition, None))
            else:
                batches.append((partition, read_header(records)))
    return batches


def _partitions_of(
    node: Node, call: Call, topic: ProduceRequest.TopicProduceData
) -> tuple[Sequence[Partition | KafkaError], ErrorCode]:
    """A topic's partitions, or why they cannot be written, and what to say of one that it does not have."""
    name = topic.name
    if call.version >= TOPIC_ID_VERSION:
        found = node.metadata.topics_by_id.get(topic.topic_id)
        if found is None:
            return (), ErrorCode.UNKNOWN_TOPIC_ID
        name = found.name
    partitions: Sequence[Partition | KafkaError] = node.partitions.get(name, ())
    if name in INTERNAL_TOPICS:
        refused = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker alone")
        partitions = [refused] * len(partitions)
    return partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _append(
    node: Node,
    call: Call,
    request: ProduceRequest,
    batches: list[_Batch],
    verdicts: Verdicts,
    opened: _Opened | None = None,
) -> ProduceResponse | Promise[ProduceResponse] | None:
    """Append every batch that may be; answer when all are as durable as asked."""
    acks = request.acks
    now_ms = node.clock.wall_ms()
    response = ProduceResponse()
    waiting: list[_Waiting] = []
    has_error = False
    in_order = iter(batches)
    pack, rest = ACCEPTED[call.version]
    for topic in request.topic_data:
        answers: list[Any] = []
        response.responses.append(TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
        for data, (partition, header) in zip(topic.partition_data, in_order, strict=False):
            asked: Partition | None = None
            guard: VerificationGuard | None = None
            try:
                if isinstance(partition, KafkaError):
                    raise partition
                asked = partition
                records = data.records
                if records is None:
                    if opened and isinstance(why := opened.get(id(data)), KafkaError):
                        raise why
                    raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
                if verdicts:
                    verdict = verdicts.get(partition.topic_partition)
                    if isinstance(verdict, KafkaError):
                        # Refused before the log was asked, which therefore says nothing of itself.
                        asked = None
                        raise verdict
                    guard = verdict
                appended = partition.append(records, Origin.CLIENT, now_ms, guard, header)
            except KafkaError as error:
                has_error = True
                answers.append(refusal(data.index, error, asked))
                name = topic.name or _name_of(node, topic.topic_id)
                _tell_refusal(node, call, name, data.index, header, request.transactional_id, error)
                continue
            if guard is not None and header is not None and header.attributes & TRANSACTIONAL_MASK:
                assert request.transactional_id is not None
                partition.log.producers.verified(header.producer_id, request.transactional_id)
            first_offset, last_offset, log_append_time_ms, log_start_offset, is_duplicate = appended
            answers.append(pack(data.index, 0, first_offset, log_append_time_ms, log_start_offset, rest))
            if is_duplicate:
                _tell_duplicate(node, partition, header, first_offset)
            if acks and last_offset >= partition.log.high_watermark:
                waiting.append((partition, appended, answers, len(answers) - 1))
    if acks == ACKS_NONE:
        if has_error:
            refuse_silently(call)
        return None
    # With acks=1, too: acknowledged means durable, and whoever asks for the end of the log next finds the record there.
    return _when_all_durable(response, waiting) if waiting else response


def _begin_verification(
    node: Node, call: Call, transactional_id: str, transactional: list[_WholeBatch]
) -> tuple[Verdicts, dict[TopicPartition, BatchHeader]]:
    """Which partitions need the coordinator's word before they may open this transaction, and their guards."""
    verdicts: Verdicts = {}
    to_ask: dict[TopicPartition, BatchHeader] = {}
    adds = call.version >= ADDING_VERSION
    if not is_verified(node, adds=adds):
        return verdicts, to_ask
    now_ms = node.clock.wall_ms()
    for partition, header in transactional:
        if isinstance(partition, KafkaError):
            continue
        key = partition.topic_partition
        try:
            guard = partition.log.producers.maybe_start_verification(
                transactional_id, header.producer_id, header.base_sequence, header.producer_epoch, adds, now_ms
            )
        except KafkaError as error:
            verdicts[key] = error
            continue
        if guard is not None:
            verdicts[key] = guard
            to_ask[key] = header
    return verdicts, to_ask


def _produce_verified(
    node: Node,
    call: Call,
    request: ProduceRequest,
    batches: list[_Batch],
    verdicts: Verdicts,
    to_ask: dict[TopicPartition, BatchHeader],
    opened: _Opened | None,
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
        to_ask,
        adds=call.version >= ADDING_VERSION,
    )
    if asked.done:
        _note_refusals(verdicts, asked.value, call.version)
        return _append(node, call, request, batches, verdicts, opened)
    if opened is None:
        _own_bytes(request)
    appended: Promise[None] = Promise()
    answer: Promise[ProduceResponse | None] = Promise()

    def agreed(errors: Mapping[TopicPartition, ErrorCode]) -> None:
        _note_refusals(verdicts, errors, call.version)
        # Looked up anew: a topic may have been deleted meanwhile, and made again.
        result = _append(node, call, request, _batches(node, call, request, opened), verdicts, opened)
        if isinstance(result, Promise):
            result.then(answer.resolve)
        else:
            answer.resolve(result)
        appended.resolve(None)

    asked.then(agreed)
    return Staged(appended, answer)


def _note_refusals(verdicts: Verdicts, errors: Mapping[TopicPartition, ErrorCode], version: int) -> None:
    if not any(errors.values()):
        return
    for key, code in errors.items():
        if code is not ErrorCode.NONE:
            verdicts[key] = KafkaError(_told(code, version), f"the transaction coordinator answered {code.name}")


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """What a producer is told of the coordinator's answer: an error that it knows what to do with."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if code in _COORDINATOR_AWAY or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDING_VERSION):
        # Retriable, and without a look at the metadata, which is not to blame.
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code


def _when_all_durable(response: ProduceResponse, waiting: list[_Waiting]) -> Promise[ProduceResponse]:
    promise: Promise[ProduceResponse] = Promise()
    left = len(waiting)

    def durable(waited: _Waiting, error: KafkaError | None) -> None:
        nonlocal left
        if error is not None:
            partition, appended, answers, place = waited
            answers[place] = lost(partition.index, appended, error)
        left -= 1
        if not left:
            promise.resolve(response)

    for waited in waiting:
        waited[0].when_durable(waited[1].last_offset, partial(durable, waited))
    return promise


def _tell_duplicate(node: Node, partition: Partition, header: BatchHeader | None, first_offset: int) -> None:
    assert header is not None, "only a whole batch is found to be a duplicate"
    node.events.emit(
        DuplicateBatch(
            partition.topic,
            partition.index,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            first_offset,
        )
    )


def carries_transactional_records(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None and has_transactional_records(data.records):
                return True
    return False


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
            TopicResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionResponse(index=data.index, error_code=code, base_offset=-1, log_append_time_ms=-1)
                    for data in topic.partition_data
                ],
            )
        )
    return response


def _name_of(node: Node, topic_id: bytes) -> str:
    """What a person calls a topic that a client names by its id; the id itself if there is none."""
    found = node.metadata.topics_by_id.get(topic_id)
    return encode_uuid(topic_id) if found is None else found.name


def _tell_refusal(
    node: Node,
    call: Call,
    topic: str,
    index: int,
    header: BatchHeader | None,
    transactional_id: str | None,
    error: KafkaError,
) -> None:
    producer_id, producer_epoch, base_sequence = -1, -1, -1
    if header is not None:
        producer_id, producer_epoch, base_sequence = header.producer_id, header.producer_epoch, header.base_sequence
    node.events.emit(
        BatchRefused(
            topic,
            index,
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
