"""What Produce says of one partition: its batch was taken, refused, or written and then lost.

A batch that was taken is answered with finished bytes: there is one for every batch, and a message and the codec's walk
through its fields would take several times as long. Everything else is a message.
"""

from collections.abc import Callable
from struct import Struct

from fencepost.broker.partition import Partition
from fencepost.log.partition_log import Appended
from fencepost.log.validation import NotOneBatch
from fencepost.wire.catalog import API_VERSIONS, ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import ProduceResponse
from fencepost.wire.records import InvalidRecords

TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
# From these versions on there are a log start offset, errors of single records with a message, and tags.
LOG_START_VERSION, RECORD_ERRORS_VERSION, FLEXIBLE_VERSION = 5, 8, 9
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


def refusal(index: int, error: KafkaError, partition: Partition | None) -> PartitionResponse:
    """Nothing was written. Of a partition that was asked, the answer may tell where its log starts."""
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


def lost(index: int, appended: Appended, error: KafkaError) -> PartitionResponse:
    """It was written, but will never be as durable as was asked."""
    return PartitionResponse(
        index=index,
        error_code=error.code,
        error_message=error.message,
        base_offset=-1,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
