"""Where `peers/setup` put the peers, and what happens when one is not there."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Never

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PEERS = REPOSITORY / "peers"
BUILD = PEERS / ".build"
SETUP_TIMEOUT_SECONDS = 600


def missing(reason: str) -> Never:
    """A peer that is not here: a skip for a developer, a failure where every peer must be."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have every peer: {reason}", pytrace=False)
    pytest.skip(reason)


@cache
def set_up() -> None:
    """Runs `peers/setup`, which does nothing when the peers are there and up to date."""
    subprocess.run([str(PEERS / "setup")], check=False, timeout=SETUP_TIMEOUT_SECONDS)


def require_program(name: str) -> str:
    set_up()
    path = shutil.which(name)
    if path is None:
        missing(f"{name} is not installed (run peers/setup)")
    return path


def require_java() -> str:
    """The java command, once Kafka's jars and our own classes are in place."""
    java = require_program("java")
    if not (BUILD / "jars.stamp").exists():
        missing("Apache Kafka's jars are not in peers/.build/lib (run peers/setup)")
    if not (BUILD / "classes.stamp").exists():
        missing("the Java programs are not in peers/.build (run peers/setup)")
    return java


def require_node() -> str:
    node = require_program("node")
    if not (BUILD / "node.stamp").exists():
        missing("KafkaJS is not in peers/.build/node (run peers/setup)")
    return node
