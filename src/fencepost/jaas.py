"""Kafka's notation for a login: `<class> required name="value" ...;`. Read by clients and by the broker."""

import re
from typing import NamedTuple

_MODULE = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION = re.compile(r"""([^\s="';]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


class InvalidLoginModule(ValueError):
    """A text that is not a login module."""


class LoginModule(NamedTuple):
    name: str
    options: dict[str, str]


def parse_login_module(text: str) -> LoginModule:
    module = _MODULE.match(text)
    if module is None or not text.rstrip().endswith(";"):
        raise InvalidLoginModule("is not a login module")
    options = {}
    for name, double, single, bare in _OPTION.findall(text[module.end() :]):
        options[name] = bare or re.sub(r"\\(.)", r"\1", double or single)
    return LoginModule(module[1], options)
