"""Whose turn it is: ends of transactions before the rest, answers together, bulk work when nobody waits."""

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from fencepost.shell import turns
from fencepost.shell.processor import LOOKS, LOSSES_MAX, Processor
from fencepost.shell.turns import QUIET_WAIT_NS, SHARED_TURN_NS, TURN_NS, Turns


class Scene:
    """A loop that turns when told to, and connections that note what happens to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        monkeypatch.setattr(turns, "perf_counter_ns", lambda: self.now_ns)
        self._soon: deque[Callable[[], None]] = deque()
        self.losses = 0
        self.turns = Turns(cast(Any, self), Processor(lambda: self.losses))
        self.happened: list[str] = []
        self.while_serving: dict[str, Callable[[], None]] = {}

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def turn_once(self) -> list[str]:
        """One turn of the loop; what happened in it."""
        self.happened.clear()
        for _ in range(len(self._soon)):
            self._soon.popleft()()
        return self.happened

    @property
    def is_idle(self) -> bool:
        return not self._soon

    def loses_the_processor(self, times: int) -> None:
        """So often in the next few turns; in those after them it counts."""
        self.losses += times
        for _ in range(LOOKS):
            self.arrives("earlier")
            self.turn_once()

    def arrives(self, name: str, *, ends: bool = False) -> None:
        self.turns.wait(FakeConnection(name, self), ends_transaction=ends)


class FakeConnection:
    def __init__(self, name: str, scene: Scene) -> None:
        self._name = name
        self._scene = scene

    def serve(self) -> None:
        assert self._scene.turns.holds_answers
        self._scene.happened.append(f"serve {self._name}")
        self._scene.while_serving.get(self._name, lambda: None)()
        self._scene.turns.hold(self)

    def send(self) -> None:
        self._scene.happened.append(f"answer {self._name}")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_ends_of_transactions_come_first_and_are_answered_before_the_rest_is_served(scene: Scene) -> None:
    scene.arrives("a")
    scene.arrives("b", ends=True)
    scene.arrives("c")
    assert scene.turn_once() == ["serve b", "answer b", "serve a", "serve c", "answer a", "answer c"]
    assert scene.is_idle
    assert not scene.turns.holds_answers


def test_a_long_turn_ends_so_that_new_ends_of_transactions_are_seen(scene: Scene) -> None:
    scene.while_serving["a"] = lambda: setattr(scene, "now_ns", scene.now_ns + TURN_NS)
    for name in "ab":
        scene.arrives(name)
    assert scene.turn_once() == ["serve a", "answer a"]
    scene.arrives("c", ends=True)
    assert scene.turn_once() == ["serve c", "answer c", "serve b", "answer b"]


def test_ends_of_transactions_are_answered_two_by_two(scene: Scene) -> None:
    for name in "abc":
        scene.arrives(name, ends=True)
    assert scene.turn_once() == ["serve a", "serve b", "answer a", "answer b", "serve c", "answer c"]


def test_where_clients_take_the_processor_away_turns_are_longer_and_answers_leave_together(scene: Scene) -> None:
    scene.loses_the_processor(LOSSES_MAX + 1)
    scene.while_serving["d"] = lambda: setattr(scene, "now_ns", scene.now_ns + TURN_NS)
    scene.while_serving["e"] = lambda: setattr(scene, "now_ns", scene.now_ns + SHARED_TURN_NS)
    for name in "abc":
        scene.arrives(name, ends=True)
    for name in "def":
        scene.arrives(name)
    ends = ["serve a", "serve b", "serve c", "answer a", "answer b", "answer c"]
    assert scene.turn_once() == [*ends, "serve d", "serve e", "answer d", "answer e"]
    scene.turn_once()
    scene.loses_the_processor(LOSSES_MAX)
    scene.arrives("d")
    scene.arrives("g")
    assert scene.turn_once() == ["serve d", "answer d"], "it is quiet again"


def test_ends_of_transactions_do_not_starve_the_rest(scene: Scene) -> None:
    scene.while_serving["end"] = lambda: scene.arrives("end", ends=True)
    scene.arrives("end", ends=True)
    scene.arrives("other")
    assert scene.turn_once() == ["serve end", "answer end", "serve other", "answer other"]


def test_bulk_work_waits_until_nobody_else_does(scene: Scene) -> None:
    scene.while_serving["a"] = lambda: setattr(scene, "now_ns", scene.now_ns + TURN_NS)
    scene.arrives("a")
    scene.arrives("b")
    scene.turns.call_when_quiet(lambda: scene.happened.append("bulk"))
    assert scene.turn_once() == ["serve a", "answer a"]
    assert scene.turn_once() == ["serve b", "answer b", "bulk"]
    assert scene.is_idle


def test_bulk_work_does_not_wait_for_ever(scene: Scene) -> None:
    scene.turns.call_when_quiet(lambda: scene.happened.append("bulk"))

    def busy() -> None:
        scene.now_ns += QUIET_WAIT_NS
        scene.arrives("busy")

    scene.while_serving["busy"] = busy
    scene.arrives("busy")
    happened = [line for _ in range(3) for line in scene.turn_once()]
    assert "bulk" in happened


def test_bulk_work_runs_at_once_on_an_idle_broker(scene: Scene) -> None:
    scene.turns.call_when_quiet(lambda: scene.happened.append("bulk"))
    assert scene.turn_once() == ["bulk"]
    assert scene.is_idle


def test_the_first_to_come_is_served_at_once_and_the_rest_of_that_look_waits(scene: Scene) -> None:
    assert scene.turns.is_first()
    assert not scene.turns.is_first()
    scene.arrives("second")
    assert scene.turn_once() == ["serve second", "answer second"]
    assert scene.turns.is_first()


def test_nobody_overtakes_those_who_wait(scene: Scene) -> None:
    scene.while_serving["a"] = lambda: setattr(scene, "now_ns", scene.now_ns + TURN_NS)
    scene.arrives("a")
    scene.arrives("b")
    scene.turn_once()
    assert not scene.turns.is_first()
