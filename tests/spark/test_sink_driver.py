"""The sink's calls without Spark: one identity per run, timeouts, exhausted epochs, batches in flight and faults."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.extras import require_arrow

require_arrow()

import pyarrow as pa  # noqa: E402

from fencepost.client import (  # noqa: E402
    Admin,
    Client,
    NewTopic,
    ProducerFenced,
    TopicPartition,
    TransactionProtocol,
    apis,
)
from fencepost.client.connection import connect  # noqa: E402
from fencepost.client.errors import TransactionMustAbort  # noqa: E402
from fencepost.client.sending import BULK  # noqa: E402
from fencepost.spark.commit_records import Marker, Record  # noqa: E402
from fencepost.spark.errors import NotSupported, RequirementNotMet  # noqa: E402
from fencepost.spark.requirements import refuse_dynamic_allocation, require_java, slots  # noqa: E402
from fencepost.spark.run_producer import RunProducer  # noqa: E402
from fencepost.spark.transaction_timeouts import given  # noqa: E402
from fencepost.wire import messages  # noqa: E402
from fencepost.wire.arrow_records import encode_batches  # noqa: E402
from fencepost.wire.errors import ErrorCode  # noqa: E402
from tests.faults.proxy import Direction, FaultProxy  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.spark.sink_scene import read  # noqa: E402

pytestmark = pytest.mark.timeout(400)
_serial = itertools.count()
EXHAUSTED = 32_766
PROTOCOLS = pytest.mark.parametrize("protocol", list(TransactionProtocol), ids=lambda protocol: protocol.name)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    # Tens of thousands of calls in one test need no sync each.
    with FencepostProcess({"flush": "os", "transaction.max.timeout.ms": "120000"}) as process:
        yield process


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    name = f"driver-{next(_serial)}"
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(NewTopic(name, 3))
    return name


@pytest.fixture
def proxy(broker: BrokerProcess) -> Iterator[FaultProxy]:
    with FaultProxy(broker.address) as between:
        yield between


def producer(where: Any, name: str, **options: Any) -> RunProducer:
    return RunProducer(where.bootstrap_servers, name, {}, **options)


def batches(first: int, count: int, records: int = 10) -> Iterator[bytearray]:
    for start in range(first, first + count * records, records):
        values = pa.array([b"%d" % number for number in range(start, start + records)], pa.binary())
        yield from encode_batches(values, timestamps=1_700_000_000_000)


def write(run: RunProducer, topic: str, first: int, count: int, partitions: int = 1) -> None:
    """`count` batches of ten numbers to each partition, in order."""
    run.begin()
    run.add(TopicPartition(topic, partition) for partition in range(partitions))
    with run.handle().writer(BULK) as writer:
        for number in range(count):
            for partition in range(partitions):
                at = first + (number * partitions + partition) * 10
                for batch in batches(at, 1):
                    writer.send_batch(topic, partition, batch)
        writer.flush()


def commit(run: RunProducer, topic: str, group: str = "group", batch_id: int = 0) -> None:
    run.send_offsets(group, Record(Marker(1, batch_id, "query"), {TopicPartition(topic, 0): batch_id}).entries())
    run.commit()


def numbers(broker: BrokerProcess, topic: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for record in read(broker.bootstrap_servers, [topic], "read_committed"):
        found.setdefault(record.partition, []).append(int(record.value or b"-1"))
    return found


def in_order(first: int, count: int, partitions: int) -> dict[int, list[int]]:
    return {
        partition: [
            number
            for block in range(count)
            for start in [first + (block * partitions + partition) * 10]
            for number in range(start, start + 10)
        ]
        for partition in range(partitions)
    }


@PROTOCOLS
@pytest.mark.parametrize("direction", list(Direction), ids=lambda direction: direction.value)
def test_a_connection_that_breaks_under_batches_in_flight_costs_nothing(
    broker: BrokerProcess, proxy: FaultProxy, topic: str, protocol: TransactionProtocol, direction: Direction
) -> None:
    lost = proxy.drop("Produce", direction, nth=4)
    run = producer(proxy, f"run-{topic}", protocol=protocol)
    try:
        write(run, topic, 0, 40, partitions=3)
        commit(run, topic)
    finally:
        run.close()
    assert lost.caught.is_set()
    assert numbers(broker, topic) == in_order(0, 40, 3)


@PROTOCOLS
def test_an_attempt_that_was_aborted_is_not_seen_and_the_next_has_another_epoch(
    broker: BrokerProcess, topic: str, protocol: TransactionProtocol
) -> None:
    run = producer(broker, f"run-{topic}", protocol=protocol)
    try:
        write(run, topic, 1_000, 5)
        first = run.identity
        run.abort()
        write(run, topic, 0, 5)
        assert run.identity != first
        commit(run, topic)
        write(run, topic, 50, 5)
        commit(run, topic)
    finally:
        run.close()
    assert numbers(broker, topic) == {0: list(range(100))}


def test_late_writes_of_an_attempt_that_was_given_up_are_refused(broker: BrokerProcess, topic: str) -> None:
    run = producer(broker, f"run-{topic}")
    try:
        run.begin()
        with contextlib.closing(run.handle().writer(BULK)) as zombie:
            (early,) = batches(0, 1)
            zombie.send_batch(topic, 0, early)
            zombie.flush()
            run.abort()
            write(run, topic, 0, 2)
            (late,) = batches(500, 1)
            zombie.send_batch(topic, 0, late)
            with pytest.raises(TransactionMustAbort):
                zombie.flush()
        commit(run, topic)
    finally:
        run.close()
    assert numbers(broker, topic) == {0: list(range(20))}


@PROTOCOLS
def test_an_old_driver_fences_only_itself(broker: BrokerProcess, topic: str, protocol: TransactionProtocol) -> None:
    name = f"run-{topic}"
    old, new = producer(broker, name, protocol=protocol), producer(broker, name, protocol=protocol)
    try:
        write(old, topic, 500, 1)
        write(new, topic, 0, 1)
        with pytest.raises(ProducerFenced):
            commit(old, topic)
        with pytest.raises(ProducerFenced):
            old.begin()
        commit(new, topic)
        write(new, topic, 10, 1)
        commit(new, topic, batch_id=1)
    finally:
        old.close()
        new.close()
    assert numbers(broker, topic) == {0: list(range(20))}


def test_the_timeout_steps_down_to_what_the_broker_allows(broker: BrokerProcess, topic: str) -> None:
    run = producer(broker, f"run-{topic}")
    try:
        run.begin()
        assert run.timeout.ms == 120_000
    finally:
        run.close()
    run = producer(broker, f"run-{topic}", timeout=given(120_001))
    try:
        with pytest.raises(NotSupported, match=r"transaction\.max\.timeout\.ms"):
            run.begin()
    finally:
        run.close()


async def _exhaust(address: tuple[str, int], transactional_id: str) -> None:
    """Bare InitProducerId calls, many at once, until the epoch is the last but a few."""
    connection = await connect(*address, "test")
    request = messages.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    epoch = -1
    while epoch < EXHAUSTED - 3:
        count = min(200, EXHAUSTED - 3 - epoch)
        answers = await asyncio.gather(*(connection.call(apis.INIT_PRODUCER_ID, request, 60_000) for _ in range(count)))
        reached = [answer.producer_epoch for answer in answers if answer.error_code == ErrorCode.NONE]
        epoch = max([epoch, *reached])
    await connection.close()


@PROTOCOLS
def test_epochs_may_run_out(broker: BrokerProcess, topic: str, protocol: TransactionProtocol) -> None:
    name = f"run-{topic}"
    asyncio.run(_exhaust(broker.address, name))
    run = producer(broker, name, protocol=protocol)
    identities = []
    try:
        for number in range(6):
            write(run, topic, number * 20, 2)
            identities.append(run.identity)
            commit(run, topic, batch_id=number)
    finally:
        run.close()
    assert len({producer_id for producer_id, _ in identities}) == 2
    assert identities[0][1] >= EXHAUSTED - 3
    assert identities[-1][1] < 10
    assert numbers(broker, topic) == {0: list(range(120))}


def test_the_broker_sees_which_batch_calls(broker: BrokerProcess, proxy: FaultProxy, topic: str) -> None:
    names = []
    run = producer(proxy, f"run-{topic}")
    try:
        for batch in ("spark/local-1/shop/17", "spark/local-1/shop/18"):
            ended = proxy.on("EndTxn", lambda: None)
            run.call_itself(batch)
            write(run, topic, 0, 1)
            assert run.handle().options["client.id"] == batch
            commit(run, topic)
            names.append(batch.encode() in ended.wait().content)
            proxy.clear()
    finally:
        run.close()
    assert names == [True, True]


class Session:
    """As much of a session as the checks look at; without `_jsparkSession`, as under Connect."""

    def __init__(self, **settings: str) -> None:
        self.conf = {name.replace("_", "."): value for name, value in settings.items()}  # has the same `get`


def test_dynamic_allocation_is_refused() -> None:
    refuse_dynamic_allocation(Session())
    with pytest.raises(NotSupported, match="dynamicAllocation"):
        refuse_dynamic_allocation(Session(**{"spark.dynamicAllocation.enabled": "true"}))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"spark_master": "local[3]"}, 3),
        ({"spark_master": "local"}, 1),
        ({"spark_master": "local-cluster[2, 2, 1024]", "spark_task_cpus": "2"}, 2),
        ({"spark_master": "spark://host:7077", "spark_executor_instances": "3", "spark_executor_cores": "4"}, 12),
        ({"spark_master": "spark://host:7077", "spark_cores_max": "6"}, 6),
        ({"spark_master": "yarn"}, None),
    ],
)
def test_slots_are_known_from_the_configuration_where_the_scheduler_cannot_be_asked(settings, expected) -> None:
    assert slots(Session(**settings)) == expected


def test_a_missing_or_old_java_is_told_with_what_to_install(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RequirementNotMet, match="is Java 11"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(RequirementNotMet, match="apt install"):
        require_java()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\" 2025-04-15' >&2\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    require_java()


def test_a_client_of_another_process_is_not_needed_to_take_over(broker: BrokerProcess, topic: str) -> None:
    """The bare call of a new run ends what a dead driver had left open."""
    name = f"run-{topic}"
    with Client(broker.bootstrap_servers) as dead:
        left = dead.producer(name)
        left.init()
        left.begin()
        left.send(topic, b"999", partition=0)
        left.flush()
    run = producer(broker, name)
    try:
        write(run, topic, 0, 1)
        commit(run, topic)
        assert run.committed("group", stable=True)[TopicPartition(topic, 0)].offset == 0
    finally:
        run.close()
    assert numbers(broker, topic) == {0: list(range(10))}
