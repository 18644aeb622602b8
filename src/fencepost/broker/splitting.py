"""Requests about many things, served as several about few, so that others are served in between.

Where a request can be cut follows from the shape that its handler declares. Entries about the same thing stay together,
because only the handler knows what it means to name a thing twice; otherwise the parts are independent, as they are in
Kafka, and their answers are one answer.
"""

import copy
from collections.abc import Callable, Generator, Iterable, Iterator
from operator import attrgetter
from types import GeneratorType
from typing import Any

from fencepost.broker.connection import Staged
from fencepost.broker.handler import Shape
from fencepost.broker.slices import Steps
from fencepost.promise import Promise

# How many parts may wait to be durable at a time.
PENDING_PARTS_MAX = 8


def serve_in_parts(shape: Shape, request: Any, serve: Callable[[Any], Any]) -> Steps[Any]:
    """What `serve` answers to the request, one part after the other. An error about the whole request ends it."""
    answers: list[Any] = []
    groups = yield from _grouped(getattr(request, shape.entries), shape.keys)
    for part in _parts(shape, request, groups):
        yield None
        if part is None:
            continue
        answer = serve(part)
        if type(answer) is GeneratorType:
            answer = yield from answer
        if type(answer) is Staged:
            # What comes next is appended after it.
            if not answer.appended.done:
                yield answer.appended
            answer = answer.answer
        answers.append(answer)
        # What is written together is answered together: not too much of it.
        if len(answers) > PENDING_PARTS_MAX:
            before = answers[-PENDING_PARTS_MAX]
            if type(before) is Promise and not before.done:
                yield before
        if getattr(answer, "error_code", 0):
            break
    messages = []
    for answer in answers:
        if type(answer) is Promise:
            if not answer.done:
                yield answer
            answer = answer.value
        if answer is not None:
            messages.append(answer)
        yield None
    return (yield from _merged(shape, messages)) if messages else None


def _parts(shape: Shape, request: Any, groups: Iterable[list[Any]]) -> Iterator[Any]:
    """The request again and again, each time with some of its entries. None: it may be interrupted here, too."""
    some: list[Any] = []
    weight = 0
    for group in groups:
        for cut in _cut(shape, group):
            if cut is None:
                yield None
                continue
            entries, entries_weight = cut
            if some and weight + entries_weight > shape.part_entries:
                yield _with(request, shape.entries, some)
                some, weight = [], 0
            some += entries
            weight += entries_weight
    if some:
        yield _with(request, shape.entries, some)


def _cut(shape: Shape, group: list[Any]) -> Iterator[tuple[list[Any], int] | None]:
    """Entries about one thing: together, or one after the other where it is a single one with many of its own."""
    inner = shape.inner
    if inner is None:
        yield group, len(group)
        return
    weights = [inner.weight(getattr(entry, inner.entries) or ()) for entry in group]
    if len(group) > 1 or weights[0] <= shape.part_entries:
        yield group, max(len(group), sum(weights))
        return
    some: list[Any] = []
    weight = 0
    for same in (yield from _grouped(getattr(group[0], inner.entries), inner.keys)):
        some += same
        weight += inner.weight(same)
        if weight >= shape.part_entries:
            yield [_with(group[0], inner.entries, some)], weight
            some, weight = [], 0
    if some:
        yield [_with(group[0], inner.entries, some)], weight


def _grouped(entries: list[Any], keys: tuple[str, ...] | None) -> Generator[None, None, Iterable[list[Any]]]:
    groups: dict[Any, list[Any]] = {}
    key_of = id if keys is None else attrgetter(*keys) if keys else _itself
    for number, entry in enumerate(entries):
        if not number & 63:
            yield None
        groups.setdefault(key_of(entry), []).append(entry)
    return groups.values()


def _itself(entry: Any) -> Any:
    return entry


def _with(original: Any, name: str, entries: list[Any]) -> Any:
    changed = copy.copy(original)
    setattr(changed, name, entries)
    return changed


def _merged(shape: Shape, messages: list[Any]) -> Steps[Any]:
    whole = messages[0]
    answers: list[Any] = getattr(whole, shape.answers)
    names = shape.keys or ()
    for message in messages[1:]:
        yield None
        if getattr(message, "error_code", 0):
            return message
        for answer in getattr(message, shape.answers):
            last = answers[-1] if answers else None
            if shape.inner is not None and last is not None and _is_same(last, answer, names):
                getattr(last, shape.inner.answers).extend(getattr(answer, shape.inner.answers))
            else:
                answers.append(answer)
    return whole


def _is_same(one: Any, other: Any, names: tuple[str, ...]) -> bool:
    """Whether two answers are about the same thing, which was cut."""
    return all(getattr(one, name) == getattr(other, name) for name in names)
