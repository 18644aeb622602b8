"""Makes text from others (ids, topics, client names, error messages) safe to print, to paste and to read as JSON.

A name may contain line feeds, terminal escape sequences, or characters that reverse the rest of a line. Output for
people goes through `harmless`, commands to paste through `shell_word`, and JSON through `json_text`, which changes how
a character is written but not what it means.
"""

import json
import re
import shlex
from typing import Any

_NOT_PLAIN = re.compile(r"[^\x20-\x7e\n]+")


def harmless(text: str) -> str:
    """One line without control characters: characters that cannot be printed are escaped as in Python."""
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
        # Three octal digits are a complete escape: what follows cannot become part of it.
        else "".join(f"\\{byte:03o}" for byte in each.encode("utf-8", "surrogateescape"))
        for each in text
    )
    return f"$'{''.join(written)}'"


def json_text(document: Any, **options: Any) -> str:
    """JSON without characters that control a terminal."""
    return _NOT_PLAIN.sub(_escaped, json.dumps(document, ensure_ascii=False, **options))


def _escaped(found: re.Match[str]) -> str:
    if found[0].isprintable():
        return found[0]
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in found[0])
