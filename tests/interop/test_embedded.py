"""The embedded broker and the pytest fixtures that ship with the package, used through a foreign client."""

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from fencepost import Broker
from fencepost.embedded import TopicExists
from fencepost.shell.running_broker import CannotStart
from tests.support.patience import patient


def produce(bootstrap_servers: str, topic: str, values: list[str], partition: int = 0) -> list[int]:
    offsets: list[int] = []

    def delivered(error, message):
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value=value, partition=partition, on_delivery=delivered)
    assert producer.flush(patient(30)) == 0
    return offsets


def consume(bootstrap_servers: str, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": str(uuid.uuid4())})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=patient(30))
            assert messages, f"only {len(found)} of {count} came"
            found += [message.value().decode() for message in messages]
    finally:
        consumer.close()
    return found


def test_a_broker_starts_with_its_topics_and_cleans_up_after_itself():
    with Broker(topics={"purchases": 3}) as broker:
        data = broker.data
        assert {path.name for path in data.glob("purchases-*")} == {"purchases-0", "purchases-1", "purchases-2"}
        assert produce(broker.bootstrap_servers, "purchases", ["a", "b"]) == [0, 1]
        assert consume(broker.bootstrap_servers, "purchases", 2) == ["a", "b"]
    assert not data.exists()


def test_what_was_acknowledged_survives_kill_and_restart_on_the_same_port():
    with Broker(topics={"purchases": 1}) as broker:
        address = broker.bootstrap_servers
        produce(address, "purchases", ["before"])
        broker.kill()
        assert not broker.is_running
        broker.restart()
        assert broker.bootstrap_servers == address
        assert produce(address, "purchases", ["after"]) == [1]
        assert consume(address, "purchases", 2) == ["before", "after"]


def test_a_given_directory_is_kept_and_can_be_started_on_again(tmp_path: Path):
    with Broker(topics={"purchases": 1}, data=tmp_path) as broker:
        produce(broker.bootstrap_servers, "purchases", ["kept"])
    with Broker(data=tmp_path) as broker:
        assert consume(broker.bootstrap_servers, "purchases", 1) == ["kept"]


def test_two_brokers_cannot_share_a_directory(tmp_path: Path):
    with Broker(data=tmp_path), pytest.raises(CannotStart, match="in use by another broker"):
        Broker(data=tmp_path).start()


def test_the_fixtures_that_ship_with_the_package_give_a_broker_and_a_fresh_topic(fencepost_broker, fencepost_topic):
    assert produce(fencepost_broker.bootstrap_servers, fencepost_topic, ["x"]) == [0]


def test_each_test_gets_its_own_topic(fencepost_broker, fencepost_topic):
    assert produce(fencepost_broker.bootstrap_servers, fencepost_topic, ["y"]) == [0]


def test_settings_may_be_numbers_and_truth_values():
    settings = {"num.partitions": 5, "auto.create.topics.enable": True, "log.cleaner.min.cleanable.ratio": 0.25}
    with Broker(settings=settings) as broker:
        produce(broker.bootstrap_servers, "made-automatically", ["x"], partition=4)
        broker.create_topic("small", config={"segment.bytes": 2_000_000, "preallocate": False})
        assert {path.name for path in broker.data.glob("made-automatically-*")} == {
            f"made-automatically-{partition}" for partition in range(5)
        }


@pytest.mark.parametrize("value", [None, ["a"], {"a": 1}, b"1"])
def test_a_setting_that_no_text_stands_for_is_refused_by_name(value):
    with pytest.raises(TypeError, match=r"num\.partitions"):
        Broker(settings={"num.partitions": value})


def test_a_topic_that_exists_is_left_as_it_is_only_if_it_is_what_was_asked_for():
    with Broker(topics={"purchases": 2}) as broker:
        broker.create_topic("purchases", 2)
        with pytest.raises(TopicExists, match=r"purchases exists with 2 partitions, not 3"):
            broker.create_topic("purchases", 3)
        broker.create_topic("compacted", config={"cleanup.policy": "compact"})
        broker.create_topic("compacted", config={"cleanup.policy": "compact"})
        with pytest.raises(TopicExists, match=r"compacted exists with cleanup\.policy=compact, not with its default"):
            broker.create_topic("compacted")
        assert produce(broker.bootstrap_servers, "purchases", ["still here"]) == [0]


def test_topics_that_a_directory_has_otherwise_end_the_start(tmp_path: Path):
    with Broker(topics={"purchases": 1}, data=tmp_path):
        pass
    with Broker(topics={"purchases": 1}, data=tmp_path):
        pass
    broker = Broker(topics={"purchases": 4}, data=tmp_path)
    with pytest.raises(TopicExists):
        broker.start()
    assert not broker.is_running
    with Broker(data=tmp_path) as again:
        assert again.is_running


@pytest.mark.parametrize(
    ("name", "partitions", "config", "reason"),
    [
        ("../elsewhere", 1, {}, "Topic name is invalid"),
        ("none", 0, {}, "at least one partition"),
        ("strange", 1, {"no.such.setting": "1"}, r"no\.such\.setting"),
        ("wrong", 1, {"retention.ms": "soon"}, r"retention\.ms"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_the_reason(name, partitions, config, reason):
    with Broker() as broker:
        with pytest.raises(ValueError, match=reason):
            broker.create_topic(name, partitions, config)
        assert broker.is_running
