"""A varied load for one broker: several segments, every codec, compaction, idempotent producers, groups."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.peers.broker_process import BrokerProcess
from tests.support.patience import patient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = 1_048_576  # the least that Apache Kafka allows
RECORDS_PER_CODEC = 1500
ROUND = 2000
KEYS = 20
VALUE = bytes(range(48, 58)) * 60
DEADLINE_SECONDS = patient(60)
# A cleaner that looks often, so that the load need not wait for it.
CONFIGS = {"log.cleaner.backoff.ms": "200"}


def load(broker: BrokerProcess) -> Counter[str]:
    """Fills the topics `segmented` and `compacted`; returns how many records were sent to each."""
    create_topics(broker)
    sent: Counter[str] = Counter()
    noise = random.Random(1)  # what does not compress fills segments under every codec
    for codec in CODECS:
        values = ((None, noise.randbytes(1200)) for _ in range(RECORDS_PER_CODEC))
        sent["segmented"] += produce(broker, "segmented", codec, values)
    for codec in ("none", "none", "lz4", "none"):
        # Uncompressed, a round is more than a segment.
        records = ((b"key %d" % (n % KEYS), b"%d" % n + VALUE) for n in range(ROUND))
        sent["compacted"] += produce(broker, "compacted", codec, records)
    sent["compacted"] += produce(broker, "compacted", "none", ((b"key %d" % n, None) for n in range(5)))
    commit_offsets(broker)
    await_compaction(broker)
    return sent


def create_topics(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    compaction = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": str(SEGMENT_BYTES),
        "delete.retention.ms": "100000",
    }
    topics = [
        NewTopic("segmented", 2, 1, config={"segment.bytes": str(SEGMENT_BYTES)}),
        NewTopic("compacted", 1, 1, config=compaction),
        NewTopic("empty", 1, 1),
    ]
    for future in admin.create_topics(topics).values():
        future.result(patient(20))


def produce(broker: BrokerProcess, topic: str, codec: str, records: Iterator[tuple[bytes | None, bytes | None]]) -> int:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": codec,
            "batch.size": 20_000,
        }
    )
    count = 0
    for key, value in records:
        producer.produce(topic, value, key, partition=count % 2 if topic == "segmented" else 0)
        producer.poll(0)
        count += 1
    assert producer.flush(patient(40)) == 0
    return count


def commit_offsets(broker: BrokerProcess) -> None:
    """Groups with members, with metadata, and without members."""
    for number in range(3):
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": f"group-{number}",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
            }
        )
        consumer.subscribe(["segmented"])
        assert consumer.consume(100, 20)
        consumer.commit(asynchronous=False)
        consumer.close()
    outside = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "outside"})
    outside.commit(
        offsets=[TopicPartition("segmented", 0, 5, "a note"), TopicPartition("compacted", 0, 1)], asynchronous=False
    )
    outside.close()


def await_compaction(broker: BrokerProcess) -> None:
    """The cleaner notes how far it came in a file that both brokers keep in the same form."""
    checkpoint = broker.data_directory / "cleaner-offset-checkpoint"

    def is_cleaned() -> bool:
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        return any(line.startswith("compacted 0 ") and int(line.split()[-1]) > ROUND for line in lines)

    wait_until(is_cleaned, "the topic was never compacted")


def wait_until(holds: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.05)
