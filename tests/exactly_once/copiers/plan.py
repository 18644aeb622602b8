"""What a copier is told, and what the Python copiers have in common."""

import faulthandler
import json
import random
import signal
import sys
import threading
from dataclasses import asdict, dataclass

from tests.peers.programs.console import when_input_closes


@dataclass(frozen=True, slots=True)
class Plan:
    bootstrap: str
    group: str
    transactional_id: str
    source: str
    outputs: tuple[str, str]
    seed: int
    # For what a copier keeps on disk (Streams its state).
    directory: str
    inputs_per_transaction: int = 100
    abort_probability: float = 0.1
    # A transaction is held open for up to so long, so that kills find open ones.
    pause_ms: int = 40
    session_timeout_ms: int = 2_000
    heartbeat_interval_ms: int = 300
    transaction_timeout_ms: int = 8_000

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    def transform(self, key: bytes, value: bytes) -> list[tuple[str, bytes, bytes]]:
        """Topic, key and value of what one input becomes."""
        receiver = value.split(b",")[2]
        first, second = self.outputs
        return [(first, key, first.encode() + b":" + value), (second, receiver, second.encode() + b":" + value)]


@dataclass(frozen=True, slots=True)
class Whims:
    """Where this transaction pauses and whether it is aborted, and when."""

    pause_before_offsets_seconds: float
    pause_before_end_seconds: float
    abort_before_offsets: bool
    abort_before_end: bool


class Dice:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._source = random.Random(plan.seed)

    def throw(self) -> Whims:
        source, pause_seconds = self._source, self._plan.pause_ms / 1000
        aborts = source.random() < self._plan.abort_probability
        early = source.random() < 0.5
        return Whims(
            pause_before_offsets_seconds=source.uniform(0, pause_seconds),
            pause_before_end_seconds=source.uniform(0, pause_seconds),
            abort_before_offsets=aborts and early,
            abort_before_end=aborts and not early,
        )


def given_plan() -> Plan:
    faulthandler.register(signal.SIGQUIT)
    content = json.loads(sys.argv[1])
    return Plan(**{**content, "outputs": tuple(content["outputs"])})


def stopping_when_input_closes() -> threading.Event:
    stopping = threading.Event()
    when_input_closes(stopping.set)
    return stopping


class Aborted(Exception):
    """The dice said so."""
