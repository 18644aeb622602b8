"""Writers: source of a function that turns a message into pieces of bytes.

A struct in an array may also be given as bytes that are already encoded.
"""

import struct
from collections.abc import Callable
from typing import Any

from fencepost.ports import Buffer
from fencepost.wire.compiling import FIXED, Compiler, nested_class
from fencepost.wire.messages import default_of, snake_case

# Error messages quote requests, and strings of the protocol have at most 32,767 bytes.
ERROR_MESSAGE_CHARACTERS_MAX = 2_000
# In steps: so many structs of fixed fields are packed between two yields.
STEP_STRUCTS = 256


class PackedStructs:
    """Elements of an array whose fixed fields are packed already, `size` bytes each: there can be thousands."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytearray, size: int) -> None:
        self.data = data
        self.size = size

    def __len__(self) -> int:
        return len(self.data) // self.size

    def with_empty_tags(self) -> bytearray:
        if not self.data:
            return self.data
        padded = bytearray(len(self.data) + len(self))
        for place in range(self.size):
            padded[place :: self.size + 1] = self.data[place :: self.size]
        return padded


class EncoderCompiler(Compiler):
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
            if inner not in FIXED and inner not in ("string", "bytes", "uuid", "records"):
                self.struct(inner, self.struct_fields(inner, field))
        w = self.writer
        with w.block(f"def write_{name}(o, w):"):
            if self.in_steps:
                w.line("if 0: yield")
            for run in self.in_runs(body):
                if run[0]["type"] in FIXED:
                    self.fixed(run)
                else:
                    self.value(run[0], f"o.{snake_case(run[0]['name'])}")
            if self.flexible:
                self.tags(tagged)
            w.line("return")

    def fixed(self, run: list[dict[str, Any]]) -> None:
        layout = struct.Struct(">" + "".join(FIXED[field["type"]] for field in run))
        packer = self.writer.constant("fixed", layout.pack)
        self.writer.line(f"w({packer}({', '.join('o.' + snake_case(field['name']) for field in run)}))")

    def length(self, expression: str, wide: bool) -> None:
        if self.flexible:
            self.writer.line(f"w(uvarint({expression} + 1))")
        else:
            self.writer.line(f"w(pack('{'>i' if wide else '>h'}', {expression}))")

    def value(self, field: dict[str, Any], source: str) -> None:
        kind, w = field["type"], self.writer
        if kind in FIXED:
            w.line(f"w(pack('>{FIXED[kind]}', {source}))")
        elif kind == "uuid":
            w.line(f"w({source})")
        elif kind in ("string", "bytes", "records") or kind.startswith("[]"):
            w.line(f"v = {source}")
            wide = kind != "string"
            if self.is_nullable(field):
                with w.block("if v is None:"):
                    self.length("-1", wide)
                with w.block("else:"):
                    self.filled(field, kind, wide)
            else:
                self.filled(field, kind, wide)
        elif self.is_nullable(field):
            w.line(f"if {source} is None: w(b'\\xff')")
            w.line(f"else: w(b'\\x01'); {self.calling}write_{kind}({source}, w)")
        else:
            w.line(f"{self.calling}write_{kind}({source}, w)")

    def filled(self, field: dict[str, Any], kind: str, wide: bool) -> None:
        w = self.writer
        if kind == "string":
            if field["name"].endswith("ErrorMessage"):
                w.line(f"if len(v) > {ERROR_MESSAGE_CHARACTERS_MAX}: v = v[:{ERROR_MESSAGE_CHARACTERS_MAX}] + '...'")
            w.line("v = v.encode()")
        if not kind.startswith("[]"):
            self.length("len(v)", wide)
            w.line("w(v)")
            return
        inner = kind[2:]
        self.length("len(v)", wide=True)
        if inner in FIXED:
            w.line(f"w(pack(f'>{{len(v)}}{FIXED[inner]}', *v))")
            return
        packer = self.whole_struct(inner, field)
        if packer is not None:
            pack, names = packer
            w.scope["PackedStructs"] = PackedStructs
            w.line(f"if type(v) is PackedStructs: w({'v.with_empty_tags()' if self.flexible else 'v.data'})")
            packed = f"{pack}({', '.join('i.' + name for name in names)})"
            if self.in_steps:
                w.line("else:")
                w.line(f"    for a in range(0, len(v), {STEP_STRUCTS}):")
                some = f"v[a : a + {STEP_STRUCTS}]"
                w.line(f"        w(b''.join([i if type(i) is bytes else {packed} for i in {some}])); yield")
            else:
                w.line(f"elif v: w(b''.join([i if type(i) is bytes else {packed} for i in v]))")
            return
        with w.block("for i in v:"):
            if self.in_steps:
                w.line("yield")
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
                w.line("if type(i) is bytes: w(i)")
                w.line(f"else: {self.calling}write_{inner}(i, w)")

    def whole_struct(self, inner: str, field: dict[str, Any]) -> tuple[str, list[str]] | None:
        """How to pack a struct of nothing but fixed fields in one go: arrays of those can be long."""
        if inner in ("string", "uuid", "bytes"):
            return None
        body, tagged, _ = self.split(self.struct_fields(inner, field))
        if tagged or not body or any(one["type"] not in FIXED for one in body):
            return None
        # A pad byte is the same as an empty list of tags.
        layout = struct.Struct(">" + "".join(FIXED[one["type"]] for one in body) + ("x" if self.flexible else ""))
        return self.writer.constant("fixed", layout.pack), [snake_case(one["name"]) for one in body]

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
                shared = w.constant("default", nested_class(self.name, field["type"]).default_instance())
                condition = f"{source} is not {shared} and {source} != {shared}"
            with w.block(f"if {condition}:"):
                w.line("parts = []; outer = w; w = parts.append")
                self.value(field, source)
                w.line(f"w = outer; tagged.append(({field['tag']}, b''.join(parts)))")
        w.line("w(uvarint(len(tagged)))")
        w.line("for tag, data in tagged: w(uvarint(tag)); w(uvarint(len(data))); w(data)")
