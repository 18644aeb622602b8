"""Brokers for the tests of sources."""

from collections.abc import Iterator

import pytest

from fencepost import Broker
from tests.peers.kafka import ApacheKafka


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheKafka]:
    with ApacheKafka() as running:
        yield running
