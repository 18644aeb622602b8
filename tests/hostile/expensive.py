"""Requests that ask for as much as they can, made from the API table: every API, version and repeatable field.

Each is the same request with one array filled to the limit, once with things that exist and once with things that do
not. Also a broker in this thread that says what serving a request takes: processor time in all and in one go, steps,
and bytes. `tests/hostile` checks that none holds the others up; `bench` prints the table.
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns
from typing import Any

from fencepost.config import broker_config
from fencepost.internal_topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from fencepost.ports import Workers
from fencepost.simulation.clock import VirtualClock
from fencepost.simulation.node import LISTENER, SimulatedNode
from fencepost.simulation.scheduler import SimulatedScheduler
from fencepost.wire.batch import build_batch
from fencepost.wire.catalog import API_VERSIONS, ApiKey
from fencepost.wire.framing import request_frame
from fencepost.wire.messages import (
    InitProducerIdRequest,
    OffsetCommitRequest,
    ProduceRequest,
    message_class,
    schema_of,
    snake_case,
)

ENTRIES_MAX = broker_config({}).request_elements_max
TOPICS = 100
WIDE_PARTITIONS = 500
GROUPS = 300
TRANSACTIONS = 300
TIME_MS = 1_700_000_000_000
# The rule: a request may use so much processor time for free; beyond that its time for each byte received and sent may
# be so many times that of Produce with 1 KiB batches, and none may hold the broker up for longer in one go.
FREE_NS = 1_000_000
FACTOR_MAX = 20
HOLD_NS_MAX = 20_000_000
BASELINE_REQUESTS = 300
BASELINE_TRIES = 5
_INTEGERS = ("int8", "int16", "int32", "int64", "uint16", "uint32")
# Fields that a request must have right to get any further.
_FIXED_VALUES = {
    (ApiKey.PRODUCE, "acks"): -1,
    (ApiKey.PRODUCE, "timeout_ms"): 1_000,
    (ApiKey.FETCH, "max_wait_ms"): 0,
    (ApiKey.FETCH, "max_bytes"): 1 << 20,
    (ApiKey.FETCH, "partition_max_bytes"): 1 << 20,
    (ApiKey.FETCH, "session_epoch"): 0,
    (ApiKey.FETCH, "current_leader_epoch"): -1,
    (ApiKey.FETCH, "last_fetched_epoch"): -1,
    (ApiKey.FETCH, "replica_id"): -1,
    (ApiKey.LIST_OFFSETS, "replica_id"): -1,
    (ApiKey.LIST_OFFSETS, "current_leader_epoch"): -1,
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, "current_leader_epoch"): -1,
    (ApiKey.OFFSET_COMMIT, "generation_id_or_member_epoch"): -1,
    (ApiKey.OFFSET_COMMIT, "committed_leader_epoch"): -1,
    (ApiKey.OFFSET_FETCH, "member_epoch"): -1,
    (ApiKey.JOIN_GROUP, "session_timeout_ms"): 10_000,
    (ApiKey.JOIN_GROUP, "rebalance_timeout_ms"): 10_000,
    (ApiKey.CREATE_TOPICS, "num_partitions"): 1,
    (ApiKey.CREATE_TOPICS, "replication_factor"): 1,
    (ApiKey.CREATE_PARTITIONS, "count"): 3,
    (ApiKey.DELETE_RECORDS, "offset"): 0,
    (ApiKey.DESCRIBE_CONFIGS, "resource_type"): 2,
    (ApiKey.ALTER_CONFIGS, "resource_type"): 2,
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "resource_type"): 2,
    (ApiKey.CREATE_ACLS, "resource_type"): 2,
    (ApiKey.CREATE_ACLS, "resource_pattern_type"): 3,
    (ApiKey.CREATE_ACLS, "operation"): 3,
    (ApiKey.CREATE_ACLS, "permission_type"): 3,
    (ApiKey.DELETE_ACLS, "resource_type_filter"): 2,
    (ApiKey.DELETE_ACLS, "pattern_type_filter"): 3,
    (ApiKey.DELETE_ACLS, "operation"): 3,
    (ApiKey.DELETE_ACLS, "permission_type"): 3,
    (ApiKey.WRITE_TXN_MARKERS, "producer_epoch"): 0,
    (ApiKey.TXN_OFFSET_COMMIT, "generation_id"): -1,
    (ApiKey.TXN_OFFSET_COMMIT, "committed_leader_epoch"): -1,
    (ApiKey.LIST_TRANSACTIONS, "duration_filter"): -1,
    (ApiKey.UPDATE_FEATURES, "upgrade_type"): 1,
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "mechanism"): 1,
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "iterations"): 4_096,
}
_KNOWN_STRINGS = {
    "group_id": lambda number: f"group-{number % GROUPS}",
    "groups": lambda number: f"group-{number % GROUPS}",
    "groups_names": lambda number: f"group-{number % GROUPS}",
    "transactional_id": lambda number: f"transaction-{number % TRANSACTIONS}",
    "transactional_ids": lambda number: f"transaction-{number % TRANSACTIONS}",
    "principal": lambda number: f"User:{number}",
    "host": lambda number: "*",
}
# Names of what a topic's name can stand in; anything else may be any text.
_TOPIC_FIELDS = frozenset({"name", "topic", "topics", "topic_name", "topic_names", "resource_name"})


@dataclass(frozen=True)
class Expensive:
    api: ApiKey
    version: int
    field: str
    """The array that is filled, as a path."""
    with_known: bool
    """Of things that exist."""

    def __str__(self) -> str:
        return f"{self.api.camel_name}-{self.version}-{self.field}-{'known' if self.with_known else 'unknown'}"

    def message(self, entries: int, topic_ids: list[bytes]) -> Any:
        return _Filler(self, entries, topic_ids).message()

    def frame(self, entries: int, topic_ids: list[bytes]) -> bytes:
        """Without its length."""
        return b"".join(request_frame(self.api, self.version, 1, "c", self.message(entries, topic_ids)))[4:]


class _Filler:
    def __init__(self, expensive: Expensive, entries: int, topic_ids: list[bytes]) -> None:
        self._expensive = expensive
        self._entries = entries
        self._topic_ids = topic_ids
        self._schema = schema_of(f"{expensive.api.camel_name}Request")

    def message(self) -> Any:
        cls = message_class(f"{self._expensive.api.camel_name}Request")
        return self._struct(cls, self._schema["fields"], (), 0)

    def _struct(self, cls: Any, fields: list[dict[str, Any]], path: tuple[str, ...], number: int) -> Any:
        values = {}
        for field in fields:
            if _is_in(field["versions"], self._expensive.version):
                values[snake_case(field["name"])] = self._value(cls, field, (*path, snake_case(field["name"])), number)
        return cls(**values)

    def _value(self, cls: Any, field: dict[str, Any], path: tuple[str, ...], number: int) -> Any:
        kind = field["type"]
        if not kind.startswith("[]"):
            return self._single(cls, field, kind, path, number)
        wanted = tuple(self._expensive.field.split("."))
        count = self._entries if path == wanted else int(wanted[: len(path)] == path or len(path) > len(wanted))
        return [self._single(cls, field, kind[2:], path, each) for each in range(count)]

    def _single(self, cls: Any, field: dict[str, Any], kind: str, path: tuple[str, ...], number: int) -> Any:
        name = path[-1]
        given = _FIXED_VALUES.get((self._expensive.api, name))
        if given is not None:
            return given
        known = self._expensive.with_known
        if kind in _INTEGERS:
            if kind == "int8" or "epoch" in name:
                return 0
            return number % WIDE_PARTITIONS if known else number % 30_000
        if kind == "string":
            return self._string(name, number)
        if kind == "uuid":
            return self._topic_ids[number % len(self._topic_ids)] if known else number.to_bytes(16, "big")
        if kind == "bool":
            return False
        if kind == "float64":
            return 0.0
        if kind == "bytes":
            return b"x"
        if kind == "records":
            return bytes(build_batch([(TIME_MS, None, b"v", ())]))
        inner = getattr(cls, kind, None) or getattr(message_class(f"{self._expensive.api.camel_name}Request"), kind)
        return self._struct(inner, field.get("fields") or self._schema["structs"][kind], path, number)

    def _string(self, name: str, number: int) -> str:
        api = self._expensive.api
        if self._expensive.with_known:
            if name in _KNOWN_STRINGS:
                return _KNOWN_STRINGS[name](number)
            if name in _TOPIC_FIELDS:
                if api is ApiKey.CREATE_TOPICS:
                    return f"new-{number}"
                # An array within a topic is filled for the one that has many partitions.
                return "wide" if "." in self._expensive.field else f"topic-{number % TOPICS}"
        return f"x{number}"


def _is_in(bounds: list[int] | None, version: int) -> bool:
    return bounds is not None and bounds[0] <= version <= bounds[1]


def arrays_of(api: ApiKey, version: int) -> Iterator[str]:
    """Paths of every array of a request."""
    schema = schema_of(f"{api.camel_name}Request")

    def walk(fields: list[dict[str, Any]], path: str) -> Iterator[str]:
        for field in fields:
            if not _is_in(field["versions"], version):
                continue
            here, kind = f"{path}{snake_case(field['name'])}", field["type"]
            if kind.startswith("[]"):
                yield here
            inner = field.get("fields") or schema["structs"].get(kind.removeprefix("[]"))
            if inner:
                yield from walk(inner, f"{here}.")

    yield from walk(schema["fields"], "")


def all_expensive(*, every_version: bool = True) -> list[Expensive]:
    made = []
    for api, (low, high) in API_VERSIONS.items():
        for version in range(low if every_version else high, high + 1):
            for field in arrays_of(api, version):
                made += [Expensive(api, version, field, with_known) for with_known in (True, False)]
    return made


class WorkingClock(VirtualClock):
    """Virtual time, but work takes what it takes."""

    def work_ns(self) -> int:
        return perf_counter_ns()


@dataclass
class Cost:
    total_ns: int = 0
    longest_ns: int = 0
    """In one go: nobody else is served meanwhile."""
    turns: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    was_closed: bool = False

    def add(self, taken_ns: int, helpers_ns: int) -> None:
        """One turn, and what of its time helper threads would take."""
        self.total_ns += taken_ns
        self.longest_ns = max(self.longest_ns, taken_ns - helpers_ns)
        self.turns += 1

    def factor(self, baseline_ns_per_byte: float) -> float:
        """Time beyond what is free for each byte, as a multiple of Produce's."""
        beyond_ns = max(0, self.total_ns - FREE_NS)
        return beyond_ns / (self.received_bytes + self.sent_bytes) / baseline_ns_per_byte


def produce_frame(topic: str, batch: bytes) -> bytes:
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data(name=topic, partition_data=[part])])
    return b"".join(request_frame(ApiKey.PRODUCE, 9, 1, "c", request))[4:]


class MeasuredWorkers:
    """Says what helper threads take: simulated ones work in this thread."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._taken_ns = 0

    def run(self, function: Callable[[], Any], done: Callable[[Any], None]) -> None:
        started = thread_time_ns()
        self._workers.run(function, done)
        self._taken_ns += thread_time_ns() - started

    def taken_ns(self) -> int:
        """Since it was last asked."""
        taken_ns, self._taken_ns = self._taken_ns, 0
        return taken_ns


class Workbench:
    """A broker with something in it, and what a request takes it."""

    def __init__(self, settings: dict[str, str] | None = None, clock: VirtualClock | None = None) -> None:
        scheduler = SimulatedScheduler(clock or WorkingClock())
        given = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
        self.machine = SimulatedNode({**given, **(settings or {})}, seed=1, scheduler=scheduler).start()
        self.node = self.machine.node
        self.node.workers = self._workers = MeasuredWorkers(self.node.workers)
        for number in range(TOPICS):
            self.node.create_topic(f"topic-{number}", 1, {})
        self.node.create_topic("wide", WIDE_PARTITIONS, {})
        self.topic_ids = [topic.topic_id for topic in self.node.metadata.topics.values()]
        self._fill()
        gc.collect()
        gc.freeze()

    def _fill(self) -> None:
        for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            self.node.create_internal_topic(name)
        self.machine.scheduler.run_ready()
        socket = self.machine.connect()
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        offset = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        committed = [topic(name="topic-0", partitions=[offset])]
        for number in range(GROUPS):
            group = f"group-{number}"
            commit = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=committed)
            answer = socket.call(ApiKey.OFFSET_COMMIT, 8, commit)
            assert answer.topics[0].partitions[0].error_code == 0
        for number in range(TRANSACTIONS):
            init = InitProducerIdRequest(transactional_id=f"transaction-{number}", transaction_timeout_ms=60_000)
            assert socket.call(ApiKey.INIT_PRODUCER_ID, 3, init).error_code == 0

    def cost(self, frame: bytes, within_ms: int = 120_000, *, collects: bool = True) -> Cost:
        """Without the garbage collector, which charges anybody for everybody."""
        if collects:
            gc.collect()
        gc.disable()
        try:
            return self._cost(frame, within_ms)
        finally:
            gc.enable()

    def _cost(self, frame: bytes, within_ms: int) -> Cost:
        cost = Cost(received_bytes=len(frame) + 4)
        answered: list[bytes] = []
        closed: list[str] = []
        connection = self.node.connect(
            "client", LISTENER, lambda parts: answered.append(b"".join(parts)), lambda reason: closed.append(reason)
        )
        received = memoryview(bytearray(frame))
        started = thread_time_ns()
        self.node.handle(connection, received)
        connection.flush()
        cost.add(thread_time_ns() - started, self._workers.taken_ns())
        scheduler = self.machine.scheduler
        end_ms = scheduler.clock.monotonic_ms() + within_ms
        while not (answered or closed):
            started = thread_time_ns()
            if not scheduler.step(end_ms):
                break
            cost.add(thread_time_ns() - started, self._workers.taken_ns())
        # What it leaves to be done now is its own, too.
        now_ms = scheduler.clock.monotonic_ms()
        started = thread_time_ns()
        while scheduler.step(now_ms):
            cost.add(thread_time_ns() - started, self._workers.taken_ns())
            started = thread_time_ns()
        cost.sent_bytes = sum(map(len, answered))
        cost.was_closed = bool(closed)
        if not closed:
            connection.closed()
        return cost

    def baseline_ns_per_byte(self) -> float:
        """What Produce with 1 KiB batches takes."""
        frame = produce_frame("topic-0", bytes(build_batch([(TIME_MS, None, bytes(1024 - 80), ())])))
        tries = []
        for _ in range(BASELINE_TRIES):
            costs = [self.cost(frame, collects=False) for _ in range(BASELINE_REQUESTS)]
            tries.append(sum(cost.total_ns for cost in costs) / sum(c.received_bytes + c.sent_bytes for c in costs))
        return min(tries)

    def stop(self) -> None:
        self.machine.stop()
