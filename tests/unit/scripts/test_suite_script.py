"""`scripts/test` forgives nothing: a failure that does not repeat, a lost worker, an interrupted run fail the suite."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
FAILS_ONCE = """
from pathlib import Path

def test_fails_once():
    mark = Path(__file__).with_name("mark")
    if not mark.exists():
        mark.touch()
        raise AssertionError("not yet")
"""
FAILS_ONCE_BESIDE_AN_INTERRUPTION = f"""{FAILS_ONCE}
import pytest

def test_is_interrupted():
    if not Path(__file__).with_name("second").exists():
        Path(__file__).with_name("second").touch()
        pytest.exit("enough", returncode=2)
"""
LOSES_ITS_WORKER = """
import os
from pathlib import Path

def test_takes_the_worker_with_it():
    if not Path(__file__).with_name("mark").exists():
        Path(__file__).with_name("mark").touch()
        os._exit(9)
"""


def run_suite(directory: Path, test: str) -> subprocess.CompletedProcess[str]:
    """The script in a project of its own that has one file of tests."""
    (directory / "scripts").mkdir()
    for name in ("test", "test_times.py"):
        shutil.copy(SCRIPTS / name, directory / "scripts" / name)
    (directory / "tests" / "few").mkdir(parents=True)
    (directory / "tests" / "few" / "test_it.py").write_text(test)
    (directory / ".venv" / "bin").mkdir(parents=True)
    python = directory / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (directory / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:fencepost -p no:hypothesispytest\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        ["bash", "scripts/test"],
        cwd=directory,
        env={**environment, "WORKERS": "1"},
        capture_output=True,
        text=True,
    )


def test_a_suite_that_passes_ends_with_the_time_of_each_directory(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "def test_passes(): pass")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests/few (1 tests" in done.stdout


@pytest.mark.parametrize(
    ("test", "diagnosis"),
    [
        (FAILS_ONCE, "pass alone, so they depend on load"),
        (FAILS_ONCE_BESIDE_AN_INTERRUPTION, "pass alone, so they depend on load"),
        (LOSES_ITS_WORKER, "without a failing test"),
    ],
    ids=["fails once", "is interrupted", "loses its worker"],
)
def test_what_passes_alone_afterwards_has_failed(tmp_path: Path, test: str, diagnosis: str) -> None:
    done = run_suite(tmp_path, test)
    assert done.returncode == 1, done.stdout + done.stderr
    assert diagnosis in done.stderr
