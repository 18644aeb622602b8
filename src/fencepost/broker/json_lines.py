"""Lines of JSON that know when they are damaged: the first member of each is the CRC of the rest.

A flipped bit often leaves JSON that parses, with another topic name or number in it. Lines without a CRC were written
before there was one; they are taken if they begin as such lines did.
"""

import json
from collections.abc import Mapping
from typing import Any

from crc32c import crc32c

_PREFIX = b'{"crc":"'
_MEMBERS_POSITION = len(_PREFIX) + len('01234567",')


class DamagedLine(ValueError):
    """Not what was written."""


def encode_line(fields: Mapping[str, Any]) -> bytes:
    members = json.dumps(fields, separators=(",", ":")).encode()[1:]
    return b'%s%08x",%s\n' % (_PREFIX, crc32c(members), members)


def decode_line(line: bytes, first_member: str) -> dict[str, Any]:
    """The fields of a line, which began with `first_member` before there was a CRC. Raises DamagedLine."""
    if line.startswith(_PREFIX):
        members = line.rstrip(b"\n")[_MEMBERS_POSITION:]
        if b'%s%08x",' % (_PREFIX, crc32c(members)) != line[:_MEMBERS_POSITION]:
            raise DamagedLine("its CRC is another")
        line = b"{" + members
    elif not line.startswith(b'{"%s":' % first_member.encode()):
        raise DamagedLine("it does not begin as a line does")
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise DamagedLine(str(error)) from None
    if not isinstance(fields, dict):
        raise DamagedLine("it is no object")
    return fields
