"""After `pip install .` alone: what needs an extra says which in one line, and everything else works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.patience import patient

ROOT = Path(__file__).parents[3]
EXTRAS = ("pyspark", "py4j", "pyarrow", "numba", "numpy", "pandas", "starlette", "uvicorn", "fastavro", "cryptography",
          "confluent_kafka", "aiokafka", "kafka")  # fmt: skip
BLOCKER = f"""
import sys

class Without:
    def __init__(self, finder):
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {EXTRAS!r} else self._finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
"""
COMMANDS = ("topics", "produce", "consume", "groups", "configs", "acls", "explain", "txn", "lag", "dump", "tap",
            "exporter", "ui", "check-history", "simulate", "run", "demo", "version")  # fmt: skip


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment in which Python finds no extra."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def run(environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "fencepost.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=patient(50))


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("run", str(ROOT / "examples/shop.py"), "--sample", "10"), "fencepost[spark]"),
        (("run", str(ROOT / "examples/balances.py")), "fencepost[spark]"),
        (("run", str(ROOT / "examples/transfers.py")), "fencepost[spark]"),
        (("demo", "--act", "2"), "fencepost[spark]"),
        (("ui", "--listen", "127.0.0.1:0"), "fencepost[ui]"),
        (("serve", "--data", "unused", "--ui", "127.0.0.1:0"), "fencepost[ui]"),
    ],
)
def test_what_needs_an_extra_names_it_in_one_line(bare: dict[str, str], arguments: tuple[str, ...], extra: str) -> None:
    done = run(bare, *arguments)
    assert done.returncode != 0
    assert done.stderr.startswith("error: "), done.stderr
    assert done.stderr.count("\n") == 1
    assert extra in done.stderr


def test_every_command_has_help_without_any_extra(bare: dict[str, str]) -> None:
    script = "import sys\nfrom fencepost.cli.main import run\n" + "\n".join(
        f"assert run([{name!r}, '--help']) == 0" for name in COMMANDS
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=bare, timeout=patient(50))
    assert done.returncode == 0, done.stderr
