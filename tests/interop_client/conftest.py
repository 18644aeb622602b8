"""The client library against a real broker: Fencepost, or with `--against apache` (or both) Apache Kafka."""

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from fencepost.client import Admin, Client, IsolationLevel, NewTopic, PartitionReader, TransactionProtocol, apis
from fencepost.client.connection import connect
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka

KINDS: dict[str, type[BrokerProcess]] = {"fencepost": FencepostProcess, "apache": ApacheKafka}
# Timed out transactions are looked for so often that a test can wait for one.
CONFIGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        against = metafunc.config.getoption("--against")
        kinds = list(KINDS) if against == "both" else [against]
        metafunc.parametrize("kind", kinds, indirect=True, scope="session")
    if "protocol" in metafunc.fixturenames:
        metafunc.parametrize("protocol", list(TransactionProtocol), ids=lambda protocol: protocol.name)


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> type[BrokerProcess]:
    """The kind of broker under test, for tests that start, stop and kill one of their own."""
    return KINDS[request.param]


@pytest.fixture(scope="session")
def broker(kind: type[BrokerProcess]) -> Iterator[BrokerProcess]:
    with kind(CONFIGS) as process:
        require_transactions(process)
        yield process


def require_transactions(broker: BrokerProcess) -> None:
    async def offers() -> bool:
        connection = await connect(*broker.address, "test")
        offered = connection.offers(apis.END_TXN_TV2)
        await connection.close()
        return offered

    if not asyncio.run(offers()):
        pytest.skip(f"{broker.name} does not advertise transactions")


_serial = itertools.count()


@pytest.fixture
def unique() -> Callable[[str], str]:
    return lambda stem: f"client-{stem}-{os.getpid()}-{next(_serial)}"


@pytest.fixture
def topic(broker: BrokerProcess, unique: Callable[[str], str]) -> str:
    """A fresh topic of three partitions."""
    return create_topic(broker, unique("topic"))


def create_topic(broker: BrokerProcess, name: str, partitions: int = 3) -> str:
    with Admin(broker.bootstrap_servers) as admin:
        # Some tests write old timestamps, which retention would delete on a machine that is slow enough.
        admin.create_topic(NewTopic(name, partitions, configs={"retention.ms": "-1"}))
    return name


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as made:
        yield made


def committed(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    """What a read_committed reader finds, partition after partition."""
    return read(broker, topic, IsolationLevel.READ_COMMITTED)


def written(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    return read(broker, topic, IsolationLevel.READ_UNCOMMITTED)


def read(broker: BrokerProcess, topic: str, isolation_level: IsolationLevel) -> list[bytes | None]:
    with PartitionReader(broker.bootstrap_servers, isolation_level=isolation_level) as reader:
        reader.assign_topic(topic)
        records = sorted(reader.records(), key=lambda record: (record.partition, record.offset))
    return [record.value for record in records]
