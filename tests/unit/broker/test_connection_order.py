"""Requests of one connection: started in order, answered in order, and who may start while another waits."""

from typing import Any

from fencepost.simulation.node import SimulatedNode
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import ApiVersionsRequest, MetadataRequest
from tests.durability.scene import LEADER, SMALL, Client

TOPIC = "purchases"


def running(**options: Any) -> tuple[SimulatedNode, Client]:
    machine = SimulatedNode(SMALL, **options).start()
    client = Client(machine)
    assert client.create_topic(TOPIC, 2) == 0
    return machine, client


def ask_versions(client: Client) -> int:
    return client.socket.send(ApiKey.API_VERSIONS, 3, ApiVersionsRequest())


def arrived(client: Client, *correlation_ids: int) -> list[int]:
    """Those of the answers that have come, in the order in which they came."""
    return [one for one in client.socket.answers if one in correlation_ids]


def test_answers_come_in_the_order_of_the_requests_even_if_a_later_one_is_ready_first() -> None:
    machine, client = running(sync_ms=10)
    produce = client.send(TOPIC, {0: client.batch(b"x")})
    metadata = client.socket.send(ApiKey.METADATA, 12, MetadataRequest(topics=None))
    versions = ask_versions(client)
    machine.scheduler.run_for(9)
    assert arrived(client, produce, metadata, versions) == []
    machine.scheduler.run_for(2)
    assert arrived(client, produce, metadata, versions) == [produce, metadata, versions]


def test_a_produce_behind_one_that_waits_for_its_sync_is_written_at_once() -> None:
    machine, client = running(sync_ms=10)
    sent = [client.send(TOPIC, {0: client.batch(b"%d" % number)}) for number in range(5)]
    assert machine.node.partition(TOPIC, 0).log.log_end_offset == 5
    assert not client.socket.is_muted
    machine.scheduler.run_for(30)
    assert arrived(client, *sent) == sent
    assert [client.produced(one).base_offset for one in sent] == [0, 1, 2, 3, 4]


def test_nothing_behind_a_parked_fetch_starts_before_it_is_answered() -> None:
    machine, client = running()
    fetch = client.start_fetch(TOPIC, {0: 0}, max_wait_ms=500)
    produce = client.send(TOPIC, {1: client.batch(b"behind the fetch")})
    machine.scheduler.run_for(499)
    assert client.socket.is_muted
    assert machine.node.partition(TOPIC, 1).log.log_end_offset == 0
    assert arrived(client, fetch, produce) == []
    machine.scheduler.run_for(10)
    assert arrived(client, fetch, produce) == [fetch, produce]
    assert client.produced(produce).base_offset == 0


def test_a_muted_connection_holds_up_no_other() -> None:
    machine, client = running()
    client.start_fetch(TOPIC, {0: 0}, max_wait_ms=10_000)
    other = Client(machine)
    versions = ask_versions(other)
    assert arrived(other, versions) == [versions]


def test_a_fetch_behind_a_produce_sees_what_that_produced() -> None:
    machine, client = running(sync_ms=10)
    produce = client.send(TOPIC, {0: client.batch(b"x")})
    fetch = client.start_fetch(TOPIC, {0: 0}, max_wait_ms=1000)
    machine.scheduler.run_for(20)
    assert arrived(client, produce, fetch) == [produce, fetch]
    assert client.socket.answers[fetch].responses[0].partitions[0].records


def test_a_produce_that_wants_no_answer_gets_none_and_does_not_disturb_the_order() -> None:
    _, client = running()
    silent = client.send(TOPIC, {0: client.batch(b"silent")}, acks=0)
    loud = client.send(TOPIC, {0: client.batch(b"loud")}, acks=LEADER)
    assert client.produced(loud).base_offset == 1
    assert arrived(client, silent, loud) == [loud]


def test_a_refused_batch_that_wants_no_answer_closes_the_connection() -> None:
    _, client = running()
    client.send("nowhere", {0: client.batch(b"x")}, acks=0)
    assert client.socket.close_reason is not None


def test_too_many_unanswered_requests_stop_the_reading() -> None:
    machine, client = running(sync_ms=10)
    machine.node.start_settings["pipelined.requests.max"] = "3"
    machine.node._apply_broker_overrides()
    client = Client(machine)
    sent = [client.send(TOPIC, {0: client.batch(b"%d" % number)}) for number in range(8)]
    assert client.socket.is_muted
    assert machine.node.partition(TOPIC, 0).log.log_end_offset == 3
    machine.scheduler.run_for(100)
    assert arrived(client, *sent) == sent


def test_a_request_that_cannot_be_read_ends_its_connection_only() -> None:
    machine, client = running()
    bad = Client(machine)
    bad.socket.send_frame(bytes.fromhex("0003000c00000001ffff00ffffffff0f"))
    assert bad.socket.close_reason is not None
    assert client.topics() == {TOPIC: 2}


def test_a_client_that_leaves_while_its_fetch_is_parked_leaves_nothing_behind() -> None:
    machine, _ = running()
    leaver = Client(machine)
    leaver.start_fetch(TOPIC, {0: 0, 1: 0}, max_wait_ms=10_000)
    assert machine.node.parked_requests == 1
    leaver.socket.hang_up("gone")
    assert machine.node.parked_requests == 0
    machine.scheduler.run_for(20_000)
    client = Client(machine)
    assert client.produce(TOPIC, b"x").base_offset == 0


def test_a_client_that_leaves_before_its_acknowledgement_has_written_all_the_same() -> None:
    machine, client = running(sync_ms=10)
    leaver = Client(machine)
    leaver.send(TOPIC, {0: leaver.batch(b"x")})
    leaver.socket.hang_up("gone")
    machine.scheduler.run_for(100)
    assert client.read_all(TOPIC) == [(0, b"x")]
