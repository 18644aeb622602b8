"""The runtime of sources, with functions as sources: order, boundaries, fencing, failures."""

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost import Broker
from fencepost.client import Admin, Client, TransactionalProducer, TransactionOutcomeUnknown, UnknownTopic
from fencepost.connect import ConnectError, Portion, Record, Source, Transaction, source
from fencepost.connect.cluster import ClusterAddress
from fencepost.connect.errors import InvalidSource, TaskFenced, TransactionTooLong
from fencepost.connect.positions import Positions, position_key
from fencepost.connect.records import Position
from fencepost.connect.target_states import PAUSED, STARTED, write_target_state
from fencepost.connect.task import TaskSettings
from tests.connect.reading import committed, wait_until
from tests.connect.running import RunningWorker
from tests.peers import java
from tests.peers.kafka import ApacheKafka


def numbers(upto: int, *, size: int = 1, **settings: Any) -> Source:
    """The numbers from 1 on, `size` of them in a source transaction, the same ones from the same position."""

    @source("numbers", topics={"numbers": 1}, every_seconds=0.05, **settings)
    def read(position: Position | None) -> Iterator[Transaction]:
        n = position["n"] if position else 0
        while n < upto:
            wanted = range(n + 1, min(n + size, upto) + 1)
            n = wanted[-1]
            yield Transaction([Record("numbers", str(each), key=str(each)) for each in wanted], {"n": n})

    return read


def values(servers: str, topic: str = "numbers") -> list[int]:
    return [int(record.value or b"") for record in committed(servers, topic)]


def values_or_none(servers: str) -> list[int]:
    try:
        return values(servers)
    except UnknownTopic:
        return []


def is_at(n: int) -> Any:
    return lambda facts: facts["position"] == {"n": n}


def test_everything_arrives_once_and_in_order_and_goes_on_after_a_restart(broker: Broker) -> None:
    with RunningWorker(broker.bootstrap_servers, numbers(500)) as first:
        first.wait_for("committed", is_at(500))
    with RunningWorker(broker.bootstrap_servers, numbers(900)) as second:
        second.wait_for("committed", is_at(900))
    assert second.facts("started")[0]["position"] == {"n": 500}
    assert values(broker.bootstrap_servers) == list(range(1, 901))


def test_the_same_on_apache_kafka_whose_tools_read_the_positions(apache: ApacheKafka) -> None:
    with RunningWorker(apache.bootstrap_servers, numbers(300, max_records=300, linger_ms=60_000)) as first:
        first.wait_for("committed", is_at(300))
    assert values(apache.bootstrap_servers) == list(range(1, 301))
    consumer = [
        "--bootstrap-server", apache.bootstrap_servers, "--topic", "fencepost-connect-offsets", "--from-beginning",
        "--isolation-level", "read_committed", "--max-messages", "2", "--timeout-ms", "60000",
        "--formatter-property", "print.key=true",
    ]  # fmt: skip
    done = subprocess.run(
        java.command("org.apache.kafka.tools.consumer.ConsoleConsumer", consumer), capture_output=True, text=True
    )
    assert '["numbers",{}]\t{"n":300}' in done.stdout.splitlines(), done.stdout + done.stderr


def test_a_second_worker_takes_over_and_the_first_names_it(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with RunningWorker(servers, numbers(10**9), settings=TaskSettings()) as first:
        first.wait_for("committed")
        with RunningWorker(servers, numbers(10**9)) as second:
            (failure,) = first.join()
            second.wait_for("committed")
    assert isinstance(failure, TaskFenced)
    assert "it is run by" in failure.fact
    found = values(servers)
    assert found == list(range(1, len(found) + 1))


def test_an_idle_worker_hears_that_it_was_fenced(broker: Broker) -> None:
    settings = TaskSettings(heartbeat_seconds=0.2)
    with RunningWorker(broker.bootstrap_servers, numbers(10), settings=settings) as first:
        first.wait_for("heartbeat")
        with RunningWorker(broker.bootstrap_servers, numbers(10)) as second:
            second.wait_for("started")
            (failure,) = first.join()
    assert isinstance(failure, TaskFenced)


def test_source_transactions_share_a_kafka_transaction_up_to_max_records_and_are_never_torn(broker: Broker) -> None:
    reader = numbers(100, size=7, max_records=20, linger_ms=60_000)
    with RunningWorker(broker.bootstrap_servers, reader) as worker:
        worker.wait_for("committed", is_at(84))
    # 7 + 7 + 7 records reach 20; the two source transactions that are left go with the stop.
    sizes = [facts["records"] for facts in worker.facts("committed")]
    assert sizes == [21, 21, 21, 21, 16]


def test_the_boundary_poll_commits_every_source_transaction(broker: Broker) -> None:
    with RunningWorker(broker.bootstrap_servers, numbers(12, size=3, boundary="poll")) as worker:
        worker.wait_for("committed", is_at(12))
    assert [facts["records"] for facts in worker.facts("committed")] == [3, 3, 3, 3]


def test_the_boundary_connector_commits_where_the_source_says(broker: Broker) -> None:
    @source("groups", topics={"groups": 1}, boundary="connector")
    def groups(position: Position | None) -> Iterator[Transaction]:
        for n in range(position["n"] if position else 0, 9):
            yield Transaction([Record("groups", str(n))], {"n": n + 1}, ends_kafka_transaction=n % 3 == 2)

    with RunningWorker(broker.bootstrap_servers, groups) as worker:
        worker.wait_for("committed", is_at(9))
    assert [facts["records"] for facts in worker.facts("committed")] == [3, 3, 3]


def test_portions_of_a_source_transaction_become_visible_together(broker: Broker) -> None:
    go_on = threading.Event()

    @source("large", topics={"large": 1}, linger_ms=0, max_records=1)
    def large(position: Position | None) -> Iterator[Portion | Transaction]:
        if position:
            return
        yield Portion([Record("large", str(n)) for n in range(5)])
        go_on.wait()
        yield Transaction([Record("large", "5")], {"done": True})

    with RunningWorker(broker.bootstrap_servers, large) as worker:
        worker.wait_for("started")
        time.sleep(0.3)  # long enough for a commit that must not come
        assert values(broker.bootstrap_servers, "large") == []
        go_on.set()
        worker.wait_for("committed")
    assert values(broker.bootstrap_servers, "large") == [0, 1, 2, 3, 4, 5]


def test_what_was_not_complete_at_the_stop_is_read_again(broker: Broker) -> None:
    @source("half", topics={"half": 1}, linger_ms=0)
    def half(position: Position | None) -> Iterator[Portion | Transaction]:
        yield Transaction([Record("half", "0")], {"n": 1})
        yield Portion([Record("half", "1")])
        threading.Event().wait(2)

    with RunningWorker(broker.bootstrap_servers, half) as worker:
        worker.wait_for("committed")
        time.sleep(0.2)  # long enough for the portion
    assert values(broker.bootstrap_servers, "half") == [0]
    with Admin(broker.bootstrap_servers) as admin:
        # Readers do not wait for its time-out.
        assert admin.describe_transaction("connect-half").state in ("CompleteCommit", "CompleteAbort")


@pytest.mark.parametrize("has_happened", [True, False])
def test_a_commit_whose_outcome_is_unknown_is_decided_by_the_next_start(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, has_happened: bool
) -> None:
    commit, calls = TransactionalProducer.commit, itertools.count()

    def unanswered(self: TransactionalProducer) -> None:
        if next(calls) % 4 != 3:
            commit(self)
            return
        if has_happened:
            commit(self)
        raise TransactionOutcomeUnknown("connect-numbers", self.identity, TimeoutError("no answer"))

    monkeypatch.setattr(TransactionalProducer, "commit", unanswered)
    with RunningWorker(broker.bootstrap_servers, numbers(60, size=3, boundary="poll")) as worker:
        wait_until(lambda: len(values_or_none(broker.bootstrap_servers)) >= 60, "all numbers")
    assert worker.count("retrying") > 2
    assert values(broker.bootstrap_servers) == list(range(1, 61))


def test_several_tasks_of_a_source_keep_their_own_positions(broker: Broker) -> None:
    shards = [{"shard": n} for n in range(4)]

    @source("sharded", partitions=shards, topics={"sharded": 3}, every_seconds=0.05)
    def sharded(position: Position | None, partition: Any) -> Iterator[Transaction]:
        for n in range(position["n"] if position else 0, 50):
            yield Transaction([Record("sharded", {"n": n, **partition}, key=str(partition["shard"]))], {"n": n + 1})

    for _ in range(2):
        with RunningWorker(broker.bootstrap_servers, sharded) as worker:
            worker.wait_for("started")
            wait_until(lambda: len(committed(broker.bootstrap_servers, "sharded")) >= 200, "all 200 records")
    found = [json.loads(record.value or b"") for record in committed(broker.bootstrap_servers, "sharded")]
    for shard in range(4):
        assert [each["n"] for each in found if each["shard"] == shard] == list(range(50))
    held = Positions(ClusterAddress(broker.bootstrap_servers)).read(position_key("sharded", {"shard": 2}))
    assert held.position == {"n": 50}


def test_a_position_behind_another_tasks_open_transaction_is_waited_for(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with RunningWorker(servers, numbers(5)) as worker:
        worker.wait_for("committed", is_at(5))
    address = ClusterAddress(servers)
    positions = Positions(address)
    key = position_key("numbers", {})
    with Client(servers) as client:
        other = client.producer("another-task")
        other.init()
        other.begin()
        other.send(address.offsets_topic, b"{}", key=b"other", partition=positions.partition_of(key))
        other.flush()
        # Committed behind the open transaction: below the high watermark, above the last stable offset.
        with client.transaction("a-task") as mine:
            mine.send(address.offsets_topic, b'{"n":6}', key=key, partition=positions.partition_of(key))
        ended = threading.Timer(0.5, other.commit)
        ended.start()
        assert positions.read(key).position == {"n": 6}
        ended.join()


def test_the_broker_dies_and_comes_back(broker: Broker) -> None:
    with RunningWorker(broker.bootstrap_servers, numbers(10**9, size=3, linger_ms=5)) as worker:
        for _ in range(3):
            before = worker.count("committed") + 3
            wait_until(lambda wanted=before: worker.count("committed") > wanted, "commits")  # type: ignore[misc]
            broker.kill()
            broker.restart()
        before = worker.count("committed")
        wait_until(lambda: worker.count("committed") > before, "commits after the last restart")
    found = values(broker.bootstrap_servers)
    assert found == list(range(1, len(found) + 1))


def test_an_unreachable_service_is_tried_again_and_a_mistake_is_not(broker: Broker) -> None:
    tries = []

    @source("flaky", topics={"flaky": 1}, every_seconds=0.05)
    def flaky(position: Position | None) -> Iterator[Transaction]:
        tries.append(position)
        if len(tries) == 1:
            yield Transaction([Record("flaky", "1")], {"n": 1})
            raise ConnectionRefusedError("nobody there")
        if len(tries) == 2:
            yield Transaction([Record("flaky", "2")], {"n": 2})
        raise KeyError("a mistake")

    with RunningWorker(broker.bootstrap_servers, flaky) as worker:
        (failure,) = worker.join()
    assert "nobody there" in worker.facts("retrying")[0]["reason"]
    assert "KeyError: 'a mistake'" in failure.fact
    assert "goes on at the last committed position" in failure.advice
    assert tries[:2] == [None, {"n": 1}]
    wait_until(lambda: values(broker.bootstrap_servers, "flaky") == [1, 2], "what came before each failure")


def test_pause_stops_the_tasks_and_resume_lets_them_go_on(broker: Broker) -> None:
    cluster = ClusterAddress(broker.bootstrap_servers)
    with RunningWorker(broker.bootstrap_servers, numbers(10**9)) as worker:
        worker.wait_for("committed")
        write_target_state(cluster, "numbers", PAUSED)
        worker.wait_for("paused")
        at_pause = values(broker.bootstrap_servers)
        time.sleep(0.3)  # long enough for commits that must not come
        assert values(broker.bootstrap_servers) == at_pause
        write_target_state(cluster, "numbers", STARTED)
        wait_until(lambda: worker.count("started") == 2, "a new start")
        worker.wait_for("committed", lambda facts: facts["position"]["n"] > at_pause[-1])
    found = values(broker.bootstrap_servers)
    assert found == list(range(1, len(found) + 1))


def test_a_source_transaction_that_takes_longer_than_the_brokers_allow_ends_with_what_to_raise() -> None:
    @source("slow", topics={"slow": 1})
    def slow(position: Position | None) -> Iterator[Portion | Transaction]:
        for n in range(1000):
            yield Portion([Record("slow", str(n))])
            time.sleep(0.05)

    with Broker(settings={"transaction.max.timeout.ms": 2000}) as broker:
        settings = TaskSettings(transaction_timeout_ms=1000)
        with RunningWorker(broker.bootstrap_servers, slow, settings=settings) as worker:
            (failure,) = worker.join()
        assert "raised to 2000 ms" in worker.facts("retrying")[0]["reason"]
        assert isinstance(failure, TransactionTooLong)
        assert "transaction.max.timeout.ms" in failure.advice
        assert values(broker.bootstrap_servers, "slow") == []


def test_a_record_that_is_too_large_ends_the_task_and_says_what_to_change(broker: Broker) -> None:
    @source("big", topics={"big": 1})
    def big(position: Position | None) -> Iterator[Transaction]:
        yield Transaction([Record("big", b"x" * 2_000_000)], {"n": 1})

    with RunningWorker(broker.bootstrap_servers, big) as worker:
        (failure,) = worker.join()
    assert "max.message.bytes" in failure.advice


def test_declarations_that_cannot_work_are_refused() -> None:
    with pytest.raises(InvalidSource, match="not a boundary"):
        numbers(1, boundary="sometimes")
    with pytest.raises(InvalidSource, match="takes"):
        source("two", partitions=[{}])(lambda position: [])
    with pytest.raises(ConnectError, match="at least 1"):
        numbers(1, max_records=0)
