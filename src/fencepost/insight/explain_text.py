"""Explanations as a screen of text and as a document."""

import shutil
import textwrap
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from fencepost.insight.causes import Cause
from fencepost.insight.command_line import CommandLine
from fencepost.insight.explain_online import IdFacts
from fencepost.insight.explanation import (
    NEVER_MS,
    Holder,
    Judgement,
    PartitionFacts,
    client_of,
    judge_id,
    judge_partition,
    spark_words,
)
from fencepost.terminal_text import harmless

NO_JOURNAL = "not recorded by this broker: only Fencepost keeps causes and clients"
FOOTNOTE = "* recorded by Fencepost; Apache Kafka keeps no such record"
WIDTH, WIDTH_MIN = 110, 60
CAUSES_SHOWN = 5


def holding_ids(facts: list[PartitionFacts]) -> list[str]:
    """The transactional ids that hold readers somewhere."""
    holders = (part.holders[0] for part in facts if part.holders)
    return sorted({holder.coordinator.transactional_id for holder in holders if holder.coordinator is not None})


class Explained(Protocol):
    @property
    def is_stuck(self) -> bool: ...

    def lines(self) -> Iterator[str]: ...

    def document(self) -> dict[str, Any]: ...


class ExplainedPartitions:
    def __init__(
        self,
        facts: list[PartitionFacts],
        causes: Mapping[str, list[Cause] | None],
        now_ms: int,
        stuck_after_ms: int,
        command_line: CommandLine,
    ) -> None:
        self._judged = [(each, judge_partition(each, now_ms, stuck_after_ms, command_line)) for each in facts]
        self._causes = causes
        self._now_ms = now_ms

    @property
    def is_stuck(self) -> bool:
        return any(judgement.is_stuck for _, judgement in self._judged)

    def lines(self) -> Iterator[str]:
        for facts, judgement in self._judged:
            yield from partition_lines(facts, judgement, self._causes, self._now_ms)
        if any(self._causes.values()):
            yield FOOTNOTE

    def document(self) -> dict[str, Any]:
        return {
            "verdict": "stuck" if self.is_stuck else "healthy",
            "partitions": [
                {
                    **facts.document(self._now_ms),
                    **judgement.document(),
                    **_holder_document(facts.holders[0] if facts.holders else None, self._causes),
                }
                for facts, judgement in self._judged
            ],
        }


class ExplainedId:
    def __init__(self, facts: IdFacts, now_ms: int, stuck_after_ms: int, command_line: CommandLine) -> None:
        self._facts = facts
        self._now_ms = now_ms
        own = facts.coordinator.producer_id
        parts = [
            (holder, part.waiting_records)
            for part in facts.parts
            for holder in part.holders
            if holder.producer_id == own
        ]
        self._judgement = judge_id(facts.coordinator, parts, now_ms, stuck_after_ms, command_line)

    @property
    def is_stuck(self) -> bool:
        return self._judgement.is_stuck

    def document(self) -> dict[str, Any]:
        return {
            **self._judgement.document(),
            **self._facts.document(self._now_ms),
            "client": client_of(self._facts.causes, self._facts.coordinator.producer_epoch),
        }

    def lines(self) -> Iterator[str]:
        facts, coordinator = self._facts, self._facts.coordinator
        yield harmless(f"{coordinator.transactional_id}  {_verdict(self._judgement)}: {self._judgement.reason}")
        where = "" if coordinator.node_id is None else f" at coordinator {coordinator.node_id}"
        yield from _field("state", f"{coordinator.state}{where}")
        yield from _field("producer", f"id {coordinator.producer_id}, epoch {coordinator.producer_epoch}")
        yield from _field("time-out", _timeout(coordinator.timeout_ms))
        if coordinator.start_ms >= 0 and coordinator.partitions:
            yield from _field("began", f"{when(coordinator.start_ms)}, {_age(self._now_ms - coordinator.start_ms)} ago")
        client = client_of(facts.causes, coordinator.producer_epoch)
        yield from _client_lines(facts.causes, client)
        for part in facts.parts:
            for holder in part.holders:
                if holder.producer_id == coordinator.producer_id:
                    yield from _field("open in", _open_text(holder, part))
        for partition, broker in facts.owed_markers:
            yield from _field("owed", f"a marker in {partition} by broker {broker}")
        if facts.history is None:
            yield from _cause_lines(facts.causes)
        yield from _next_lines(self._judgement)
        if facts.history is not None:
            yield from self._history_lines()
        if facts.causes:
            yield FOOTNOTE

    def _history_lines(self) -> Iterator[str]:
        yield ""
        if self._facts.has_hidden_states:
            yield "this cluster hides __transaction_state: states that were before cannot be seen"
        for moment in self._facts.history or ():
            kind = "cause*" if moment.kind == "cause" else moment.kind
            yield from _wrapped(f"{when(moment.time_ms)}  {kind:7}  ", moment.text)


def partition_lines(
    facts: PartitionFacts, judgement: Judgement, causes: Mapping[str, list[Cause] | None], now_ms: int
) -> Iterator[str]:
    at = facts.offsets
    yield f"{facts.partition}  {_verdict(judgement)}: {judgement.reason}"
    unstable = "none" if facts.first_unstable_offset is None else str(facts.first_unstable_offset)
    yield from _field(
        "offsets",
        f"log start {at.log_start_offset}, first unstable {unstable}, last stable {at.last_stable_offset},"
        f" high watermark {at.high_watermark}",
    )
    if facts.first_unstable_offset is None:
        return
    yield from _field("waiting", f"{facts.waiting_records} records; {facts.open_records} more are in open transactions")
    if facts.holders:
        yield from _holder_lines(facts, causes, now_ms)
    yield from _next_lines(judgement)


def _holder_lines(
    facts: PartitionFacts, causes: Mapping[str, list[Cause] | None], now_ms: int
) -> Iterator[str]:  # fmt: skip
    holder = facts.holders[0]
    age = "" if holder.began_ms is None else f", open for {_age(now_ms - holder.began_ms)}"
    yield from _field(
        "held by",
        f"{holder.name}, producer {holder.producer_id} epoch {holder.producer_epoch}, from offset"
        f" {holder.start_offset} with {holder.record_count} records{age}",
    )
    coordinator = holder.coordinator
    if coordinator is not None:
        where = "" if coordinator.node_id is None else f" at coordinator {coordinator.node_id}"
        yield from _field("state", f"{coordinator.state}{where}, time-out {_timeout(coordinator.timeout_ms)}")
        found = causes.get(coordinator.transactional_id)
        yield from _client_lines(found, client_of(found, holder.producer_epoch))
        yield from _cause_lines(found)
    for other in facts.holders[1:]:
        yield from _field("then", f"{other.name} from offset {other.start_offset} with {other.record_count} records")


def _holder_document(holder: Holder | None, causes: Mapping[str, list[Cause] | None]) -> dict[str, Any]:
    found = None
    if holder is not None and holder.coordinator is not None:
        found = causes.get(holder.coordinator.transactional_id)
    return {
        "client": None if holder is None else client_of(found, holder.producer_epoch),
        "causes": None if found is None else [cause.document() for cause in found],
    }


def _client_lines(causes: list[Cause] | None, client: str | None) -> Iterator[str]:
    if causes is None:
        yield from _field("client", NO_JOURNAL)
    elif client is not None:
        yield from _field("client*", client)
        spark = spark_words(client)
        if spark is not None:
            yield from _field("", spark)


def _cause_lines(causes: list[Cause] | None) -> Iterator[str]:
    told = [cause for cause in causes or () if cause.event != "ProducerInitialised"]
    for cause in told[-CAUSES_SHOWN:]:
        yield from _field("cause*", f"{when(cause.time_ms)} {cause.text()}")


def _next_lines(judgement: Judgement) -> Iterator[str]:
    if judgement.next_command is not None:
        yield f"  {'next':9} {judgement.next_command}"  # in one line, to be pasted
    if judgement.next_text:
        yield from _field("", judgement.next_text)


def _open_text(holder: Holder, part: PartitionFacts) -> str:
    text = f"{holder.partition} from offset {holder.start_offset} with {holder.record_count} records"
    is_first = part.holders[0] is holder
    if is_first and part.waiting_records:
        text += f"; {part.waiting_records} records wait behind it"
    return text


def _verdict(judgement: Judgement) -> str:
    return "STUCK" if judgement.is_stuck else "healthy"


def _field(name: str, text: str) -> Iterator[str]:
    yield from _wrapped(f"  {name:9} ", text)


def _wrapped(front: str, text: str) -> Iterator[str]:
    width = max(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH_MIN)
    lines = textwrap.wrap(harmless(text), width - len(front), break_on_hyphens=False, break_long_words=False)
    for at, line in enumerate(lines):
        yield (front if at == 0 else " " * len(front)) + line


def _age(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 600_000 else f"{milliseconds // 60_000} min"


def _timeout(timeout_ms: int) -> str:
    return "never (two-phase commit)" if timeout_ms == NEVER_MS else _age(timeout_ms)


def when(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
