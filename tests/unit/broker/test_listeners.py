"""Several listeners: each tells its clients its own address, wherever an address is told."""

import pytest

from fencepost.broker.node import Node
from fencepost.shell.running_broker import CannotStart, Listener, _match_advertised, parse_listeners
from fencepost.simulation.node import SimulatedNode
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import DescribeClusterRequest, FindCoordinatorRequest
from tests.durability.scene import SMALL, Client

ADDRESSES = {"INSIDE": ("inside.example", 9092), "OUTSIDE": ("outside.example", 443)}


@pytest.mark.parametrize("listener", ADDRESSES)
def test_a_client_is_told_the_address_of_the_listener_it_came_through(listener: str) -> None:
    machine = SimulatedNode(SMALL).start()
    node: Node = machine.node
    for name, (host, port) in ADDRESSES.items():
        node.set_endpoint(name, host, port)
    client = Client(machine, listener)
    (broker,) = client.metadata().brokers
    assert (broker.host, broker.port) == ADDRESSES[listener]
    described = client.socket.call(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest())
    assert [(one.host, one.port) for one in described.brokers] == [ADDRESSES[listener]]
    found = client.socket.call(
        ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=["billing"])
    )
    assert [(one.host, one.port) for one in found.coordinators] == [ADDRESSES[listener]]


def test_listeners_are_told_apart_by_name_or_by_place() -> None:
    assert parse_listeners(["127.0.0.1:9092", "INSIDE://[::1]:9093", "0.0.0.0:0"]) == [
        Listener("PLAINTEXT", "127.0.0.1", 9092),
        Listener("INSIDE", "::1", 9093),
        Listener("PLAINTEXT3", "0.0.0.0", 0),
    ]


def test_advertised_addresses_find_their_listener_by_name_or_by_place() -> None:
    listeners = parse_listeners(["INSIDE://127.0.0.1:1", "OUTSIDE://127.0.0.1:2"])
    by_name = ["OUTSIDE://outside.example:443"]
    assert _match_advertised(listeners, parse_listeners(by_name), by_name) == {"OUTSIDE": ("outside.example", 443)}
    by_place = ["inside.example:9092", "outside.example:443"]
    assert _match_advertised(listeners, parse_listeners(by_place), by_place) == ADDRESSES


@pytest.mark.parametrize("texts", [["ELSEWHERE://a:1"], ["a:1", "b:2", "c:3"]])
def test_an_advertised_address_without_a_listener_is_refused(texts: list[str]) -> None:
    listeners = parse_listeners(["INSIDE://127.0.0.1:1", "OUTSIDE://127.0.0.1:2"])
    with pytest.raises(CannotStart):
        _match_advertised(listeners, parse_listeners(texts), texts)
