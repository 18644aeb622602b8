"""Bytes <-> messages: readers and writers compiled from the schemas, per message and version, on first use.

Bounded: a length is compared with the bytes that are left before anything is allocated, unknown tagged fields are
skipped, and the number of array elements of one message is limited. Any input that does not fit its schema raises
MalformedMessage, nothing else.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from fencepost.ports import Buffer
from fencepost.wire.errors import MalformedMessage
from fencepost.wire.messages import default_of, message_class, schema_of, snake_case

M = TypeVar("M")

# Python objects are larger than their bytes: this bounds what one message may unfold to, whatever its size.
MESSAGE_ELEMENTS_MAX = 1_000_000
# As in Kafka, also where the length on the wire could say more.
STRING_BYTES_MAX = 32_767
# Parts of an encoded message at least this large are passed on uncopied.
PART_BYTES_MIN = 4096

_FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
_FIXED_SIZES = {kind: struct.calcsize(">" + code) for kind, code in _FIXED.items()}


def _read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
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


def _fail(reason: str) -> None:
    raise MalformedMessage(reason)


def _present(bounds: list[int] | None, version: int) -> bool:
    return bounds is not None and bounds[0] <= version <= bounds[1]


class _Writer:
    """Source code being written, and the names it may use."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "MalformedMessage": MalformedMessage,
            "uv": _read_uvarint,
            "fail": _fail,
            "uvarint": uvarint,
            "unpack": struct.unpack_from,
            "pack": struct.pack,
        }
        self.depth = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def constant(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self.scope)}"
        self.scope[name] = value
        return name


class _Compiler:
    """What decoders and encoders share: walking the fields of one message at one version."""

    def __init__(self, name: str, version: int) -> None:
        schema = schema_of(name)
        low, high = schema["valid"]
        if not low <= version <= high:
            raise MalformedMessage(f"{name} has no version {version}")
        self.name = name
        self.schema = schema
        self.version = version
        self.flexible = schema["flexible"] is not None and version >= schema["flexible"]
        self.writer = _Writer()
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

    def minimum_size(self, fields: list[dict[str, Any]]) -> int:
        """Fewest bytes that one encoded struct can take; an array of more cannot be in the buffer."""
        size = 1 if self.flexible else 0
        for field in self.split(fields)[0]:
            kind = field["type"]
            if kind in _FIXED_SIZES:
                size += _FIXED_SIZES[kind]
            elif kind == "uuid":
                size += 16
            elif self.flexible:
                size += 1
            else:
                size += 2 if kind == "string" else 4 if kind in ("bytes", "records") or kind.startswith("[]") else 1
        return max(size, 1)


class _Decoder(_Compiler):
    def compile(self) -> Callable[[Buffer, int, int, list[int]], tuple[Any, int]]:
        self.struct(self.name, message_class(self.name), self.schema["fields"])
        exec("\n".join(self.writer.lines), self.writer.scope)
        return self.writer.scope[f"read_{self.name}"]  # type: ignore[no-any-return]

    def struct(self, name: str, cls: type, fields: list[dict[str, Any]]) -> None:
        if name in self.done:
            return
        self.done.add(name)
        body, tagged, absent = self.split(fields)
        for field in body + tagged:
            inner = field["type"].removeprefix("[]")
            if inner not in _FIXED and inner not in ("string", "bytes", "uuid", "records"):
                self.struct(inner, _nested_class(self.name, inner), self.struct_fields(inner, field))
        w = self.writer
        w.scope[f"make_{name}"] = cls
        w.scope[f"new_{name}"] = cls.__new__
        w.line(f"def read_{name}(b, p, e, k):")
        w.depth = 1
        w.line(f"o = new_{name}(make_{name})")
        for field in absent + tagged:
            self.assign_default(field)
        run: list[dict[str, Any]] = []
        for field in body:
            if field["type"] in _FIXED:
                run.append(field)
                continue
            self.fixed(run)
            run = []
            self.value(field)
        self.fixed(run)
        if self.flexible:
            self.tags(tagged)
        w.line("return o, p")
        w.depth = 0

    def assign_default(self, field: dict[str, Any]) -> None:
        name, default = snake_case(field["name"]), default_of(field)
        if field["type"].startswith("[]") and default is not None:
            self.writer.line(f"o.{name} = []")
        elif isinstance(default, int | str | bytes | float) or default is None:
            self.writer.line(f"o.{name} = {default!r}")
        else:
            shared = self.writer.constant("default", _nested_class(self.name, field["type"]).default_instance())
            self.writer.line(f"o.{name} = {shared}")

    def fixed(self, run: list[dict[str, Any]]) -> None:
        if not run:
            return
        layout = struct.Struct(">" + "".join(_FIXED[field["type"]] for field in run))
        reader = self.writer.constant("fixed", layout.unpack_from)
        targets = ", ".join(f"o.{snake_case(field['name'])}" for field in run)
        self.writer.line(f"{targets}{',' if len(run) == 1 else ''} = {reader}(b, p); p += {layout.size}")

    def length(self, field: dict[str, Any], wide: bool) -> None:
        """Leave the length in n, or -1 for null; refuse null where the schema has none."""
        w = self.writer
        if self.flexible:
            w.line("n = b[p]; p += 1")
            w.line("if n > 127: n, p = uv(b, p - 1)")
            w.line("n -= 1")
        elif wide:
            w.line("n, = unpack('>i', b, p); p += 4")
        else:
            w.line("n, = unpack('>h', b, p); p += 2")
        if self.is_nullable(field):
            w.line("if n < -1: fail('negative length')")
        else:
            w.line(f"if n < 0: fail('null or negative length of {field['name']}')")

    def value(self, field: dict[str, Any]) -> None:
        kind, target = field["type"], f"o.{snake_case(field['name'])}"
        w = self.writer
        if kind == "uuid":
            w.line("q = p + 16")
            w.line("if q > e: fail('truncated uuid')")
            w.line(f"{target} = bytes(b[p:q]); p = q")
            return
        if kind in _FIXED:
            self.fixed([field])
            return
        if kind in ("string", "bytes", "records"):
            self.length(field, wide=kind != "string")
            self.guarded(field, target, lambda: self.sized(kind, target))
        elif kind.startswith("[]"):
            self.length(field, wide=True)
            self.guarded(field, target, lambda: self.array(field, target))
        else:
            if self.is_nullable(field):
                w.line("n, = unpack('>b', b, p); p += 1")
                w.line(f"if n < 0: {target} = None")
                w.line(f"else: {target}, p = read_{kind}(b, p, e, k)")
            else:
                w.line(f"{target}, p = read_{kind}(b, p, e, k)")

    def guarded(self, field: dict[str, Any], target: str, write: Callable[[], None]) -> None:
        w = self.writer
        if self.is_nullable(field):
            w.line(f"if n == -1: {target} = None")
            w.line("else:")
            w.depth += 1
            write()
            w.depth -= 1
        else:
            write()

    def sized(self, kind: str, target: str) -> None:
        w = self.writer
        w.line("q = p + n")
        w.line(f"if q > e: fail('{kind} longer than the message')")
        if kind == "string" and self.flexible:
            w.line(f"if n > {STRING_BYTES_MAX}: fail('string too long')")
        view = {"string": "str(b[p:q], 'utf-8')", "bytes": "bytes(b[p:q])", "records": "b[p:q]"}[kind]
        w.line(f"{target} = {view}; p = q")

    def array(self, field: dict[str, Any], target: str) -> None:
        w, inner = self.writer, field["type"][2:]
        if inner in _FIXED and inner != "bool":
            size = _FIXED_SIZES[inner]
            w.line(f"if n * {size} > e - p: fail('array longer than the message')")
            w.line("k[0] -= n")
            w.line("if k[0] < 0: fail('too many array elements')")
            w.line(f"{target} = list(unpack(f'>{{n}}{_FIXED[inner]}', b, p)); p += n * {size}")
            return
        is_struct = inner not in ("string", "uuid", "bytes", "bool")
        minimum = self.minimum_size(self.struct_fields(inner, field)) if is_struct else 16 if inner == "uuid" else 1
        w.line(f"if n * {minimum} > e - p: fail('array longer than the message')")
        w.line("k[0] -= n")
        w.line("if k[0] < 0: fail('too many array elements')")
        w.line(f"{target} = a = []")
        w.line("for _ in range(n):")
        w.depth += 1
        if is_struct:
            w.line(f"v, p = read_{inner}(b, p, e, k); a.append(v)")
        else:
            if inner == "uuid":
                w.line("q = p + 16")
            else:
                self.length({"name": field["name"], "type": inner}, wide=inner == "bytes")
                w.line("q = p + n")
            w.line("if q > e: fail('array element longer than the message')")
            w.line(f"a.append({'str(b[p:q], ' + repr('utf-8') + ')' if inner == 'string' else 'bytes(b[p:q])'}); p = q")
        w.depth -= 1

    def tags(self, tagged: list[dict[str, Any]]) -> None:
        w = self.writer
        w.line("t = b[p]; p += 1")
        w.line("if t:")
        w.depth += 1
        w.line("if t > 127: t, p = uv(b, p - 1)")
        w.line("for _ in range(t):")
        w.depth += 1
        w.line("g, p = uv(b, p); s, p = uv(b, p); s += p")
        w.line("if s > e: fail('tagged field longer than the message')")
        for field in tagged:
            w.line(f"if g == {field['tag']}:")
            w.depth += 1
            self.value(field)
            w.line("if p != s: fail('tagged field of another length')")
            w.depth -= 1
        w.line("p = s")
        w.depth -= 2


class _Encoder(_Compiler):
    def compile(self) -> Callable[[Any, Callable[[Buffer], None]], None]:
        self.struct(self.name, self.schema["fields"])
        exec("\n".join(self.writer.lines), self.writer.scope)
        return self.writer.scope[f"write_{self.name}"]  # type: ignore[no-any-return]

    def struct(self, name: str, fields: list[dict[str, Any]]) -> None:
        if name in self.done:
            return
        self.done.add(name)
        body, tagged, _ = self.split(fields)
        for field in body + tagged:
            inner = field["type"].removeprefix("[]")
            if inner not in _FIXED and inner not in ("string", "bytes", "uuid", "records"):
                self.struct(inner, self.struct_fields(inner, field))
        w = self.writer
        w.line(f"def write_{name}(o, w):")
        w.depth = 1
        run: list[dict[str, Any]] = []
        for field in body:
            if field["type"] in _FIXED:
                run.append(field)
                continue
            self.fixed(run)
            run = []
            self.value(field, f"o.{snake_case(field['name'])}")
        self.fixed(run)
        if self.flexible:
            self.tags(tagged)
        w.line("return")
        w.depth = 0

    def fixed(self, run: list[dict[str, Any]]) -> None:
        if run:
            layout = struct.Struct(">" + "".join(_FIXED[field["type"]] for field in run))
            packer = self.writer.constant("fixed", layout.pack)
            self.writer.line(f"w({packer}({', '.join('o.' + snake_case(field['name']) for field in run)}))")

    def length(self, expression: str, wide: bool) -> None:
        if self.flexible:
            self.writer.line(f"w(uvarint({expression} + 1))")
        else:
            self.writer.line(f"w(pack('{'>i' if wide else '>h'}', {expression}))")

    def value(self, field: dict[str, Any], source: str) -> None:
        kind, w = field["type"], self.writer
        if kind in _FIXED:
            w.line(f"w(pack('>{_FIXED[kind]}', {source}))")
        elif kind == "uuid":
            w.line(f"w({source})")
        elif kind in ("string", "bytes", "records") or kind.startswith("[]"):
            w.line(f"v = {source}")
            wide = kind != "string"
            if self.is_nullable(field):
                w.line("if v is None:")
                w.depth += 1
                self.length("-1", wide)
                w.depth -= 1
                w.line("else:")
                w.depth += 1
                self.filled(field, kind, wide)
                w.depth -= 1
            else:
                self.filled(field, kind, wide)
        elif self.is_nullable(field):
            w.line(f"if {source} is None: w(b'\\xff')")
            w.line(f"else: w(b'\\x01'); write_{kind}({source}, w)")
        else:
            w.line(f"write_{kind}({source}, w)")

    def filled(self, field: dict[str, Any], kind: str, wide: bool) -> None:
        w = self.writer
        if kind == "string":
            w.line("v = v.encode()")
        if not kind.startswith("[]"):
            self.length("len(v)", wide)
            w.line("w(v)")
            return
        inner = kind[2:]
        self.length("len(v)", wide=True)
        if inner in _FIXED:
            w.line(f"w(pack(f'>{{len(v)}}{_FIXED[inner]}', *v))")
            return
        w.line("for i in v:")
        w.depth += 1
        if inner == "string":
            w.line("i = i.encode()")
            self.length("len(i)", wide=False)
            w.line("w(i)")
        elif inner == "uuid":
            w.line("w(i)")
        elif inner == "bytes":
            self.length("len(i)", wide=True)
            w.line("w(i)")
        else:
            w.line(f"write_{inner}(i, w)")
        w.depth -= 1

    def tags(self, tagged: list[dict[str, Any]]) -> None:
        w = self.writer
        if not tagged:
            w.line("w(b'\\x00')")
            return
        w.line("tagged = []")
        for field in tagged:
            default = default_of(field)
            source = f"o.{snake_case(field['name'])}"
            if field["type"].startswith("[]"):
                condition = f"{source} is not None" if field.get("default") == "null" else source
            elif isinstance(default, int | str | bytes | float) or default is None:
                condition = f"{source} != {w.constant('default', default)}"
            else:
                shared = w.constant("default", _nested_class(self.name, field["type"]).default_instance())
                condition = f"{source} is not {shared} and {source} != {shared}"
            w.line(f"if {condition}:")
            w.depth += 1
            w.line("parts = []; outer = w; w = parts.append")
            self.value(field, source)
            w.line(f"w = outer; tagged.append(({field['tag']}, b''.join(parts)))")
            w.depth -= 1
        w.line("w(uvarint(len(tagged)))")
        w.line("for tag, data in tagged: w(uvarint(tag)); w(uvarint(len(data))); w(data)")


def _nested_class(message: str, name: str) -> Any:
    """A struct's class, wherever below the message it stands."""
    pending = [message_class(message)]
    while pending:
        cls = pending.pop()
        found = cls.__dict__.get(name)
        if isinstance(found, type):
            return found
        pending += [inner for inner in cls.__dict__.values() if isinstance(inner, type)]
    raise KeyError(name)


@cache
def decoder(name: str, version: int) -> Callable[[Buffer, int, int, list[int]], tuple[Any, int]]:
    return _Decoder(name, version).compile()


@cache
def encoder(name: str, version: int) -> Callable[[Any, Callable[[Buffer], None]], None]:
    return _Encoder(name, version).compile()


def decode_prefix(
    cls: type[M], version: int, buffer: Buffer, offset: int = 0, elements_max: int = MESSAGE_ELEMENTS_MAX
) -> tuple[M, int]:
    """A message at `offset` and where it ends."""
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    try:
        read = decoder(cls.schema_name, version)  # type: ignore[attr-defined]
        return read(view, offset, len(view), [elements_max])
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{cls.__name__} v{version}: {error}") from None


def decode(cls: type[M], version: int, buffer: Buffer, offset: int = 0, elements_max: int = MESSAGE_ELEMENTS_MAX) -> M:
    """A message that fills the buffer from `offset` to its end."""
    message, end = decode_prefix(cls, version, buffer, offset, elements_max)
    if end != len(buffer):
        raise MalformedMessage(f"{cls.__name__} v{version}: {len(buffer) - end} bytes too many")
    return message


def encode_into(message: Any, version: int, append: Callable[[Buffer], None]) -> None:
    encoder(message.schema_name, version)(message, append)


def encode(message: Any, version: int) -> bytes:
    parts: list[Buffer] = []
    encode_into(message, version, parts.append)
    return b"".join(parts)


def encode_parts(message: Any, version: int) -> list[Buffer]:
    """The encoded message in pieces: small ones joined, large ones (records) as they are."""
    pieces: list[Buffer] = []
    encode_into(message, version, pieces.append)
    return join_small(pieces)


def join_small(pieces: list[Buffer]) -> list[Buffer]:
    parts: list[Buffer] = []
    run: list[Buffer] = []
    for piece in pieces:
        if len(piece) < PART_BYTES_MIN:
            run.append(piece)
            continue
        if run:
            parts.append(b"".join(run))
            run = []
        parts.append(piece)
    if run:
        parts.append(b"".join(run))
    return parts
