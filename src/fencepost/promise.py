"""A one-shot result that is filled in later.

The pure core answers some calls at once and parks others (a fetch that waits for data, an acknowledgement that waits
for a sync, a join that waits for the group). A parked answer is a Promise. Callbacks run synchronously in the order
in which they were added, so the same code runs the same way under the real and the simulated shell.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Promise(Generic[T]):
    __slots__ = ("_callbacks", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._callbacks: list[Callable[[T], None]] | None = None

    @classmethod
    def resolved(cls, value: T) -> "Promise[T]":
        promise: Promise[T] = cls()
        promise.done = True
        promise._value = value
        return promise

    @property
    def value(self) -> T:
        assert self.done, "a promise was read before it was resolved"
        return self._value  # type: ignore[return-value]

    def resolve(self, value: T) -> None:
        """Fill in the value. A second resolve is ignored: a timeout and an event may race for the same answer."""
        if self.done:
            return
        self.done = True
        self._value = value
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            mistake: Exception | None = None
            for callback in callbacks:
                try:
                    callback(value)
                except Exception as error:
                    # The others have a right to the value all the same.
                    mistake = mistake or error
            if mistake is not None:
                raise mistake

    def then(self, callback: Callable[[T], None]) -> None:
        if self.done:
            callback(self._value)  # type: ignore[arg-type]
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def map(self, function: "Callable[[T], U]") -> "Promise[U]":
        """A promise of `function`'s result for the value."""
        if self.done:
            return Promise.resolved(function(self._value))  # type: ignore[arg-type]
        mapped: Promise[U] = Promise()
        self.then(lambda value: mapped.resolve(function(value)))
        return mapped
