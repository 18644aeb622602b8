"""Which sources are paused: a small topic that `pause` and `resume` write and every worker follows.

Keys and values are those of Kafka Connect's own records: `target-state-NAME` and `{"state":"PAUSED"}`.
"""

import json
import threading

from fencepost.client import ClientError, Producer, Reset, TopicPartition
from fencepost.client.kafka_types import ConsumedRecord
from fencepost.connect.cluster import ClusterAddress, ensure_topic
from fencepost.connect.records import compact_json

_PREFIX = b"target-state-"
PAUSED, STARTED = "PAUSED", "STARTED"
RETRY_SECONDS = 1.0
STOP_SECONDS = 2.0


def write_target_state(cluster: ClusterAddress, name: str, state: str) -> None:
    _ensure(cluster)
    with Producer(cluster.bootstrap_servers, **cluster.options) as producer:
        producer.send(cluster.state_topic, compact_json({"state": state}), key=_PREFIX + name.encode())
        producer.flush()


def read_paused(cluster: ClusterAddress) -> set[str]:
    following = TargetStates(cluster)
    following.read_to_end()
    return following.paused


class TargetStates:
    """Follows the topic in a thread, from `start` to `stop`."""

    def __init__(self, cluster: ClusterAddress) -> None:
        self._cluster = cluster
        self._next = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.paused: set[str] = set()
        """Replaced, never changed: other threads read it."""

    def start(self) -> None:
        """What is paused is known when this returns."""
        self.read_to_end()
        self._thread = threading.Thread(target=self._follow, name="target states", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            # Cut off from the cluster it may take long, and nobody needs it.
            self._thread.join(STOP_SECONDS)

    def read_to_end(self) -> None:
        _ensure(self._cluster)
        with self._cluster.committed_reader() as reader:
            reader.assign({self._partition: Reset.EARLIEST})
            self._take(list(reader.records()))
            self._next = reader.positions[self._partition]

    @property
    def _partition(self) -> TopicPartition:
        return TopicPartition(self._cluster.state_topic, 0)

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._cluster.committed_reader() as reader:
                    reader.assign({self._partition: self._next})
                    while not self._stopping.is_set():
                        self._take(reader.poll())
                        self._next = reader.positions[self._partition]
                        self._stopping.wait(0.2)
            except ClientError:
                # The tasks say that the cluster is away; this only tries again.
                self._stopping.wait(RETRY_SECONDS)

    def _take(self, records: list[ConsumedRecord]) -> None:
        for record in records:
            if record.key is None or not record.key.startswith(_PREFIX):
                continue
            name = record.key.removeprefix(_PREFIX).decode(errors="replace")
            try:
                state = json.loads(record.value or b"{}").get("state")
            except (ValueError, AttributeError):
                continue
            self.paused = self.paused | {name} if state == PAUSED else self.paused - {name}


def _ensure(cluster: ClusterAddress) -> None:
    with cluster.admin() as admin:
        ensure_topic(admin, cluster.state_topic, 1, {"cleanup.policy": "compact"})
