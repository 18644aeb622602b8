"""The published anomaly of Apache Kafka's first transaction protocol (KAFKA-17754), as the checker sees it.

A producer's EndTxn is held up in the network; the client asks again on another connection and goes on to its next
transaction; then the first EndTxn arrives. On Apache Kafka it ends the wrong transaction: a late commit shows values
before their commit, a late abort tears their transaction. Fencepost knows it for what it is. librdkafka speaks that
protocol to any broker.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from fencepost.history import HistoryRecorder, Report, check, read_events
from fencepost.history.finding_text import explain
from tests.chaos.recorded import RecordedProducer, RecordedReader, unique
from tests.faults.conftest import CONFIGS, settled
from tests.faults.proxy import FaultProxy
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka
from tests.support.patience import patient

pytestmark = [pytest.mark.timeout(120), pytest.mark.xdist_group("late-end-judged")]
PATIENCE = {"socket.timeout.ms": 1_500}
WAIT_SECONDS = patient(30.0)


@pytest.fixture(scope="module")
def fencepost() -> Iterator[BrokerProcess]:
    with FencepostProcess(CONFIGS) as process:
        yield settled(process)


@pytest.fixture(scope="module")
def apache() -> Iterator[BrokerProcess]:
    with ApacheKafka() as process:
        yield settled(process)


def history_of_a_late_end(broker: BrokerProcess, commit: bool) -> Report:
    events: list[dict[str, Any]] = []
    recorder = HistoryRecorder(events.append, time.monotonic)
    topic = unique("late-end")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(patient(20))
    with FaultProxy(broker.address) as proxy:
        producer = RecordedProducer(recorder, "producer", proxy.bootstrap_servers, topic, **PATIENCE)
        held = proxy.hold("EndTxn", transactional_id=topic)
        producer.begin()
        producer.send(topic, 0, "first")
        producer.flush()
        # The client loses patience with the held call, and sends it again on another connection.
        producer.commit() if commit else producer.abort()
        assert held.frame is not None
        producer.begin()
        producer.send(topic, 0, "second")
        producer.flush()
        held.release().outcome()
        if commit and broker.name == "apache":
            wait_for_the_second(recorder, broker, topic)
        else:
            look_once(recorder, broker, topic)
        producer.send(topic, 1, "third")
        assert producer.commit(), "the client never learns of it"
        producer.close()
    reader = RecordedReader(recorder, "final", broker.bootstrap_servers, [(topic, 0), (topic, 1)])
    wait_for_the_third(recorder, broker, topic)
    reader.read_everything()
    reader.close()
    return check(read_events(events))


def look_once(recorder: HistoryRecorder, broker: BrokerProcess, topic: str) -> None:
    reader = RecordedReader(recorder, "reader", broker.bootstrap_servers, [(topic, 0)])
    reader.poll_to_the_end()
    reader.close()


def wait_for_the_second(recorder: HistoryRecorder, broker: BrokerProcess, topic: str) -> None:
    _read_until(recorder, broker, topic, 0, 2)


def wait_for_the_third(recorder: HistoryRecorder, broker: BrokerProcess, topic: str) -> None:
    """An acknowledged commit is visible when its markers are written."""
    _read_until(recorder, broker, topic, 1, 1)


def _read_until(recorder: HistoryRecorder, broker: BrokerProcess, topic: str, partition: int, count: int) -> None:
    reader = RecordedReader(recorder, f"reader-{partition}", broker.bootstrap_servers, [(topic, partition)])
    deadline = time.monotonic() + WAIT_SECONDS
    seen = 0
    while seen < count and time.monotonic() < deadline:
        seen += reader.poll()
    reader.close()
    assert seen == count


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_fencepost_gives_a_history_without_anomalies(commit: bool, fencepost: BrokerProcess) -> None:
    report = history_of_a_late_end(fencepost, commit)
    assert report.is_clean, "\n".join(explain(report))
    assert report.operations["txn", "ok"] == (2 if commit else 1)


def test_a_late_commit_shows_values_too_early_on_apache_kafka(apache: BrokerProcess) -> None:
    report = history_of_a_late_end(apache, commit=True)
    assert report.anomalies == {"precommitted-read"}, "\n".join(explain(report))
    (finding,) = report.findings
    assert finding.values == ("second",)


def test_a_late_abort_tears_a_transaction_on_apache_kafka(apache: BrokerProcess) -> None:
    report = history_of_a_late_end(apache, commit=False)
    assert report.anomalies == {"torn-transaction"}, "\n".join(explain(report))
    (finding,) = report.findings
    assert finding.values == ("second",)
