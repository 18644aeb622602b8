"""Records through the command: in by lines, out by lines or JSON, the same on both brokers."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.interop_cli.conftest import Command
from tests.peers.broker_process import BrokerProcess
from tests.support.patience import patient


def test_lines_come_back_in_order(command: Command, unique: Callable[[str], str]) -> None:
    name = unique("lines")
    command("topics", "create", name)
    lines = "".join(f"line {at}\n" for at in range(5_000))
    written = command("produce", name, "--json", standard_input=lines).json
    assert written["records"] == 5_000
    assert written["partitions"] == [{"partition": 0, "first_offset": 0, "last_offset": 4_999}]
    assert command("consume", name).output == lines


def test_keys_go_where_other_clients_put_them(command: Command, broker: BrokerProcess, topic: str) -> None:
    keys = [f"customer-{at}" for at in range(30)]
    command("produce", topic, "--key-separator", ":", standard_input="".join(f"{key}:ours\n" for key in keys))
    librdkafka = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2"})
    for key in keys:
        librdkafka.produce(topic, b"theirs", key=key.encode())
    librdkafka.flush(patient(20))
    records = command("consume", topic, "--json").json_lines
    placed = {
        who: {one["key"]: one["partition"] for one in records if one["value"] == who} for who in ("ours", "theirs")
    }
    assert len(placed["ours"]) == len(keys)
    assert placed["ours"] == placed["theirs"]


def test_keys_headers_nulls_and_bytes_come_back_as_they_went(command: Command, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "records.txt"
    file.write_bytes(b"alice=one book\nbob=NULL\ncarol=\xff\xfe\nd\xc3\xb6rte=\xe2\x82\xac 5\n")
    options = ("--key-separator", "=", "--null-marker", "NULL", "--header", "source=shop", "--partition", "1")
    command("produce", topic, "--file", str(file), *options)
    records = command("consume", topic, "--json").json_lines
    assert [(record["partition"], record["offset"], record["key"]) for record in records] == [
        (1, 0, "alice"),
        (1, 1, "bob"),
        (1, 2, "carol"),
        (1, 3, "dörte"),
    ]
    assert [record.get("value") for record in records] == ["one book", None, None, "€ 5"]
    assert "value" in records[1]
    assert records[2]["value_base64"] == "//4="
    assert records[0]["headers"] == [{"name": "source", "value": "shop"}]
    shown = command("consume", topic, "--partition", "1", "--max-messages", "1", "--print-key", "--print-offset")
    assert shown.output == "Offset:0\talice\tone book\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_back(command: Command, topic: str, codec: str) -> None:
    lines = [f"{codec} {at} {'x' * 50}" for at in range(1_000)]
    command("produce", topic, "--compression", codec, standard_input="\n".join(lines))
    assert sorted(command("consume", topic).output.splitlines()) == sorted(lines)


def test_reading_starts_where_it_is_told(command: Command, topic: str) -> None:
    command("produce", topic, "--partition", "0", standard_input="".join(f"{at}\n" for at in range(10)))
    assert command("consume", topic, "--from", "7").output.split() == ["7", "8", "9"]
    assert command("consume", topic, "--from", "latest").output == ""
    assert command("consume", topic, "--partition", "1").output == ""
    timestamp = command("consume", topic, "--from", "9", "--json").json_lines[0]["timestamp"]
    assert "9" in command("consume", topic, "--from", f"@{timestamp}").output.split()
    assert command("consume", topic, "--from", f"@{timestamp + 60_000}").output == ""
    assert command("consume", topic, "--from", "@2020-01-01T00:00:00Z").output.split() == list("0123456789")
    assert "offset 11 of" in command.refused("consume", topic, "--partition", "0", "--from", "11")
    assert f"topic '{topic}' has no partition 7; its partitions are 0 to 2" in command.refused(
        "consume", topic, "--partition", "7"
    )


def test_following_shows_what_comes_until_interrupted(command: Command, topic: str) -> None:
    reader = command.start("consume", topic, "--follow")
    assert reader.stdout is not None
    try:
        for text in ("first", "second"):
            command("produce", topic, standard_input=f"{text}\n")
            assert reader.stdout.readline() == f"{text}\n"
    finally:
        reader.send_signal(signal.SIGINT)
    _, errors = reader.communicate(timeout=patient(20))
    assert reader.returncode == 130
    assert errors == ""


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(command: Command, topic: str) -> None:
    command("produce", topic, standard_input="".join(f"{at} {'x' * 1_000}\n" for at in range(2_000)))
    reader = command.start("consume", topic)
    assert reader.stdout is not None
    assert reader.stdout.readline().endswith("x\n")
    reader.stdout.close()
    assert reader.wait(timeout=patient(20)) == 0
    assert reader.stderr is not None
    assert reader.stderr.read() == ""
    reader.stderr.close()
    assert reader.stdin is not None
    reader.stdin.close()


def test_a_line_without_its_key_is_refused_by_number(command: Command, topic: str) -> None:
    complaint = command.refused("produce", topic, "--key-separator", ":", standard_input="a:1\noops\n")
    assert "line 2 has no key separator ':'" in complaint


def test_a_record_too_large_is_refused_with_what_to_do(command: Command, topic: str) -> None:
    complaint = command.refused("produce", topic, standard_input="x" * 2_000_000)
    assert "MESSAGE_TOO_LARGE" in complaint
    assert "raise max.message.bytes" in complaint


def test_batches_that_are_too_large_only_together_are_split(command: Command, topic: str) -> None:
    command("configs", "alter", "--topic", topic, "--set", "max.message.bytes=20000")
    lines = [f"{at} {'x' * 4_000}" for at in range(50)]
    command("produce", topic, "--partition", "0", standard_input="\n".join(lines))
    assert command("consume", topic, "--partition", "0").output.splitlines() == lines


def test_a_slow_pipe_is_written_as_it_comes(command: Command, topic: str) -> None:
    reader = command.start("consume", topic, "--follow")
    writer = command.start("produce", topic, "--json")
    assert reader.stdout is not None
    assert writer.stdin is not None
    try:
        for text in ("one", "two"):
            writer.stdin.write(f"{text}\n")
            writer.stdin.flush()
            assert reader.stdout.readline() == f"{text}\n"
    finally:
        reader.send_signal(signal.SIGINT)
    reader.communicate(timeout=patient(20))
    output, errors = writer.communicate("three", timeout=patient(20))
    assert (writer.returncode, errors) == (0, "")
    assert json.loads(output)["records"] == 3


def test_a_writer_whose_input_never_ends_can_be_interrupted(command: Command, topic: str) -> None:
    reader = command.start("consume", topic, "--follow", "--max-messages", "1")
    writer = command.start("produce", topic)
    assert writer.stdin is not None
    writer.stdin.write("one\n")
    writer.stdin.flush()
    assert reader.communicate(timeout=patient(20))[0] == "one\n"
    writer.send_signal(signal.SIGINT)
    assert writer.wait(timeout=patient(20)) == 130
    assert writer.communicate()[1] == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_behind_the_output_is_one_line(command: Command, topic: str) -> None:
    command("produce", topic, standard_input="line\n")
    for arguments in (["consume", topic], ["topics", "list"], ["version"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [command.script, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, env=command.environment
            )
        assert done.returncode == 1
        assert done.stderr == "error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("arguments", [["explain"], ["topics", "create"], ["lag"], ["txn", "describe"]])
def test_a_name_that_is_no_text_is_misuse(command: Command, arguments: list[str]) -> None:
    error = command.refused(*arguments, os.fsdecode(b"shop\xff"), status=2)
    assert "is not UTF-8 text" in error
