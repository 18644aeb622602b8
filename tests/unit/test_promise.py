"""A result that is filled in later, and what is made of it."""

import pytest

from fencepost.promise import Promise


def test_a_mapped_promise_has_its_value_as_soon_as_the_other() -> None:
    promise: Promise[int] = Promise()
    mapped = promise.map(str)
    assert not mapped.done
    promise.resolve(3)
    assert mapped.value == "3"
    assert promise.map(lambda value: value + 1).value == 4


def test_a_resolved_promise_calls_back_at_once_and_keeps_its_value() -> None:
    seen: list[int] = []
    promise = Promise.resolved(1)
    promise.resolve(2)
    promise.then(seen.append)
    assert seen == [1]


def test_a_callback_that_fails_keeps_the_value_from_no_other() -> None:
    seen: list[int] = []
    promise: Promise[int] = Promise()

    def fails(value: int) -> None:
        raise RuntimeError(value)

    for callback in (fails, seen.append, fails):
        promise.then(callback)
    with pytest.raises(RuntimeError, match="7"):
        promise.resolve(7)
    assert seen == [7]
