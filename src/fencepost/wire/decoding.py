"""Readers: source of a function that turns bytes into a message, bounded by the bytes that are there."""

import struct
from collections.abc import Callable
from typing import Any

from fencepost.ports import Buffer
from fencepost.wire.compiling import FIXED, FIXED_SIZES, Compiler, nested_class
from fencepost.wire.messages import default_of, message_class, snake_case

# As in Kafka, also where the length on the wire could say more.
STRING_BYTES_MAX = 32_767
# In steps: so many simple things are read between two yields. A power of two.
STEP_ELEMENTS = 64


_SIMPLE = frozenset({*FIXED, "string", "bytes", "uuid", "records"})


class DecoderCompiler(Compiler):
    variable = "o"
    """The variable in the source that holds the struct being read."""

    def compile(self) -> Callable[[Buffer, int, int, list[int]], tuple[Any, int]]:
        self.struct(self.name, message_class(self.name), self.schema["fields"])
        exec("\n".join(self.writer.lines), self.writer.scope)
        return self.writer.scope[f"read_{self.name}"]  # type: ignore[no-any-return]

    def struct(self, name: str, cls: type, fields: list[dict[str, Any]]) -> None:
        if name in self.done:
            return
        self.done.add(name)
        body, tagged, _ = self.split(fields)
        for field in body + tagged:
            inner = field["type"].removeprefix("[]")
            if inner not in _SIMPLE:
                self.struct(inner, nested_class(self.name, inner), self.struct_fields(inner, field))
        w = self.writer
        w.scope[f"make_{name}"] = cls
        w.scope[f"new_{name}"] = cls.__new__
        with w.block(f"def read_{name}(b, p, e, k):"):
            if self.in_steps:
                w.line("if 0: yield")
            self.fields(name, fields)
            w.line("return o, p")

    def fields(self, name: str, fields: list[dict[str, Any]]) -> None:
        body, tagged, absent = self.split(fields)
        self.writer.line(f"{self.variable} = new_{name}(make_{name})")
        for field in absent + tagged:
            self.assign_default(field)
        for run in self.in_runs(body):
            if run[0]["type"] in FIXED:
                self.fixed(run)
            else:
                self.value(run[0])
        if self.flexible:
            self.tags(tagged)

    def target(self, field: dict[str, Any]) -> str:
        return f"{self.variable}.{snake_case(field['name'])}"

    def assign_default(self, field: dict[str, Any]) -> None:
        target, default = self.target(field), default_of(field)
        if field["type"].startswith("[]") and default is not None:
            self.writer.line(f"{target} = []")
        elif isinstance(default, int | str | bytes | float) or default is None:
            self.writer.line(f"{target} = {default!r}")
        else:
            shared = self.writer.constant("default", nested_class(self.name, field["type"]).default_instance())
            self.writer.line(f"{target} = {shared}")

    def fixed(self, run: list[dict[str, Any]]) -> None:
        layout = struct.Struct(">" + "".join(FIXED[field["type"]] for field in run))
        reader = self.writer.constant("fixed", layout.unpack_from)
        targets = ", ".join(map(self.target, run))
        self.writer.line(f"{targets}{',' if len(run) == 1 else ''} = {reader}(b, p); p += {layout.size}")

    def length(self, field: dict[str, Any], wide: bool) -> None:
        """Leave the length in n, or -1 for null; refuse null where the schema has none."""
        w = self.writer
        if self.flexible:
            w.line("n = b[p]; p += 1")
            w.line("if n > 127:")
            # Two bytes are as usual as one, where there are records.
            w.line("    t = b[p]")
            w.line("    if t < 128: n += (t << 7) - 128; p += 1")
            w.line("    else: n, p = uv(b, p - 1)")
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
        kind, target = field["type"], self.target(field)
        w = self.writer
        if kind == "uuid":
            w.line("q = p + 16")
            w.line("if q > e: fail('truncated uuid')")
            w.line(f"{target} = bytes(b[p:q]); p = q")
            return
        if kind in FIXED:
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
                # Null is -1 in a body, and 0 in a tag.
                null_max = 0 if "tag" in field else -1
                w.line("n, = unpack('>b', b, p); p += 1")
                w.line(f"if n <= {null_max}: {target} = None")
                w.line(f"else: {target}, p = {self.calling}read_{kind}(b, p, e, k)")
            else:
                w.line(f"{target}, p = {self.calling}read_{kind}(b, p, e, k)")

    def guarded(self, field: dict[str, Any], target: str, write: Callable[[], None]) -> None:
        w = self.writer
        if self.is_nullable(field):
            w.line(f"if n == -1: {target} = None")
            with w.block("else:"):
                write()
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
        if inner in FIXED and inner != "bool":
            size = FIXED_SIZES[inner]
            w.line(f"if n * {size} > e - p: fail('array longer than the message')")
            w.line("k[0] -= n")
            w.line("if k[0] < 0: fail('too many array elements')")
            w.line(f"{target} = list(unpack(f'>{{n}}{FIXED[inner]}', b, p)); p += n * {size}")
            return
        is_struct = inner not in ("string", "uuid", "bytes", "bool")
        minimum = self.minimum_size(self.struct_fields(inner, field)) if is_struct else 16 if inner == "uuid" else 1
        w.line(f"if n * {minimum} > e - p: fail('array longer than the message')")
        w.line("k[0] -= n")
        w.line("if k[0] < 0: fail('too many array elements')")
        w.line(f"{target} = a = []")
        with w.block("for _ in range(n):"):
            if is_struct:
                # Reading in place would overwrite the variables of the loop over tags.
                self.element(inner, self.struct_fields(inner, field), may_be_in_place="tag" not in field)
                return
            self.pause()
            if inner == "uuid":
                w.line("q = p + 16")
            else:
                self.length({"name": field["name"], "type": inner}, wide=inner == "bytes")
                w.line("q = p + n")
            w.line("if q > e: fail('array element longer than the message')")
            read = "str(b[p:q], 'utf-8')" if inner == "string" else "bytes(b[p:q])"
            w.line(f"a.append({read}); p = q")

    def element(self, name: str, fields: list[dict[str, Any]], *, may_be_in_place: bool) -> None:
        """One struct of an array. One of simple fields is read in place: there may be many, and a call costs more."""
        body, tagged, _ = self.split(fields)
        if may_be_in_place and all(field["type"] in _SIMPLE for field in body + tagged):
            self.pause()
            self.variable = "i"
            self.fields(name, fields)
            self.variable = "o"
            self.writer.line("a.append(i)")
        else:
            if self.in_steps:
                self.writer.line("yield")
            self.writer.line(f"v, p = {self.calling}read_{name}(b, p, e, k); a.append(v)")

    def pause(self) -> None:
        """At the top of a loop over `_`."""
        if self.in_steps:
            self.writer.line(f"if _ & {STEP_ELEMENTS - 1} == {STEP_ELEMENTS - 1}: yield")

    def tags(self, tagged: list[dict[str, Any]]) -> None:
        w = self.writer
        w.line("t = b[p]; p += 1")
        with w.block("if t:"):
            w.line("if t > 127: t, p = uv(b, p - 1)")
            w.line("k[0] -= t")
            w.line("if k[0] < 0: fail('too many tagged fields')")
            with w.block("for _ in range(t):"):
                self.pause()
                w.line("g, p = uv(b, p); s, p = uv(b, p); s += p")
                w.line("if s > e: fail('tagged field longer than the message')")
                for field in tagged:
                    with w.block(f"if g == {field['tag']}:"):
                        self.value(field)
                        w.line("if p != s: fail('tagged field of another length')")
                w.line("p = s")
