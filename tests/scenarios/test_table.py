"""The table of fault scenarios is true: it has them all, and the tests it names exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCUMENT = TESTS.parent / "docs" / "scenarios.md"
ROWS = re.findall(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|$", DOCUMENT.read_text(), re.MULTILINE)
REPLICATION = range(26, 33)


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


@pytest.mark.parametrize(("number", "title", "shown_by"), ROWS, ids=[row[0] for row in ROWS])
def test_a_scenario_names_tests_that_exist_or_says_what_is_missing(number: str, title: str, shown_by: str) -> None:
    named = re.findall(r"`(\S+\.py)::(test_\w+)`", shown_by)
    assert named or shown_by.startswith("not yet: "), title
    for path, name in named:
        assert name in functions_in(path), f"scenario {number}: {path} has no {name}"


def test_every_scenario_of_one_node_is_in_the_table() -> None:
    assert [int(row[0]) for row in ROWS] == [number for number in range(1, 51) if number not in REPLICATION]
