"""The small languages of the command line: positions, times, settings, addresses, lines of input."""

from pathlib import Path

import pytest
import typer

from fencepost.cli.offset_reset import within
from fencepost.cli.options import parse_assignments, parse_datetime, parse_position, parse_topic_partitions
from fencepost.cli.output import CommandFailed
from fencepost.cli.produce import LineCutter, LineSplitter
from fencepost.cli.serve import InvalidOption, check_address, gather_settings, read_properties
from fencepost.client.fetching import AtTimestamp, Position
from fencepost.client.kafka_types import Reset


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Reset.EARLIEST),
        ("latest", Reset.LATEST),
        ("0", 0),
        ("1234", 1234),
        ("@1700000000000", AtTimestamp(1_700_000_000_000)),
        ("@1970-01-01T00:00:01Z", AtTimestamp(1_000)),
        ("@1970-01-01T01:00:00+01:00", AtTimestamp(0)),
        ("@1970-01-02", AtTimestamp(86_400_000)),
    ],
)
def test_positions_are_understood(text: str, position: Position) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize("text", ["", "-5", "begin", "@", "@yesterday", "1.5"])
def test_what_is_no_position_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_position(text)


def test_a_time_without_a_zone_is_utc_as_in_kafkas_tools() -> None:
    assert parse_datetime("1970-01-01T00:00:00.250", "--to-datetime") == 250


def test_assignments_keep_what_follows_the_first_equals_sign() -> None:
    assert parse_assignments(["a=b", "c.d = e=f", "g="], "--set") == {"a": "b", "c.d": "e=f", "g": ""}
    for wrong in ("a", "=b"):
        with pytest.raises(typer.BadParameter):
            parse_assignments([wrong], "--set")


def test_topics_may_name_partitions_as_in_kafkas_tools() -> None:
    assert parse_topic_partitions("t") == ("t", None)
    assert parse_topic_partitions("t:0,2") == ("t", [0, 2])
    for wrong in ("t:", "t:x", ":1"):
        with pytest.raises(typer.BadParameter):
            parse_topic_partitions(wrong)


@pytest.mark.parametrize("chunk_bytes", [1, 3, 100])
def test_lines_lose_their_ends_and_nothing_else_however_they_arrive(chunk_bytes: int) -> None:
    text = b"one\ntwo\r\n\n last \n\xff"
    cutter = LineCutter()
    lines = [line for at in range(0, len(text), chunk_bytes) for line in cutter.feed(text[at : at + chunk_bytes])]
    assert lines + cutter.finish() == [b"one", b"two", b"", b" last ", b"\xff"]


def test_a_last_line_with_its_end_is_not_followed_by_an_empty_one() -> None:
    cutter = LineCutter()
    assert cutter.feed(b"one\n") == [b"one"]
    assert cutter.finish() == []


def test_a_line_is_split_at_the_first_separator() -> None:
    assert LineSplitter(":", None).split(b"key:a:b", 1) == (b"key", b"a:b")
    assert LineSplitter(None, None).split(b"key:a", 1) == (None, b"key:a")
    assert LineSplitter("->", "NULL").split(b"key->NULL", 1) == (b"key", None)


def test_a_line_without_its_separator_is_named_by_its_number() -> None:
    with pytest.raises(CommandFailed, match="line 7 has no key separator ':'"):
        LineSplitter(":", None).split(b"oops", 7)


@pytest.mark.parametrize(("offset", "put"), [(5, 10), (10, 10), (15, 15), (20, 20), (99, 20)])
def test_a_reset_stays_inside_the_log(offset: int, put: int) -> None:
    assert within(offset, 10, 20) == put


def test_a_config_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# comment\n! another\n\n  num.partitions = 3 \nflush:os\nlog.cleanup.policy=compact,\\\n   delete\nempty=\n"
    )
    assert read_properties(file) == {
        "num.partitions": "3",
        "flush": "os",
        "log.cleanup.policy": "compact,delete",
        "empty": "",
    }


def test_a_setting_on_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nflush=os\n")
    assert gather_settings(file, ["flush=group"]) == {"num.partitions": "3", "flush": "group"}


def test_a_config_file_that_is_wrong_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("flush=os\nnonsense\n")
    with pytest.raises(InvalidOption, match=r"line 2 of .*server\.properties is not name=value: nonsense"):
        read_properties(file)
    with pytest.raises(InvalidOption, match=r"cannot read .*absent: No such file"):
        read_properties(tmp_path / "absent")


@pytest.mark.parametrize("text", ["127.0.0.1:9092", "0.0.0.0:0", "[::1]:9092", "NAME://host:1", ":9092"])
def test_listen_addresses_are_understood(text: str) -> None:
    check_address(text, "--listen")


@pytest.mark.parametrize("text", ["", "9092", "host", "host:", "host:x", "host:70000", "::1:9092", "NAME://host"])
def test_what_is_no_listen_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="--listen"):
        check_address(text, "--listen")
