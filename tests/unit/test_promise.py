"""A result that is filled in later, and what is made of it."""

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
