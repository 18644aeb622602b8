"""The leader's checks of a batch before it is appended, and the conversions required by settings of its topic.

The common path tests everything at once in `PartitionLog.append_as_leader`; only a batch that fails there is checked
here, to be refused in Kafka's order and words. Batches are opened for compacted topics (keys) and for topics with
their own codec. Unlike in Kafka, the records of other batches are not checked; consumers notice if they are invalid.
"""

from collections.abc import Callable, Generator
from typing import Any, NoReturn

from fencepost.config import TopicConfig
from fencepost.log.producers import Origin
from fencepost.wire.batch import (
    BATCH_LENGTH_MIN,
    COMPRESSION_MASK,
    CREATE_TIME,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
    stamp_timestamp_type,
    verify_crc,
)
from fencepost.wire.compression import CODEC_OF_COMPRESSION_TYPE, Codec
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.records import (
    RECORD_ERRORS_MAX,
    InvalidRecords,
    check_records,
    check_records_in_steps,
    payload_of,
    read_records,
    rebuild_batch,
)

_LEGACY_LENGTH_MIN = 14
LISTED_RECORDS_BYTES_MAX = 262_144


class NotOneBatch(KafkaError):
    """The data is not exactly one batch of the current format; refused regardless of the partition."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


def needs_opening(config: TopicConfig) -> bool:
    """Whether the settings of a topic require more than stamping the header."""
    return config.is_compacted or config.compression_type != "producer" or config.message_timestamp_type != "CreateTime"


def check_batch(
    batch: memoryview, header: BatchHeader, origin: Origin, max_message_bytes: int, topic_partition: str
) -> None:
    """Raises the first error that Kafka would raise, if any."""
    size = len(batch)
    if header.batch_length < _LEGACY_LENGTH_MIN:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Found record size {header.batch_length} smaller than minimum record overhead (14).",
        )
    if not 0 <= header.magic <= CURRENT_MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {header.magic}")
    if header.magic != CURRENT_MAGIC:
        raise NotOneBatch(
            "Produce requests are only allowed to contain record batches with magic version 2. "
            f"Received batch with magic version {header.magic}."
        )
    if header.batch_length < BATCH_LENGTH_MIN:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record batch is corrupt (the size {header.batch_length} is smaller than the minimum)",
        )
    if header.size_bytes > size:
        raise NotOneBatch("Produce requests must have at least one record batch per partition")
    if header.size_bytes < size:
        _refuse_more(batch[header.size_bytes :])
    if origin is Origin.CLIENT and header.base_offset != 0:
        _refuse(
            f"The baseOffset of the record batch in the append to {topic_partition} should be 0, "
            f"but it is {header.base_offset}"
        )
    if size > max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {topic_partition} is {size} bytes which exceeds the maximum "
            f"configured value of {max_message_bytes}.",
        )
    if not verify_crc(batch, 0, header):
        refuse_crc(batch, header, topic_partition)
    if header.attributes & COMPRESSION_MASK > Codec.ZSTD:
        _refuse(f"Unknown compression type id: {header.attributes & COMPRESSION_MASK}")
    if origin is not Origin.CLIENT:
        return
    last_offset = header.base_offset + header.last_offset_delta
    if header.last_offset_delta < 0:
        _refuse(f"Batch has an invalid offset range: [{header.base_offset}, {last_offset}]")
    if header.record_count <= 0:
        _refuse(f"Invalid reported count for record batch: {header.record_count}")
    if header.record_count != header.last_offset_delta + 1:
        _refuse(
            f"Inconsistent batch offset range [{header.base_offset}, {last_offset}] and count of records "
            f"{header.record_count}"
        )
    if header.is_control:
        _refuse("Clients are not allowed to write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        _refuse(f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}")


def refuse_short_batch(size: int) -> NoReturn:
    raise NotOneBatch(
        f"Produce requests must have at least one record batch per partition; {size} bytes are less than a header"
    )


def _refuse_more(rest: memoryview) -> NoReturn:
    if len(rest) >= HEADER_BYTES and HEADER_BYTES <= read_header(rest).size_bytes <= len(rest):
        raise NotOneBatch("Produce requests are only allowed to contain exactly one record batch per partition")
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A record batch is followed by {len(rest)} bytes that are not a batch")


def refuse_crc(batch: memoryview, header: BatchHeader, topic_partition: str) -> NoReturn:
    raise KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"Record batch for {topic_partition} is corrupt (stored crc = {header.crc}, {len(batch)} bytes)",
    )


def check_timestamps(
    batch: memoryview, header: BatchHeader, now_ms: int, config: TopicConfig, decompressed_max_bytes: int
) -> None:
    """Limits on CreateTime, and LogAppendTime from a client. The header's first and largest count for all records."""
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms

    def problem(timestamp: int) -> str | None:
        if config.message_timestamp_type == "CreateTime" and timestamp != NO_TIMESTAMP:
            if earliest <= timestamp <= latest:
                return None
            return f"Timestamp {timestamp} is out of range. It should be within [{earliest}, {latest}]"
        if header.timestamp_type == LOG_APPEND_TIME:
            return "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
        return None

    if problem(header.base_timestamp) or problem(header.max_timestamp):
        # Only errors of small batches name the records, because reading them blocks other requests.
        if header.record_count > RECORD_ERRORS_MAX:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "The batch has an invalid timestamp")
        try:
            records = enumerate(read_records(batch, min(decompressed_max_bytes, LISTED_RECORDS_BYTES_MAX)))
        except KafkaError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "The batch has an invalid timestamp") from None
        raise InvalidRecords(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            [(index, why) for index, record in records if (why := problem(record.timestamp))],
        )


class OpenedHeader(BatchHeader):
    """The header of a batch whose records are already checked and converted for these topic settings."""

    config: TopicConfig


Offload = Callable[[Callable[[], Any]], Generator[Any, None, Any]]
"""Runs a function in a helper thread, and raises what it raises."""


def opens_records(header: BatchHeader, config: TopicConfig) -> bool:
    """Whether the records of a client's batch have to be read before it is appended."""
    codec, wanted, keys_required = _asked(header, config)
    return keys_required or wanted != codec


def open_in_steps(
    batch: memoryview,
    header: BatchHeader,
    config: TopicConfig,
    now_ms: int,
    max_bytes: int,
    max_records: int,
    offload: Offload,
) -> Generator[Any, None, tuple[memoryview, BatchHeader, int]]:
    """What is long of `open_batch`, done before the append: yields where it can be interrupted. The batch as its topic
    keeps it, and to how many bytes it unpacked, at most `max_bytes`; it may have `max_records`.

    A batch that is to be refused for anything but its records comes back as it is: the append says why. Raises
    KafkaError.
    """
    codec, wanted, keys_required = _asked(header, config)
    if header.size_bytes != len(batch) or header.magic != CURRENT_MAGIC or codec > Codec.ZSTD or header.is_control:
        return batch, header, 0
    if not verify_crc(batch, 0, header):
        return batch, header, 0
    check_timestamps(batch, header, now_ms, config, max_bytes)
    payload: bytes = yield from offload(lambda: payload_of(batch, header, max_bytes))
    yield from check_records_in_steps(payload, header, keys_required=keys_required, max_records=max_records)
    opened = header
    if wanted != codec:
        attributes = (header.attributes & ~COMPRESSION_MASK) | wanted
        rebuilt = yield from offload(lambda: rebuild_batch(header, payload, attributes, level=_level(config, wanted)))
        batch = memoryview(rebuilt)
        opened = read_header(batch)
    known = OpenedHeader._make(opened)
    known.config = config
    return batch, known, len(payload)


def _asked(header: BatchHeader, config: TopicConfig) -> tuple[int, int, bool]:
    """The codec of the batch, the codec of the topic, and whether each record must have a key."""
    codec = header.attributes & COMPRESSION_MASK
    wanted = codec if config.compression_type == "producer" else CODEC_OF_COMPRESSION_TYPE[config.compression_type]
    return codec, wanted, config.is_compacted and not header.is_control


def open_batch(
    batch: memoryview,
    header: BatchHeader,
    origin: Origin,
    now_ms: int,
    config: TopicConfig,
    decompressed_max_bytes: int,
) -> tuple[memoryview, BatchHeader]:
    """The batch as stored in this topic: keys checked, codec converted, LogAppendTime set."""
    codec, wanted, keys_required = _asked(header, config)
    if type(header) is OpenedHeader and header.config is config:
        header = BatchHeader._make(header)
    elif origin is Origin.CLIENT and (keys_required or wanted != codec):
        payload = payload_of(batch, header, decompressed_max_bytes)
        check_records(payload, header, keys_required=keys_required)
        if wanted != codec:
            attributes = (header.attributes & ~COMPRESSION_MASK) | wanted
            batch = memoryview(rebuild_batch(header, payload, attributes, level=_level(config, wanted)))
            header = read_header(batch)
    if config.message_timestamp_type == "LogAppendTime" and not header.is_control:
        stamp_timestamp_type(batch, 0, len(batch), LOG_APPEND_TIME, now_ms)
        header = read_header(batch)
    elif header.timestamp_type != CREATE_TIME:
        stamp_timestamp_type(batch, 0, len(batch), CREATE_TIME, header.max_timestamp)
        header = read_header(batch)
    return batch, header


def _level(config: TopicConfig, codec: int) -> int | None:
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def _refuse(reason: str) -> NoReturn:
    raise KafkaError(ErrorCode.INVALID_RECORD, reason)


assert HEADER_BYTES - LOG_OVERHEAD_BYTES == BATCH_LENGTH_MIN
