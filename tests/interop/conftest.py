"""The broker under test: Fencepost, or with `--against apache` the real thing, to test the tests.

One broker serves a whole session; tests keep apart by topic and group names of their own.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka
from tests.support.patience import patient

KINDS: dict[str, type[BrokerProcess]] = {"fencepost": FencepostProcess, "apache": ApacheKafka}
ADMIN_TIMEOUT_SECONDS = patient(20)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broker_kind" in metafunc.fixturenames:
        against = metafunc.config.getoption("--against")
        kinds = list(KINDS) if against == "both" else [against]
        metafunc.parametrize("broker_kind", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def broker_kind(request: pytest.FixtureRequest) -> type[BrokerProcess]:
    """The kind of broker under test, for tests that start, stop and kill one of their own."""
    return KINDS[request.param]


@pytest.fixture(scope="session")
def broker(broker_kind: type[BrokerProcess]) -> Iterator[BrokerProcess]:
    with broker_kind() as process:
        yield process


_serial = itertools.count()


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names for topics and groups that no other test uses."""
    return lambda stem: f"{stem}-{next(_serial)}"


@pytest.fixture
def new_topic(broker: BrokerProcess, unique: Callable[[str], str]) -> Callable[..., str]:
    """Creates a topic and returns its name."""

    def create(partitions: int = 1, stem: str = "topic", **configs: str) -> str:
        name = unique(stem)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        future = admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name]
        future.result(ADMIN_TIMEOUT_SECONDS)
        return name

    return create
