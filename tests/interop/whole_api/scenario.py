"""What a scenario is: one public method of a library, called on one broker, and an outcome that can be compared.

A scenario gets a scene of its own: its names for topics and groups are the same on both brokers, so that most of an
answer can be compared as it is. What belongs to the one process (addresses, ids) is replaced by whether it is there.
"""

import dataclasses
import enum
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import singledispatch
from types import ModuleType
from typing import Any

from tests.interop.cases.peer import Peer
from tests.peers.batches import batch
from tests.peers.broker_process import BrokerProcess
from tests.support.patience import patient

PATIENCE_SECONDS = patient(30.0)
# What is compared only by whether it is there. Spelled without underscores, in small letters.
OWN_VALUES = {
    "clienthost", "clusterid", "host", "logdir", "memberid", "origbrokername", "port", "producerid", "topicid",
}  # fmt: skip
# Words for people: the two may say it differently, and may leave it out.
LEFT_OUT = {"errormessage", "throttletimems"}
ABSENT: tuple[Any, ...] = (None, "", -1, b"", [], "absent")


class Scene(Peer):
    """One scenario on one broker."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        super().__init__(broker, name)
        self.bootstrap = broker.bootstrap_servers
        self._settled = 0

    def filled(self, stem: str = "t", partitions: int = 1, count: int = 3, **configs: str) -> str:
        """A topic with so many records in each partition, one batch each, at the times 1000, 2000, ..."""
        topic = self.topic(stem, partitions, retention_ms="-1", **configs)
        for partition in range(partitions):
            for n in range(count):
                records = batch([b"value %d" % n], timestamp=1000 * (n + 1))
                assert self.produce(topic, records, partition=partition)["ErrorCode"] == 0
        return topic

    def settle(self) -> None:
        """Wait until what was changed can be read: Kafka's broker learns of it after its controller has answered.

        It learns in order, so a topic that is made later and has a leader proves most of it; a second one all of it.
        """
        for _ in range(2):
            self._settled += 1
            self.topic(f"settled-{self._settled}")


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    method: str
    """Class and method, as in `Producer.flush`."""
    run: Callable[[Scene], Any]


# How the libraries name what talks to a broker.
CLIENT = re.compile(r"\w*(Producer|Consumer|Client)")


class Library:
    """One library: its public clients, its scenarios, and the methods that need none because they talk to no broker."""

    def __init__(self, name: str, modules: Sequence[ModuleType], classes: Mapping[str, type]) -> None:
        self.name = name
        self._modules = modules
        self.classes = dict(classes)
        self.other_classes: dict[str, str] = {}
        """Clients without scenarios, and why."""
        self.scenarios: dict[str, Scenario] = {}
        self.local: dict[str, str] = {}
        self.close: Callable[[], None] = lambda: None
        """Ends what the scenarios share."""

    def public_methods(self) -> set[str]:
        return {
            f"{name}.{method}"
            for name, kind in self.classes.items()
            for method in dir(kind)
            if not method.startswith("_") and callable(getattr(kind, method))
        }

    def public_classes(self) -> set[str]:
        return {
            name
            for module in self._modules
            for name, value in vars(module).items()
            if CLIENT.fullmatch(name) and isinstance(value, type)
        }

    def scenario(self, method: str) -> Callable[[Callable[[Scene], Any]], Callable[[Scene], Any]]:
        def register(run: Callable[[Scene], Any]) -> Callable[[Scene], Any]:
            assert method not in self.scenarios, f"two scenarios for {method}"
            self.scenarios[method] = Scenario(method, run)
            return run

        return register

    def talks_to_no_broker(self, method: str, reason: str) -> None:
        self.local[method] = reason


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a call returned, or what it raised, as plain values."""
    try:
        return plain(call(*arguments, **options))
    except Exception as error:
        return plain(error)


def until(condition: Callable[[], Any], what: str) -> Any:
    """The first true result of the condition, which itself takes the time to wait."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.002)
    raise AssertionError(f"{what} did not come within {PATIENCE_SECONDS:g} s")


@singledispatch
def plain(value: Any) -> Any:
    """The value as dictionaries, lists, texts and numbers. A library's own types are registered by its module."""
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _fields(zip(value._fields, value, strict=True))
    if isinstance(value, Mapping):
        return _fields(value.items())
    if isinstance(value, set | frozenset):
        return sorted((plain(each) for each in value), key=str)
    if isinstance(value, list | tuple):
        return by_topic([plain(each) for each in value])
    return _fields((name, each) for name, each in vars(value).items() if not name.startswith("_"))


@plain.register
def _(error: Exception) -> Any:
    return {"raised": type(error).__name__}


def by_topic(answers: list[Any]) -> list[Any]:
    """Kafka answers about several topics in any order; what belongs to one topic keeps its own."""
    for name in ("topic", "name", "topic_name"):
        if all(isinstance(answer, dict) and isinstance(answer.get(name), str) for answer in answers):
            return sorted(answers, key=lambda answer: str(answer[name]))
    return answers


def _fields(items: Any) -> dict[str, Any]:
    found = {}
    for key, value in items:
        name = key if isinstance(key, str) else _text(plain(key))
        spelling = name.replace("_", "").lower()
        if spelling not in LEFT_OUT:
            found[name] = _presence(value) if spelling in OWN_VALUES else plain(value)
    return found


def _text(key: Any) -> str:
    return " ".join(_leaves(key))


def _leaves(key: Any) -> Iterator[str]:
    if isinstance(key, dict):
        for value in key.values():
            yield from _leaves(value)
    elif isinstance(key, list):
        for value in key:
            yield from _leaves(value)
    else:
        yield str(key)


def _presence(value: Any) -> str:
    return "absent" if value in ABSENT else "present"
