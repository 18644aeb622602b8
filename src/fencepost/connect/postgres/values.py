"""Values of PostgreSQL, from their own text to JSON, in two dialects.

`plain` keeps what people read: dates and times as ISO 8601, numeric as text, json as JSON. `debezium` is what
Debezium's PostgreSQL connector writes with its default settings and JSON without schemas.
The connection must have DateStyle ISO, time zone UTC, IntervalStyle postgres and bytea_output hex.
"""

import base64
import datetime
import functools
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring
from typing import NamedTuple

Encoder = Callable[[bytes], bytes]
"""From text to JSON."""


class TypeInfo(NamedTuple):
    """A row of pg_type, as far as it matters."""

    oid: int
    name: str
    kind: str
    """typtype: b base, c composite, d domain, e enum, p pseudo, r range, m multirange."""
    element_oid: int
    """Of an array; else 0."""
    base_oid: int
    """Of a domain; else 0."""
    base_modifier: int = -1


RAW = frozenset({"int2", "int4", "int8", "oid"})
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_INTERVAL = re.compile(r"(-?\+?\d+) (year|mon|day)s?")
_CLOCK = re.compile(r"([+-]?)(\d+):(\d+):(\d+)(?:\.(\d+))?")
_MONTH_DAYS = 30.4375
_DAY_US = 86_400_000_000


def text(value: bytes) -> bytes:
    return encode_basestring(value.decode()).encode()


def raw(value: bytes) -> bytes:
    return value


def _bool(value: bytes) -> bytes:
    return b"true" if value == b"t" else b"false"


def _float(value: bytes) -> bytes:
    return value if value not in (b"NaN", b"Infinity", b"-Infinity") else text(value)


def _base64(content: bytes) -> bytes:
    return b'"' + base64.b64encode(content) + b'"'


def _bytea(value: bytes) -> bytes:
    return _base64(bytes.fromhex(value[2:].decode()))


def _timestamp(value: bytes) -> bytes:
    return text(value.replace(b" ", b"T", 1)) if value[:1].isdigit() and not value.endswith(b"BC") else text(value)


def _timestamptz(value: bytes) -> bytes:
    if not value.endswith(b"+00"):
        return text(value)
    return _timestamp(value[:-3] + b"Z")


def _timetz(value: bytes) -> bytes:
    return text(value[:-3] + b"Z") if value.endswith(b"+00") else text(value)


_PLAIN: dict[str, Encoder] = {
    **dict.fromkeys(RAW, raw),
    "float4": _float,
    "float8": _float,
    "bool": _bool,
    "json": raw,
    "jsonb": raw,
    "bytea": _bytea,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "timetz": _timetz,
}


# Debezium


def _date_days(value: bytes) -> int | None:
    try:
        return datetime.date.fromisoformat(value.decode()).toordinal() - _EPOCH
    except ValueError:
        return None


def _date(value: bytes) -> bytes:
    days = _date_days(value)
    return b"null" if days is None else str(days).encode()


def _clock_us(value: str) -> int:
    found = _CLOCK.match(value)
    if found is None:
        raise ValueError(value)
    sign, hours, minutes, seconds, fraction = found.groups()
    us = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "0").ljust(6, "0"))
    return -us if sign == "-" else us


def _scaled(us: int, modifier: int) -> bytes:
    """Adaptive: milliseconds for a precision of up to three digits, else microseconds."""
    return str(us // 1000 if 0 <= modifier <= 3 else us).encode()


def _time_number(modifier: int, value: bytes) -> bytes:
    return _scaled(_clock_us(value.decode()), modifier)


def _timestamp_number(modifier: int, value: bytes) -> bytes:
    days = _date_days(value[:10])
    if days is None or value.endswith(b"BC"):
        return b"null"
    return _scaled(days * _DAY_US + _clock_us(value[11:].decode()), modifier)


def _interval(value: bytes) -> bytes:
    content = value.decode()
    days = 0.0
    us = 0
    for number, unit in _INTERVAL.findall(content):
        days += int(number) * {"year": 12 * _MONTH_DAYS, "mon": _MONTH_DAYS, "day": 1}[unit]
    found = _CLOCK.search(content)
    if found is not None:
        us = _clock_us(found[0])
    return str(int(days * _DAY_US) + us).encode()


def unscaled_bytes(number: Decimal, scale: int) -> bytes:
    """Two's complement, big endian, as short as it can be: Java's BigInteger."""
    unscaled = int(number.scaleb(scale).to_integral_value())
    size = (unscaled.bit_length() if unscaled >= 0 else (unscaled + 1).bit_length()) // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def _numeric(modifier: int, value: bytes) -> bytes:
    import decimal  # its own context: the default one rounds to 28 digits

    try:
        number = Decimal(value.decode())
    except InvalidOperation:
        return b"null"
    if not number.is_finite():
        return b"null"
    with decimal.localcontext(decimal.Context(prec=decimal.MAX_PREC, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)):
        if modifier >= 4:
            scale = ((modifier - 4 & 0x7FF) ^ 1024) - 1024
            return _base64(unscaled_bytes(number, scale))
        exponent = number.as_tuple().exponent
        scale = max(0, -exponent) if isinstance(exponent, int) else 0
        return b'{"scale":%d,"value":%s}' % (scale, _base64(unscaled_bytes(number, scale)))


def _money(value: bytes) -> bytes:
    digits = re.sub(r"[^0-9]", "", value.decode())
    cents = int(digits or "0") * (-1 if value.strip()[:1] in (b"-", b"(") else 1)
    return _base64(unscaled_bytes(Decimal(cents), 0))


def _bits(is_single: bool, value: bytes) -> bytes:
    if is_single:
        return b"true" if value == b"1" else b"false"
    size = (len(value) + 7) // 8
    return _base64(int(value or b"0", 2).to_bytes(size, "little"))


def _point(value: bytes) -> bytes:
    x, y = (float(each) for each in value.decode().strip("()").split(","))
    wkb = struct.pack("<BIdd", 1, 1, x, y)
    return b'{"x":%s,"y":%s,"wkb":%s,"srid":null}' % (repr(x).encode(), repr(y).encode(), _base64(wkb))


_DEBEZIUM: dict[str, Encoder] = {
    **dict.fromkeys(RAW, raw),
    "float4": _float,
    "float8": _float,
    "bool": _bool,
    "bytea": _bytea,
    "date": _date,
    "timestamptz": _timestamptz,
    "timetz": _timetz,
    "interval": _interval,
    "money": _money,
    "point": _point,
}
_WITH_MODIFIER: dict[str, Callable[[int, bytes], bytes]] = {
    "time": _time_number,
    "timestamp": _timestamp_number,
    "numeric": _numeric,
}


def encoder(types: Callable[[int], TypeInfo], oid: int, modifier: int, *, debezium: bool) -> Encoder:
    """For values of one column. `types` looks a type up."""
    info = types(oid)
    while info.kind == "d":
        modifier = info.base_modifier
        info = types(info.base_oid)
    if info.element_oid and info.name.startswith("_"):
        element = encoder(types, info.element_oid, modifier, debezium=debezium)
        delimiter = ";" if types(info.element_oid).name == "box" else ","
        return functools.partial(_array, element, delimiter)
    if not debezium:
        return _PLAIN.get(info.name, text)
    if info.name in _WITH_MODIFIER:
        return functools.partial(_WITH_MODIFIER[info.name], modifier)
    if info.name in ("bit", "varbit"):
        return functools.partial(_bits, info.name == "bit" and modifier in (-1, 1))
    return _DEBEZIUM.get(info.name, text)


# Arrays


def _array(element: Encoder, delimiter: str, value: bytes) -> bytes:
    content = value.decode()
    if content.startswith("["):  # other bounds than 1, which JSON does not know: [2:4]={...}
        content = content[content.index("=") + 1 :]
    out: list[bytes] = []
    _array_items(content, 0, delimiter, element, out)
    return b"".join(out)


def _array_items(content: str, at: int, delimiter: str, element: Encoder, out: list[bytes]) -> int:
    """From an opening brace to behind its closing one."""
    out.append(b"[")
    at += 1
    is_first = True
    while content[at] != "}":
        if not is_first:
            out.append(b",")
            at += 1  # the delimiter
        is_first = False
        if content[at] == "{":
            at = _array_items(content, at, delimiter, element, out)
        elif content[at] == '"':
            item, at = _quoted(content, at + 1)
            out.append(element(item.encode()))
        else:
            end = at
            while content[end] not in (delimiter, "}"):
                end += 1
            item = content[at:end]
            out.append(b"null" if item == "NULL" else element(item.encode()))
            at = end
    out.append(b"]")
    return at + 1


def _quoted(content: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while content[at] != '"':
        if content[at] == "\\":
            at += 1
        parts.append(content[at])
        at += 1
    return "".join(parts), at + 1
