"""Settings that Kafka has: each does what it says, or is refused with the reason. What is stored still opens.

And what a broker was started with can be seen, but for what is secret.
"""

from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.durability import GroupCommit, PageCache
from fencepost.broker.node import Node
from fencepost.client import Admin, ResourceType
from fencepost.config import broker_config
from fencepost.embedded import Broker
from fencepost.settings import InvalidSetting
from fencepost.simulation.node import SimulatedNode
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import CreateTopicsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from tests.durability.scene import SMALL, Client

TOPIC, BROKER = 2, 4
AT_START = 4
UNSERVED = [("file.delete.delay.ms", "1000"), ("preallocate", "true")]


def create(client: Client, name: str, **configs: str) -> Any:
    wanted = CreateTopicsRequest.CreatableTopic
    entries = [wanted.CreatableTopicConfig(name=key.replace("_", "."), value=text) for key, text in configs.items()]
    topic = wanted(name=name, num_partitions=1, replication_factor=1, configs=entries)
    return client.socket.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=1000)).topics[0]


def alter(client: Client, kind: int, resource: str, name: str, text: str) -> Any:
    altered = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = altered.AlterableConfig(name=name, config_operation=0, value=text)
    request = IncrementalAlterConfigsRequest(
        resources=[altered(resource_type=kind, resource_name=resource, configs=[config])]
    )
    return client.socket.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0]


@pytest.mark.parametrize(("name", "text"), UNSERVED)
def test_what_would_do_nothing_is_refused_with_the_reason(name: str, text: str) -> None:
    client = Client(SimulatedNode(SMALL).start())
    refused = create(client, "orders", **{name: text})
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert f"{name}: only " in refused.error_message
    assert "because" in refused.error_message
    assert create(client, "orders").error_code == 0
    assert alter(client, TOPIC, "orders", name, text).error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("name", ["log.segment.delete.delay.ms", "log.preallocate"])
def test_nor_can_a_broker_have_it(name: str) -> None:
    text = "true" if name == "log.preallocate" else "1000"
    client = Client(SimulatedNode(SMALL).start())
    for resource in ("1", ""):
        assert alter(client, BROKER, resource, name, text).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "text"),
    [("log.segment.delete.delay.ms", "1000"), ("log.preallocate", "true"), ("offsets.commit.timeout.ms", "10000")],
)
def test_nor_can_it_be_given_at_the_start(name: str, text: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name}: only "):
        SimulatedNode({**SMALL, name: text}).start()


def test_what_an_earlier_version_stored_opens_and_can_be_changed_around() -> None:
    machine = SimulatedNode(SMALL).start()
    client = Client(machine)
    assert create(client, "orders").error_code == 0
    machine.node.set_topic_overrides("orders", dict(UNSERVED))
    machine.node.set_broker_overrides({"log.preallocate": "true"}, of_all_brokers=False)
    machine.crash()
    machine.start()
    client = Client(machine)
    assert client.produce("orders", b"x").error_code == 0
    assert alter(client, TOPIC, "orders", "retention.ms", "1000").error_code == 0
    assert machine.node.metadata.topics["orders"].overrides == {**dict(UNSERVED), "retention.ms": "1000"}
    assert alter(client, TOPIC, "orders", "preallocate", "false").error_code == 0


@pytest.mark.parametrize("name", ["flush.ms", "flush.messages"])
def test_a_topic_that_asks_for_syncs_is_synced_before_it_is_acknowledged(name: str) -> None:
    client = Client(SimulatedNode({**SMALL, "flush": "os"}).start())
    assert create(client, "orders").error_code == 0

    def synced_behind_acknowledged() -> int:
        answer = client.produce("orders", b"x")
        assert answer.error_code == 0
        return answer.base_offset + 1 - partition_of(client.machine.node).log.synced_offset

    assert isinstance(partition_of(client.machine.node).durability, PageCache)
    assert synced_behind_acknowledged() > 0
    assert alter(client, TOPIC, "orders", name, "1000").error_code == 0
    assert isinstance(partition_of(client.machine.node).durability, GroupCommit)
    assert synced_behind_acknowledged() == 0


def partition_of(node: Node) -> Any:
    return node.partition("orders", 0)


def test_log_starts_are_written_as_often_as_asked() -> None:
    machine = SimulatedNode({**SMALL, "log.flush.start.offset.checkpoint.interval.ms": "1000"}).start()
    client = Client(machine)
    assert create(client, "orders").error_code == 0
    for _ in range(3):
        assert client.produce("orders", b"x").error_code == 0
    machine.node.partition("orders", 0).log.delete_records_before(2)
    path = f"{machine.node.data_directory}/log-start-offset-checkpoint"
    machine.scheduler.run_for(2_000)
    assert b"orders 0 2" in machine.disk.read_bytes(path)


def described(client: Client) -> dict[str, Any]:
    wanted = DescribeConfigsRequest.DescribeConfigsResource(resource_type=BROKER, resource_name="1")
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
    result = client.socket.call(ApiKey.DESCRIBE_CONFIGS, 4, request).results[0]
    return {config.name: config for config in result.configs}


def test_what_was_given_at_the_start_is_shown_and_secrets_are_not() -> None:
    location, secret = "listener.name.external.ssl.keystore.location", "listener.name.external.plain.sasl.jaas.config"
    password = "listener.name.external.ssl.key.password"
    settings = {
        location: "/keys.pem",
        secret: 'x required user_a="b";',
        password: "hidden",
        "log.retention.hours": "24",
    }
    machine = SimulatedNode({**SMALL, **settings}).start()
    found = described(Client(machine))
    assert (found[location].value, found[location].config_source, found[location].is_sensitive) == (
        "/keys.pem",
        AT_START,
        False,
    )
    for name in (secret, password):
        assert (found[name].value, found[name].is_sensitive) == (None, True)
        assert [synonym.value for synonym in found[name].synonyms] == [None]
    assert (found["log.dirs"].value, found["log.dirs"].config_source) == (machine.node.data_directory, AT_START)
    assert (found["log.retention.hours"].value, found["log.retention.hours"].config_source) == ("24", AT_START)
    assert found["log.retention.ms"].value is None
    assert machine.node.config.log_retention_ms == 24 * 3_600_000


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_that_is_given_counts(given: dict[str, str], expected_ms: int) -> None:
    assert broker_config(given).log_retention_ms == expected_ms


def test_a_running_broker_shows_its_listeners(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data") as broker, Admin(broker.bootstrap_servers) as admin:
        found = {config.name: config for config in admin.describe_configs(ResourceType.BROKER, "1")}
        assert found["listeners"].value == f"PLAINTEXT://{broker.bootstrap_servers}"
        assert found["log.dirs"].value == str(tmp_path / "data")
