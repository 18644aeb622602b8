"""Fixtures for tests that need a broker: `fencepost_broker` (one per session), `fencepost_topic` (fresh per test)."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fencepost.embedded import Broker

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def fencepost_broker() -> "Iterator[Broker]":
    """A broker for the whole session, on a free port, in a temporary directory."""
    # pytest loads this plugin in every run, also where no test needs a broker.
    from fencepost.embedded import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def fencepost_topic(fencepost_broker: "Broker") -> str:
    """The name of a fresh topic with three partitions."""
    name = f"topic-{next(_numbers)}"
    fencepost_broker.create_topic(name, partitions=3)
    return name
