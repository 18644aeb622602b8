"""The subject of a certificate as Java writes it (X500Principal.getName, RFC 2253): what mapping rules are written for.

Reads just enough DER to find the name, so that TLS needs no package beyond Python's own. The certificate has been
verified by then: what is wrong here was signed by somebody trusted.
"""

_SEQUENCE, _SET, _OBJECT_ID = 0x30, 0x31, 0x06
_VERSION = 0xA0
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii", 0x1E: "utf-16-be"}
_ESCAPED = frozenset(',=+<>#;"\\')


class NotACertificate(ValueError):
    """Bytes that are not a certificate."""


def subject_of(certificate: bytes) -> str:
    """The last part first: `CN=alice,OU=payments,O=Example,C=DE`."""
    try:
        fields = _members(_only(_only(certificate, _SEQUENCE), _SEQUENCE))
        # version (optional), serial number, algorithm, issuer, validity, subject
        place = 5 if fields[0][0] == _VERSION else 4
        parts = [_part(content) for tag, content in _members(fields[place][1]) if tag == _SET]
    except (IndexError, UnicodeDecodeError) as error:
        raise NotACertificate(f"not a certificate: {error}") from None
    return ",".join(reversed(parts))


def _part(content: bytes) -> str:
    return "+".join(_attribute(pair) for _, pair in _members(content))


def _attribute(pair: bytes) -> str:
    (kind, identifier), (tag, value) = _members(pair)[:2]
    if kind != _OBJECT_ID:
        raise NotACertificate("an attribute without a kind")
    dotted = _object_id(identifier)
    if dotted not in _KEYWORDS or tag not in _ENCODINGS:
        # As RFC 2253 has it for what has no keyword: the value as it is encoded.
        header = len(pair) - len(value) - _length_of_length(len(value)) - 1
        return f"{_KEYWORDS.get(dotted, dotted)}=#{pair[header:].hex()}"
    return f"{_KEYWORDS[dotted]}={_escaped(value.decode(_ENCODINGS[tag]))}"


def _escaped(text: str) -> str:
    inner = text.strip(" \r")
    start = text.find(inner) if inner else len(text)
    marked = "".join(f"\\{one}" if one in _ESCAPED else "\\00" if one == "\0" else one for one in inner)
    before, after = text[:start], text[start + len(inner) :]
    return "".join(f"\\{one}" for one in before) + marked + "".join(f"\\{one}" for one in after)


def _object_id(content: bytes) -> str:
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _only(data: bytes, tag: int) -> bytes:
    found, content = _members(data)[0]
    if found != tag:
        raise NotACertificate(f"tag {found:#x} where {tag:#x} belongs")
    return content


def _members(data: bytes) -> list[tuple[int, bytes]]:
    members, position = [], 0
    while position < len(data):
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4:
                raise NotACertificate("a length that DER does not have")
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + length > len(data):
            raise NotACertificate("cut off")
        members.append((tag, data[position : position + length]))
        position += length
    return members


def _length_of_length(size: int) -> int:
    return 1 if size < 0x80 else 1 + (size.bit_length() + 7) // 8
