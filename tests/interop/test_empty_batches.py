"""Batches without records, of compaction and of repair: every client reads over them, and Kafka's dump tool takes them.

A fetch may return nothing but such a batch, or one that covers millions of offsets.
"""

import json
from collections.abc import Iterator

import pytest

from fencepost.broker.directory_repair import DirectoryRepair
from fencepost.cli.main import run
from fencepost.simulation.node import DATA_DIRECTORY, SeededRandomness, SimulatedNode
from fencepost.wire.batch import build_batch
from tests.durability.scene import SMALL, Client
from tests.durability.test_missing_files import write_out
from tests.durability.transactional import TransactionalClient, find_coordinators
from tests.peers.broker_process import BrokerProcess
from tests.peers.clients import CLIENTS, CONFLUENT, Record
from tests.peers.clients import Client as PeerClient
from tests.peers.dump import dump, files_of
from tests.peers.fencepost_process import FencepostProcess

pytestmark = pytest.mark.timeout(120)
SETTINGS = {
    **SMALL,
    "transaction.state.log.num.partitions": "1",
    "log.retention.ms": "-1",
    "log.index.interval.bytes": "300",
    "log.cleaner.backoff.ms": "1000",
}
FAR = 3_000_000
LAST = "behind all holes"
Expected = dict[str, list[tuple[int, str]]]
"""Offsets and values by topic, without the last record."""


def write(machine: SimulatedNode) -> None:
    client = Client(machine)
    small = {"segment.bytes": "1000"}
    assert client.create_topic("holed", 1, **small) == 0
    assert client.create_topic("decided", 1, **small) == 0
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "300"}
    assert client.create_topic("compacted", 1, **compacted) == 0
    find_coordinators(client, ["group"], ["shop"])
    shop = TransactionalClient(client, "shop")
    shop.init()
    for number in range(60):
        assert client.produce("holed", b"value %d " % number + b"x" * 50).error_code == 0
        shop.produce("decided", 0, b"value %d " % number + b"x" * 50)
        shop.end(is_commit=number % 3 != 0)
        batch = build_batch([(machine.clock.wall_ms(), b"the only key", b"value %d " % number + b"x" * 90, ())])
        assert client.produced(client.send("compacted", {0: batch})).error_code == 0
    machine.scheduler.run_for(120_000)


def segments_without_records(machine: SimulatedNode) -> int:
    segments = machine.node.partition("compacted", 0).log.segments
    return sum(all(batch.header.record_count == 0 for batch in segment.batches()) for segment in segments)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Expected]]:
    """A broker on a directory with holes that were given up, and with a compacted topic of nearly nothing."""
    machine = SimulatedNode(SETTINGS, seed=3).start()
    write(machine)
    # librdkafka gives up after ten fetches that have brought nothing but such batches.
    assert segments_without_records(machine) > 10
    machine.stop()
    disk = machine.disk
    for topic in ("holed", "decided"):
        logs = [name for name in disk.list(f"{DATA_DIRECTORY}/{topic}-0") if name.endswith(".log")]
        for name in (logs[1], logs[3], logs[-1]):
            disk.remove(f"{DATA_DIRECTORY}/{topic}-0/{name}")
    # As if far more had been synced: the hole at the end covers millions of offsets.
    path = f"{DATA_DIRECTORY}/recovery-point-offset-checkpoint"
    disk.write_bytes(path, disk.read_bytes(path).replace(b"holed 0 60\n", b"holed 0 %d\n" % FAR))
    work = DirectoryRepair(disk, DATA_DIRECTORY, SeededRandomness(machine.source), machine.clock.wall_ms())
    assert {each.name for each in work.survey().damaged} == {"holed-0", "decided-0"}
    assert work.accept("holed", 0)[-1].next_offset == FAR
    work.accept("decided", 0)

    directory = tmp_path_factory.mktemp("holes")
    write_out(disk, directory / "data")
    expected: Expected = {}
    machine.start()
    for topic in ("holed", "compacted"):
        read = Client(machine).read_all(topic)
        expected[topic] = [(offset, (value or b"").decode()) for offset, value in read]
    machine.stop()
    with FencepostProcess({**SETTINGS, "log.cleaner.enable": "false"}, directory) as process:
        for topic in ("holed", "decided", "compacted"):
            produced = CONFLUENT.produce(process.bootstrap_servers, topic, [Record(0, "last", LAST)])
            assert topic != "holed" or produced == [(0, FAR)]
        yield process, expected


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("topic", ["holed", "compacted"])
def test_clients_read_over_batches_without_records(
    topic: str, client: PeerClient, broker: tuple[BrokerProcess, Expected]
) -> None:
    process, expected = broker
    assert expected[topic]
    read = client.consume(process.bootstrap_servers, topic, [0], len(expected[topic]) + 1)
    assert [(record.offset, record.value) for record in read[:-1]] == expected[topic]
    assert read[-1].value == LAST


@pytest.mark.parametrize("topic", ["holed", "compacted"])
def test_our_client_reads_over_batches_without_records(
    topic: str, broker: tuple[BrokerProcess, Expected], capsys: pytest.CaptureFixture[str]
) -> None:
    process, expected = broker
    assert run(["consume", topic, "--bootstrap-server", process.bootstrap_servers, "--json"]) == 0
    read = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(record["offset"], record["value"]) for record in read[:-1]] == expected[topic]
    assert read[-1]["value"] == LAST


def test_kafkas_dump_tool_has_no_complaint_about_a_repaired_directory(
    broker: tuple[BrokerProcess, Expected],
) -> None:
    process, _ = broker
    logs = [log for log in files_of(process.data_directory, ".log") if log.parent.name in ("holed-0", "decided-0")]
    found = dump(logs, "--deep-iteration")
    assert found.complaints() == []
    assert "count: 0" in found.text
    assert set(found.by_file) == {str(log) for log in logs}
