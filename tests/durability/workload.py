"""Clients that know what they were promised, and a check of every promise after the lights came back.

Producers are idempotent and behave as real ones do: several batches in flight, and after a reconnect everything that
was not acknowledged is sent again, in order. Whatever was acknowledged, read or committed must outlast any power cut.
"""

import copy
import random
from collections import deque
from typing import Any

from fencepost.simulation.disk import PowerCut, SimulatedDisk
from fencepost.simulation.node import DATA_DIRECTORY, SimulatedNode
from tests.durability.scene import LATEST, SMALL, Client, values_in

IN_FLIGHT_MAX = 5
GROUP = "billing"
# Small segments, so that rolling is under test too.
SEGMENT_BYTES = "4000"


class Producer:
    """One idempotent producer of one partition."""

    def __init__(self, topic: str, partition: int, producer_id: int) -> None:
        self.topic = topic
        self.partition = partition
        self.producer_id = producer_id
        self.sent = 0
        self.sequence = 0
        self.in_flight: deque[tuple[list[bytes], int]] = deque()
        self.acknowledged: list[tuple[int, bytes]] = []

    def send_next(self, client: Client, source: random.Random) -> None:
        if len(self.in_flight) == IN_FLIGHT_MAX:
            return
        values = []
        for _ in range(source.randint(1, 4)):
            values.append(b"%d:" % self.sent + source.randbytes(source.choice((3, 50, 700))))
            self.sent += 1
        self.in_flight.append((values, self.sequence))
        self._send(client, values, self.sequence)
        self.sequence += len(values)

    def send_again(self, client: Client) -> None:
        for values, sequence in list(self.in_flight):
            self._send(client, values, sequence)

    def _send(self, client: Client, values: list[bytes], sequence: int) -> None:
        batch = client.batch(*values, producer_id=self.producer_id, producer_epoch=0, base_sequence=sequence)
        client.expect(client.send(self.topic, {self.partition: batch}), self._answered)

    def _answered(self, client: Client, answer: Any) -> None:
        data = answer.responses[0].partition_responses[0]
        assert data.error_code == 0, f"{self.topic}-{self.partition}: {data.error_code} {data.error_message}"
        values, _ = self.in_flight.popleft()
        offset = data.base_offset
        assert offset >= (self.acknowledged[-1][0] + 1 if self.acknowledged else 0)
        records = [(offset + at, value) for at, value in enumerate(values)]
        must_be_durable(client.machine, self.topic, self.partition, records)
        self.acknowledged += records


class WorkingClient(Client):
    """A client whose answers are handled when they arrive."""

    def __init__(self, machine: SimulatedNode) -> None:
        super().__init__(machine)
        self._expected: dict[int, Any] = {}
        self.socket.on_answer = self._on_answer

    def expect(self, correlation_id: int, handle: Any) -> None:
        if correlation_id in self.socket.answers:
            handle(self, self.socket.answers[correlation_id])
        else:
            self._expected[correlation_id] = handle

    def _on_answer(self, correlation_id: int, answer: Any) -> None:
        handle = self._expected.pop(correlation_id, None)
        if handle is not None:
            handle(self, answer)


def must_be_durable(machine: SimulatedNode, topic: str, partition: int, records: list[tuple[int, bytes]]) -> None:
    """At this very moment, a power cut that takes everything unsynced leaves the records in the log files."""
    disk = copy.deepcopy(machine.disk)
    disk.power_cut(PowerCut.LOSE_ALL)
    directory = f"{DATA_DIRECTORY}/{topic}-{partition}"
    surviving: list[tuple[int, bytes | None]] = []
    for name in disk.list(directory):
        if name.endswith(".log"):
            surviving += values_in(disk.read_bytes(f"{directory}/{name}"))
    assert set(records) <= set(surviving), f"{topic}-{partition}: acknowledged before it was synced"


class Workload:
    def __init__(self, seed: int, topics: dict[str, int], disk: SimulatedDisk | None = None) -> None:
        self.source = random.Random(seed)
        self.machine = SimulatedNode({**SMALL, "log.segment.bytes": SEGMENT_BYTES}, seed=seed, disk=disk)
        self.topics = topics
        self.acknowledged_topics: dict[str, int] = {}
        self.producers: list[Producer] = []
        self.committed: dict[tuple[str, int], int] = {}
        self.commits_sent: dict[tuple[str, int], int] = {}
        self.seen: dict[tuple[str, int], dict[int, bytes | None]] = {}

    def start(self) -> None:
        self.machine.start()
        self._set_clients_to_work()

    def start_and_check(self) -> None:
        """Every promise was kept; then the clients go on."""
        self.machine.start()
        self._check()
        self._set_clients_to_work()

    def _set_clients_to_work(self) -> None:
        self.client = WorkingClient(self.machine)
        for topic, partitions in self.topics.items():
            if topic not in self.acknowledged_topics:
                code = self.client.create_topic(topic, partitions)
                assert code in (0, 36), code  # an unanswered creation of before the cut may have been kept
                self.acknowledged_topics[topic] = partitions
                self.producers += [Producer(topic, at, self.client.producer_id()) for at in range(partitions)]
        ids = [producer.producer_id for producer in self.producers]
        assert len(set(ids)) == len(ids), "a producer id was given out twice"
        assert self.client.find_coordinator(GROUP) == 0
        for producer in self.producers:
            producer.send_again(self.client)

    def act(self) -> None:
        """One thing that a client does, and a little time for it to happen in."""
        producer = self.source.choice(self.producers)
        if self.source.random() < 0.02:
            self.machine.scheduler.run_for(60_100)  # checkpoints are written
        match self.source.choice(("send", "send", "send", "commit", "read", "wait")):
            case "send":
                producer.send_next(self.client, self.source)
            case "commit":
                self.commit(producer)
            case "read":
                self.read(producer)
            case "wait":
                self.machine.scheduler.run_for(self.source.randint(0, 5))

    def commit(self, producer: Producer) -> None:
        key = (producer.topic, producer.partition)
        offset = self.commits_sent.get(key, 0) + 1
        self.commits_sent[key] = offset

        def answered(client: Client, answer: Any) -> None:
            code = answer.topics[0].partitions[0].error_code
            assert code == 0, code
            self.committed[key] = offset

        self.client.expect(self.client.send_commit(GROUP, *key, offset), answered)

    def read(self, producer: Producer) -> None:
        """What a reader was shown must stay, acknowledged or not."""
        key = (producer.topic, producer.partition)
        seen = self.seen.setdefault(key, {})

        def answered(client: Client, answer: Any) -> None:
            seen.update(values_in(answer.responses[0].partitions[0].records))

        offset = max(seen, default=-1) + 1
        self.client.expect(self.client.start_fetch(key[0], {key[1]: offset}), answered)

    def _check(self) -> None:
        client = Client(self.machine)
        assert self.acknowledged_topics.items() <= client.topics().items()
        for producer in self.producers:
            key = (producer.topic, producer.partition)
            found = client.read_all(*key)
            assert [offset for offset, _ in found] == list(range(len(found))), "offsets have holes"
            kept = dict(found)
            for offset, value in producer.acknowledged:
                assert kept.get(offset) == value, f"{key}: the acknowledged record at {offset} is lost"
            for offset, value in self.seen.get(key, {}).items():
                assert kept.get(offset) == value, f"{key}: the record at {offset} was read and then lost"
            # Exactly what was sent, in the order in which it was sent: nothing twice, nothing left out.
            numbers = [int((value or b"").partition(b":")[0]) for _, value in found]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) <= producer.sent
            assert client.offset(*key, LATEST) == len(found)
        assert client.find_coordinator(GROUP) == 0
        for topic, partitions in self.acknowledged_topics.items():
            committed = client.committed(GROUP, topic, range(partitions))
            for partition, offset in committed.items():
                promised = self.committed.get((topic, partition), -1)
                sent = self.commits_sent.get((topic, partition), -1)
                assert promised <= offset <= sent, f"{topic}-{partition}: {offset}, but {promised} was acknowledged"
        for log in self.machine.node.logs():
            log.check_invariants()

    def finish(self) -> None:
        """Let everything be answered; then all that was ever sent is there exactly once."""
        self.machine.scheduler.run_until(lambda: not any(one.in_flight for one in self.producers), 60_000)
        for producer in self.producers:
            assert not producer.in_flight
            found = Client(self.machine).read_all(producer.topic, producer.partition)
            assert found == producer.acknowledged
            assert len(found) == producer.sent
