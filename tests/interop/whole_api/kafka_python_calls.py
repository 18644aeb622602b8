"""kafka-python: KafkaProducer, KafkaConsumer and KafkaAdminClient."""

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kafka
import kafka.admin
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ACL,
    AbortTransactionSpec,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    AlterConfigOp,
    ConfigResource,
    MemberToRemove,
    OffsetSpec,
    OffsetTimestamp,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.structs import OffsetAndMetadata, TopicPartitionReplica

from tests.interop.allowed import ABSENT_FEATURES, ABSENT_TOPIC_CONFIGS
from tests.interop.whole_api.scenario import PATIENCE_SECONDS, Library, Scene, outcome, plain, until

LIBRARY = Library(
    "kafka-python",
    [kafka, kafka.admin],
    {"KafkaProducer": KafkaProducer, "KafkaConsumer": KafkaConsumer, "KafkaAdminClient": KafkaAdminClient},
)
scenario = LIBRARY.scenario
THEN_MS = 1_000_000
PATIENCE_MS = int(PATIENCE_SECONDS * 1000)
ERROR = re.compile(r"(\[Error \d+\] \w+).*", re.DOTALL)


@plain.register
def _(identifier: uuid.UUID) -> Any:
    return "an id"


def codes(value: Any) -> Any:
    """Error texts cut to their number and name: what follows is for people."""
    if isinstance(value, dict):
        return {key: codes(each) for key, each in value.items()}
    if isinstance(value, list):
        return [codes(each) for each in value]
    found = ERROR.fullmatch(value) if isinstance(value, str) else None
    return found[1] if found else value


def response(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The outcome of a call that may return a message of the protocol."""

    def run() -> Any:
        found = call(*arguments, **options)
        return found.to_dict() if hasattr(found, "to_dict") else found

    return codes(outcome(run))


_admins: dict[str, KafkaAdminClient] = {}


def admin_of(scene: Scene) -> KafkaAdminClient:
    """One for all scenarios of a broker; `close_clients` ends it."""
    if scene.bootstrap not in _admins:
        _admins[scene.bootstrap] = KafkaAdminClient(bootstrap_servers=scene.bootstrap)
    return _admins[scene.bootstrap]


def close_clients() -> None:
    while _admins:
        _admins.popitem()[1].close()


LIBRARY.close = close_clients


@contextmanager
def producer_of(scene: Scene, **options: Any) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=scene.bootstrap, **options)
    try:
        yield producer
    finally:
        producer.close(PATIENCE_SECONDS)


@contextmanager
def consumer_of(scene: Scene, *topics: str, stem: str = "group", **options: Any) -> Iterator[KafkaConsumer]:
    settings = {
        "bootstrap_servers": scene.bootstrap,
        "group_id": scene.name(stem),
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "client_id": "whole-api",
        "fetch_max_wait_ms": 50,
        **options,
    }
    consumer = KafkaConsumer(*topics, **settings)
    try:
        for topic in topics:
            # A member that joins before it knows the partitions is assigned none, and has to join again.
            assert consumer.partitions_for_topic(topic), f"{topic} has no partitions"
        yield consumer
    finally:
        consumer.close(autocommit=False)


def read(consumer: KafkaConsumer, count: int) -> list[Any]:
    """So many records. A poll ends with the first of them, or when the test gives up.

    Never before: where changed metadata made it join again, kafka-python forgets a join that outlasts the poll. It
    neither takes the result nor joins once more, and its heartbeats have stopped.
    """
    found: list[Any] = []

    def enough() -> bool:
        for records in consumer.poll(PATIENCE_MS, max_records=count - len(found)).values():
            found.extend(record_of(record) for record in records)
        return len(found) >= count

    until(enough, f"{count} records")
    return sorted(found, key=lambda record: (record["topic"], record["partition"], record["offset"]))


def record_of(record: Any) -> dict[str, Any]:
    names = ("topic", "partition", "leader_epoch", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    return {name: plain(getattr(record, name)) for name in names}


def first(scene: Scene, stem: str = "t", number: int = 0) -> TopicPartition:
    return TopicPartition(scene.name(stem), number)


# ---------------------------------------------------------------- KafkaProducer


def sent(future: Any) -> Any:
    return outcome(future.get, PATIENCE_SECONDS)


@scenario("KafkaProducer.send")
def _(scene: Scene) -> Any:
    topic = scene.topic(partitions=2)
    outcomes = []
    for options in ({}, {"acks": 1}, {"acks": "all"}, {"enable_idempotence": False}, {"compression_type": "gzip"}):
        with producer_of(scene, **options) as producer:
            record = {"key": b"key", "headers": [("name", b"text")], "partition": 1, "timestamp_ms": THEN_MS}
            outcomes.append(sent(producer.send(topic, b"value", **record)))
    with producer_of(scene, max_request_size=3_000_000) as producer:
        outcomes.append(sent(producer.send(topic, bytes(2_000_000), partition=0)))
    return outcomes


@scenario("KafkaProducer.flush")
def _(scene: Scene) -> Any:
    topic = scene.topic()
    with producer_of(scene, linger_ms=10_000) as producer:
        futures = [producer.send(topic, b"value", partition=0, timestamp_ms=THEN_MS) for _ in range(3)]
        producer.flush(PATIENCE_SECONDS)
        return [[future.is_done for future in futures], [sent(future) for future in futures]]


@scenario("KafkaProducer.close")
def _(scene: Scene) -> Any:
    topic = scene.topic()
    producer = KafkaProducer(bootstrap_servers=scene.bootstrap, linger_ms=10_000)
    future = producer.send(topic, b"value", partition=0, timestamp_ms=THEN_MS)
    producer.close(PATIENCE_SECONDS)
    return sent(future)


@scenario("KafkaProducer.partitions_for")
def _(scene: Scene) -> Any:
    topic = scene.topic(partitions=3)
    with producer_of(scene) as producer:
        return [outcome(producer.partitions_for, topic), outcome(producer.partitions_for, scene.name("missing"))]


@scenario("KafkaProducer.bootstrap_connected")
def _(scene: Scene) -> Any:
    with producer_of(scene) as producer:
        return producer.bootstrap_connected()


def transactional(scene: Scene, stem: str = "txn", **options: Any) -> Any:
    return producer_of(scene, transactional_id=scene.name(stem), **options)


@scenario("KafkaProducer.init_transactions")
def _(scene: Scene) -> Any:
    topic = scene.topic()
    with transactional(scene) as older:
        older.init_transactions()
        older.begin_transaction()
        sent(older.send(topic, b"lost", partition=0))
        with transactional(scene) as newer:
            takeover = outcome(newer.init_transactions)
        return [takeover, outcome(older.commit_transaction)]


@scenario("KafkaProducer.begin_transaction")
def _(scene: Scene) -> Any:
    with transactional(scene) as producer:
        before = outcome(producer.begin_transaction)
        producer.init_transactions()
        return [before, outcome(producer.begin_transaction), outcome(producer.abort_transaction)]


def committed_values(scene: Scene, topic: str, count: int) -> list[Any]:
    with consumer_of(scene, stem="reader", isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return read(consumer, count)


@scenario("KafkaProducer.commit_transaction")
def _(scene: Scene) -> Any:
    topic = scene.topic()
    with transactional(scene) as producer:
        producer.init_transactions()
        ends = []
        for number in range(2):
            producer.begin_transaction()
            producer.send(topic, b"transaction %d" % number, partition=0, timestamp_ms=THEN_MS)
            ends.append(outcome(producer.commit_transaction))
        return [ends, committed_values(scene, topic, 2)]


@scenario("KafkaProducer.abort_transaction")
def _(scene: Scene) -> Any:
    topic = scene.topic()
    with transactional(scene) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        sent(producer.send(topic, b"never", partition=0, timestamp_ms=THEN_MS))
        aborted = outcome(producer.abort_transaction)
        producer.begin_transaction()
        producer.send(topic, b"ever", partition=0, timestamp_ms=THEN_MS)
        return [aborted, outcome(producer.commit_transaction), committed_values(scene, topic, 1)]


@scenario("KafkaProducer.send_offsets_to_transaction")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with transactional(scene) as producer, consumer_of(scene, topic) as consumer:
        read(consumer, 3)
        producer.init_transactions()
        producer.begin_transaction()
        offsets = {first(scene): OffsetAndMetadata(2, "note", -1)}
        sending = outcome(producer.send_offsets_to_transaction, offsets, consumer.group_metadata())
        ending = outcome(producer.commit_transaction)
        committed = until(lambda: consumer.committed(first(scene)), "the offset behind the marker")
        return [sending, ending, committed]


# ---------------------------------------------------------------- KafkaConsumer


@scenario("KafkaConsumer.assign")
def _(scene: Scene) -> Any:
    topic = scene.filled(partitions=2)
    with consumer_of(scene) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        return read(consumer, 6)


@scenario("KafkaConsumer.assignment")
def _(scene: Scene) -> Any:
    topic = scene.filled(partitions=2)
    with consumer_of(scene, topic) as consumer:
        before = plain(consumer.assignment())
        read(consumer, 6)
        return [before, consumer.assignment()]


@scenario("KafkaConsumer.beginning_offsets")
def _(scene: Scene) -> Any:
    scene.filled()
    with consumer_of(scene) as consumer:
        unknown = outcome(consumer.beginning_offsets, [first(scene, number=7)], timeout_ms=500)
        return [consumer.beginning_offsets([first(scene)]), unknown]


@scenario("KafkaConsumer.end_offsets")
def _(scene: Scene) -> Any:
    scene.filled()
    with consumer_of(scene) as consumer:
        return consumer.end_offsets([first(scene)])


@scenario("KafkaConsumer.offsets_for_times")
def _(scene: Scene) -> Any:
    scene.filled()
    with consumer_of(scene) as consumer:
        return [consumer.offsets_for_times({first(scene): at}) for at in (0, 1000, 1001, 3000, 3001)]


@scenario("KafkaConsumer.bootstrap")
def _(scene: Scene) -> Any:
    with consumer_of(scene) as consumer:
        return outcome(consumer.bootstrap, PATIENCE_MS, refresh=True)


@scenario("KafkaConsumer.bootstrap_connected")
def _(scene: Scene) -> Any:
    with consumer_of(scene) as consumer:
        return consumer.bootstrap_connected()


def state_of_group(scene: Scene) -> Any:
    described = scene.call("DescribeGroups", 5, {"Groups": [scene.name("group")]})["Groups"][0]
    return [described["GroupState"], len(described["Members"])]


@scenario("KafkaConsumer.close")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene, topic) as consumer:
        read(consumer, 3)
        running = state_of_group(scene)
    return [running, state_of_group(scene)]


@scenario("KafkaConsumer.commit")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene, topic) as consumer:
        read(consumer, 3)
        outcomes = [outcome(consumer.commit)]
        outcomes.append(plain(consumer.committed(first(scene), metadata=True)))
        outcomes.append(outcome(consumer.commit, {first(scene): OffsetAndMetadata(1, "note", -1)}))
        outcomes.append(plain(consumer.committed(first(scene), metadata=True)))
        outcomes.append(outcome(consumer.commit, {first(scene): OffsetAndMetadata(1, "x" * 5000, -1)}))
        return outcomes


@scenario("KafkaConsumer.commit_async")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    reports: list[Any] = []
    with consumer_of(scene, topic) as consumer:
        read(consumer, 3)
        offsets = {first(scene): OffsetAndMetadata(2, "note", -1)}
        consumer.commit_async(
            offsets, lambda given, answer: reports.append([plain(given), isinstance(answer, Exception)])
        )
        until(lambda: consumer.poll(20) is not None and reports, "the commit's answer")
        return [reports, consumer.committed(first(scene), metadata=True)]


@scenario("KafkaConsumer.committed")
def _(scene: Scene) -> Any:
    scene.filled(partitions=2)
    with consumer_of(scene) as consumer:
        consumer.assign([first(scene)])
        consumer.commit({first(scene): OffsetAndMetadata(1, "note", 0)})
        return [
            consumer.committed(first(scene)),
            plain(consumer.committed(first(scene), metadata=True)),
            consumer.committed(first(scene, number=1)),
            outcome(consumer.committed, first(scene, "missing")),
        ]


@scenario("KafkaConsumer.group_metadata")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene, topic) as consumer:
        read(consumer, 3)
        return consumer.group_metadata()


@scenario("KafkaConsumer.highwater")
def _(scene: Scene) -> Any:
    scene.filled()
    with consumer_of(scene) as consumer:
        consumer.assign([first(scene)])
        read(consumer, 3)
        return consumer.highwater(first(scene))


@scenario("KafkaConsumer.partitions_for_topic")
def _(scene: Scene) -> Any:
    topic = scene.topic(partitions=3)
    with consumer_of(scene) as consumer:
        return [outcome(consumer.partitions_for_topic, name) for name in (topic, scene.name("missing"))]


@scenario("KafkaConsumer.topics")
def _(scene: Scene) -> Any:
    scene.topic("one")
    scene.topic("two")
    with consumer_of(scene) as consumer:
        return sorted(name for name in consumer.topics() if name.startswith(scene.name("")))


@scenario("KafkaConsumer.pause")
def _(scene: Scene) -> Any:
    topic = scene.filled(partitions=2)
    with consumer_of(scene) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        consumer.pause(TopicPartition(topic, 1))
        return [read(consumer, 3), consumer.paused()]


@scenario("KafkaConsumer.resume")
def _(scene: Scene) -> Any:
    scene.filled()
    with consumer_of(scene) as consumer:
        consumer.assign([first(scene)])
        consumer.pause(first(scene))
        before = plain(consumer.poll(100))
        consumer.resume(first(scene))
        return [before, read(consumer, 3), consumer.paused()]


@scenario("KafkaConsumer.poll")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with (
        consumer_of(scene) as consumer,
        consumer_of(scene, stem="strict", auto_offset_reset="none") as strict,
    ):
        consumer.assign([first(scene)])
        strict.assign([first(scene)])
        strict.seek(first(scene), 99)

        def refused() -> Any:
            found = outcome(strict.poll, 200)
            return found if "raised" in found else None

        consumer.seek(first(scene), 99)
        return [until(refused, "the offset out of range"), read(consumer, 3), topic]


@scenario("KafkaConsumer.position")
def _(scene: Scene) -> Any:
    scene.filled()
    with consumer_of(scene) as consumer:
        consumer.assign([first(scene)])
        before = consumer.position(first(scene), PATIENCE_MS)
        read(consumer, 2)
        return [before, consumer.position(first(scene), PATIENCE_MS)]


@scenario("KafkaConsumer.seek")
def _(scene: Scene) -> Any:
    scene.filled()
    with consumer_of(scene) as consumer:
        consumer.assign([first(scene)])
        consumer.seek(first(scene), 2)
        return read(consumer, 1)


@scenario("KafkaConsumer.seek_to_beginning")
def _(scene: Scene) -> Any:
    scene.filled()
    with consumer_of(scene) as consumer:
        consumer.assign([first(scene)])
        read(consumer, 3)
        consumer.seek_to_beginning(first(scene))
        return read(consumer, 3)


@scenario("KafkaConsumer.seek_to_end")
def _(scene: Scene) -> Any:
    scene.filled()
    with consumer_of(scene) as consumer:
        consumer.assign([first(scene)])
        consumer.seek_to_end(first(scene))
        return consumer.position(first(scene), PATIENCE_MS)


@scenario("KafkaConsumer.subscribe")
def _(scene: Scene) -> Any:
    scene.filled("one")
    scene.filled("two")
    scene.filled("other")
    with consumer_of(scene) as consumer:
        consumer.subscribe(pattern=f"^{re.escape(scene.name(''))}(one|two)$")
        return [read(consumer, 6), consumer.subscription(), consumer.assignment()]


@scenario("KafkaConsumer.subscription")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene, topic) as consumer:
        return consumer.subscription()


@scenario("KafkaConsumer.unsubscribe")
def _(scene: Scene) -> Any:
    topic = scene.filled()
    with consumer_of(scene, topic) as consumer:
        read(consumer, 3)
        consumer.unsubscribe()
        state = until(lambda: state_of_group(scene) if state_of_group(scene)[1] == 0 else None, "the member's end")
        return [consumer.assignment(), state]


# ---------------------------------------------------------------- KafkaAdminClient: topics and partitions


@scenario("KafkaAdminClient.create_topics")
def _(scene: Scene) -> Any:
    admin, name = admin_of(scene), scene.name
    wanted: dict[str, dict[str, Any]] = {
        name("plain"): {"num_partitions": 2, "replication_factor": 1},
        name("default"): {},
        name("assigned"): {"assignments": {0: [1], 1: [1]}},
        name("compacted"): {"num_partitions": 1, "configs": {"cleanup.policy": "compact"}},
        name("wide"): {"num_partitions": 1, "replication_factor": 3},
        name("strange"): {"num_partitions": 1, "configs": {"no.such.setting": "1"}},
        name("gap"): {"assignments": {0: [1], 2: [1]}},
        name("both"): {"num_partitions": 3, "assignments": {0: [1]}},
    }
    made = [topics_made(response(admin.create_topics, {each: options})) for each, options in wanted.items()]
    return [
        made,
        topics_made(response(admin.create_topics, [name("plain")])),
        topics_made(response(admin.create_topics, [name("checked")], validate_only=True, raise_errors=False)),
        topics_made(response(admin.create_topics, [name("waited")], wait_for_metadata=True)),
    ]


def topics_made(answer: Any) -> Any:
    """Without the settings, of which there are many: test_admin_parity compares them."""
    for topic in answer.get("topics", ()):
        topic["configs"] = sorted(
            key for key, each in topic.get("configs", {}).items() if each["config_source"] == "DYNAMIC_TOPIC_CONFIG"
        )
    return answer


@scenario("KafkaAdminClient.wait_for_topics")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(), admin_of(scene)
    return [outcome(admin.wait_for_topics, [topic]), outcome(admin.wait_for_topics, [scene.name("missing")], 1)]


@scenario("KafkaAdminClient.delete_topics")
def _(scene: Scene) -> Any:
    one, two, admin = scene.topic("one"), scene.topic("two"), admin_of(scene)
    identifier = uuid.UUID(str(admin.describe_topics([two])[0]["topic_id"]))
    return [
        response(admin.delete_topics, [one]),
        response(admin.delete_topics, [one]),
        response(admin.delete_topics, [identifier]),
        response(admin.delete_topics, [uuid.UUID(int=7)], raise_errors=False),
    ]


@scenario("KafkaAdminClient.list_topics")
def _(scene: Scene) -> Any:
    scene.topic("one")
    scene.topic("two")
    return sorted(name for name in admin_of(scene).list_topics() if name.startswith(scene.name("")))


@scenario("KafkaAdminClient.describe_topics")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(partitions=2), admin_of(scene)
    identifier = uuid.UUID(str(admin.describe_topics([topic])[0]["topic_id"]))
    return [
        response(admin.describe_topics, [topic, scene.name("missing")]),
        response(admin.describe_topics, [identifier]),
        response(admin.describe_topics, [uuid.UUID(int=7)]),
        [plain(each) for each in admin.describe_topics() if each["name"] == topic],
    ]


@scenario("KafkaAdminClient.describe_topic_partitions")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(partitions=3), admin_of(scene)
    page = admin.describe_topic_partitions([topic], response_partition_limit=2)
    return [
        response(admin.describe_topic_partitions, [topic, scene.name("missing")]),
        response(lambda: page),
        response(admin.describe_topic_partitions, [topic], cursor=page["next_cursor"]),
    ]


@scenario("KafkaAdminClient.create_partitions")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(), admin_of(scene)
    return [
        response(admin.create_partitions, {topic: 2}, validate_only=True),
        response(admin.create_partitions, {topic: 2}),
        response(admin.create_partitions, {topic: {"count": 3, "assignments": [[1]]}}),
        response(admin.create_partitions, {topic: 3}),
        response(admin.create_partitions, {scene.name("missing"): 3}),
    ]


@scenario("KafkaAdminClient.delete_records")
def _(scene: Scene) -> Any:
    topic, admin = scene.filled(partitions=2), admin_of(scene)
    return [
        response(admin.delete_records, {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): -1}),
        response(admin.delete_records, {TopicPartition(topic, 0): 99}),
        response(admin.delete_records, {TopicPartition(topic, 7): 1}),
        response(admin.delete_records, {TopicPartition(topic, 0): 2}, partition_leader_id=1),
    ]


@scenario("KafkaAdminClient.elect_leaders")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(partitions=2), admin_of(scene)
    return [
        response(admin.elect_leaders, 0, {topic: [0, 1]}),
        response(admin.elect_leaders, 1, [topic]),
        response(admin.elect_leaders, 0, {topic: [0, 7]}, raise_errors=False),
    ]


@scenario("KafkaAdminClient.list_partition_offsets")
def _(scene: Scene) -> Any:
    scene.filled()
    admin, partition = admin_of(scene), first(scene)
    specs = [
        OffsetSpec.EARLIEST,
        OffsetSpec.LATEST,
        OffsetSpec.MAX_TIMESTAMP,
        OffsetTimestamp(2000),
        OffsetTimestamp(9999),
    ]
    specs += [each for each in OffsetSpec if each not in specs]
    return [
        *(response(admin.list_partition_offsets, {partition: spec}) for spec in specs),
        response(admin.list_partition_offsets, {partition: OffsetSpec.LATEST}, "read_committed"),
        response(admin.list_partition_offsets, {first(scene, number=7): OffsetSpec.LATEST}),
    ]


@scenario("KafkaAdminClient.list_partition_reassignments")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(), admin_of(scene)
    return [
        response(admin.list_partition_reassignments),
        response(admin.list_partition_reassignments, {topic: [0]}),
        response(admin.list_partition_reassignments, {scene.name("missing"): [0]}),
    ]


@scenario("KafkaAdminClient.alter_partition_reassignments")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(), admin_of(scene)
    wanted: list[tuple[str, int, list[int] | None]] = [
        (topic, 0, [1]),
        (topic, 0, None),
        (topic, 0, [1, 1]),
        (topic, 0, [9]),
        (topic, 0, [1, 9]),
        (topic, 0, [-1]),
        (topic, 7, [1]),
        (topic, 7, None),
        (topic, -1, [1]),
        (scene.name("missing"), 0, [1]),
    ]
    return [
        response(admin.alter_partition_reassignments, {TopicPartition(name, number): replicas})
        for name, number, replicas in wanted
    ]


@scenario("KafkaAdminClient.describe_log_dirs")
def _(scene: Scene) -> Any:
    topic, admin = scene.filled(), admin_of(scene)
    asked: list[Any] = [{topic: [0]}, {topic: [7]}, {scene.name("missing"): [0]}]
    return [log_dirs(response(admin.describe_log_dirs, each)) for each in asked]


def log_dirs(answer: Any) -> Any:
    for broker in answer:
        for directory in broker["log_dirs"]:
            for name in ("total_bytes", "usable_bytes"):
                directory[name] = directory[name] > 0
    return answer


@scenario("KafkaAdminClient.alter_replica_log_dirs")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(), admin_of(scene)
    path = admin.describe_log_dirs({topic: [0]})[0]["log_dirs"][0]["log_dir"]
    wanted = [(topic, 0, path), (topic, 0, "/no/such/directory"), (topic, 7, path), (topic, 0, "relative")]
    return [
        response(admin.alter_replica_log_dirs, {TopicPartitionReplica(name, number, 1): where})
        for name, number, where in wanted
    ]


# ---------------------------------------------------------------- KafkaAdminClient: settings, users, the cluster


def topic_settings(name: str, configs: Any = None) -> list[ConfigResource]:
    return [ConfigResource("topic", name, configs)]


@scenario("KafkaAdminClient.describe_configs")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(segment_bytes="2000000"), admin_of(scene)
    broker = [ConfigResource("broker", "1", ["num.partitions", "message.max.bytes"])]
    return [
        response(admin.describe_configs, topic_settings(topic)),
        response(admin.describe_configs, topic_settings(topic, ["segment.bytes"]), include_synonyms=True),
        {name: each for name, each in every_setting(scene).items() if name not in ABSENT_TOPIC_CONFIGS},
        response(admin.describe_configs, broker, config_filter="all"),
        response(admin.describe_configs, topic_settings(scene.name("missing"))),
    ]


def every_setting(scene: Scene) -> dict[str, Any]:
    found = response(admin_of(scene).describe_configs, topic_settings(scene.name("t")), config_filter="all")
    settings: dict[str, Any] = found["topic"][scene.name("t")]
    # With eligible leader replicas Kafka pins it for the whole cluster.
    settings["min.insync.replicas"].pop("config_source")
    return settings


@scenario("KafkaAdminClient.alter_configs")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(cleanup_policy="delete"), admin_of(scene)
    wanted: list[dict[str, Any]] = [
        {"segment.bytes": "2000000"},
        {"retention.ms": "77", "cleanup.policy": (AlterConfigOp.APPEND, "compact")},
        {"cleanup.policy": (AlterConfigOp.SUBTRACT, "delete")},
        {"retention.ms": (AlterConfigOp.DELETE, None)},
        {"segment.bytes": "none"},
    ]
    altered = [response(admin.alter_configs, topic_settings(topic, each)) for each in wanted]
    scene.settle()
    altered += [
        response(admin.alter_configs, topic_settings(topic, {"no.such.setting": "1"})),
        response(admin.alter_configs, topic_settings(topic, {"no.such.setting": "1"}), raise_on_unknown=False),
        response(admin.alter_configs, topic_settings(topic, {"retention.ms": "5"}), validate_only=True),
        response(admin.alter_configs, topic_settings(topic, {"retention.ms": "99"}), incremental=False),
    ]
    scene.settle()
    return [*altered, response(admin.describe_configs, topic_settings(topic))]


@scenario("KafkaAdminClient.reset_configs")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(segment_bytes="2000000", cleanup_policy="compact"), admin_of(scene)
    answers = []
    for names in (["segment.bytes"], {}):
        answers.append(response(admin.reset_configs, topic_settings(topic, names)))
        scene.settle()
        answers.append(response(admin.describe_configs, topic_settings(topic)))
    return answers


@scenario("KafkaAdminClient.list_config_resources")
def _(scene: Scene) -> Any:
    topic, admin = scene.topic(), admin_of(scene)
    found = admin.list_config_resources(["topic", "broker"])
    return [topic in found["topic"], found["broker"], response(admin.list_config_resources, ["client_metrics"])]


def scram(user: str, iterations: int = 4096) -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, "secret", iterations)


def whether_refused(answer: Any) -> Any:
    """SCRAM errors come as the broker's words alone."""
    return {user: None if error is None else "an error" for user, error in answer.items()}


@scenario("KafkaAdminClient.alter_user_scram_credentials")
def _(scene: Scene) -> Any:
    admin, user = admin_of(scene), scene.name("user")
    wanted = [
        scram(user),
        scram(user, 100),
        UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512),
        UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256),
    ]
    return [whether_refused(response(admin.alter_user_scram_credentials, [each])) for each in wanted]


@scenario("KafkaAdminClient.describe_user_scram_credentials")
def _(scene: Scene) -> Any:
    admin, user = admin_of(scene), scene.name("user")
    admin.alter_user_scram_credentials([scram(user, 5000)])
    scene.settle()
    missing = admin.describe_user_scram_credentials([scene.name("missing")])[scene.name("missing")]
    everybody = admin.describe_user_scram_credentials()
    return [admin.describe_user_scram_credentials([user]), bool(missing["error"]), everybody[user]]


def acl(scene: Scene, operation: Any = ACLOperation.READ, principal: str = "User:alice", **options: Any) -> ACL:
    pattern = options.get("pattern", ACLResourcePatternType.LITERAL)
    resource = ResourcePattern(ResourceType.TOPIC, scene.name("t"), pattern)
    return ACL(principal, "*", operation, ACLPermissionType.ALLOW, resource)


def acl_filter(scene: Scene, pattern: Any = ACLResourcePatternType.ANY, **options: Any) -> ACLFilter:
    resource = ResourcePatternFilter(ResourceType.TOPIC, scene.name("t"), pattern)
    operation = options.get("operation", ACLOperation.ANY)
    return ACLFilter(options.get("principal"), None, operation, ACLPermissionType.ANY, resource)


def sorted_acls(found: Any) -> list[str]:
    return sorted(str(plain(each)) for each in found)


def acls_of(scene: Scene, **options: Any) -> Any:
    scene.settle()
    found, error = admin_of(scene).describe_acls(acl_filter(scene, **options))
    return [sorted_acls(found), plain(error)]


@scenario("KafkaAdminClient.create_acls")
def _(scene: Scene) -> Any:
    admin = admin_of(scene)
    wanted = [acl(scene), acl(scene, pattern=ACLResourcePatternType.PREFIXED), acl(scene, principal="alice")]
    made = [admin.create_acls([each]) for each in wanted]
    return [[sorted_acls(each["succeeded"]) for each in made], [len(each["failed"]) for each in made], acls_of(scene)]


@scenario("KafkaAdminClient.describe_acls")
def _(scene: Scene) -> Any:
    admin_of(scene).create_acls([acl(scene), acl(scene, ACLOperation.WRITE, "User:bob")])
    return [
        acls_of(scene),
        acls_of(scene, principal="User:bob"),
        acls_of(scene, pattern=ACLResourcePatternType.MATCH),
        acls_of(scene, operation=ACLOperation.DELETE),
    ]


@scenario("KafkaAdminClient.delete_acls")
def _(scene: Scene) -> Any:
    admin = admin_of(scene)
    admin.create_acls([acl(scene), acl(scene, ACLOperation.WRITE)])

    def deleted(**options: Any) -> Any:
        (_, matching, error) = admin.delete_acls([acl_filter(scene, **options)])[0]
        return [sorted(str(plain(each)) for each in matching), plain(error)]

    return [deleted(operation=ACLOperation.READ), deleted(), deleted()]


@scenario("KafkaAdminClient.describe_cluster")
def _(scene: Scene) -> Any:
    return response(admin_of(scene).describe_cluster)


@scenario("KafkaAdminClient.describe_features")
def _(scene: Scene) -> Any:
    admin = admin_of(scene)

    def features(**options: Any) -> Any:
        found = admin.describe_features(**options)
        for feature in found.values():
            feature.pop("finalized_epoch", None)
        return {name: feature for name, feature in found.items() if name not in ABSENT_FEATURES}

    return [features(), features(send_request_to_controller=True)]


@scenario("KafkaAdminClient.update_features")
def _(scene: Scene) -> Any:
    admin = admin_of(scene)
    return [
        response(admin.update_features, {"transaction.version": 2}, validate_only=True),
        response(admin.update_features, {"transaction.version": 99}, validate_only=True),
        response(admin.update_features, {"no.such.feature": 1}, validate_only=True),
    ]


@scenario("KafkaAdminClient.describe_metadata_quorum")
def _(scene: Scene) -> Any:
    found = response(admin_of(scene).describe_metadata_quorum)
    return found if "raised" in found else "a quorum"


@scenario("KafkaAdminClient.api_versions")
def _(scene: Scene) -> Any:
    """That what both speak is spoken alike; test_raw_parity knows what is missing."""
    return {key.name: versions for key, versions in admin_of(scene).api_versions().items() if key.name in SPOKEN}


SPOKEN = {"Produce", "Fetch", "Metadata", "JoinGroup", "CreateTopics", "OffsetCommit", "EndTxn", "ListTransactions"}


@scenario("KafkaAdminClient.get_broker_version_data")
def _(scene: Scene) -> Any:
    return admin_of(scene).get_broker_version_data(1).broker_version


# ---------------------------------------------------------------- KafkaAdminClient: groups


@scenario("KafkaAdminClient.list_groups")
def _(scene: Scene) -> Any:
    admin, topic = admin_of(scene), scene.filled()

    def listed(**options: Any) -> Any:
        found = response(admin.list_groups, **options)
        return [each for each in found if each["group_id"] == scene.name("group")]

    with consumer_of(scene, topic) as consumer:
        read(consumer, 3)
        consumer.commit()
        running = [listed(), listed(states_filter=["Stable"]), listed(states_filter=["Empty"])]
    return [running, listed(broker_ids=[1]), listed(types_filter=["classic"]), listed(types_filter=["consumer"])]


@scenario("KafkaAdminClient.describe_groups")
def _(scene: Scene) -> Any:
    admin, topic = admin_of(scene), scene.filled(partitions=2)
    with consumer_of(scene, topic, group_instance_id="static") as consumer:
        read(consumer, 6)
        running = response(admin.describe_groups, [scene.name("group")])
    return [running, response(admin.describe_groups, [scene.name("missing")], include_authorized_operations=True)]


@scenario("KafkaAdminClient.delete_groups")
def _(scene: Scene) -> Any:
    admin, topic = admin_of(scene), scene.filled()
    with consumer_of(scene, topic) as consumer:
        read(consumer, 3)
        running = response(admin.delete_groups, [scene.name("group")])
    return [running, response(admin.delete_groups, [scene.name("group"), scene.name("missing")])]


def some_offsets(scene: Scene) -> None:
    """A group without members, with an offset in the first of two partitions."""
    scene.filled(partitions=2)
    admin_of(scene).alter_group_offsets(scene.name("group"), {first(scene): OffsetAndMetadata(1, "note", 0)})


@scenario("KafkaAdminClient.list_group_offsets")
def _(scene: Scene) -> Any:
    admin, group = admin_of(scene), scene.name("group")
    some_offsets(scene)
    return [
        response(admin.list_group_offsets, group),
        response(
            admin.list_group_offsets, {group: [first(scene), first(scene, number=1)], scene.name("missing"): None}
        ),
    ]


@scenario("KafkaAdminClient.alter_group_offsets")
def _(scene: Scene) -> Any:
    admin, topic, group = admin_of(scene), scene.filled(), scene.name("group")
    wanted = {first(scene): OffsetAndMetadata(1, "note", 0), first(scene, "missing"): OffsetAndMetadata(1, "", -1)}
    empty = response(admin.alter_group_offsets, group, wanted)
    with consumer_of(scene, topic) as consumer:
        read(consumer, 2)
        running = response(admin.alter_group_offsets, group, {first(scene): OffsetAndMetadata(2, "", -1)})
    return [empty, running, response(admin.list_group_offsets, group)]


@scenario("KafkaAdminClient.reset_group_offsets")
def _(scene: Scene) -> Any:
    admin, group = admin_of(scene), scene.name("group")
    some_offsets(scene)
    specs = [OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetTimestamp(2000), 2, 99]
    return [
        *(response(admin.reset_group_offsets, group, {first(scene): spec}) for spec in specs),
        response(admin.list_group_offsets, group),
    ]


@scenario("KafkaAdminClient.delete_group_offsets")
def _(scene: Scene) -> Any:
    admin, group, topic = admin_of(scene), scene.name("group"), scene.name("t")
    some_offsets(scene)
    with consumer_of(scene, topic) as consumer:
        read(consumer, 5)
        running = response(admin.delete_group_offsets, group, [first(scene)])
    return [
        running,
        response(admin.delete_group_offsets, group, [first(scene), first(scene, "missing")]),
        response(admin.delete_group_offsets, scene.name("nobody"), [first(scene)]),
        response(admin.list_group_offsets, group),
    ]


@scenario("KafkaAdminClient.remove_group_members")
def _(scene: Scene) -> Any:
    admin, topic, group = admin_of(scene), scene.filled(), scene.name("group")
    with consumer_of(scene, topic, group_instance_id="static") as consumer:
        read(consumer, 3)
        removed = response(
            admin.remove_group_members, group, [MemberToRemove(group_instance_id="static", reason="why")]
        )
        again = response(admin.remove_group_members, group, [MemberToRemove(member_id="nobody")])
        errors = [sorted(removed.values()), sorted(again.values())]
    return [errors, response(admin.remove_group_members, scene.name("missing"), [MemberToRemove(member_id="nobody")])]


# ---------------------------------------------------------------- KafkaAdminClient: transactions


@contextmanager
def open_transaction(scene: Scene) -> Iterator[KafkaProducer]:
    topic = scene.topic()
    with transactional(scene, transaction_timeout_ms=20_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        sent(producer.send(topic, b"open", partition=0, timestamp_ms=THEN_MS))
        yield producer
        outcome(producer.abort_transaction)


def described(scene: Scene) -> Any:
    found = admin_of(scene).describe_transactions([scene.name("txn")])
    return [
        {**plain(each._asdict()), "transaction_start_time_ms": each.transaction_start_time_ms > 0}
        for each in found.values()
    ]


@scenario("KafkaAdminClient.list_transactions")
def _(scene: Scene) -> Any:
    admin, txn = admin_of(scene), scene.name("txn")

    def listed(**options: Any) -> Any:
        found = admin.list_transactions(**options)
        return {
            broker: [plain(each) for each in some if each.transactional_id == txn] for broker, some in found.items()
        }

    with open_transaction(scene):
        running = [
            listed(),
            listed(state_filters=["Ongoing"]),
            listed(state_filters=["Empty"]),
            listed(duration_filter_ms=3_600_000),
            listed(transactional_id_pattern=".*list_transactions-t.n$"),
            listed(transactional_id_pattern="nothing"),
        ]
        wrong = outcome(admin.list_transactions, transactional_id_pattern="(")
    return [running, wrong]


@scenario("KafkaAdminClient.describe_transactions")
def _(scene: Scene) -> Any:
    with open_transaction(scene):
        running = described(scene)
    return [running, outcome(admin_of(scene).describe_transactions, [scene.name("missing")])]


@scenario("KafkaAdminClient.describe_producers")
def _(scene: Scene) -> Any:
    admin = admin_of(scene)
    with open_transaction(scene):
        found = admin.describe_producers([first(scene)])[first(scene)]
        running = [
            {**plain(each._asdict()), "last_timestamp": each.last_timestamp > 0} for each in found.active_producers
        ]
    return [running, outcome(admin.describe_producers, [first(scene, number=7)], broker_id=1)]


@scenario("KafkaAdminClient.abort_transaction")
def _(scene: Scene) -> Any:
    admin, partition = admin_of(scene), first(scene)
    with transactional(scene) as earlier:
        earlier.init_transactions()  # so that there is an epoch before
    with open_transaction(scene):
        found = admin.describe_producers([partition])[partition].active_producers[0]
        wrong = AbortTransactionSpec(partition, found.producer_id, found.producer_epoch - 1)
        right = AbortTransactionSpec(partition, found.producer_id, found.producer_epoch)
        refused = outcome(admin.abort_transaction, wrong)
        aborted = outcome(admin.abort_transaction, right)
        left = admin.describe_producers([partition])[partition].active_producers
        return [refused, aborted, [each.current_transaction_start_offset for each in left]]


@scenario("KafkaAdminClient.find_hanging_transactions")
def _(scene: Scene) -> Any:
    with open_transaction(scene):
        return outcome(admin_of(scene).find_hanging_transactions)


@scenario("KafkaAdminClient.close")
def _(scene: Scene) -> Any:
    admin = KafkaAdminClient(bootstrap_servers=scene.bootstrap)
    return outcome(admin.close)


LIBRARY.talks_to_no_broker("KafkaProducer.max_usable_produce_magic", "computed from the client's own tables")
LIBRARY.talks_to_no_broker("KafkaProducer.metrics", "the client's own figures")
LIBRARY.talks_to_no_broker("KafkaConsumer.metrics", "the client's own figures")
LIBRARY.talks_to_no_broker("KafkaConsumer.paused", "the client's own state; called in the scenario of pause")
