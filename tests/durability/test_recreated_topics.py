"""A topic is deleted and made again under the same name: nothing known of the old one counts for the new one."""

import errno

import pytest

from fencepost.simulation.disk import PowerCut
from fencepost.simulation.node import SimulatedNode
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import DeleteRecordsRequest
from tests.durability.scene import EARLIEST, SMALL, Client

TOPIC = "fleeting"
CHECKPOINT_MS = 1_000


def running() -> tuple[SimulatedNode, Client]:
    settings = {**SMALL, "log.flush.offset.checkpoint.interval.ms": str(CHECKPOINT_MS)}
    machine = SimulatedNode(settings).start()
    client = Client(machine)
    assert client.create_topic(TOPIC) == 0
    for number in range(20):
        assert client.produce(TOPIC, b"old %d" % number).error_code == 0
    return machine, client


def delete_records(client: Client, before: int) -> None:
    wanted = DeleteRecordsRequest.DeleteRecordsTopic
    one = wanted.DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(topics=[wanted(name=TOPIC, partitions=[one])], timeout_ms=1000)
    answer = client.socket.call(ApiKey.DELETE_RECORDS, 2, request)
    assert answer.topics[0].partitions[0].error_code == 0


def restarted(machine: SimulatedNode, cut: PowerCut) -> Client:
    machine.cut_power(cut)
    return Client(machine.start())


@pytest.mark.parametrize("cut", [PowerCut.LOSE_ALL, PowerCut.LOSE_NOTHING])
def test_recovery_point_and_log_start_of_the_old_topic_are_not_the_new_ones(cut: PowerCut) -> None:
    machine, client = running()
    delete_records(client, 10)
    machine.scheduler.run_for(2 * CHECKPOINT_MS)
    assert client.delete_topic(TOPIC) == 0
    assert client.create_topic(TOPIC) == 0
    for number in range(3):
        assert client.produce(TOPIC, b"new %d" % number).base_offset == number
    client = restarted(machine, cut)
    assert client.offset(TOPIC, 0, EARLIEST) == 0
    assert client.read_all(TOPIC) == [(number, b"new %d" % number) for number in range(3)]
    assert client.produce(TOPIC, b"next").base_offset == 3


def test_a_full_disk_that_refused_the_new_topic_once_does_not_leave_it_the_old_recovery_point() -> None:
    machine, client = running()
    machine.scheduler.run_for(2 * CHECKPOINT_MS)
    assert client.delete_topic(TOPIC) == 0
    machine.disk.fail_write("recovery-point", errno.ENOSPC)
    assert client.create_topic(TOPIC) == 56, "there was no room for the checkpoint"
    assert client.create_topic(TOPIC) == 0
    assert client.produce(TOPIC, b"new").base_offset == 0
    client = restarted(machine, PowerCut.LOSE_ALL)
    assert client.read_all(TOPIC) == [(0, b"new")]


@pytest.mark.parametrize("moment_ms", range(0, 12, 2))
@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("flush", ["group", "os"])
def test_a_topic_deleted_while_it_is_compacted_and_synced_harms_nobody(flush: str, again: bool, moment_ms: int) -> None:
    settings = {**SMALL, "flush": flush, "log.cleaner.backoff.ms": "3", "log.flush.offset.checkpoint.interval.ms": "20"}
    machine = SimulatedNode(settings, sync_ms=10).start()
    client = Client(machine)
    compacted = {"cleanup_policy": "compact", "segment_bytes": "1000", "min_cleanable_dirty_ratio": "0.01"}
    assert client.create_topic("other") == 0
    assert client.create_topic(TOPIC, **compacted) == 0
    for number in range(30):
        batch = client.keyed_batch(b"k%d" % (number % 3), b"old" * 30)
        assert client.produced(client.send(TOPIC, {0: batch})).error_code == 0
    machine.scheduler.run_for(moment_ms)
    assert client.delete_topic(TOPIC) == 0
    expected = []
    if again:
        assert client.create_topic(TOPIC, **compacted) == 0
        for number in range(5):
            batch = client.keyed_batch(b"n%d" % number, b"new")
            assert client.produced(client.send(TOPIC, {0: batch})).error_code == 0
            expected.append((number, b"new"))
    machine.scheduler.run_for(200)
    assert machine.node.storage_failure is None
    assert client.produce("other", b"x").error_code == 0, "nobody else has suffered"
    machine.stop()
    client = Client(machine.start())
    assert client.read_all("other") == [(0, b"x")]
    if again:
        assert client.read_all(TOPIC) == expected
    else:
        assert TOPIC not in client.topics()
