"""Shortens long names. A transactional id may have 60,000 characters: a table of a hundred such ids, rebuilt every
second, is too large for a page, and servers refuse URLs that contain one. Long texts are shortened in answers to a
form that
stays unique, and a shortened name in a request stands for the full one.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Any

TEXT_MAX = 500
HEAD, TAIL = 120, 40
COMMANDS = ("next_command", "history_command", "exact_command")
"""Commands to paste are never shortened."""
_SHORTENED = re.compile(r"…~\d+~[0-9a-f]{16}~")


def shortened(text: str) -> str:
    if len(text) <= TEXT_MAX:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text[:HEAD]}…~{len(text)}~{digest}~…{text[-TAIL:]}"


def is_shortened(given: str) -> bool:
    return _SHORTENED.search(given) is not None


def full_name(given: str, known: Iterable[str]) -> str:
    """The full name for a shortened one; other names are returned unchanged."""
    if not is_shortened(given):
        return given
    return next((name for name in known if len(name) > TEXT_MAX and shortened(name) == given), given)


def readable(document: Any) -> Any:
    """A copy with long texts shortened."""
    if isinstance(document, str):
        return shortened(document)
    if isinstance(document, dict):
        return {
            name: value if name in COMMANDS else readable(value) for name, value in document.items()
        }  # fmt: skip
    if isinstance(document, list | tuple):
        return [readable(each) for each in document]
    return document
