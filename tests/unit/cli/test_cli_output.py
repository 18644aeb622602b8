"""What people and programs read: tables, lines, JSON."""

import json

import pytest

from fencepost.cli.consume import json_line, line_renderer
from fencepost.cli.output import print_table, report
from fencepost.client.kafka_types import ConsumedRecord

RECORD = ConsumedRecord("purchases", 2, 41, 1_000, "CreateTime", b"alice", b"one book", (("source", b"shop"),))
TOMBSTONE = ConsumedRecord("purchases", 0, 42, 1_000, "LogAppendTime", None, None, (("empty", None),))
BINARY = ConsumedRecord("purchases", 0, 43, 1_000, "CreateTime", b"\xff", b"\x00\xfe", ())


def test_a_table_in_a_pipe_is_plain_and_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "offset"), [("a", 5), ("long name", None)])
    assert capsys.readouterr().out == "TOPIC      OFFSET\na               5\nlong name       -\n"


def test_an_error_is_one_line_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    report("it\nbroke", "mend it")
    captured = capsys.readouterr()
    assert captured.err == "error: it broke; mend it\n"
    assert captured.out == ""


def render(record: ConsumedRecord, separator: str = "\t", **shown: bool) -> bytes:
    fields = dict.fromkeys(("timestamp", "partition", "offset", "headers", "key"), False)
    return line_renderer(separator, **{**fields, **shown})(record)


def test_a_record_prints_its_value_and_what_else_is_asked_for() -> None:
    assert render(RECORD) == b"one book\n"
    assert render(RECORD, key=True) == b"alice\tone book\n"
    shown = render(RECORD, "|", timestamp=True, partition=True, offset=True, headers=True, key=True)
    assert shown == b"CreateTime:1000|Partition:2|Offset:41|source:shop|alice|one book\n"


def test_nulls_and_missing_headers_print_as_in_kafkas_tool() -> None:
    assert render(TOMBSTONE, key=True) == b"null\tnull\n"
    assert render(TOMBSTONE, headers=True) == b"empty:null\tnull\n"
    assert render(BINARY, headers=True) == b"NO_HEADERS\t\x00\xfe\n"


def test_a_json_line_is_one_document_on_one_line() -> None:
    line = json_line(RECORD)
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "purchases",
        "partition": 2,
        "offset": 41,
        "timestamp": 1000,
        "timestamp_type": "CreateTime",
        "key": "alice",
        "value": "one book",
        "headers": [{"name": "source", "value": "shop"}],
    }


def test_json_tells_null_from_bytes_that_are_no_text() -> None:
    tombstone = json.loads(json_line(TOMBSTONE))
    assert tombstone["key"] is None
    assert tombstone["value"] is None
    assert tombstone["headers"] == [{"name": "empty", "value": None}]
    binary = json.loads(json_line(BINARY))
    assert binary["key_base64"] == "/w=="
    assert binary["value_base64"] == "AP4="
    assert "value" not in binary
