"""The decoder of pgoutput against an encoder written from PostgreSQL's manual, and against every kind of damage."""

import struct
from typing import Any

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from tests.peers.postgres import require_postgres

require_postgres()

from fencepost.connect.postgres.decoding import (  # noqa: E402
    UNCHANGED,
    Begin,
    Column,
    Commit,
    Delete,
    Insert,
    MalformedMessage,
    Relation,
    Truncate,
    Update,
    decode,
)
from fencepost.connect.postgres.lsn import lsn_text, parse_lsn  # noqa: E402

OIDS, LSNS = st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1)
ROWS = st.lists(st.none() | st.just(UNCHANGED) | st.binary(max_size=40), max_size=5)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=10)
COLUMNS = st.builds(Column, NAMES, st.booleans(), OIDS, st.integers(-1, 2**31 - 1))
MESSAGES = st.one_of(
    st.builds(Begin, LSNS, LSNS, OIDS),
    st.builds(Commit, LSNS, LSNS, LSNS),
    st.builds(Relation, OIDS, NAMES, NAMES, st.sampled_from("dnfi"), st.lists(COLUMNS, max_size=4).map(tuple)),
    st.builds(Insert, OIDS, ROWS),
    st.builds(Update, OIDS, ROWS, st.booleans(), ROWS),
    st.builds(Update, OIDS, st.none(), st.just(False), ROWS),
    st.builds(Delete, OIDS, ROWS, st.booleans()),
    st.builds(Truncate, st.lists(OIDS, max_size=4).map(tuple), st.integers(0, 3)),
)


def encode_row(row: Any) -> bytes:
    out = struct.pack(">H", len(row))
    for value in row:
        out += b"n" if value is None else b"u" if value is UNCHANGED else b"t" + struct.pack(">I", len(value)) + value
    return out


def encode(message: Any) -> bytes:
    match message:
        case Begin():
            return b"B" + struct.pack(">qqI", *message)
        case Commit():
            return b"C\0" + struct.pack(">qqq", *message)
        case Relation(oid, schema, name, identity, columns):
            out = b"R" + struct.pack(">I", oid) + schema.encode() + b"\0" + name.encode() + b"\0" + identity.encode()
            out += struct.pack(">H", len(columns))
            for column in columns:
                out += bytes([column.is_key]) + column.name.encode() + b"\0"
                out += struct.pack(">Ii", column.type_oid, column.type_modifier)
            return out
        case Insert(oid, new):
            return b"I" + struct.pack(">I", oid) + b"N" + encode_row(new)
        case Update(oid, old, is_whole, new):
            before = b"" if old is None else (b"O" if is_whole else b"K") + encode_row(old)
            return b"U" + struct.pack(">I", oid) + before + b"N" + encode_row(new)
        case Delete(oid, old, is_whole):
            return b"D" + struct.pack(">I", oid) + (b"O" if is_whole else b"K") + encode_row(old)
        case Truncate(oids, options):
            return b"T" + struct.pack(f">Ib{len(oids)}I", len(oids), options, *oids)
    raise AssertionError(message)


@given(MESSAGES)
def test_what_is_encoded_by_the_manual_is_decoded(message: Any) -> None:
    assert decode(encode(message)) == message


@given(MESSAGES, st.data())
def test_a_message_that_is_cut_or_damaged_is_refused_or_read_and_never_crashes(message: Any, data: Any) -> None:
    content = bytearray(encode(message))
    cut = data.draw(st.integers(0, len(content)))
    if data.draw(st.booleans()):
        content = content[:cut]
    elif cut < len(content):
        content[cut] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(content))
    except MalformedMessage:
        pass


@given(LSNS)
def test_positions_in_the_log_are_written_as_postgresql_does(lsn: int) -> None:
    assert parse_lsn(lsn_text(lsn)) == lsn
    assert lsn_text(0x16B3748) == "0/16B3748"
