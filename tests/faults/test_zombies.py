"""Producers that hang, members whose partitions have moved on, commits at the edge of their time, readers that die."""

import signal
import sys
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.faults.clients import FORGIVEN, TransactionalClient
from tests.faults.proxy import FaultProxy
from tests.faults.scene import ends, events, script, values_of
from tests.interop.cases.groups import await_state, commit, join, stable, sync
from tests.interop.cases.transactional import COMMIT, SHORT_TIMEOUT_MS
from tests.peers.broker_process import BrokerProcess
from tests.peers.build import REPOSITORY
from tests.peers.process import JsonLinesProcess
from tests.support.patience import patient

pytestmark = [pytest.mark.timeout(60), *FORGIVEN]


def test_a_producer_that_hung_is_fenced_in_all_that_it_does(
    broker: BrokerProcess, unique: Callable[[str], str], new_client: Callable[..., TransactionalClient]
) -> None:
    name = unique("zombie")
    watcher = script(broker, name)
    topic = watcher.peer.topic()
    command = [sys.executable, "-m", "tests.faults.programs.hung_producer"]
    arguments = [broker.bootstrap_servers, name, topic, f"group-{name}"]
    with JsonLinesProcess("hung producer", command + arguments, {"PYTHONPATH": str(REPOSITORY)}) as zombie:
        zombie.wait_for("open")
        zombie.signal(signal.SIGSTOP)
        successor = new_client("confluent-kafka", broker.bootstrap_servers, name)
        successor.begin()
        successor.send(topic, b"successor")
        successor.commit()
        zombie.signal(signal.SIGCONT)
        zombie.close_input()
        outcomes = zombie.wait_for("outcomes")["outcomes"]
    assert all(outcome not in ("written", "done") for outcome in outcomes), outcomes
    assert any("fenced" in outcome.lower() for outcome in outcomes), outcomes
    assert values_of(broker, topic) == [b"successor"]
    assert values_of(broker, topic, "read_uncommitted") == [b"before", b"successor"]
    assert watcher.offset(f"group-{name}", topic) == (0, -1, "")
    assert events(broker, "ProducerFenced", name)[-1]["cause"] is not None


def test_offsets_of_a_member_whose_generation_is_over_are_refused(
    broker: BrokerProcess, unique: Callable[[str], str]
) -> None:
    name = unique("stale")
    watcher = script(broker, name)
    peer = watcher.peer
    topic, group = peer.topic(), f"group-{name}"
    # A has the partition, goes silent beyond its session, and B gets it.
    first = stable(peer, group, SessionTimeoutMs=200, RebalanceTimeoutMs=300)
    await_state(peer, group, "Empty")
    second = join(peer, group)
    assert sync(peer, group, second, {second["MemberId"]: b"theirs"})["ErrorCode"] == 0
    member = {"GenerationIdOrMemberEpoch": second["GenerationId"], "MemberId": second["MemberId"]}
    assert commit(peer, group, topic, 20, **member) == 0
    late = watcher.producer("late")
    late.init()
    late.add_offsets(group)
    claims = {"MemberId": first["MemberId"], "GenerationId": first["GenerationId"]}
    assert late.commit_offset(group, topic, 10, **claims) in (22, 25)
    late.end(COMMIT)
    assert watcher.offset(group, topic) == (0, 20, "")


def test_a_real_consumer_left_behind_by_a_rebalance_cannot_commit_its_offsets(
    broker: BrokerProcess, unique: Callable[[str], str]
) -> None:
    name = unique("left-behind")
    watcher = script(broker, name)
    topic, group = watcher.peer.topic(), f"group-{name}"
    watcher.peer.fill(topic, 5)
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 500,
        "heartbeat.interval.ms": 50,
        "max.poll.interval.ms": 600,
    }
    left_behind = Consumer(settings)
    left_behind.subscribe([topic])
    assert left_behind.poll(patient(10)) is not None
    metadata = left_behind.consumer_group_metadata()
    # It does not poll any more; another member gets the partition.
    successor = Consumer({**settings, "max.poll.interval.ms": 60_000})
    successor.subscribe([topic])
    message = None
    while message is None:
        message = successor.poll(patient(10))
    assert message.error() is None
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(10)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], metadata, 10)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(10)
    assert watcher.offset(group, topic) == (0, -1, "")
    successor.close()
    left_behind.close()


@pytest.mark.parametrize("protocol", [(11, 4), (12, 5)], ids=["tv1", "tv2"])
def test_a_commit_that_races_the_time_out_has_one_outcome(
    protocol: tuple[int, int], broker: BrokerProcess, unique: Callable[[str], str]
) -> None:
    version, end_version = protocol
    name = unique("race")
    watcher = script(broker, name)
    committed = refused = 0
    attempts = 26
    for attempt in range(attempts):
        topic = watcher.peer.topic(f"t{attempt}")
        producer = watcher.producer(f"id{attempt}")
        producer.init(timeout_ms=SHORT_TIMEOUT_MS)
        began = time.monotonic()
        producer.open(topic, version)
        if attempt == attempts - 1:
            producer.settle("CompleteAbort")  # one comes too late on any machine, and the first one in time
        elif attempt > 0:
            # The sweep comes every 20 ms: from well before the time-out to well after it.
            until = began + (SHORT_TIMEOUT_MS - 30 + attempt * 3) / 1000
            time.sleep(max(0.0, until - time.monotonic()))
        code = producer.end(COMMIT, end_version)["ErrorCode"]
        producer.settle("CompleteCommit", "CompleteAbort")
        end, stable_end = ends(watcher, topic)
        assert (end, stable_end) == (2, 2), "one batch, one marker"
        is_aborted = bool(watcher.fetched(topic, 0, 1)["aborted"])
        assert is_aborted == (code != 0), (code, watcher.describe(producer.name))
        committed += code == 0
        refused += code != 0
    assert committed > 0
    assert refused > 0


def test_a_reader_of_the_output_that_dies_goes_on_where_it_had_committed(
    broker: BrokerProcess,
    proxy: FaultProxy,
    unique: Callable[[str], str],
    new_client: Callable[..., TransactionalClient],
) -> None:
    name = unique("reader")
    topic = script(broker, name).peer.topic()
    producer = new_client("confluent-kafka", broker.bootstrap_servers, name)
    sent = []
    for transaction in range(6):
        producer.begin()
        values = [b"%d-%d" % (transaction, n) for n in range(3)]
        producer.send_many(topic, values)
        if transaction % 3 == 1:
            producer.abort()
        else:
            producer.commit()
            sent += values
    settings = {
        "bootstrap.servers": proxy.bootstrap_servers,
        "group.id": f"group-{name}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "session.timeout.ms": 500,
        "heartbeat.interval.ms": 50,
    }
    seen: list[bytes] = []
    while len(seen) < len(sent):
        reader = Consumer(settings)
        reader.subscribe([topic])
        taken: list[bytes] = []
        while len(taken) < 5 and len(seen) + len(taken) < len(sent):
            message = reader.poll(patient(10))
            assert message is not None
            if message.error() is None:
                taken.append(message.value())
                if len(taken) == 4:
                    reader.commit(message, asynchronous=False)
        # It fails with one record read and not committed, or at the end.
        seen += taken[:4]
        proxy.cut_all()
        reader.close()
    assert seen == sent
