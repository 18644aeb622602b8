"""Spark's JVMs live for seconds here: the first compiler tier, one collector thread and classes from an archive save
half of their work."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.java import QUICK, SPARK_ARCHIVE, archived
from tests.spark.sessions import shared

# By environment, so that drivers which commands and other processes start are quick, too. Long runs, as of
# `make chaos-spark` and `make bench`, keep Java's own choice.
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join((*QUICK, *archived(SPARK_ARCHIVE))))
for name in ("SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(name, " ".join(QUICK))
# So are the Python processes that Spark starts: see the module there.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(Path(__file__).with_name("startup")), os.environ.get("PYTHONPATH")))
)


@pytest.fixture(scope="session", autouse=True)
def shared_session_ends() -> Iterator[None]:
    yield
    shared.stop()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """The session of all files that need nothing special."""
    from fencepost.spark.query_run import close_runs

    with shared.lent() as session:
        yield session
    close_runs()


@pytest.fixture
def writers_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stories have few rows, which the driver would write itself; for those that are about the writers it leaves them
    all rows."""
    if importlib.util.find_spec("pyspark") and importlib.util.find_spec("numba"):
        monkeypatch.setattr("fencepost.spark.small_batches.ROWS_MAX", 0)
