"""Whoever may see nothing is told so in a line, with status 1, and never with a traceback."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.peers.fencepost_process import FencepostProcess
from tests.support.patience import patient

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def strict() -> Iterator[FencepostProcess]:
    with FencepostProcess({"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}) as running:
        yield running


@pytest.mark.parametrize(
    "command",
    [
        ("explain", "purchases"),
        ("explain", "till", "--history"),
        ("txn", "describe", "till"),
        ("txn", "abort", "till"),
        ("lag", "readers"),
    ],
    ids=" ".join,
)
def test_who_has_no_rights_is_told(strict: FencepostProcess, command: tuple[str, ...]) -> None:
    asked = [sys.executable, "-m", "fencepost.cli.main", *command, "--bootstrap-server", strict.bootstrap_servers]
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=patient(120))
    assert ended.returncode == 1
    assert "AUTHORIZATION_FAILED" in ended.stderr
    assert "Traceback" not in ended.stderr
