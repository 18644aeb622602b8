"""Produce (3-13): append one batch per partition, answer when it is as durable as `acks` asks.

Needs WRITE on each topic, and for transactional batches WRITE on the transactional id. Errors of single records and
messages come from v8 on, the current leader from v10, TRANSACTION_ABORTABLE from v11. From v12 on the broker adds
partitions to the transaction, and from v13 on topics have ids instead of names.

Where a topic's settings ask for it, batches are opened before they are appended: decompressed and compressed in helper
threads, their records checked in slices. What one request may have opened is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from fencepost.broker.connection import Call, Staged
from fencepost.broker.events import BatchRefused, DuplicateBatch
from fencepost.broker.handler import Handler, Shape
from fencepost.broker.partition import Partition
from fencepost.broker.rights import each, end_unanswered
from fencepost.broker.security.access import Access
from fencepost.broker.slices import Steps
from fencepost.broker.verification import ask_coordinator, is_verified
from fencepost.internal_topic_names import INTERNAL_TOPICS
from fencepost.log.partition_log import Appended
from fencepost.log.producers import Origin, VerificationGuard
from fencepost.log.side_files import encode_uuid
from fencepost.log.validation import NotOneBatch, needs_opening, open_in_steps, opens_records
from fencepost.promise import Promise
from fencepost.topic_partition import TopicPartition
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    TRANSACTIONAL_MASK,
    BatchHeader,
    has_transactional_records,
    read_header,
)
from fencepost.wire.catalog import API_VERSIONS, ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import ProduceRequest, ProduceResponse
from fencepost.wire.records import InvalidRecords

if TYPE_CHECKING:
    from fencepost.broker.node import Node

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
_ACKS = (ACKS_ALL, ACKS_LEADER, ACKS_NONE)
TOPIC_ID_VERSION = 13
# From these versions on a producer knows TRANSACTION_ABORTABLE, and has partitions added for it.
ABORTABLE_VERSION = 11
ADDING_VERSION = 12
# From these versions on there are a log start offset, errors of single records with a message, and tags.
LOG_START_VERSION, RECORD_ERRORS_VERSION, FLEXIBLE_VERSION = 5, 8, 9
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

TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = TopicResponse.PartitionProduceResponse

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
            return _refuse_all(call, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif len({header.producer_id for _, header in transactional}) > 1:
        return _refuse_all(call, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.acks not in _ACKS:
        return _refuse_all(call, request, ErrorCode.INVALID_REQUIRED_ACKS)
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
    _own_bytes(call, request)
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
    done = node.slices.in_a_helper(node.workers, function)
    yield done
    if isinstance(done.value, Exception):
        raise done.value
    return done.value


def _own_bytes(call: Call, request: ProduceRequest) -> None:
    """The bytes belong to the connection, which will reuse them, unless the request is a large one."""
    if call.is_large:
        return
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
    """A topic's partitions, or why they cannot be written, and the error for one that it does not have."""
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
                        # Refused before the log was asked: the answer says nothing about it.
                        asked = None
                        raise verdict
                    guard = verdict
                appended = partition.append(records, Origin.CLIENT, now_ms, guard, header)
            except KafkaError as error:
                has_error = True
                answers.append(_refusal(data.index, error, asked))
                name = topic.name or _name_of(node, topic.topic_id)
                _report_refusal(node, call, name, data.index, header, request.transactional_id, error)
                continue
            if guard is not None and header is not None and header.attributes & TRANSACTIONAL_MASK:
                assert request.transactional_id is not None
                partition.log.producers.verified(header.producer_id, request.transactional_id)
            first_offset, last_offset, log_append_time_ms, log_start_offset, is_duplicate = appended
            answers.append(pack(data.index, 0, first_offset, log_append_time_ms, log_start_offset, rest))
            if is_duplicate:
                _report_duplicate(node, partition, header, first_offset)
            if acks and last_offset >= partition.log.high_watermark:
                waiting.append((partition, appended, answers, len(answers) - 1))
    if acks == ACKS_NONE:
        if has_error:
            end_unanswered(call)
        return None
    # With acks=1, too: acknowledged means durable, and the next question for the end of the log finds the record there.
    return _when_all_durable(response, waiting) if waiting else response


def _begin_verification(
    node: Node, call: Call, transactional_id: str, transactional: list[_WholeBatch]
) -> tuple[Verdicts, dict[TopicPartition, BatchHeader]]:
    """The partitions that need the coordinator's consent before they may open this transaction, and their guards."""
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
        _own_bytes(call, request)
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
            verdicts[key] = KafkaError(_error_for(code, version), f"the transaction coordinator answered {code.name}")


def _error_for(code: ErrorCode, version: int) -> ErrorCode:
    """The error that a producer gets for the coordinator's: one that it knows what to do with."""
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
            answers[place] = _lost(partition.index, appended, error)
        left -= 1
        if not left:
            promise.resolve(response)

    for waited in waiting:
        waited[0].when_durable(waited[1].last_offset, partial(durable, waited))
    return promise


def _refuse_all(call: Call, request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    if not _is_answered(request):
        end_unanswered(call)
        return None
    return ProduceResponse(responses=_SHAPE.refusals(request.topic_data, code))


# How one partition is answered. A batch that was taken gets finished bytes: there is one answer for every batch, and a
# message and the codec's walk through its fields would take several times as long. Everything else is a message.


# The answer tells where the log of a partition that refuses starts, but not with these errors.
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

_OLDEST = Struct(">ihqq")


def _pack_oldest(index: int, error_code: int, base_offset: int, log_append_time_ms: int, _: int, __: bytes) -> bytes:
    return _OLDEST.pack(index, error_code, base_offset, log_append_time_ms)


def _accepted(version: int) -> tuple[Callable[[int, int, int, int, int, bytes], bytes], bytes]:
    if version < LOG_START_VERSION:
        return _pack_oldest, b""
    if version < RECORD_ERRORS_VERSION:
        rest = b""
    elif version < FLEXIBLE_VERSION:
        rest = b"\0\0\0\0\xff\xff"
    else:
        rest = b"\1\0\0"
    return Struct(f">ihqqq{len(rest)}s").pack, rest


_LOWEST, _HIGHEST = API_VERSIONS[ApiKey.PRODUCE]
ACCEPTED = {version: _accepted(version) for version in range(_LOWEST, _HIGHEST + 1)}
"""By version: what packs index, error code, base offset, log append time, log start and the rest; and the rest: nothing
is wrong with any record, there is no message and no tag."""


def _refusal(index: int, error: KafkaError, partition: Partition | None) -> PartitionResponse:
    """Nothing was written. If the partition was asked, the answer may tell where its log starts."""
    answer = PartitionResponse(
        index=index, error_code=error.code, error_message=error.message, base_offset=-1, log_append_time_ms=-1
    )
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            PartitionResponse.BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=why)
            for number, why in error.record_errors
        ]
    if partition is not None and error.code not in _ERRORS_WITHOUT_LOG_START and not isinstance(error, NotOneBatch):
        answer.log_start_offset = partition.log.log_start_offset
    return answer


def _lost(index: int, appended: Appended, error: KafkaError) -> PartitionResponse:
    """It was written, but will never be as durable as was asked."""
    return PartitionResponse(
        index=index,
        error_code=error.code,
        error_message=error.message,
        base_offset=-1,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )


# What the event feed gets


def _name_of(node: Node, topic_id: bytes) -> str:
    """The name of a topic that a client names by its id; the id itself if there is none."""
    found = node.metadata.topics_by_id.get(topic_id)
    return encode_uuid(topic_id) if found is None else found.name


def _report_refusal(
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


def _report_duplicate(node: Node, partition: Partition, header: BatchHeader | None, first_offset: int) -> None:
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


# What is declared


def _is_answered(request: ProduceRequest) -> bool:
    return request.acks != ACKS_NONE


def _may_write_transactions(access: Access, call: Call, request: ProduceRequest) -> ErrorCode:
    """Every batch counts, not only the first; and without an id nobody owns a transaction (CVE-2018-17196)."""
    if not any(
        has_transactional_records(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records is not None
    ):
        return ErrorCode.NONE
    name = request.transactional_id
    is_allowed = name is not None and access.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    return ErrorCode.NONE if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


_SHAPE = Shape(
    "topic_data",
    "responses",
    ("name", "topic_id"),
    Shape(
        "partition_data",
        "partition_responses",
        ("index",),
        answer=PartitionResponse,
        on_error={"base_offset": -1, "log_append_time_ms": -1, "error_message": None},
        payload="records",
    ),
    answer=TopicResponse,
)

HANDLERS = {
    ApiKey.PRODUCE: Handler(
        produce,
        pipelined=True,
        shapes=(_SHAPE,),
        needs=(
            _may_write_transactions,
            each(AclOperation.WRITE, ResourceType.TOPIC, "name", topic_id_version=TOPIC_ID_VERSION),
        ),
        is_answered=_is_answered,
    )
}
