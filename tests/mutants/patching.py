"""How a broker is broken at run time, and put together again."""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Patch = tuple[Any, str, Callable[[Any], Any]]
"""An owner, the name of its attribute, and what makes the broken one from the good one."""


class Mutant(NamedTuple):
    name: str
    breaks: str
    """What it does wrong, in one line."""
    patches: list[Patch]
    check: Callable[[], None] | None = None
    """Where no simulated client could notice: a check that passes on the good broker and fails on this one."""


@contextlib.contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """The broker is this mutant within the context."""
    with contextlib.ExitStack() as stack:
        for owner, name, make in mutant.patches:
            stack.enter_context(_patched(owner, name, make))
        yield


@contextlib.contextmanager
def _patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    # As it stands in a dictionary: a property is put back as what it was, and what was inherited is inherited again.
    good = inspect.getattr_static(owner, name)
    is_own = name in vars(owner)
    setattr(owner, name, make(good))
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, good)
        else:
            delattr(owner, name)


def instead(broken_function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Replace the good one altogether."""
    return lambda good: broken_function


def nothing(good: Any) -> Any:
    """Do nothing at all."""
    return lambda *arguments, **named: None
