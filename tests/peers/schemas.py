"""A second, independent codec: Kafka's message schemas from the Kafka jar, interpreted on the fly.

Slow and permissive on purpose. Messages are plain dictionaries with Kafka's field names; what is left
out takes its default, and a test may put values there that no well-behaved client would send.
"""

import json
import re
import struct
import uuid
import zipfile
from functools import cache
from typing import Any

from tests.peers.build import BUILD, require_java

Message = dict[str, Any]

INTEGERS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}
NO_UUID = "00000000-0000-0000-0000-000000000000"


class BadAnswer(AssertionError):
    """The broker's bytes do not follow the schema."""


@cache
def _catalog() -> dict[str, Any]:
    require_java()
    jar = next((BUILD / "lib").glob("kafka-clients-*.jar"))
    found: dict[str, Any] = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                schema = json.loads(text)
                found[schema["name"]] = schema
    return found


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = _catalog()[name]
    return found


def api_key(api: str) -> int:
    key: int = schema(f"{api}Request")["apiKey"]
    return key


def is_flexible(name: str, version: int) -> bool:
    return _within(schema(name).get("flexibleVersions", "none"), version)


def response_header_is_flexible(api: str, version: int) -> bool:
    # An ApiVersions answer must be readable by a client that does not know its version.
    return api != "ApiVersions" and is_flexible(f"{api}Response", version)


def encode(name: str, version: int, message: Message) -> bytes:
    return _Writer(schema(name), version).message(message)


def decode(name: str, version: int, content: bytes) -> Message:
    reader = _Reader(schema(name), version, content)
    message = reader.message()
    if reader.position != len(content):
        raise BadAnswer(f"{name} v{version}: {len(content) - reader.position} bytes too many")
    return message


def _within(versions: str, version: int) -> bool:
    if versions == "none":
        return False
    low, separator, high = versions.partition("-")
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    return int(low) <= version <= int(high) if separator else version == int(low)


class _Codec:
    def __init__(self, definition: dict[str, Any], version: int) -> None:
        self.version = version
        self.flexible = _within(definition.get("flexibleVersions", "none"), version)
        self.definition = definition
        self.structs = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}
        self._collect(definition["fields"])

    def _collect(self, fields: list[dict[str, Any]]) -> None:
        for field in fields:
            if "fields" in field:
                self.structs[field["type"].removeprefix("[]")] = field["fields"]
                self._collect(field["fields"])

    def plain(self, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [f for f in fields if _within(f["versions"], self.version) and not self.is_tagged(f)]

    def tagged(self, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted((f for f in fields if self.is_tagged(f)), key=lambda f: int(f["tag"]))

    def is_tagged(self, field: dict[str, Any]) -> bool:
        return _within(field.get("taggedVersions", "none"), self.version)

    def nullable(self, field: dict[str, Any]) -> bool:
        return _within(field.get("nullableVersions", "none"), self.version)

    def field_is_flexible(self, field: dict[str, Any]) -> bool:
        return self.flexible and field.get("flexibleVersions") != "none"

    def default(self, field: dict[str, Any]) -> Any:
        kind, given = field["type"], field.get("default")
        if given == "null":
            return None
        if kind.startswith("[]"):
            return []
        if kind in ("string", "uuid"):
            return given if given is not None else ("" if kind == "string" else NO_UUID)
        if kind in ("bytes", "records"):
            return b""
        if kind == "bool":
            return str(given).lower() == "true"
        if kind == "float64":
            return float(given or 0)
        if kind in INTEGERS:
            return int(str(given or 0), 0)
        return {}


class _Writer(_Codec):
    def message(self, message: Message) -> bytes:
        return self.struct(self.definition["fields"], message)

    def struct(self, fields: list[dict[str, Any]], message: Message) -> bytes:
        unknown = set(message) - {field["name"] for field in fields}
        assert not unknown, f"no such fields: {unknown}"
        parts = [self.value(f, f["type"], message.get(f["name"], self.default(f))) for f in self.plain(fields)]
        if self.flexible:
            tags = [(int(f["tag"]), self.value(f, f["type"], message[f["name"]]))
                    for f in self.tagged(fields) if f["name"] in message]  # fmt: skip
            parts.append(_unsigned(len(tags)))
            for tag, content in tags:
                parts += [_unsigned(tag), _unsigned(len(content)), content]
        return b"".join(parts)

    def value(self, field: dict[str, Any], kind: str, value: Any) -> bytes:
        if kind.startswith("[]"):
            if value is None:
                return self.length(field, None, 4)
            items = [self.value({**field, "nullableVersions": "none"}, kind[2:], item) for item in value]
            return self.length(field, len(items), 4) + b"".join(items)
        if kind in INTEGERS:
            return struct.pack(INTEGERS[kind], value)
        if kind == "bool":
            return b"\1" if value else b"\0"
        if kind == "uuid":
            return uuid.UUID(value).bytes
        if kind in ("string", "bytes", "records"):
            width = 2 if kind == "string" else 4
            if value is None:
                return self.length(field, None, width)
            content = value.encode() if isinstance(value, str) else bytes(value)
            return self.length(field, len(content), width) + content
        if self.nullable(field):
            if value is None:
                return b"\xff"
            return b"\1" + self.struct(self.structs[kind], value)
        return self.struct(self.structs[kind], value)

    def length(self, field: dict[str, Any], count: int | None, width: int) -> bytes:
        if self.field_is_flexible(field):
            return _unsigned(0 if count is None else count + 1)
        return struct.pack(">h" if width == 2 else ">i", -1 if count is None else count)


class _Reader(_Codec):
    def __init__(self, definition: dict[str, Any], version: int, content: bytes) -> None:
        super().__init__(definition, version)
        self.content = content
        self.position = 0

    def message(self) -> Message:
        return self.struct(self.definition["fields"])

    def struct(self, fields: list[dict[str, Any]]) -> Message:
        message = {field["name"]: self.value(field, field["type"]) for field in self.plain(fields)}
        if self.flexible:
            known = {int(field["tag"]): field for field in self.tagged(fields)}
            for field in known.values():
                message[field["name"]] = self.default(field)
            for _ in range(self.unsigned()):
                tag, size = self.unsigned(), self.unsigned()
                end = self.position + size
                if tag in known:
                    message[known[tag]["name"]] = self.value(known[tag], known[tag]["type"])
                    if self.position != end:
                        raise BadAnswer(f"tag {tag} of {self.definition['name']} has the wrong size")
                self.position = end
        return message

    def value(self, field: dict[str, Any], kind: str) -> Any:
        if kind.startswith("[]"):
            count = self.length(field, 4)
            return None if count is None else [self.value({**field, "nullableVersions": "none"}, kind[2:])
                                               for _ in range(count)]  # fmt: skip
        if kind in INTEGERS:
            return struct.unpack(INTEGERS[kind], self.take(struct.calcsize(INTEGERS[kind])))[0]
        if kind == "bool":
            return self.take(1) != b"\0"
        if kind == "uuid":
            return str(uuid.UUID(bytes=self.take(16)))
        if kind in ("string", "bytes", "records"):
            size = self.length(field, 2 if kind == "string" else 4)
            if size is None:
                return None
            return self.take(size).decode() if kind == "string" else self.take(size)
        if self.nullable(field) and self.take(1) == b"\xff":
            return None
        return self.struct(self.structs[kind])

    def length(self, field: dict[str, Any], width: int) -> int | None:
        if self.field_is_flexible(field):
            count = self.unsigned() - 1
        else:
            count = struct.unpack(">h" if width == 2 else ">i", self.take(width))[0]
        return None if count < 0 else count

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.content):
            raise BadAnswer(f"{self.definition['name']} v{self.version} ends early")
        taken = self.content[self.position : end]
        self.position = end
        return taken


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
