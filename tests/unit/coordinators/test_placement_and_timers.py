"""Two small tools: which partition answers for a key, and deadlines that are cheap to move."""

import random
from functools import partial

import pytest

from fencepost.coordinators.placement import java_string_hash, partition_for_key
from fencepost.coordinators.timers import Timers
from fencepost.ports import Now


@pytest.mark.parametrize(
    ("key", "partition"),
    [("my-group", 12), ("kafka-txn-0", 30), ("tx-1", 20), ("test", 48), ("", 0), ("polygenelubricants", 0), ("😀", 49)],
)
def test_keys_go_where_kafka_puts_them(key: str, partition: int) -> None:
    assert partition_for_key(key, 50) == partition


def test_the_hash_is_javas() -> None:
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert java_string_hash("tx-1") == 3_572_520
    assert java_string_hash("😀") == 1_772_899


def at(milliseconds: int) -> Now:
    return Now(milliseconds, 0)


def test_timers_fire_in_order_and_once() -> None:
    timers = Timers()
    fired: list[tuple[str, int]] = []

    def note(name: str, now: Now) -> None:
        fired.append((name, now.monotonic_ms))

    for name, deadline in (("c", 30), ("a", 10), ("b", 20)):
        timers.schedule(name, deadline, partial(note, name))
    assert timers.next_deadline_ms() == 10
    timers.run_due(at(20))
    assert fired == [("a", 20), ("b", 20)]
    timers.run_due(at(40))
    timers.run_due(at(50))
    assert fired[2:] == [("c", 40)]
    assert timers.next_deadline_ms() is None


def test_a_timer_can_be_moved_both_ways_and_cancelled() -> None:
    timers, fired = Timers(), []
    timers.schedule("later", 10, lambda now: fired.append("old"))
    timers.schedule("later", 50, lambda now: fired.append("later"))
    timers.schedule("sooner", 90, lambda now: fired.append("old"))
    timers.schedule("sooner", 20, lambda now: fired.append("sooner"))
    timers.schedule("never", 5, lambda now: fired.append("never"))
    timers.cancel("never")
    assert timers.next_deadline_ms() == 20
    timers.run_due(at(20))
    assert fired == ["sooner"]
    assert timers.next_deadline_ms() == 50
    timers.run_due(at(100))
    assert fired == ["sooner", "later"]
    assert len(timers) == 0


def test_what_a_timer_arms_for_now_runs_too() -> None:
    timers, fired = Timers(), []

    def first(now: Now) -> None:
        timers.schedule("second", now.monotonic_ms, lambda _: fired.append("second"))

    timers.schedule("first", 10, first)
    timers.run_due(at(10))
    assert fired == ["second"]


def test_moving_a_deadline_out_again_and_again_does_not_grow_the_heap() -> None:
    timers = Timers()
    for beat in range(10_000):
        timers.schedule("member", 1_000 + beat, lambda now: None)
    assert len(timers._heap) == 1
    assert timers.next_deadline_ms() == 10_999


@pytest.mark.parametrize("seed", range(20))
def test_timers_agree_with_a_sorted_list(seed: int) -> None:
    dice, timers = random.Random(seed), Timers()
    model: dict[int, int] = {}
    fired: list[int] = []

    def note(key: int, now: Now) -> None:
        fired.append(key)

    for clock in range(300):
        key = dice.randrange(10)
        if dice.random() < 0.2:
            timers.cancel(key)
            model.pop(key, None)
        else:
            deadline = clock + dice.randrange(30)
            timers.schedule(key, deadline, partial(note, key))
            model[key] = deadline
        assert timers.next_deadline_ms() == min(model.values(), default=None)
        fired.clear()
        timers.run_due(at(clock))
        due = {name for name, deadline in model.items() if deadline <= clock}
        assert set(fired) == due
        for name in due:
            del model[name]
