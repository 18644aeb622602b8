"""Messages filled at random from the schemas, reproducible by their seed: for round trips and for fuzzing."""

import random
from collections.abc import Sequence
from typing import Any

from fencepost.wire.messages import message_class, schema_of, snake_case

INTEGER_BITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "int64": 63}
STRINGS = ("", "orders", "zażółć", "x" * 200)
ERROR_CODES = (0, 1, 3, 16, 35, 87)


class MessageMaker:
    """Makes any message at any version. Subclasses put in what gets further than pure chance."""

    strings: Sequence[str] = STRINGS
    elements_max = 2

    def __init__(self, source: random.Random) -> None:
        self.source = source

    def make(self, name: str, version: int) -> Any:
        schema = schema_of(name)
        flexible = schema["flexible"] is not None and version >= schema["flexible"]

        def present(bounds: list[int] | None) -> bool:
            return bounds is not None and bounds[0] <= version <= bounds[1]

        def fill(cls: type, fields: list[dict[str, Any]]) -> Any:
            return cls(**{snake_case(field["name"]): value(cls, field) for field in fields if has(field)})

        def has(field: dict[str, Any]) -> bool:
            tagged_only = field.get("tag") is not None and not flexible
            return present(field["versions"]) and not tagged_only

        def value(cls: type, field: dict[str, Any]) -> Any:
            if present(field.get("nullableVersions")) and self.source.random() < 0.2:
                return None
            kind = field["type"]
            if kind.startswith("[]"):
                count = self.source.randrange(self.elements_max + 1)
                return [single(cls, field, kind[2:]) for _ in range(count)]
            return single(cls, field, kind)

        def single(cls: type, field: dict[str, Any], kind: str) -> Any:
            if kind in INTEGER_BITS or kind in ("bool", "float64", "string", "bytes", "uuid", "records"):
                return self.plain(kind, snake_case(field["name"]))
            inner = getattr(cls, kind, None) or getattr(message_class(name), kind)
            return fill(inner, field.get("fields") or schema["structs"][kind])

        return fill(message_class(name), schema["fields"])

    def plain(self, kind: str, name: str) -> Any:
        """A value that is no struct, for a field of this name."""
        source = self.source
        match kind:
            case "bool":
                return source.random() < 0.5
            case "float64":
                return source.random()
            case "string":
                return source.choice(self.strings)
            case "bytes":
                return source.randbytes(source.choice([0, 3, 300]))
            case "uuid":
                return source.randbytes(16)
            case "records":
                return source.randbytes(source.choice([0, 70]))
            case _:
                return self.integer(kind, name)

    def integer(self, kind: str, name: str) -> int:
        if name.endswith("error_code"):
            return self.source.choice(ERROR_CODES)
        if name.endswith("_ms"):
            return self.source.randrange(2**31)
        return self.source.getrandbits(INTEGER_BITS[kind])


def random_message(name: str, version: int, source: random.Random) -> Any:
    return MessageMaker(source).make(name, version)
