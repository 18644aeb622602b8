"""The simulated network and process: what arrives, in which order, and what a pause or a death does to it."""

import random
from collections.abc import Callable

import pytest

from fencepost.simulation.network import Link, Network
from fencepost.simulation.node import SimulatedNode
from fencepost.simulation.trace import Trace
from fencepost.wire.catalog import ApiKey
from fencepost.wire.framing import request_frame
from fencepost.wire.messages import ApiVersionsRequest, EndTxnRequest, ListTransactionsRequest


class Scene:
    def __init__(self, seed: int = 0) -> None:
        self.machine = SimulatedNode(seed=seed).start()
        self.network = Network(self.machine, random.Random(seed), Trace(self.machine.clock))
        self.network.delay_max_ms = 50
        self.handled: list[ApiKey] = []
        self.network.on_request = self.handled.append
        self.answers: list[int] = []
        self.closed: list[int] = []

    def connect(self) -> Link:
        link = self.network.connect("client")
        assert link is not None
        link.on_frame = lambda frame: self.answers.append(int.from_bytes(frame[:4], "big"))
        link.on_closed = lambda: self.closed.append(link.number)
        return link

    def send(self, link: Link, number: int) -> None:
        parts = request_frame(ApiKey.API_VERSIONS, 3, number, "client", ApiVersionsRequest())
        link.send(b"".join(parts)[4:])

    def run(self, for_ms: int = 1_000) -> None:
        self.machine.scheduler.run_for(for_ms)


@pytest.mark.parametrize("seed", range(5))
def test_one_connection_keeps_its_order_and_two_do_not(seed: int) -> None:
    scene = Scene(seed)
    link = scene.connect()
    for number in range(20):
        scene.send(link, number)
    scene.run()
    assert scene.answers == list(range(20))
    scene.answers.clear()
    for number in range(20):
        scene.send(scene.connect(), number)
    scene.run()
    assert sorted(scene.answers) == list(range(20))
    assert scene.answers != list(range(20))


def test_a_request_held_up_arrives_after_its_client_has_gone() -> None:
    scene = Scene()
    link = scene.connect()
    link.hold(5_000)
    scene.send(link, 1)
    link.abandon()
    scene.run(4_000)
    assert scene.handled == []
    scene.run(2_000)
    assert scene.handled == [ApiKey.API_VERSIONS]
    assert scene.network.late_frames == 1
    assert scene.answers == []


@pytest.mark.parametrize(("loses_requests", "handled"), [(True, 0), (False, 1)])
def test_a_half_open_connection_is_silent_until_the_keep_alive_finds_out(loses_requests: bool, handled: int) -> None:
    scene = Scene()
    link = scene.connect()
    link.half_open(requests=loses_requests)
    scene.send(link, 1)
    scene.run(20_000)
    assert len(scene.handled) == handled
    assert (scene.answers, scene.closed) == ([], [])


def test_a_cut_is_heard_by_both_ends() -> None:
    scene = Scene()
    link = scene.connect()
    link.cut()
    scene.run()
    assert scene.closed == [link.number]
    assert link.number not in scene.network.links


def test_a_dead_broker_answers_nobody_and_a_new_one_does_not_know_the_old_connections() -> None:
    scene = Scene()
    link = scene.connect()
    scene.send(link, 1)
    scene.machine.crash()
    scene.network.broker_died()
    assert scene.network.connect("client") is None
    scene.machine.start()
    scene.run()
    assert (scene.handled, scene.answers, scene.closed) == ([], [], [link.number])


def test_a_paused_broker_does_everything_later_and_in_order() -> None:
    scene = Scene()
    process = scene.machine.process
    assert process is not None
    happened: list[str] = []

    def note(what: str) -> Callable[[], None]:
        return lambda: happened.append(what)

    process.call_later(10, note("first"))
    cancelled = process.call_later(20, note("cancelled"))
    process.call_later(30, note("second"))
    process.is_paused = True
    scene.run(100)
    assert happened == []
    cancelled.cancel()
    process.resume()
    process.call_soon(note("third"))
    scene.run(0)
    assert happened == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("api", "version", "message", "copies"),
    [
        (ApiKey.LIST_TRANSACTIONS, 1, ListTransactionsRequest(duration_filter=-1), 2),
        (ApiKey.END_TXN, 5, EndTxnRequest(transactional_id="a", producer_id=1, producer_epoch=0, committed=True), 2),
        (ApiKey.END_TXN, 3, EndTxnRequest(transactional_id="a", producer_id=1, producer_epoch=0, committed=True), 1),
    ],
)
def test_a_request_arrives_twice_unless_nobody_could_tell_it_from_the_next(
    api: ApiKey, version: int, message: object, copies: int
) -> None:
    scene = Scene()
    scene.network.duplicates_wanted = 1
    link = scene.connect()
    link.send(b"".join(request_frame(api, version, 1, "client", message))[4:])
    scene.run(5_000)
    assert scene.handled == [api] * copies
    assert scene.answers == [1]
