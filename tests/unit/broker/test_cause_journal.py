"""Why a producer was fenced is known after a restart too, and the file that keeps it stays small."""

import json

from fencepost.broker.cause_journal import ENTRIES_PER_ID_MAX
from fencepost.broker.handlers.causes import CAUSES
from fencepost.simulation.node import DATA_DIRECTORY, SimulatedNode
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import (
    DescribeConfigsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
)
from tests.durability.scene import SMALL, Client

SETTINGS = {**SMALL, "transaction.state.log.num.partitions": "1", "transaction.cause.journal.max.bytes": "8192"}
INVALID_CONFIG = 40


def machine_with_coordinator() -> SimulatedNode:
    machine = SimulatedNode(SETTINGS).start()
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["shop-1"])
    answer = Client(machine).socket.call(ApiKey.FIND_COORDINATOR, 4, request)
    assert answer.coordinators[0].error_code == 0
    return machine


def take_over(machine: SimulatedNode, transactional_id: str) -> None:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    answer = Client(machine).socket.call(ApiKey.INIT_PRODUCER_ID, 4, request)
    assert answer.error_code == 0


def test_who_fenced_whom_is_told_with_cause_and_epochs_and_outlasts_a_crash():
    machine = machine_with_coordinator()
    take_over(machine, "shop-1")
    take_over(machine, "shop-1")
    first, fenced = machine.node.causes.of("shop-1")
    assert (first["event"], first["producer_epoch"], first["client_id"]) == ("ProducerInitialised", 0, "simulated")
    assert fenced["event"] == "ProducerFenced"
    assert fenced["cause"] == "TAKEOVER"
    assert (fenced["old_epoch"], fenced["new_epoch"]) == (0, 1)
    assert fenced["client_id"] == "simulated"
    assert fenced["client_host"] == "client"
    machine.crash()
    machine.start()
    assert machine.node.causes.of("shop-1") == [first, fenced]


def test_the_journal_keeps_the_last_causes_of_an_id_and_its_file_within_bounds():
    machine = machine_with_coordinator()
    for _ in range(ENTRIES_PER_ID_MAX + 20):
        take_over(machine, "shop-1")
    causes = machine.node.causes.of("shop-1")
    assert len(causes) == ENTRIES_PER_ID_MAX
    assert causes[-1]["new_epoch"] == ENTRIES_PER_ID_MAX + 19
    assert machine.disk.size(f"{DATA_DIRECTORY}/cause-journal.jsonl") <= 8192
    machine.stop()
    machine.start()
    assert machine.node.causes.of("shop-1")[-1] == causes[-1]


def test_a_torn_line_costs_only_itself():
    machine = machine_with_coordinator()
    take_over(machine, "shop-1")
    take_over(machine, "shop-1")
    machine.crash()
    path = f"{DATA_DIRECTORY}/cause-journal.jsonl"
    machine.disk.write_bytes(path, machine.disk.read_bytes(path) + b'{"transactional_id":"shop-1","ev')
    machine.start()
    assert len(machine.node.causes.of("shop-1")) == 2


def described(machine: SimulatedNode, name: str) -> list[dict[str, object]]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=CAUSES, resource_name=name, configuration_keys=None
    )
    (result,) = (
        Client(machine).socket.call(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource])).results
    )
    assert result.error_code == 0
    assert all(config.read_only for config in result.configs)
    return [json.loads(config.value) for config in result.configs]


def test_the_journal_can_be_asked_for_over_the_wire():
    machine = machine_with_coordinator()
    for name in ("shop-1", "shop-2", "shop-1"):
        take_over(machine, name)
    assert described(machine, "shop-1") == machine.node.causes.of("shop-1")
    assert [entry["event"] for entry in described(machine, "shop-1")] == ["ProducerInitialised", "ProducerFenced"]
    assert [entry["transactional_id"] for entry in described(machine, "")] == ["shop-1", "shop-2", "shop-1"]
    assert described(machine, "absent") == []


def alter(machine: SimulatedNode, topic: str, name: str, value: str) -> tuple[int, str | None]:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name=name, config_operation=0, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=2, resource_name=topic, configs=[config])]
    )
    (answer,) = Client(machine).socket.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return answer.error_code, answer.error_message


def test_settings_that_would_lose_fencing_are_refused_with_the_reason():
    machine = machine_with_coordinator()
    code, reason = alter(machine, "__transaction_state", "delete.retention.ms", "1000")
    assert code == INVALID_CONFIG
    assert reason is not None
    assert "fencing would be lost" in reason
    code, reason = alter(machine, "__transaction_state", "cleanup.policy", "delete")
    assert code == INVALID_CONFIG
    assert alter(machine, "__transaction_state", "delete.retention.ms", "90000000") == (0, None)
