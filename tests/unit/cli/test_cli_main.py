"""Exit statuses and errors of the command, without a broker."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost import __version__
from fencepost.cli.main import run

COMMANDS = ("serve", "topics", "produce", "consume", "groups", "configs", "check-history", "demo", "version")


def test_help_teaches_with_every_command_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for command in COMMANDS:
        assert f"\n  {command} " in text
    assert "fencepost topics create purchases --partitions 3" in text


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "serve"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"Usage: fencepost {command}" in capsys.readouterr().out


def test_serve_has_help_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["serve", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for option in ("--data", "--listen", "--advertise", "--config", "--set", "--metrics", "examples:"):
        assert option in text


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fencepost"] == __version__


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["topics", "list", "--bogus"], "No such option"),
        (["nonsense"], "No such command"),
        (["topics", "create"], "Missing argument"),
        (["consume", "t", "--from", "yesterday"], "'yesterday' is not one of earliest, latest"),
        (["consume", "t", "--from", "@99999999999999999999"], "is neither milliseconds since 1970 nor"),
        (["consume", "t", "--from", "99999999999999999999"], "is not one of earliest, latest"),
        (["consume", "t", "--isolation-level", "dirty"], "'dirty' is not one of read_uncommitted"),
        (["explain", "--producer-id", "99999999999999999999"], "less than or equal to 9223372036854775807"),
        (["topics", "create", "t", "--partitions", "4294967296"], "less than or equal to 2147483647"),
        (["topics", "create", "t", "--replication-factor", "99999"], "less than or equal to 32767"),
        (["topics", "add-partitions", "t", "--partitions", "4294967296"], "less than or equal to 2147483647"),
        (["produce", "t", "--compression", "zip"], "'zip' is not one of none, gzip"),
        (["produce", "t", "--header", "x"], "'x' is not NAME=VALUE"),
        (["topics", "alter", "t"], "give --set NAME=VALUE"),
        (["configs", "describe"], "give one of --topic"),
        (["configs", "describe", "--topic", "t", "--broker", "1"], "give one of --topic"),
        (["groups", "reset-offsets", "g", "--topic", "t"], "give one of --to-earliest"),
        (["groups", "reset-offsets", "g", "--to-earliest", "--to-latest", "--topic", "t"], "give one of"),
        (["groups", "reset-offsets", "g", "--to-earliest"], "give --topic or --all-topics"),
    ],
)
def test_misuse_is_one_line_and_status_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert "--help`" in captured.err


def test_a_broker_that_is_not_there_is_status_1_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "list", "--bootstrap-server", "127.0.0.1:1"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: cannot reach 127.0.0.1:1: connection refused; check that a broker is")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--set", "bogus.name=1"], "Unknown configuration bogus.name"),
        (["--set", "num.partition=1"], "did you mean num.partitions?"),
        (["--set", "num.partitions=abc"], "Invalid value abc for configuration num.partitions"),
        (["--set", "flush"], "--set 'flush' is not NAME=VALUE"),
        (["--listen", "nowhere"], "--listen nowhere is not an address"),
        (["--metrics", "x"], "--metrics x is not an address"),
        (["--config", "/absent/file"], "cannot read the config file /absent/file"),
    ],
)
def test_serve_refuses_bad_settings_before_it_touches_the_disk(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert run(["serve", "--data", str(data), *arguments]) == 1
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert not data.exists()


def test_serve_without_data_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["serve"])
    assert ended.value.code == 2
    assert "--data" in capsys.readouterr().err


def test_serve_is_parsed_without_the_libraries_of_the_other_commands() -> None:
    """A broker should listen soon: typer, rich, pydantic and the client stay out of its start."""
    script = (
        "import sys\n"
        "from fencepost.cli.main import run\n"
        "assert run(['serve', '--data', '/x', '--set', 'no=1']) == 1\n"
        "found = {'typer', 'rich', 'pydantic', 'fencepost.client', 'click'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
