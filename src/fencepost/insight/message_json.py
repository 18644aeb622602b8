"""Converts messages to JSON as Kafka's own converters do.

Names are camelCase in the schema's order, tagged fields appear only when they differ from their default, bytes are
base64 and uuids Kafka's url-safe text.
"""

import base64
from typing import Any

from fencepost.wire.messages import default_of, schema_of, snake_case


def to_json(message: Any, version: int) -> dict[str, Any]:
    schema = schema_of(message.schema_name)
    return _struct(message, schema["fields"], schema["structs"], version)


def encode_uuid(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _struct(message: Any, fields: list[dict[str, Any]], structs: dict[str, Any], version: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for field in fields:
        if not _present(field.get("versions"), version):
            continue
        value = getattr(message, snake_case(field["name"]))
        is_tag = _present(field.get("taggedVersions"), version)
        # Kafka writes a struct in a tag even where it is null.
        if is_tag and _is_default(field, value) and not _is_struct(field, structs):
            continue
        document[field["name"][0].lower() + field["name"][1:]] = _value(field, value, structs, version)
    return document


def _value(field: dict[str, Any], value: Any, structs: dict[str, Any], version: int) -> Any:
    kind = field["type"]
    if value is None:
        return None
    if kind.startswith("[]"):
        element = {**field, "type": kind[2:]}
        return [_value(element, each, structs, version) for each in value]
    if kind in ("bytes", "records"):
        return base64.b64encode(bytes(value)).decode()
    if kind == "uuid":
        return encode_uuid(value)
    inner = field.get("fields") or structs.get(kind)
    return value if inner is None else _struct(value, inner, structs, version)


def _is_struct(field: dict[str, Any], structs: dict[str, Any]) -> bool:
    return "fields" in field or field["type"] in structs


def _is_default(field: dict[str, Any], value: Any) -> bool:
    if field["type"].startswith("[]") and field.get("default") != "null":
        return not value and value is not None
    return bool(value == default_of(field))


def _present(versions: list[int] | None, version: int) -> bool:
    return versions is not None and versions[0] <= version <= versions[1]
