"""Decodes frames into plain data for a recording: fields by name, record batches as counts, without secrets.

An unknown API or version is not an error: the frame is passed on, and only its header is shown.
"""

from collections.abc import Callable
from typing import Any

from fencepost.wire.batch import iterate_headers
from fencepost.wire.catalog import ApiKey
from fencepost.wire.codec import decode_prefix
from fencepost.wire.errors import KafkaError, MalformedMessage
from fencepost.wire.framing import RequestHeader, read_request_header, read_response
from fencepost.wire.messages import message_class, schema_of
from fencepost.wire.records import read_records

Plain = dict[str, Any]

HIDDEN = "(hidden)"
CONTENT_BYTES_MAX = 64 * 1024 * 1024
# The values may be passwords.
_APIS_WITH_SETTINGS = {"AlterConfigs", "IncrementalAlterConfigs", "DescribeConfigs", "CreateTopics"}
_SECRET_FIELDS = {
    "SaslAuthenticate": {"auth_bytes"},
    "AlterUserScramCredentials": {"salt", "salted_password"},
}


def api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).camel_name
    except ValueError:
        return f"api {api_key}"


def is_known(api_key: int, version: int) -> bool:
    try:
        low, high = schema_of(f"{ApiKey(api_key).camel_name}Request")["valid"]
    except (ValueError, KeyError):
        return False
    return bool(low <= version <= high)


def newest_version(api_key: int) -> int | None:
    """The highest supported version; None for an unknown API."""
    try:
        return int(schema_of(f"{ApiKey(api_key).camel_name}Request")["valid"][1])
    except (ValueError, KeyError):
        return None


def read_request(frame: memoryview) -> tuple[RequestHeader, Any]:
    """The header, and the message, or None if it cannot be decoded."""
    header = read_request_header(frame, is_known=False)
    if not is_known(header.api_key, header.api_version):
        return header, None
    try:
        header = read_request_header(frame)
        cls = message_class(f"{api_name(header.api_key)}Request")
        # Brokers ignore trailing bytes, which some clients send.
        return header, decode_prefix(cls, header.api_version, frame, header.body)[0]
    except MalformedMessage:
        return header, None


def read_answer(api_key: int, version: int, frame: memoryview) -> tuple[Any, int] | None:
    """The message of a response and its version; None if it cannot be decoded."""
    versions = [version] if is_known(api_key, version) else []
    if api_key == ApiKey.API_VERSIONS:
        # A broker that does not know the version of this request answers in version 0.
        versions.append(0)
    for attempt in versions:
        try:
            return read_response(message_class(f"{api_name(api_key)}Response"), api_key, attempt, frame)[1], attempt
        except MalformedMessage:
            continue
    return None


def plain(api: str, message: Any, *, with_contents: bool, topic_name: Callable[[bytes], str | None]) -> Plain:
    """The message as JSON-compatible data."""
    return _Plain(api, with_contents, topic_name).struct(message)


class _Plain:
    def __init__(self, api: str, with_contents: bool, topic_name: Callable[[bytes], str | None]) -> None:
        self._with_contents = with_contents
        self._topic_name = topic_name
        self._hides_values = api in _APIS_WITH_SETTINGS
        self._secrets = _SECRET_FIELDS.get(api, set())

    def struct(self, message: Any) -> Plain:
        out: Plain = {}
        for name in message.__slots__:
            value = getattr(message, name)
            if name in self._secrets or (self._hides_values and name == "value" and value is not None):
                out[name] = HIDDEN
            elif name == "topic_id":
                out[name] = value.hex()
                if (known := self._topic_name(value)) is not None:
                    out["topic_name"] = known
            elif name == "records" and value is not None:
                out["batches"] = self._batches(value)
            else:
                out[name] = self._value(value)
        return out

    def _value(self, value: Any) -> Any:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return value.hex() if len(value) == 16 else f"({len(value)} bytes)"
        if isinstance(value, list):
            return [self._value(each) for each in value]
        if hasattr(value, "schema_name"):
            return self.struct(value)
        return value

    def _batches(self, records: memoryview) -> list[Plain]:
        out = []
        try:
            for position, header in iterate_headers(records):
                batch: Plain = {
                    "base_offset": header.base_offset,
                    "records": header.record_count,
                    "producer_id": header.producer_id,
                    "producer_epoch": header.producer_epoch,
                    "base_sequence": header.base_sequence,
                    "is_transactional": header.is_transactional,
                    "is_control": header.is_control,
                }
                if self._with_contents:
                    batch["contents"] = _contents(records, position)
                out.append(batch)
        except MalformedMessage:
            # A fetch may end in the middle of a batch.
            pass
        return out


def _contents(records: memoryview, position: int) -> list[Plain]:
    try:
        return [
            {"offset": record.offset, "key": _text(record.key), "value": _text(record.value)}
            for record in read_records(records, CONTENT_BYTES_MAX, position)
        ]
    except (KafkaError, MalformedMessage):
        return []


def _text(content: bytes | None) -> str | None:
    return None if content is None else bytes(content).decode("utf-8", "backslashreplace")
