"""Message classes, one per struct over all its versions, created on first use from Kafka's own schemas.

`from fencepost.wire.messages import FetchRequest` works for every schema in `schemas.json`; nested structs are
attributes of the outer class. `messages.pyi` gives them to type checkers. Encoding is in `codec.py`.
"""

import json
import pkgutil
import re
from functools import cache
from typing import Any

ZERO_UUID = bytes(16)
_INTEGERS = frozenset({"int8", "int16", "uint16", "int32", "uint32", "int64"})
_FRESH = object()


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@cache
def _schema_texts() -> dict[str, str]:
    """One schema stands on each line of the file; most processes need few of them, so each is decoded on first use."""
    # By way of the loader: executors of Spark import the package from a zip file.
    data = pkgutil.get_data(__package__, "schemas.json")
    assert data is not None
    lines = (line.partition(": ") for line in data.decode().splitlines()[1:-1])
    return {name.strip('"'): text.rstrip(",") for name, _, text in lines}


def message_names() -> list[str]:
    return list(_schema_texts())


@cache
def schema_of(name: str) -> dict[str, Any]:
    return json.loads(_schema_texts()[name])  # type: ignore[no-any-return]


def default_of(field: dict[str, Any]) -> Any:
    """Kafka's default; for arrays the marker that asks for a fresh one, for structs too."""
    kind, text = field["type"], field.get("default")
    if text == "null":
        return None
    if kind in _INTEGERS:
        return int(text, 0) if text else 0
    if kind == "bool":
        return text == "true"
    if kind == "float64":
        return float(text or 0)
    if kind == "string":
        return text or ""
    if kind == "bytes":
        return b""
    if kind == "uuid":
        return ZERO_UUID
    if kind == "records":
        return None
    return _FRESH


class _Message:
    __slots__ = ()
    schema_name = ""

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    @cache
    def default_instance(cls) -> Any:
        """The shared instance for optional structs that are not set: replace it, never modify it."""
        return cls()


def _build(qualified: str, fields: list[dict[str, Any]], structs: dict[str, Any], common: dict[str, type]) -> type:
    nested = {name: _build(f"{qualified}.{name}", inner, {}, common) for name, inner in structs.items()}
    common = {**common, **nested}
    for field in fields:
        if "fields" in field:
            name = field["type"].removeprefix("[]")
            nested[name] = _build(f"{qualified}.{name}", field["fields"], {}, common)
    names = tuple(snake_case(field["name"]) for field in fields)
    scope: dict[str, Any] = {"_FRESH": _FRESH}
    lines = [f"def __init__(self{', *' if names else ''}"]
    body = []
    for field, name in zip(fields, names, strict=True):
        default = default_of(field)
        scope[f"default_{name}"] = default
        lines.append(f", {name}=default_{name}")
        if default is _FRESH and not field["type"].startswith("[]"):
            scope[f"default_{name}"] = {**common, **nested}[field["type"]].default_instance()
            body.append(f"    self.{name} = {name}")
        elif default is _FRESH:
            body.append(f"    self.{name} = [] if {name} is _FRESH else {name}")
        else:
            body.append(f"    self.{name} = {name}")
    exec("".join(lines) + "):\n" + ("\n".join(body) or "    pass"), scope)
    attributes = {"__slots__": names, "__init__": scope["__init__"], "__qualname__": qualified, **nested}
    return type(qualified.rsplit(".", 1)[-1], (_Message,), attributes)


@cache
def message_class(name: str) -> type[Any]:
    schema = schema_of(name)
    made = _build(name, schema["fields"], schema["structs"], {})
    made.schema_name = name  # type: ignore[attr-defined]
    return made


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name in _schema_texts():
        return message_class(name)
    raise AttributeError(f"module 'fencepost.wire.messages' has no attribute {name!r}")
