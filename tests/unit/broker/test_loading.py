"""Coordinators that are loaded from their topics, some of which cannot be."""

from typing import Any

import pytest

from fencepost.broker.events import DamageFound
from fencepost.coordinators.runtime import CoordinatorRuntime, ShardState
from fencepost.simulation.node import SimulatedNode
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import FindCoordinatorRequest, InitProducerIdRequest
from tests.durability.scene import SMALL, Client

PARTITIONS = 5
SETTINGS = {**SMALL, "transaction.state.log.num.partitions": str(PARTITIONS)}
TOPIC = "__transaction_state"


def with_transactional_ids() -> SimulatedNode:
    """Every partition of the coordinator's topic holds something."""
    machine = SimulatedNode(SETTINGS).start()
    client = Client(machine)
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["any"])
    assert client.socket.call(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code == 0
    for number in range(20):
        wanted = InitProducerIdRequest(transactional_id=f"id-{number}", transaction_timeout_ms=1000)
        assert client.socket.call(ApiKey.INIT_PRODUCER_ID, 4, wanted).error_code == 0
    assert all(log.log_end_offset for log in machine.node.logs() if log.topic == TOPIC)
    machine.crash()
    return machine


def states(machine: SimulatedNode) -> list[ShardState]:
    runtime = machine.node.transactions.coordinator.runtime
    return [runtime.state_of(partition) for partition in range(PARTITIONS)]


@pytest.mark.parametrize("error", [RuntimeError("nobody thought of this"), ValueError("nor of that")])
def test_a_partition_that_cannot_be_replayed_does_not_keep_the_others_from_being_loaded(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    machine = with_transactional_ids()
    replay = CoordinatorRuntime.replay

    def fails_for_one(self: Any, partition: int, batches: Any) -> None:
        if self.topic == TOPIC and partition == PARTITIONS - 1:
            raise error
        replay(self, partition, batches)

    monkeypatch.setattr(CoordinatorRuntime, "replay", fails_for_one)
    machine.start()
    machine.scheduler.run_for(1_000)
    assert states(machine) == [*[ShardState.ACTIVE] * (PARTITIONS - 1), ShardState.NOT_OWNER]
    told = [event for event in machine.node.events.recent if isinstance(event, DamageFound)]
    assert [(event.topic, event.partition) for event in told] == [(TOPIC, PARTITIONS - 1)]
    assert str(error) in told[0].reason


def test_a_topic_that_is_deleted_and_made_again_while_it_loads_has_one_coordinator() -> None:
    machine = with_transactional_ids()
    machine.boot()
    assert set(states(machine)) == {ShardState.LOADING}
    machine.node.delete_topic(TOPIC)
    machine.node.create_internal_topic(TOPIC)
    machine.scheduler.run_for(1_000)
    assert states(machine) == [ShardState.ACTIVE] * PARTITIONS
    request = InitProducerIdRequest(transactional_id="id-1", transaction_timeout_ms=1000)
    answer = Client(machine).socket.call(ApiKey.INIT_PRODUCER_ID, 4, request)
    assert (answer.error_code, answer.producer_epoch) == (0, 0), "nothing of the old topic is known"


def test_a_topic_that_is_deleted_while_it_loads_leaves_nothing_behind() -> None:
    machine = with_transactional_ids()
    machine.boot()
    machine.node.delete_topic(TOPIC)
    machine.scheduler.run_for(1_000)
    assert states(machine) == [ShardState.NOT_OWNER] * PARTITIONS


def test_a_deadline_that_fails_does_not_stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = with_transactional_ids()
    machine.start()
    machine.scheduler.run_for(1_000)
    host = machine.node.transactions
    called: list[object] = []

    def fails(now: object) -> None:
        called.append(now)
        raise RuntimeError("once")

    monkeypatch.setattr(host.coordinator, "on_time", fails)
    with pytest.raises(RuntimeError):
        host._on_time()
    assert called
    assert host._timer is not None
