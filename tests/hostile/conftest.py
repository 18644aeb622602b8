"""A broker in a process of its own, so that its memory can be measured, and a canary beside the hostile client."""

from collections.abc import Callable, Iterator

import pytest

from tests.hostile.sockets import Canary, RudeClient
from tests.peers.fencepost_process import FencepostProcess


@pytest.fixture(scope="module")
def process() -> Iterator[FencepostProcess]:
    with FencepostProcess({"auto.create.topics.enable": "true"}) as started:
        yield started
        started.stop()


@pytest.fixture(scope="module")
def canary(process: FencepostProcess) -> Iterator[Canary]:
    made = Canary(process.address)
    yield made
    made.close()


@pytest.fixture
def connect(process: FencepostProcess) -> Iterator[Callable[[], RudeClient]]:
    clients: list[RudeClient] = []

    def make() -> RudeClient:
        clients.append(RudeClient(process.address))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
