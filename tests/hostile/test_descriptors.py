"""Descriptors are few and shared: strangers that only connect must leave the storage those it needs."""

import contextlib
import multiprocessing
import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from fencepost import Broker
from fencepost.config import broker_config
from fencepost.shell.descriptors import DescriptorShares, TooFewDescriptors, share_out
from fencepost.shell.disk import RealDisk
from fencepost.shell.server import connection_limits
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import CreateTopicsRequest
from tests.hostile.sockets import Canary, RudeClient, produce_request, record_batch
from tests.peers.fencepost_process import FencepostProcess

LIMIT = 256


class CrampedProcess(FencepostProcess):
    """A broker that may have few descriptors at a time."""

    def _launch(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        set_limit = (
            f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT})); "
            "os.execv(sys.argv[1], sys.argv[1:])"
        )
        super()._launch([sys.executable, "-c", set_limit, *command], environment)


@pytest.fixture(scope="module")
def process() -> Iterator[CrampedProcess]:
    with CrampedProcess({"auto.create.topics.enable": "true"}) as started:
        yield started
        started.stop()


def test_idle_strangers_cannot_take_the_descriptors_of_the_storage(process: CrampedProcess) -> None:
    canary = Canary(process.address)
    strangers = [RudeClient(process.address) for _ in range(2 * LIMIT)]
    try:
        canary.sings()
        # More partitions than descriptors: each needs some to be made, and again when it is written to.
        topic = CreateTopicsRequest.CreatableTopic(name="wide", num_partitions=2 * LIMIT, replication_factor=1)
        answer = canary._client.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0
        for partition in range(2 * LIMIT):
            written = canary._client.call(
                ApiKey.PRODUCE, 9, produce_request("wide", record_batch(b"v"), partition=partition)
            )
            assert written.responses[0].partition_responses[0].error_code == 0
        canary.sings()
        assert "StorageFailed" not in process.log_text()
    finally:
        for stranger in strangers:
            stranger.close()
        canary.close()


def test_descriptors_are_shared_out_between_files_and_connections() -> None:
    assert share_out(20_000, 4_096) == DescriptorShares(20_000, 15_000, 4_096)
    small = share_out(1_024, 4_096)
    assert small.files + small.connections < 1_024 - 64
    assert min(small.files, small.connections) > 400
    assert share_out(1_024, 4_096, open_files_max=800).connections == 1_024 - 96 - 800
    with pytest.raises(TooFewDescriptors, match="ulimit -n"):
        share_out(1_024, 4_096, open_files_max=1_000)


def test_one_address_cannot_take_every_connection_unless_it_is_told_so() -> None:
    config = broker_config({})
    assert config.max_connections_per_ip < config.max_connections
    cramped = share_out(256, config.max_connections)
    limits = connection_limits(config, cramped, is_per_ip_given=False)
    assert limits.per_host < limits.total == cramped.connections
    given = broker_config({"max.connections.per.ip": "5000"})
    assert connection_limits(given, cramped, is_per_ip_given=True).per_host == 5_000
    with Broker(settings={"max.connections": "40"}) as broker:
        assert broker._call(lambda running: running.connections.limits.per_host) == 30


def _open_sync_and_replace_files_without_descriptors(directory: Path) -> None:
    disk = RealDisk(open_files_max=64)
    files = [disk.open(str(directory / f"{number}"), create=True) for number in range(40)]
    # The kernel compares numbers: a limit below those in use would make the descriptors that are given up worthless.
    limit = max(map(int, os.listdir("/proc/self/fd"))) + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    strangers = []
    with contextlib.suppress(OSError):
        for _ in range(limit):
            strangers.append(open(directory / "0"))  # noqa: SIM115 - they stay open on purpose
    assert 99 <= len(strangers) < limit
    for round_number in range(3):
        for number, file in enumerate(files):
            file.close()
            file.write(round_number, b"%d" % (number % 10))
        disk.write_atomically(str(directory / "checkpoint"), b"%d" % round_number)
        disk.sync_directory(str(directory))
        for file in files:
            file.sync()
    assert disk.read_bytes(str(directory / "checkpoint")) == b"2"


def test_a_process_without_descriptors_still_opens_syncs_and_replaces_files(tmp_path: Path) -> None:
    # In a process of its own: here others hold descriptors, and threads open and close more at any time.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(_open_sync_and_replace_files_without_descriptors, tmp_path).result()
