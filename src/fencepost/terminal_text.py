"""Text that others chose (ids, topics, client names, error messages) made safe to print, to paste and to read as JSON.

A name may hold line feeds, escape sequences that a terminal obeys, or characters that reverse the rest of a line. What
is printed for people goes through `harmless`, what they paste through `shell_word`, and JSON through `json_text`, which
changes how a character is written and never what it means.
"""

import json
import re
import shlex
from typing import Any

_NOT_PLAIN = re.compile(r"[^\x20-\x7e\n]+")


def harmless(text: str) -> str:
    """On one line, and without anything that a terminal would obey: what cannot be printed is written as in Python."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def shell_word(text: str) -> str:
    """One word of a command to paste into bash, zsh or any shell of POSIX 2024."""
    if text.isprintable():
        return shlex.quote(text)
    written = (
        {"\\": "\\\\", "'": "\\'"}.get(each, each)
        if each.isprintable()
        # Three octal digits end by themselves: what follows cannot become part of them.
        else "".join(f"\\{byte:03o}" for byte in each.encode("utf-8", "surrogateescape"))
        for each in text
    )
    return f"$'{''.join(written)}'"


def json_text(document: Any, **options: Any) -> str:
    """JSON that holds no character which a terminal would obey."""
    return _NOT_PLAIN.sub(_escaped, json.dumps(document, ensure_ascii=False, **options))


def _escaped(found: re.Match[str]) -> str:
    if found[0].isprintable():
        return found[0]
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in found[0])
