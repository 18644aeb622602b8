"""What there is to say of a partition or a transactional id, and the judgement: healthy or stuck, and what to do next.

Values and rules only; who gathers the facts is `explain_online` and `explain_offline`.
"""

import dataclasses
import re
from typing import Any

from fencepost.insight.causes import Cause
from fencepost.insight.cluster_view import PartitionOffsets
from fencepost.insight.command_line import CommandLine
from fencepost.insight.state_changes import ONGOING, PREPARED
from fencepost.topic_partition import TopicPartition

NEVER_MS = 2**31 - 1
_SPARK_CLIENT = re.compile(r"^spark/([^/]+)/(.+)/([^/]+)$")


@dataclasses.dataclass(frozen=True, slots=True)
class Coordinator:
    """What the coordinator of a transactional id says of it."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    node_id: int | None
    partitions: tuple[TopicPartition, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    """An open transaction as one partition knows it, with what its coordinator says."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    start_offset: int
    start_ms: int | None
    record_count: int
    coordinator: Coordinator | None
    hanging_because: str | None

    @property
    def name(self) -> str:
        return self.coordinator.transactional_id if self.coordinator else f"producer {self.producer_id}"

    @property
    def began_ms(self) -> int | None:
        if self.hanging_because is None and self.coordinator is not None and self.coordinator.start_ms >= 0:
            return self.coordinator.start_ms
        return self.start_ms

    def document(self, now_ms: int) -> dict[str, Any]:
        return {
            "transactional_id": self.coordinator.transactional_id if self.coordinator else None,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "start_offset": self.start_offset,
            "records": self.record_count,
            "began_ms": self.began_ms,
            "age_ms": None if self.began_ms is None else now_ms - self.began_ms,
            "timeout_ms": self.coordinator.timeout_ms if self.coordinator else None,
            "state": self.coordinator.state if self.coordinator else None,
            "coordinator": self.coordinator.node_id if self.coordinator else None,
            "hanging_because": self.hanging_because,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    is_stuck: bool
    reason: str
    next_command: str | None = None
    """The safest thing to do, to paste."""
    next_text: str = ""
    is_abort_offered: bool = False
    """Only for what hangs, and for what is open past its time-out: anything else its client may still be working on."""

    def document(self) -> dict[str, Any]:
        return {
            "verdict": "stuck" if self.is_stuck else "healthy",
            "reason": self.reason,
            "next_command": self.next_command,
            "next": self.next_text,
            "is_abort_offered": self.is_abort_offered,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionFacts:
    partition: TopicPartition
    offsets: PartitionOffsets
    leader: int | None
    waiting_records: int
    """Decided and behind the last stable offset: readable as soon as it moves."""
    open_records: int
    holders: tuple[Holder, ...]
    """In the order of their start: the first one holds the readers."""
    not_seen: str | None = None
    """Why the cluster would not say who holds the readers."""

    @property
    def first_unstable_offset(self) -> int | None:
        is_held = self.offsets.last_stable_offset < self.offsets.high_watermark
        return self.offsets.last_stable_offset if is_held else None

    def document(self, now_ms: int) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "leader": self.leader,
            "log_start_offset": self.offsets.log_start_offset,
            "first_unstable_offset": self.first_unstable_offset,
            "last_stable_offset": self.offsets.last_stable_offset,
            "high_watermark": self.offsets.high_watermark,
            "waiting_records": self.waiting_records,
            "open_records": self.open_records,
            "held_by": [holder.document(now_ms) for holder in self.holders],
            "not_seen": self.not_seen,
        }


def judge_partition(facts: PartitionFacts, now_ms: int, stuck_after_ms: int, command_line: CommandLine) -> Judgement:
    if facts.first_unstable_offset is None:
        return Judgement(False, "nothing holds the readers")
    if facts.not_seen is not None:
        return Judgement(
            facts.waiting_records > 0,
            f"{facts.waiting_records} records wait; who holds them cannot be seen: {facts.not_seen}",
            None,
            "ask with an account that may describe this topic's producers (READ on the topic)",
        )
    if not facts.holders:
        return Judgement(False, "the last transaction is being completed")
    holder = facts.holders[0]
    return judge_holder(holder, facts.waiting_records, now_ms, stuck_after_ms, command_line)


def judge_holder(
    holder: Holder, waiting_records: int, now_ms: int, stuck_after_ms: int, command_line: CommandLine
) -> Judgement:
    behind = (
        f"{waiting_records} records wait behind {holder.name}" if waiting_records else f"readers are at {holder.name}"
    )
    if holder.hanging_because is not None:
        at = holder.partition
        place = ("--topic", at.topic, "--partition", str(at.partition), "--start-offset", str(holder.start_offset))
        return Judgement(
            True,
            f"{behind}, which hangs: {holder.hanging_because}",
            command_line("txn", "abort", *place),
            "no coordinator will end it; this shows what an abort would do, with --execute it does it",
            is_abort_offered=True,
        )
    assert holder.coordinator is not None, "a transaction that does not hang has a coordinator"
    coordinator = holder.coordinator
    age_ms = 0 if holder.began_ms is None else now_ms - holder.began_ms
    is_stuck = age_ms >= stuck_after_ms
    if coordinator.state in PREPARED:
        owed = ", ".join(map(str, coordinator.partitions))
        return Judgement(
            is_stuck,
            f"{behind}, which is decided ({coordinator.state}) and lacks markers in {owed}",
            command_line("txn", "describe", argument=coordinator.transactional_id),
            "the coordinator repeats the markers until every leader has taken its own: look at those brokers",
        )
    is_stuck = (is_stuck and waiting_records > 0) or _is_past_time_out(coordinator, age_ms)
    return _judge_open(coordinator, f"{behind}, open for {age_ms / 1000:.1f} s", age_ms, is_stuck, command_line)


def judge_id(
    coordinator: Coordinator,
    parts: list[tuple[Holder, int]],
    now_ms: int,
    stuck_after_ms: int,
    command_line: CommandLine,
) -> Judgement:
    """`parts` are its open transaction in each partition, with the records that wait behind it there."""
    if coordinator.state not in (ONGOING, *PREPARED):
        return Judgement(False, f"no transaction is open; the last state is {coordinator.state}")
    judged = [judge_holder(holder, waiting, now_ms, stuck_after_ms, command_line) for holder, waiting in parts]
    worst = max(
        zip(judged, parts, strict=True), key=lambda each: (each[0].is_stuck, each[1][1]), default=None
    )  # fmt: skip
    if worst is not None:
        return worst[0]
    age_ms = now_ms - coordinator.start_ms
    reason = f"{coordinator.state} for {age_ms / 1000:.1f} s, without records in any partition"
    if coordinator.state in PREPARED:
        return Judgement(age_ms >= stuck_after_ms, reason)
    return _judge_open(coordinator, reason, age_ms, _is_past_time_out(coordinator, age_ms), command_line)


def _is_past_time_out(coordinator: Coordinator, age_ms: int) -> bool:
    return coordinator.timeout_ms != NEVER_MS and age_ms > coordinator.timeout_ms


def _judge_open(
    coordinator: Coordinator, reason: str, age_ms: int, is_stuck: bool, command_line: CommandLine
) -> Judgement:
    """Of a transaction that is Ongoing. Before its time-out nobody but its client knows whether it is still at work."""
    name = coordinator.transactional_id
    if _is_past_time_out(coordinator, age_ms):
        return Judgement(
            is_stuck,
            reason,
            command_line("txn", "abort", argument=name),
            "its time-out has passed, and the coordinator has not acted; this shows what an abort would do",
            is_abort_offered=True,
        )
    history = command_line("explain", "--id", "--history", argument=name) if is_stuck else None
    if coordinator.timeout_ms == NEVER_MS:
        advice = "it takes part in a two-phase commit and never times out: ask its transaction manager"
        return Judgement(is_stuck, reason, history, advice)
    advice = f"its coordinator aborts it in about {(coordinator.timeout_ms - age_ms) / 1000:.0f} s"
    if is_stuck:
        advice += ", and until then its client may be at work: ask the client before you abort it"
    return Judgement(is_stuck, reason, history, advice)


def client_of(causes: list[Cause] | None, producer_epoch: int) -> str | None:
    """The client that holds an epoch, by the journal: whoever was given it last."""
    for cause in reversed(causes or []):
        given = cause.fields.get("new_epoch", cause.fields.get("producer_epoch"))
        if cause.is_beginning and isinstance(given, int) and given <= producer_epoch:
            return cause.client
    return None


def spark_words(client: str | None) -> str | None:
    """A Spark pipeline carries its application, its name and its batch in the client id."""
    matched = _SPARK_CLIENT.match((client or "").partition(" at ")[0])
    if matched is None:
        return None
    return f"Spark application {matched[1]}, pipeline {matched[2]}, batch {matched[3]}"
