"""`scripts/lint_reach.py` finds every kind of reach, and nothing else."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "lint_reach.py"
OWNER = """
class Engine:
    def __init__(self):
        self.speed = 0
        self._fuel = 1
        self._mode = "off"

    @property
    def mode(self):
        return self._mode

    @mode.setter
    def mode(self, mode):
        self._mode = mode

def _helper():
    pass
"""


@pytest.fixture(scope="module")
def lint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lint_reach", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["lint_reach"] = module
    spec.loader.exec_module(module)
    return module


def found(lint: ModuleType, directory: Path, **files: str) -> list[tuple[str, str, int]]:
    """Rule, module and line of what the lint finds in a package of such files, beside the owner of an engine."""
    package = directory / "package"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    (package / "engine.py").write_text(OWNER)
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    return [(each.rule, each.module.removeprefix("package."), each.line) for each in lint.findings_in(directory)]


def test_a_private_attribute_of_another_module_s_object_is_found(lint: ModuleType, tmp_path: Path) -> None:
    assert found(lint, tmp_path, car="def f(engine):\n    return engine._fuel\n") == [("private", "car", 2)]


def test_a_subclass_that_reads_the_private_part_of_its_base_is_found(lint: ModuleType, tmp_path: Path) -> None:
    text = "from package.engine import Engine\nclass Car(Engine):\n    def f(self):\n        return self._fuel\n"
    assert found(lint, tmp_path, car=text) == [("private", "car", 4)]


def test_a_private_name_that_is_imported_is_found(lint: ModuleType, tmp_path: Path) -> None:
    assert found(lint, tmp_path, car="from package.engine import _helper\n") == [("private", "car", 1)]


def test_what_a_module_defines_itself_is_its_own(lint: ModuleType, tmp_path: Path) -> None:
    text = "class Car:\n    __slots__ = ('_fuel',)\n    def __eq__(self, it):\n        return self._fuel == it._fuel\n"
    assert found(lint, tmp_path, car=text) == []


def test_the_private_part_of_a_library_and_named_tuples_are_no_business_of_ours(
    lint: ModuleType, tmp_path: Path
) -> None:
    assert found(lint, tmp_path, car="def f(spark, pair):\n    return spark._jvm, pair._replace(a=1)\n") == []


@pytest.mark.parametrize(
    "statement", ["engine.speed = 1", "engine.speed += 1", "del engine.speed", "a, engine.speed = 1, 2"]
)
def test_every_way_of_writing_an_attribute_of_another_module_s_object_is_found(
    lint: ModuleType, tmp_path: Path, statement: str
) -> None:
    assert found(lint, tmp_path, car=f"def f(engine):\n    {statement}\n") == [("write", "car", 2)]


def test_a_property_with_a_setter_may_be_assigned_and_so_may_what_a_comment_explains(
    lint: ModuleType, tmp_path: Path
) -> None:
    text = "def f(engine, context):\n    engine.mode = 'on'\n    context.speed = 1  # reach: a clock of a library\n"
    assert found(lint, tmp_path, car=text) == []


def test_an_import_inside_a_function_needs_a_reason_above_or_beside_it(lint: ModuleType, tmp_path: Path) -> None:
    text = """
def bare():
    import json
    import os
def reasoned():
    # Slow to import, and most calls do without.
    import json
    from os import (
        path,
    )
    import re
def beside():
    import json  # optional
"""
    assert found(lint, tmp_path, car=text) == [("late import", "car", 3), ("late import", "car", 4)]


def test_one_reason_may_cover_all_imports_inside_the_functions_of_a_module(lint: ModuleType, tmp_path: Path) -> None:
    text = "# Imports inside functions: a command loads only what it needs.\ndef f():\n    import json\n"
    assert found(lint, tmp_path, car=text) == []


def test_a_circle_of_imports_is_found_even_inside_functions(lint: ModuleType, tmp_path: Path) -> None:
    first = "from package import second\n"
    second = "def f():\n    # Needed late.\n    from package.third import x\n"
    third = "import package.first\nx = 1\n"
    assert found(lint, tmp_path, first=first, second=second, third=third) == [("cycle", "first", 1)]


def test_modules_that_import_messages_fill_in_their_fields(lint: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "messages.pyi").write_text("class Answer:\n    speed: int\n")
    fills = "def f(answer):\n    answer.speed = 3\n"
    imports = "from package import messages\n" + fills
    assert found(lint, tmp_path, messages="", car=fills, bus=imports) == [("write", "car", 2)]
