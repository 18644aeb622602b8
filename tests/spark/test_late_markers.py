"""The judge of the long runs, when markers come late: a commit is answered before its rows can be read everywhere.

Apache Kafka sends markers over the network, to itself too; here they wait on the way. A judge who does not wait for
them counts rows as lost. The sink, whose next batch meets a transaction that is decided and not done, must not.
"""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.extras import require_arrow

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the source needs PySpark 4.2")

from tests.faults.proxy import FaultProxy  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.kafka import ApacheKafka  # noqa: E402
from tests.spark.chaos.micro_batches import RestartsWithoutSpark  # noqa: E402

pytestmark = pytest.mark.timeout(400)
LATE_SECONDS = 0.3
FAULTS = ["commit forgotten", "taken over: committed"]


class KafkaWithTheMarkersOnTheWay(ApacheKafka):
    """Its markers go through a proxy."""

    def start(self) -> "KafkaWithTheMarkersOnTheWay":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._internal = free.getsockname()[1]
        self.between = FaultProxy(("127.0.0.1", self._internal))
        super().start()
        return self

    def _write_properties(self) -> Path:
        path = super()._write_properties()
        settings = dict(line.split("=", 1) for line in path.read_text().splitlines())
        host, port = self.between.address
        settings["listeners"] += f",INTERNAL://127.0.0.1:{self._internal}"
        settings["advertised.listeners"] += f",INTERNAL://{host}:{port}"
        settings["listener.security.protocol.map"] += ",INTERNAL:PLAINTEXT"
        settings["inter.broker.listener.name"] = "INTERNAL"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path


class HastyJudge(RestartsWithoutSpark):
    """Looks at once as well."""

    missed = 0

    def _judge(self) -> None:
        self._count()
        self.missed += self.result.lost
        super()._judge()


@pytest.fixture
def broker() -> Iterator[KafkaWithTheMarkersOnTheWay]:
    with KafkaWithTheMarkersOnTheWay() as process:
        yield process
        process.between.close()


def test_rows_are_missed_only_by_a_judge_who_does_not_wait_for_the_markers(
    broker: KafkaWithTheMarkersOnTheWay, tmp_path: Path
) -> None:
    late = broker.between.delay("WriteTxnMarkers", LATE_SECONDS, every=1)
    target: BrokerProcess = broker
    run = HastyJudge("late markers", None, target, target, tmp_path, seed=1)
    assert run.run(FAULTS).is_clean
    assert late.caught.is_set()
    assert run.missed > 0
