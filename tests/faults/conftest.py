"""Brokers with and without ghost protection, and a proxy of its own for every test."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.faults.clients import CLIENTS, TransactionalClient
from tests.faults.proxy import FaultProxy
from tests.faults.scene import close_connections
from tests.interop.cases import Peer
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess

CONFIGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
    "group.min.session.timeout.ms": "100",
    "transaction.state.log.num.partitions": "8",
    "offsets.topic.num.partitions": "8",
}


def settled(broker: BrokerProcess) -> BrokerProcess:
    """Once both coordinators answer."""
    with Peer(broker, "first") as peer:
        for kind in (0, 1):
            peer.settled("FindCoordinator", 2, {"Key": "any", "KeyType": kind})
    return broker


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    with FencepostProcess(CONFIGS) as process:
        yield settled(process)


@pytest.fixture(scope="session")
def unprotected() -> Iterator[BrokerProcess]:
    """As in Kafka: a delayed call of an old client is carried out."""
    with FencepostProcess({**CONFIGS, "transaction.ghost.protection.enable": "false"}) as process:
        yield settled(process)


@pytest.fixture
def proxy(broker: BrokerProcess) -> Iterator[FaultProxy]:
    with FaultProxy(broker.address) as between:
        yield between


@pytest.fixture(autouse=True)
def connections() -> Iterator[None]:
    yield
    close_connections()


@pytest.fixture
def new_client() -> Iterator[Callable[[str, str, str], TransactionalClient]]:
    """A client library's producer by its name; closed at the end, whatever became of it."""
    started: list[TransactionalClient] = []

    def start(library: str, bootstrap: str, transactional_id: str) -> TransactionalClient:
        started.append(CLIENTS[library](bootstrap, transactional_id))
        return started[-1]

    yield start
    for client in started:
        try:
            client.close()
        except Exception:
            pass  # one that a test has broken


_serial = itertools.count()


@pytest.fixture
def unique() -> Callable[[str], str]:
    return lambda stem: f"{stem}-{next(_serial)}"
