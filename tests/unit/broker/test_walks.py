"""Through how many files a request goes, counted while it is served; ARCHITECTURE.md tells the same walks in words.

Counted are the files in which something about the request is decided. A layer below counts as the one file that it is
entered by: the log as `partition_log.py`, the sockets (here simulated) as `server.py`. The codecs of `wire`, tools that
know nothing of a broker (promises, timers, the ports' values) and the event feed, which only listens, do not count. All
files that are entered, these included, are about twice as many.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import fencepost
from fencepost.simulation.node import SimulatedNode
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from tests.durability.scene import SMALL, Client

SOURCE = f"{Path(fencepost.__file__).parent}/"
TOOLS = ("promise.py", "ports.py", "coordinators/timers.py", "topic_partition.py")
EVENT_FEED = (
    "coordinators/transactions/events.py",
    "broker/events.py",
    "broker/cause_journal.py",
    "broker/json_lines.py",
)
END_TXN_FILES_MAX = 15
OTHER_FILES_MAX = 12
AFTER_THE_DECISION = ("broker/transactions.py", "broker/coordinator_host.py", "broker/partition.py")
"""What sends and writes markers: a crash may come before it is entered."""


@contextmanager
def files_entered() -> Iterator[dict[str, list[str]]]:
    """The functions that are called, by file, in the order in which the files are first entered."""
    entered: dict[str, list[str]] = {}

    def called(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE):
            name = counted_as(code.co_filename.removeprefix(SOURCE))
            if name is not None and code.co_name not in entered.setdefault(name, []):
                entered[name].append(code.co_name)

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield entered
    finally:
        sys.setprofile(before)


def counted_as(path: str) -> str | None:
    if path.startswith("wire/") or path in TOOLS + EVENT_FEED:
        return None
    if path.startswith("log/"):
        return "log/partition_log.py"
    return "shell/server.py" if path.startswith("simulation/") else path


class Walk:
    def __init__(self) -> None:
        self.machine = SimulatedNode({**SMALL, "transaction.state.log.num.partitions": "1"}, sync_ms=1).start()
        self.client = Client(self.machine)
        self.client.create_topic("out")
        self.call(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]))
        self.run(1_000)
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        producer = self.call(ApiKey.INIT_PRODUCER_ID, 4, request)
        assert producer.error_code == 0
        self.pair = producer.producer_id, producer.producer_epoch
        self.sequence = 0

    def call(self, api: ApiKey, version: int, request: Any) -> Any:
        return self.client.socket.call(api, version, request)

    def run(self, milliseconds: int) -> None:
        self.machine.scheduler.run_for(milliseconds)

    def produce(self) -> None:
        producer_id, epoch = self.pair
        batch = self.client.batch(
            b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=self.sequence, transactional=True
        )
        self.sequence += 1
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=0, records=bytes(batch))
        request = ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=1000,
            topic_data=[data(name="out", partition_data=[part])],
        )
        answer = self.call(ApiKey.PRODUCE, 11, request)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def begin(self) -> None:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="out", partitions=[0])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=self.pair[0],
            v3_and_below_producer_epoch=self.pair[1],
            v3_and_below_topics=[topic],
        )
        self.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
        self.produce()

    def end(self, version: int) -> None:
        request = EndTxnRequest(
            transactional_id="tx", producer_id=self.pair[0], producer_epoch=self.pair[1], committed=True
        )
        answer = self.call(ApiKey.END_TXN, version, request)
        assert answer.error_code == 0
        if version >= 5:
            self.pair, self.sequence = (answer.producer_id, answer.producer_epoch), 0

    @property
    def state(self) -> str:
        (shard,) = self.machine.node.transactions.coordinator.runtime.active_machines()
        return shard.transactions["tx"].record.state.wire_name

    def fetch(self) -> None:
        fetched = self.client.fetch("out", {0: 0}, isolation_level=1)
        assert fetched.responses[0].partitions[0].records


def listed(entered: dict[str, list[str]]) -> str:
    return "\n".join(f"{file}: {', '.join(functions)}" for file, functions in entered.items())


@pytest.mark.parametrize("version", [4, 5])
def test_an_end_of_a_transaction_and_its_markers_cross_few_files(version: int) -> None:
    walk = Walk()
    for _ in range(2):  # the first makes and caches what later ones find
        walk.begin()
        with files_entered() as entered:
            walk.end(version)
            walk.run(20)
        assert walk.state == "CompleteCommit"
        walk.run(1_000)
    assert {"broker/transactions.py", "coordinators/transactions/decisions.py", "log/partition_log.py"} <= set(entered)
    assert len(entered) <= END_TXN_FILES_MAX, listed(entered)


def test_a_crash_between_the_decision_and_its_markers_leads_through_the_same_files() -> None:
    walk = Walk()
    walk.begin()
    with files_entered() as entered:
        walk.end(4)
    assert walk.state == "PrepareCommit"
    walk.machine.crash()
    loaded = entered_by_loading(walk)
    assert walk.state == "CompleteCommit"
    # The producer ids that were loaded are compared with those that the cluster's metadata has handed out.
    assert set(loaded) - {"broker/cluster_metadata.py"} <= set(entered) | set(AFTER_THE_DECISION), listed(loaded)
    assert len({*entered, *AFTER_THE_DECISION}) <= END_TXN_FILES_MAX, listed(entered)


def entered_by_loading(walk: Walk) -> dict[str, list[str]]:
    """The files that are entered from when the logs are open and the coordinators begin to load theirs."""
    walk.machine.boot()
    with files_entered() as entered:
        walk.run(20)
    return entered


@pytest.mark.parametrize("act", [Walk.produce, Walk.fetch], ids=["produce", "fetch"])
def test_a_produce_and_a_fetch_of_committed_records_cross_few_files(act: Callable[[Walk], None]) -> None:
    walk = Walk()
    walk.begin()
    walk.end(4)
    walk.run(1_000)
    walk.begin()
    act(walk)
    with files_entered() as entered:
        act(walk)
    assert "log/partition_log.py" in entered
    assert len(entered) <= OTHER_FILES_MAX, listed(entered)
