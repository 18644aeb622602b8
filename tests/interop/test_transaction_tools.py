"""Apache Kafka's own tools on Fencepost's transactions: the transactions command, and the dump of every file."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.cases import Peer
from tests.interop.cases.transactional import ABORT, COMMIT, Producer, Script
from tests.peers import java
from tests.peers.broker_process import BrokerProcess
from tests.peers.dump import Dump, dump, files_of
from tests.peers.fencepost_process import FencepostProcess

pytestmark = [pytest.mark.timeout(120), pytest.mark.xdist_group("transaction-tools")]

COMMAND = "org.apache.kafka.tools.TransactionsCommand"
# Without the coordinator's word an old client can open a transaction that no coordinator knows of: one that hangs.
CONFIGS = {"transaction.partition.verification.enable": "false"}


def tool(broker: BrokerProcess, *arguments: str) -> list[dict[str, str]]:
    """The table that the command prints, row by row."""
    printed = java.run(COMMAND, "--bootstrap-server", broker.bootstrap_servers, *arguments)
    rows = [[cell.strip() for cell in line.rstrip("\t").split("\t")] for line in printed.splitlines() if "\t" in line]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]] if rows else []


@dataclass(frozen=True, slots=True)
class Scene:
    broker: BrokerProcess
    topic: str
    hanging: Producer
    open_name: str
    aborted_id: int

    def logs(self, prefix: str) -> list[Path]:
        found = files_of(self.broker.data_directory, ".log")
        return [log for log in found if log.parent.name.startswith(prefix) and log.stat().st_size]


@contextmanager
def new_scene() -> Iterator[Scene]:
    """A broker with transactions in every state, one of which hangs."""
    with FencepostProcess(CONFIGS) as broker, Peer(broker, "tools") as peer:
        for kind in (0, 1):
            peer.settled("FindCoordinator", 2, {"Key": "any", "KeyType": kind})
        script = Script(peer)
        topic, group = peer.topic(), peer.name("group")
        hanging, open_, aborted, committed = (script.producer(each) for each in ("hanging", "open", "aborted", "done"))
        hanging.init()
        assert hanging.produce(topic)[0] == 0
        open_.open(topic)
        open_.add_offsets(group)
        assert open_.commit_offset(group, topic, 5) == 0
        for producer, result in ((aborted, ABORT), (committed, COMMIT)):
            producer.open(topic)
            assert producer.end(result)["ErrorCode"] == 0
        yield Scene(broker, topic, hanging, open_.name, aborted.producer_id)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with new_scene() as made:
        yield made


@pytest.fixture(scope="module")
def stopped() -> Iterator[Scene]:
    """After the hanging transaction was ended by hand, and a clean stop with one still open."""
    with new_scene() as made:
        made.hanging.markers(made.topic)
        made.broker.stop()
        yield made


def test_the_command_lists_and_describes(scene: Scene) -> None:
    listed = {row["TransactionalId"]: row["TransactionState"] for row in tool(scene.broker, "list")}
    assert {name: state for name, state in listed.items() if name.startswith("tools-")} == {
        "tools-hanging": "Empty",
        "tools-open": "Ongoing",
        "tools-aborted": "CompleteAbort",
        "tools-done": "CompleteCommit",
    }
    (described,) = tool(scene.broker, "describe", "--transactional-id", scene.open_name)
    assert described["TransactionState"] == "Ongoing"
    partitions = described["TopicPartitions"].split(",")
    assert f"{scene.topic}-0" in partitions
    assert any(partition.startswith("__consumer_offsets-") for partition in partitions)


def test_the_command_finds_and_aborts_a_hanging_transaction(scene: Scene) -> None:
    where = ("--topic", scene.topic, "--partition", "0")
    search = ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "1")
    producers = tool(scene.broker, "describe-producers", *where)
    starts = {row["ProducerId"]: row["CurrentTransactionStartOffset"] for row in producers}
    assert starts[str(scene.hanging.producer_id)] == "0"
    assert starts[str(scene.aborted_id)] == "None"
    (found,) = tool(scene.broker, *search)
    assert (found["Topic"], found["ProducerId"], found["StartOffset"]) == (
        scene.topic,
        str(scene.hanging.producer_id),
        "0",
    )
    tool(scene.broker, "abort", *where, "--start-offset", "0")
    assert tool(scene.broker, *search) == []
    with Peer(scene.broker, "tools-after") as peer:
        assert Script(peer).end_offset(scene.topic, 0, isolation=1) == 1, (
            "the open transaction is what readers wait for"
        )


def test_the_command_terminates_a_transaction_by_force(scene: Scene) -> None:
    with Peer(scene.broker, "force") as peer:
        script = Script(peer)
        topic, producer = peer.topic(), script.producer()
        producer.open(topic)
        java.run(
            COMMAND,
            "--bootstrap-server",
            scene.broker.bootstrap_servers,
            "forceTerminateTransaction",
            "--transactionalId",
            producer.name,
        )
        producer.settle("Empty", "CompleteAbort")
        assert producer.produce(topic)[0] == 47
        assert script.end_offset(topic, 0, isolation=1) == 2


def _without_complaints(found: Dump) -> Dump:
    assert found.complaints() == []
    return found


def test_the_dump_tool_decodes_the_transaction_log(stopped: Scene) -> None:
    logs = [
        log
        for log in files_of(stopped.broker.data_directory, ".log")
        if log.parent.name.startswith("__transaction_state-")
    ]
    found = _without_complaints(dump([log for log in logs if log.stat().st_size], "--transaction-log-decoder"))
    states: dict[str, list[int]] = {}
    for key, payload in re.findall(r"key: (\{.*\}) payload: (\{.*\})$", found.text, re.MULTILINE):
        name = json.loads(key)["data"]["transactionalId"]
        value = json.loads(payload)
        assert value["version"] == "1"
        states.setdefault(name, []).append(value["data"]["transactionStatus"])
    empty, ongoing, prepare_commit, prepare_abort, complete_commit, complete_abort = range(6)
    assert states["tools-open"] == [empty, ongoing, ongoing]
    assert states["tools-aborted"] == [empty, ongoing, prepare_abort, complete_abort]
    assert states["tools-done"] == [empty, ongoing, prepare_commit, complete_commit]
    assert states["tools-hanging"] == [empty]


def test_the_dump_tool_reads_aborted_transactions_and_snapshots_with_open_ones(stopped: Scene) -> None:
    indexes, snapshots = (
        files_of(stopped.broker.data_directory, ".txnindex"),
        files_of(stopped.broker.data_directory, ".snapshot"),
    )
    found = _without_complaints(dump([*indexes, *snapshots]))
    (index,) = (each for each in indexes if each.parent.name == f"{stopped.topic}-0")
    entry = re.compile(r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)")
    entries = [tuple(map(int, match)) for line in found.by_file[str(index)] for match in entry.findall(line)]
    # The aborted one while an older one was open; then the hanging one, ended by hand, before the open one.
    assert entries == [(stopped.aborted_id, 2, 3, 0), (stopped.hanging.producer_id, 0, 6, 1)]

    last = [snapshot for snapshot in snapshots if snapshot.parent.name == f"{stopped.topic}-0"][-1]
    lines = [line for line in found.by_file[str(last)] if line.startswith("producerId:")]
    assert len(lines) == 4
    assert sum("currentTxnFirstOffset: OptionalLong[1]" in line for line in lines) == 1
    offsets = [line for name, lines in found.by_file.items() if "/__consumer_offsets-" in name for line in lines]
    assert sum("currentTxnFirstOffset: OptionalLong[0]" in line for line in offsets) == 1


def test_the_dump_tool_decodes_offsets_inside_transactions(stopped: Scene) -> None:
    logs = [
        log
        for log in files_of(stopped.broker.data_directory, ".log")
        if log.parent.name.startswith("__consumer_offsets-")
    ]
    found = _without_complaints(dump([log for log in logs if log.stat().st_size], "--offsets-decoder"))
    assert "isTransactional: true" in found.text
    assert '"group":"tools-group"' in found.text
