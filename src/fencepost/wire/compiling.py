"""Compiles a codec from a schema: walks the fields of one message in one version, and generates source code.

`decoding.py` and `encoding.py` generate the functions; every other module uses `codec.py`.
"""

import contextlib
import itertools
import struct
from collections.abc import Iterator
from typing import Any

from fencepost.ports import Buffer
from fencepost.wire.errors import MalformedMessage
from fencepost.wire.messages import message_class, schema_of

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
FIXED_SIZES = {kind: struct.calcsize(">" + code) for kind, code in FIXED.items()}


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise MalformedMessage("unsigned varint above 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise MalformedMessage("unsigned varint of more than 5 bytes")


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL_UVARINTS = tuple(_uvarint(value) for value in range(1024))


def uvarint(value: int) -> bytes:
    return _SMALL_UVARINTS[value] if value < 1024 else _uvarint(value)


def fail(reason: str) -> None:
    raise MalformedMessage(reason)


def _present(bounds: list[int] | None, version: int) -> bool:
    return bounds is not None and bounds[0] <= version <= bounds[1]


class SourceWriter:
    """Generated source code, with the names it uses."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "MalformedMessage": MalformedMessage,
            "uv": read_uvarint,
            "fail": fail,
            "uvarint": uvarint,
            "unpack": struct.unpack_from,
            "pack": struct.pack,
        }
        self._depth = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Lines written inside are indented below the header."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def constant(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self.scope)}"
        self.scope[name] = value
        return name


class Compiler:
    """What decoders and encoders share: walking the fields of one message at one version."""

    def __init__(self, name: str, version: int, *, in_steps: bool = False) -> None:
        """`in_steps`: the functions are generators that yield at intervals, for messages that may be large."""
        schema = schema_of(name)
        low, high = schema["valid"]
        if not low <= version <= high:
            raise MalformedMessage(f"{name} has no version {version}")
        self.name = name
        self.schema = schema
        self.version = version
        self.in_steps = in_steps
        self.calling = "yield from " if in_steps else ""
        self.flexible = schema["flexible"] is not None and version >= schema["flexible"]
        self.writer = SourceWriter()
        self.done: set[str] = set()

    def struct_fields(self, name: str, field: dict[str, Any]) -> list[dict[str, Any]]:
        if "fields" in field:
            return field["fields"]  # type: ignore[no-any-return]
        return self.schema["structs"][name]  # type: ignore[no-any-return]

    def is_nullable(self, field: dict[str, Any]) -> bool:
        return _present(field.get("nullableVersions"), self.version) or field["type"] == "records"

    def split(
        self, fields: list[dict[str, Any]]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
        """Fields in the body, tagged fields, and fields that this version does not have."""
        body, tagged, absent = [], [], []
        for field in fields:
            if not _present(field["versions"], self.version):
                absent.append(field)
            elif self.flexible and _present(field.get("taggedVersions"), self.version):
                tagged.append(field)
            else:
                body.append(field)
        return body, sorted(tagged, key=lambda field: int(field["tag"])), absent

    def in_runs(self, fields: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
        """The fields of a body, in order: those of a fixed size that follow each other together, any other alone."""
        for is_fixed, group in itertools.groupby(fields, lambda field: field["type"] in FIXED):
            if is_fixed:
                yield list(group)
            else:
                yield from ([field] for field in group)

    def minimum_size(self, fields: list[dict[str, Any]]) -> int:
        """The minimum size of an encoded struct; limits how many elements an array in the buffer can have."""
        size = 1 if self.flexible else 0
        for field in self.split(fields)[0]:
            kind = field["type"]
            if kind in FIXED_SIZES:
                size += FIXED_SIZES[kind]
            elif kind == "uuid":
                size += 16
            elif self.flexible:
                size += 1
            else:
                size += 2 if kind == "string" else 4 if kind in ("bytes", "records") or kind.startswith("[]") else 1
        return max(size, 1)


def nested_class(message: str, name: str) -> Any:
    """A struct's class, at any depth below the message."""
    pending = [message_class(message)]
    while pending:
        cls = pending.pop()
        found = cls.__dict__.get(name)
        if isinstance(found, type):
            return found
        pending += [inner for inner in cls.__dict__.values() if isinstance(inner, type)]
    raise KeyError(name)
