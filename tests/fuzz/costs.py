"""Requests that ask for as much as they can, drawn from the API table, and the two limits on what they may take.

The bytes are choices: which kind of request (API, version, repeatable field, of things that exist or not) and how many
entries. Processor time decides, not the time that passes, with room for a busy machine, and the best of a few tries
counts; `python -m bench.cost` prints the exact figures.
"""

import functools
import random
import struct
from collections.abc import Callable

from fencepost.broker.events import HandlerFailed
from tests.hostile.expensive import FACTOR_MAX, HOLD_NS_MAX, Expensive, Workbench, all_expensive

_CHOICE = struct.Struct(">HH")
CHOICES_MAX = 4
ENTRIES_MAX = 6_000
FIRST_ENTRIES = 600
TRIES = 4
ROOM = 5
Mutate = Callable[[bytes, int], bytes]


@functools.cache
def _kinds() -> list[Expensive]:
    return all_expensive()


class _Broker:
    def __init__(self) -> None:
        self.bench = Workbench()
        self.failures: list[HandlerFailed] = []
        self.bench.node.events.subscribe(
            lambda event: self.failures.append(event) if isinstance(event, HandlerFailed) else None
        )
        self.baseline_ns_per_byte = self.bench.baseline_ns_per_byte()
        self._topics = {name: topic.partition_count for name, topic in self.bench.node.metadata.topics.items()}

    def tidy(self) -> None:
        """What one input has made or deleted does not change what the next finds."""
        node = self.bench.node
        for name in node.metadata.topics.keys() - self._topics.keys():
            node.delete_topic(name)
        for name in self._topics.keys() - node.metadata.topics.keys():
            node.create_topic(name, self._topics[name], {})
        self.bench.topic_ids = [topic.topic_id for topic in node.metadata.topics.values()]
        self.bench.machine.scheduler.run_ready()


@functools.cache
def _broker() -> _Broker:
    return _Broker()


def choices(data: bytes) -> list[tuple[Expensive, int]]:
    whole = len(data) // _CHOICE.size * _CHOICE.size
    drawn = list(_CHOICE.iter_unpack(data[:whole]))[:CHOICES_MAX]
    return [(_kinds()[kind % len(_kinds())], entries % (ENTRIES_MAX + 1)) for kind, entries in drawn]


def run(data: bytes) -> None:
    broker = _broker()
    for kind, entries in choices(data):
        frame = kind.frame(entries, broker.bench.topic_ids)
        tries = []
        for _ in range(TRIES):
            cost = broker.bench.cost(frame)
            factor = cost.factor(broker.baseline_ns_per_byte)
            if cost.longest_ns <= HOLD_NS_MAX * ROOM and factor <= FACTOR_MAX * ROOM:
                break
            tries.append(f"{cost.longest_ns / 1e6:.0f} ms in one go, {factor:.0f} times Produce for each byte")
        else:
            raise AssertionError(f"{kind} with {entries} entries: {'; '.join(tries)}")
        assert not broker.failures, broker.failures[0].traceback
    broker.tidy()


def mutate(data: bytes, seed: int, change: Mutate) -> bytes:
    """Another request, another number of entries, or one request less."""
    source = random.Random(seed)
    drawn = [data[at : at + _CHOICE.size] for at in range(0, len(data), _CHOICE.size)][:CHOICES_MAX]
    place = source.randrange(len(drawn) + 1)
    fresh = _CHOICE.pack(source.randrange(len(_kinds())), source.randrange(ENTRIES_MAX + 1))
    match source.randrange(4) if drawn else 0:
        case 0 | 1:
            drawn.insert(place, fresh)
        case 2:
            place %= len(drawn)
            drawn[place] = drawn[place][:2] + fresh[2:]
        case _:
            del drawn[place % len(drawn)]
    return b"".join(drawn[:CHOICES_MAX])


def first_inputs() -> list[bytes]:
    """Every repeatable field of every API, in its highest version, a few to an input."""
    latest = set(all_expensive(every_version=False))
    drawn = [_CHOICE.pack(at, FIRST_ENTRIES) for at, kind in enumerate(_kinds()) if kind in latest]
    return [b"".join(drawn[at : at + CHOICES_MAX]) for at in range(0, len(drawn), CHOICES_MAX)]
