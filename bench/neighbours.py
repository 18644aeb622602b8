"""Rows of a neighbour: one producer of single records, while somebody else asks for as much as a request can.

The neighbour is the client of the latency rows, one request in flight. Beside it a connection sends one of the worst
requests again and again, each as soon as the last is answered. Of the neighbour p50 and p99 count.
"""

import contextlib
import struct
import threading
from collections.abc import Callable, Iterator, Sequence

from bench import load, wire
from bench.cost import packed, tagged_frame
from bench.experiment import Context, Experiment, Metric, Sample
from bench.requests import produce_requests
from bench.subjects import Subject
from fencepost.wire.catalog import ApiKey
from fencepost.wire.compression import Codec
from fencepost.wire.framing import request_frame
from fencepost.wire.messages import (
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    MetadataRequest,
    ProduceRequest,
)

COMPACTED, TRANSACTIONS = "noisy-compacted", 300
NAMES = 40_000
LONG_NAMES, LONG_NAME_BYTES = 30_000, 2_000
FETCHED = 20_000
ANSWER_TIMEOUT_SECONDS = 60.0


def framed(api: ApiKey, version: int, message: object) -> bytes:
    return b"".join(request_frame(api, version, 1, "noisy", message))


def names(prefix: str) -> list[str]:
    return [f"{prefix}{number}" for number in range(NAMES)]


def long_names() -> list[str]:
    return [f"{number}".zfill(LONG_NAME_BYTES) for number in range(LONG_NAMES)]


def _listed() -> list[bytes]:
    pattern = ListTransactionsRequest(transactional_id_pattern="(a?){400}a{400}", duration_filter=-1)
    return [framed(ApiKey.LIST_TRANSACTIONS, 2, pattern)]


def _packed_batch(batch: bytes) -> list[bytes]:
    topic = ProduceRequest.TopicProduceData
    data = topic.PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic(name=COMPACTED, partition_data=[data])])
    return [framed(ApiKey.PRODUCE, 9, request)]


def _tags() -> list[bytes]:
    frame = tagged_frame(NAMES)
    return [struct.pack(">i", len(frame)) + frame]


def _fetched() -> list[bytes]:
    topic = FetchRequest.FetchTopic
    wanted = [topic.FetchPartition(partition=number, partition_max_bytes=1) for number in range(FETCHED)]
    request = FetchRequest(max_wait_ms=0, max_bytes=1, session_epoch=-1, topics=[topic(topic="x", partitions=wanted)])
    return [framed(ApiKey.FETCH, 12, request)]


def _created(topics: int, partitions: int) -> list[bytes]:
    """And deleted again."""
    topic = CreateTopicsRequest.CreatableTopic
    made = [topic(name=f"noisy-{n}", num_partitions=partitions, replication_factor=1) for n in range(topics)]
    create = CreateTopicsRequest(topics=made, timeout_ms=60_000)
    state = DeleteTopicsRequest.DeleteTopicState
    delete = DeleteTopicsRequest(topics=[state(name=each.name) for each in made], timeout_ms=60_000)
    return [framed(ApiKey.CREATE_TOPICS, 7, create), framed(ApiKey.DELETE_TOPICS, 6, delete)]


NOISE: dict[str, Callable[[], list[bytes]]] = {
    "nobody": list,
    "ListTransactions with a pattern": _listed,
    "a zstd batch of 190,000 records to a compacted topic": lambda: _packed_batch(packed(190_000, Codec.ZSTD)),
    "a zstd batch of 60 MB of zeros to a compacted topic": lambda: _packed_batch(packed(1, value=bytes(60_000_000))),
    f"{NAMES:,} tagged fields": _tags,
    f"DescribeGroups with {NAMES:,} names": lambda: [
        framed(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=names("g")))
    ],
    f"DescribeGroups of {LONG_NAMES * LONG_NAME_BYTES // 1_000_000} MB": lambda: [
        framed(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=long_names()))
    ],
    f"DeleteGroups with {NAMES:,} names": lambda: [
        framed(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=names("g")))
    ],
    f"DescribeTransactions with {NAMES:,} names": lambda: [
        framed(ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(transactional_ids=names("t")))
    ],
    f"Fetch with {FETCHED:,} entries": _fetched,
    "Metadata of all topics": lambda: [framed(ApiKey.METADATA, 12, MetadataRequest(topics=None))],
    "CreateTopics with 200 partitions": lambda: _created(1, 200),
    "CreateTopics with 100 topics": lambda: _created(100, 1),
}


# Apache Kafka answers before its brokers have done it: without a rest they fall behind for minutes.
REST_SECONDS = {"CreateTopics with 200 partitions": 1.0, "CreateTopics with 100 topics": 1.0}


class Noise:
    """Sends the requests in turn, again and again; begins anew where the broker hangs up."""

    def __init__(self, address: tuple[str, int], requests: list[bytes], rest_seconds: float) -> None:
        self._rest_seconds = rest_seconds
        self._address = address
        self._requests = requests
        self._is_over = threading.Event()
        self.answered = 0

    def run(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(OSError), wire.Connection(self._address, ANSWER_TIMEOUT_SECONDS) as connection:
                while not self._is_over.is_set():
                    for request in self._requests:
                        connection.call(request)
                        self.answered += 1
                    self._is_over.wait(self._rest_seconds)

    def stop(self) -> None:
        self._is_over.set()


@contextlib.contextmanager
def beside(address: tuple[str, int], requests: list[bytes], rest_seconds: float = 0.0) -> Iterator[Noise]:
    noise = Noise(address, requests, rest_seconds)
    thread = threading.Thread(target=noise.run, daemon=True)
    if requests:
        thread.start()
    try:
        yield noise
    finally:
        noise.stop()
        if requests:
            thread.join(ANSWER_TIMEOUT_SECONDS)


class NoisyNeighbour(Experiment):
    pair = "page cache"
    work_unit = "request"
    in_quick = False

    def __init__(self, noise: str, requests: Callable[[], list[bytes]]) -> None:
        self.name = f"neighbour of {noise}"
        self.metrics = (Metric("p50", "us", lower_is_better=True), Metric("p99", "us", lower_is_better=True))
        self._make = requests
        self._rest_seconds = REST_SECONDS.get(noise, 0.0)
        self._requests: list[bytes] = []
        self._topic = ""

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        self._topic = context.topic_name()
        self._requests = self._make()
        for subject in subjects:
            with subject.connect() as connection:
                connection.create_topic(self._topic, 1, subject.topic_configs)
                self._furnish(connection)
        for subject in subjects:
            self._run(subject, 1.0 if context.quick else 5.0)

    def _furnish(self, connection: wire.Connection) -> None:
        """What the worst requests are about. The second time it is there already."""
        with contextlib.suppress(wire.RequestFailed):
            connection.create_topic(COMPACTED, 1, {"cleanup.policy": "compact"})
        connection.call(framed(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="t", key_type=1)))
        for number in range(TRANSACTIONS):
            name = "a" * 380 + f"{number:04}"
            init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            connection.call(framed(ApiKey.INIT_PRODUCER_ID, 3, init))

    def _run(self, subject: Subject, seconds: float) -> load.Latency:
        requests = produce_requests([self._topic], 1)
        offset = wire.produce_error_offset(self._topic)
        with beside(subject.address, self._requests, self._rest_seconds):
            return load.request(
                subject.address, requests, offset, connections=1, warmup=100, count=1_000_000, seconds=seconds
            )

    def sample(self, context: Context, subject: Subject) -> Sample:
        before = subject.cpu_seconds()
        done = self._run(subject, context.sample_seconds)
        cpu = subject.cpu_seconds() - before
        return Sample(
            {"p50": done.p50_us, "p99": done.p99_us}, cpu, done.client_cpu_seconds, done.seconds, done.requests
        )

    def finish(self, context: Context, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            with subject.connect() as connection:
                connection.delete_topics([self._topic])


def experiments() -> list[Experiment]:
    return [NoisyNeighbour(noise, requests) for noise, requests in NOISE.items()]
