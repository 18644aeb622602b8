"""`--add-scram`: initial SCRAM users, in the format of kafka-storage.sh."""

import re
from collections.abc import Sequence
from pathlib import Path

from fencepost.wire.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, FirstUser

_FIELD = re.compile(r'(\w+)=(?:"([^"]*)"|([^,\]]*))')


class InvalidUser(Exception):
    """The message does not contain the password."""


def first_users(texts: Sequence[str]) -> list[FirstUser]:
    """Each text is one user, or @FILE for a file with one user per line."""
    users = []
    for text in texts:
        try:
            lines = Path(text[1:]).read_text(encoding="utf-8").splitlines() if text.startswith("@") else [text]
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidUser(f"cannot read --add-scram {text}: {error}") from None
        users += [parse_user(line) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return users


def parse_user(text: str) -> FirstUser:
    """`SCRAM-SHA-512=[name=alice,password="a secret",iterations=8192]`"""
    found = re.fullmatch(r"\s*([A-Z0-9-]+)=\[(.*)\]\s*", text)
    fields = {} if found is None else {name: quoted or bare for name, quoted, bare in _FIELD.findall(found[2])}
    if found is None or found[1] not in MECHANISMS or not fields.get("name") or not fields.get("password"):
        raise InvalidUser(
            f"--add-scram: write MECHANISM=[name=USER,password=PASSWORD] with one of {', '.join(MECHANISMS)}"
        )
    iterations = fields.get("iterations", str(ITERATIONS_MIN))
    if not iterations.isdigit() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise InvalidUser(f"--add-scram: iterations must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}")
    return FirstUser(fields["name"], found[1], fields["password"], int(iterations))
