"""Explains a partition or a transactional id: what holds it up, whether that is healthy or stuck, and what to do next.

`explain` implements the whole command: it finds the partitions or the id that the question is about, collects the facts
and their causes, and judges them. The facts come from a `FactSource`: a running cluster (`cluster_facts`) or a copied
data directory (`directory_facts`). `explanation_text` prints the result.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from fencepost.client.errors import UnknownPartition
from fencepost.insight.causes import Cause
from fencepost.insight.cluster_view import PartitionOffsets
from fencepost.insight.command_line import CommandLine
from fencepost.insight.partition_scan import PartitionTransaction
from fencepost.insight.state_changes import ONGOING, PREPARED, StateChange
from fencepost.topic_partition import TopicPartition

NEVER_MS = 2**31 - 1
_SPARK_CLIENT = re.compile(r"^spark/([^/]+)/(.+)/([^/]+)$")


@dataclasses.dataclass(frozen=True, slots=True)
class Coordinator:
    """The state of a transactional id according to its coordinator."""

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
    """An open transaction in one partition, with the state of its coordinator."""

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
    """The safest command to run next, ready to paste."""
    next_text: str = ""
    is_abort_offered: bool = False
    """Only for what hangs, and for what is open past its timeout: anything else its client may still be working on."""

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
    """Decided records after the last stable offset; readers get them as soon as it advances."""
    open_records: int
    holders: tuple[Holder, ...]
    """Ordered by their start: the first one holds up the readers."""
    not_seen: str | None = None
    """Why the cluster does not show who holds up the readers."""

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


@dataclasses.dataclass(frozen=True, slots=True)
class Moment:
    """One line of the history of a transactional id."""

    time_ms: int
    kind: str
    """state, cause or records"""
    text: str
    facts: dict[str, Any]

    def document(self) -> dict[str, Any]:
        return {"time_ms": self.time_ms, "kind": self.kind, "text": self.text, **self.facts}


@dataclasses.dataclass(frozen=True, slots=True)
class IdFacts:
    coordinator: Coordinator
    parts: list[PartitionFacts]
    """The facts of the partitions in which its transaction is open."""
    owed_markers: list[tuple[TopicPartition, int]]
    """Partitions that lack a marker of a decided transaction, with their leaders."""
    causes: list[Cause] | None
    """None if the broker keeps no journal."""
    history: list[Moment] | None = None
    has_hidden_states: bool = False

    def document(self, now_ms: int) -> dict[str, Any]:
        coordinator = self.coordinator
        return {
            "transactional_id": coordinator.transactional_id,
            "state": coordinator.state,
            "producer_id": coordinator.producer_id,
            "producer_epoch": coordinator.producer_epoch,
            "timeout_ms": coordinator.timeout_ms,
            "start_ms": coordinator.start_ms,
            "coordinator": coordinator.node_id,
            "partitions": [part.document(now_ms) for part in self.parts],
            "owed_markers": [{"partition": str(at), "broker": broker} for at, broker in self.owed_markers],
            "causes": None if self.causes is None else [cause.document() for cause in self.causes],
            "history": None if self.history is None else [moment.document() for moment in self.history],
            "is_transaction_state_hidden": self.has_hidden_states,
        }


class NothingKnown(Exception):
    """Nothing is known about the question; the text says where it was looked for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """What to explain: `what` is TOPIC, TOPIC:PARTITION or a transactional id, unless a producer id is given."""

    what: str | None
    producer_id: int | None = None
    is_id: bool = False
    """`what` is a transactional id even if a topic has the same name."""
    with_history: bool = False
    stuck_after_ms: int = 10_000
    """How long a transaction may hold up readers before it counts as stuck."""


class FactSource(Protocol):
    @property
    def command_line(self) -> CommandLine:
        """Formats commands to paste that connect to the cluster."""
        ...

    def now_ms(self) -> int:
        """The time for computing ages."""
        ...

    async def topics(self) -> dict[str, list[int]]:
        """The partitions of each topic."""
        ...

    async def partition_facts(self, partitions: Iterable[TopicPartition]) -> list[PartitionFacts]: ...

    async def id_facts(self, transactional_id: str, *, with_history: bool = False) -> IdFacts:
        """Raises NothingKnown."""
        ...

    async def id_of_producer(self, producer_id: int) -> str | None:
        """The transactional id that has this producer id, or had it according to the journal."""
        ...

    async def partitions_open_for(self, producer_id: int) -> list[TopicPartition]:
        """The partitions in which a producer has an open transaction. Raises NothingKnown if there are none."""
        ...

    async def causes_of(self, transactional_id: str) -> list[Cause] | None:
        """Oldest first; None if there is no journal."""
        ...


async def explain(source: FactSource, question: Question) -> "PartitionsExplanation | IdExplanation":
    what, partitions = question.what, None
    if question.producer_id is not None:
        what = await source.id_of_producer(question.producer_id)
        if what is None:
            partitions = await source.partitions_open_for(question.producer_id)
    elif what is not None and not question.is_id:
        partitions = _named_partitions(what, await source.topics())
    now_ms = source.now_ms()
    if partitions is not None:
        facts = await source.partition_facts(partitions)
        causes = {each: await source.causes_of(each) for each in _holding_ids(facts)}
        return PartitionsExplanation(facts, causes, now_ms, question.stuck_after_ms, source.command_line)
    assert what is not None, "a question names something or a producer id"
    id_facts = await source.id_facts(what, with_history=question.with_history)
    return IdExplanation(id_facts, now_ms, question.stuck_after_ms, source.command_line)


def _named_partitions(what: str, topics: Mapping[str, list[int]]) -> list[TopicPartition] | None:
    """The partitions that TOPIC or TOPIC:PARTITION names; None if there is no such topic."""
    if topics.get(what):
        return [TopicPartition(what, partition) for partition in topics[what]]
    topic, _, number = what.rpartition(":")
    if not topics.get(topic) or not number.isascii() or not number.isdigit():
        return None
    if int(number) not in topics[topic]:
        raise UnknownPartition(topic, int(number), len(topics[topic]))
    return [TopicPartition(topic, int(number))]


def _holding_ids(facts: list[PartitionFacts]) -> list[str]:
    """The transactional ids that hold up readers of any partition."""
    holders = (part.holders[0] for part in facts if part.holders)
    return sorted({holder.coordinator.transactional_id for holder in holders if holder.coordinator is not None})


class PartitionsExplanation:
    """Partitions with their judgements, and the journal's causes for the ids that hold them up."""

    def __init__(
        self,
        facts: list[PartitionFacts],
        causes: Mapping[str, list[Cause] | None],
        now_ms: int,
        stuck_after_ms: int,
        command_line: CommandLine,
    ) -> None:
        self.judged = [(each, judge_partition(each, now_ms, stuck_after_ms, command_line)) for each in facts]
        self.causes = causes
        self.now_ms = now_ms

    @property
    def is_stuck(self) -> bool:
        return any(judgement.is_stuck for _, judgement in self.judged)

    def document(self) -> dict[str, Any]:
        return {
            "verdict": "stuck" if self.is_stuck else "healthy",
            "partitions": [
                {
                    **facts.document(self.now_ms),
                    **judgement.document(),
                    **self._holder_document(facts.holders[0] if facts.holders else None),
                }
                for facts, judgement in self.judged
            ],
        }

    def _holder_document(self, holder: Holder | None) -> dict[str, Any]:
        found = None
        if holder is not None and holder.coordinator is not None:
            found = self.causes.get(holder.coordinator.transactional_id)
        return {
            "client": None if holder is None else client_of(found, holder.producer_epoch),
            "causes": None if found is None else [cause.document() for cause in found],
        }


class IdExplanation:
    """A transactional id with its judgement."""

    def __init__(self, facts: IdFacts, now_ms: int, stuck_after_ms: int, command_line: CommandLine) -> None:
        self.facts = facts
        self.now_ms = now_ms
        self.judgement = judge_id(facts, now_ms, stuck_after_ms, command_line)

    @property
    def is_stuck(self) -> bool:
        return self.judgement.is_stuck

    @property
    def client(self) -> str | None:
        return client_of(self.facts.causes, self.facts.coordinator.producer_epoch)

    def document(self) -> dict[str, Any]:
        return {**self.judgement.document(), **self.facts.document(self.now_ms), "client": self.client}


# Judgement


def judge_partition(facts: PartitionFacts, now_ms: int, stuck_after_ms: int, command_line: CommandLine) -> Judgement:
    if facts.first_unstable_offset is None:
        return Judgement(False, "nothing holds the readers")
    if facts.not_seen is not None:
        return Judgement(
            facts.waiting_records > 0,
            f"{facts.waiting_records} records wait, but the cluster does not show for whom: {facts.not_seen}",
            None,
            "use an account that may describe the producers of this topic (READ on the topic)",
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
            "no coordinator will end it; this command shows what an abort would do; with --execute it aborts",
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
            "the coordinator repeats the markers until every leader has written them: check those brokers",
        )
    is_stuck = (is_stuck and waiting_records > 0) or _is_past_time_out(coordinator, age_ms)
    return _judge_open(coordinator, f"{behind}, open for {age_ms / 1000:.1f} s", age_ms, is_stuck, command_line)


def judge_id(facts: IdFacts, now_ms: int, stuck_after_ms: int, command_line: CommandLine) -> Judgement:
    coordinator = facts.coordinator
    if coordinator.state not in (ONGOING, *PREPARED):
        return Judgement(False, f"no transaction is open; the last state is {coordinator.state}")
    judged = [
        (judge_holder(holder, part.waiting_records, now_ms, stuck_after_ms, command_line), part.waiting_records)
        for part in facts.parts
        for holder in part.holders
        if holder.producer_id == coordinator.producer_id
    ]
    if judged:
        return max(judged, key=lambda each: (each[0].is_stuck, each[1]))[0]
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
    """Of a transaction that is Ongoing. Before its timeout nobody but its client knows whether it is still at work."""
    name = coordinator.transactional_id
    if _is_past_time_out(coordinator, age_ms):
        return Judgement(
            is_stuck,
            reason,
            command_line("txn", "abort", argument=name),
            "its timeout has passed, and the coordinator has not aborted it; this command shows what an abort would do",
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
    """The client that has an epoch: according to the journal, the last one that got it."""
    for cause in reversed(causes or []):
        given = cause.fields.get("new_epoch", cause.fields.get("producer_epoch"))
        if cause.is_beginning and isinstance(given, int) and given <= producer_epoch:
            return cause.client
    return None


def spark_words(client: str | None) -> str | None:
    """The Spark application, pipeline and batch, from the client id of a Spark pipeline."""
    matched = _SPARK_CLIENT.match((client or "").partition(" at ")[0])
    if matched is None:
        return None
    return f"Spark application {matched[1]}, pipeline {matched[2]}, batch {matched[3]}"


# History


def timeline(
    changes: Iterable[StateChange], causes: Iterable[Cause], written: Iterable[PartitionTransaction]
) -> list[Moment]:
    """The history of a transactional id: recorded states, causes, records and ends of transactions."""
    moments = [_of_change(change) for change in changes]
    moments += [Moment(cause.time_ms, "cause", cause.text(), {"event": cause.event}) for cause in causes]
    moments += [_of_records(each) for each in written]
    order = {"state": 0, "records": 1, "cause": 2}
    return sorted(moments, key=lambda moment: (moment.time_ms, order[moment.kind]))


def _of_change(change: StateChange) -> Moment:
    if change.state is None:
        return Moment(change.timestamp_ms, "state", "expired: the id is forgotten", {"state": None})
    text = f"{change.state}, producer {change.producer_id} epoch {change.producer_epoch}"
    if change.partitions:
        text += f", in {', '.join(map(str, change.partitions))}"
    return Moment(change.timestamp_ms, "state", text, change.document())


def _of_records(each: PartitionTransaction) -> Moment:
    records = f"{each.record_count} records in {each.partition} from {each.first_offset}, epoch {each.producer_epoch}"
    if each.marker is None:
        return Moment(each.last_timestamp_ms, "records", f"{records}: open", each.document())
    end = f"{each.marker.kind} at {each.marker.offset}, epoch {each.marker.producer_epoch}"
    return Moment(each.marker.timestamp_ms, "records", f"{records}: {end}", each.document())
