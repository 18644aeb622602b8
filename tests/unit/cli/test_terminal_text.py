"""Names that others chose: printed without effect, pasted and read back exactly."""

import ast
import json
import shutil
import subprocess
from pathlib import Path

import pytest

import fencepost.cli
from fencepost.cli.output import print_json, print_table, report, say
from fencepost.terminal_text import harmless, json_text, shell_word

NASTY = [
    "plain-id",
    "two words",
    'it\'s "quoted" $HOME `id` \\n',
    "red\x1b[31m\x1b]0;title\x07",
    "line\nfeed\r\ttab",
    "c1 \x9b31m and delete \x7f",
    "reversed \u202e gpj.exe",
    "émigré 計算 🦜",
    "hidden \u200b\U000e0041 tag",
    "'\n'",
    "\x1b1",
]


@pytest.mark.parametrize("name", NASTY)
def test_what_is_printed_stays_on_its_line_and_has_no_effect(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(name)
    print_table(["id", "state"], [[name, "Ongoing"]], title=name)
    captured = capsys.readouterr().out
    assert captured.count("\n") == 4
    assert captured.replace("\n", "").isprintable()
    report(f"no such id {name}")
    assert capsys.readouterr().err.rstrip("\n").isprintable()


def test_what_can_be_printed_stays_as_it_is() -> None:
    assert harmless("émigré 計算 🦜 \\n") == "émigré 計算 🦜 \\n"
    assert harmless("a\x1b[0m\nb") == "a\\x1b[0m\\nb"


@pytest.mark.parametrize("name", NASTY)
def test_json_is_exact_and_has_no_effect_either(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"id": name})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"id": name}
    assert printed.replace("\n", "").isprintable()
    assert json.loads(json_text([name])) == [name]


@pytest.mark.parametrize("name", NASTY)
def test_a_command_that_is_pasted_gets_the_name_itself(name: str) -> None:
    shell = shutil.which("bash")
    assert shell is not None
    word = shell_word(name)
    assert word.isprintable()
    done = subprocess.run([shell, "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert done.stdout.decode() == name


def test_a_lone_half_of_a_character_can_be_printed() -> None:
    assert harmless("\ud800").isascii()
    assert json.loads(json_text("\ud800")) == "\ud800"


PRINTS_ITSELF = {
    "output.py": "the one place",
    "main.py": "click's help",
    "app.py": "the version",
    "serve.py": "its own options, before anything is imported",
    "consume.py": "records, as they are",
    "simulate.py": "names of its own",
    "demo/crash_view.py": "names of its own",
    "demo/foreign_clients.py": "names of its own",
    "demo/fenced_zombie.py": "names of its own",
    "demo/command.py": "names of its own",
}


def test_no_command_prints_past_the_one_place() -> None:
    """A print of a command is of JSON, or of what was made harmless in the same line."""
    found = []
    commands = Path(fencepost.cli.__file__).parent
    for file in sorted(commands.rglob("*.py")):
        name = file.relative_to(commands).as_posix()
        if name in PRINTS_ITSELF:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                text = ast.unparse(node)
                if node.args and not any(safe in text for safe in ("json_text(", "harmless(", "_coloured(")):
                    found.append(f"{name}:{node.lineno}: {text}")
    assert found == []
