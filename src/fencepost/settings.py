"""How a setting is declared, parsed, checked and described.

A group of settings is a frozen dataclass; a field `segment_bytes` is the setting `segment.bytes`. What a text may say
is in the field's metadata, so that the command line, `AlterConfigs` and `DescribeConfigs` share one truth.
"""

import dataclasses
import difflib
import re
from collections.abc import Mapping
from typing import Any, TypeVar

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
SHORT_MAX = 2**15 - 1


class InvalidSetting(Exception):
    """A name that does not exist or a value that a setting cannot take; the text says what would do."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    name: str
    kind: str
    default: Any
    documentation: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] | None = None
    also: tuple[int, ...] = ()
    """Numbers allowed besides those between minimum and maximum."""
    pattern: str | None = None
    """What each item of a list must look like."""
    dynamic: bool = False
    served: tuple[Any, ...] | None = None
    """The only values that do what they say here, where Kafka has more. Others may be stored, and are not taken."""
    unserved_because: str = ""

    def check_served(self, text: str) -> None:
        """Refuse what could be kept but would do nothing. Raises InvalidSetting."""
        if self.served is not None and self.parse(text) not in self.served:
            allowed = " or ".join(map(self.render, self.served))
            raise InvalidSetting(
                f"Invalid value {text} for configuration {self.name}: only {allowed} here, because "
                f"{self.unserved_because}"
            )

    def parse(self, text: str) -> Any:
        try:
            value = _PARSERS[self.kind](text.strip())
        except ValueError:
            raise InvalidSetting(
                f"Invalid value {text} for configuration {self.name}: {_EXPECTED[self.kind]}"
            ) from None
        self._check(text, value)
        return value

    def _check(self, text: str, value: Any) -> None:
        if value in self.also:
            return
        if self.kind == "double":
            text = str(value)
        if self.minimum is not None and value < self.minimum:
            raise InvalidSetting(
                f"Invalid value {text} for configuration {self.name}: Value must be at least {self.minimum:g}"
            )
        if self.maximum is not None and value > self.maximum:
            raise InvalidSetting(
                f"Invalid value {text} for configuration {self.name}: Value must be no more than {self.maximum:g}"
            )
        if self.pattern is not None and not all(re.fullmatch(self.pattern, item) for item in value):
            raise InvalidSetting(
                f"Invalid value {text} for configuration {self.name}: every item must look like {self.pattern}"
            )
        if self.choices is not None:
            for item in value if isinstance(value, tuple) else (value,):
                if item not in self.choices:
                    raise InvalidSetting(
                        f"Invalid value {item} for configuration {self.name}: "
                        f"String must be one of: {', '.join(self.choices)}"
                    )

    def render(self, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _parse_number(text: str) -> int:
    # As Java does: no underscores, no digits of other scripts.
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(text)
    return int(text)


def _parse_int(text: str) -> int:
    value = _parse_number(text)
    if not -INT_MAX - 1 <= value <= INT_MAX:
        raise ValueError(text)
    return value


def _parse_long(text: str) -> int:
    value = _parse_number(text)
    if not -LONG_MAX - 1 <= value <= LONG_MAX:
        raise ValueError(text)
    return value


def _parse_short(text: str) -> int:
    value = _parse_number(text)
    if not -SHORT_MAX - 1 <= value <= SHORT_MAX:
        raise ValueError(text)
    return value


_PARSERS: Mapping[str, Any] = {
    "short": _parse_short,
    "int": _parse_int,
    "long": _parse_long,
    "double": float,
    "boolean": _parse_boolean,
    "string": str,
    "class": str,
    "password": str,
    "list": lambda text: tuple(part.strip() for part in text.split(",") if part.strip()),
}


# Kafka's words.
_EXPECTED: Mapping[str, str] = {
    "boolean": "Expected value to be either true or false",
    **{kind: f"Not a number of type {kind.upper()}" for kind in ("short", "int", "long", "double")},
}


def setting(
    kind: str,
    default: Any,
    documentation: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] | None = None,
    also: tuple[int, ...] = (),
    pattern: str | None = None,
    dynamic: bool = False,
    served: tuple[Any, ...] | None = None,
    unserved_because: str = "",
) -> Any:
    metadata = {
        "kind": kind,
        "documentation": documentation,
        "minimum": minimum,
        "maximum": maximum,
        "choices": choices,
        "also": also,
        "pattern": pattern,
        "dynamic": dynamic,
        "served": served,
        "unserved_because": unserved_because,
    }
    return dataclasses.field(default=default, metadata=metadata)


def declared_settings(group: type) -> dict[str, Setting]:
    """Every setting of a group by its Kafka name, in declaration order."""
    return {
        field.name.replace("_", "."): Setting(
            name=field.name.replace("_", "."), default=field.default, **field.metadata
        )
        for field in dataclasses.fields(group)
    }


T = TypeVar("T")


def parse_settings(group: type[T], texts: Mapping[str, str], hints: Mapping[str, str] | None = None) -> T:
    """Build a group from texts by Kafka name; unknown names are refused with the nearest known one."""
    known = declared_settings(group)
    values = {}
    for name, text in texts.items():
        if name not in known:
            raise InvalidSetting(unknown_name(name, known, hints or {}))
        values[name.replace(".", "_")] = known[name].parse(text)
    return group(**values)


def unknown_name(name: str, known: Mapping[str, Any], hints: Mapping[str, str]) -> str:
    if name in hints:
        return f"Unknown configuration {name}: {hints[name]}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"Unknown configuration {name}" + (f"; did you mean {near[0]}?" if near else "")
