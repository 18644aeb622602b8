"""Formats explanations as text."""

import shutil
import textwrap
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from fencepost.insight.causes import Cause
from fencepost.insight.explanation import (
    NEVER_MS,
    Holder,
    IdExplanation,
    Judgement,
    PartitionFacts,
    PartitionsExplanation,
    client_of,
    spark_words,
)
from fencepost.terminal_text import harmless

NO_JOURNAL = "not recorded by this broker: only Fencepost keeps causes and clients"
FOOTNOTE = "* recorded by Fencepost; Apache Kafka keeps no such record"
WIDTH, WIDTH_MIN = 110, 60
CAUSES_SHOWN = 5


def explanation_lines(explained: PartitionsExplanation | IdExplanation) -> Iterator[str]:
    return _partitions_lines(explained) if isinstance(explained, PartitionsExplanation) else _id_lines(explained)


def _partitions_lines(explained: PartitionsExplanation) -> Iterator[str]:
    for facts, judgement in explained.judged:
        yield from _partition_lines(facts, judgement, explained.causes, explained.now_ms)
    if any(explained.causes.values()):
        yield FOOTNOTE


def _id_lines(explained: IdExplanation) -> Iterator[str]:
    facts, coordinator, judgement = explained.facts, explained.facts.coordinator, explained.judgement
    yield harmless(f"{coordinator.transactional_id}  {_verdict(judgement)}: {judgement.reason}")
    where = "" if coordinator.node_id is None else f" at coordinator {coordinator.node_id}"
    yield from _field("state", f"{coordinator.state}{where}")
    yield from _field("producer", f"id {coordinator.producer_id}, epoch {coordinator.producer_epoch}")
    yield from _field("timeout", _timeout(coordinator.timeout_ms))
    if coordinator.start_ms >= 0 and coordinator.partitions:
        age = _age(explained.now_ms - coordinator.start_ms)
        yield from _field("began", f"{when(coordinator.start_ms)}, {age} ago")
    yield from _client_lines(facts.causes, explained.client)
    for part in facts.parts:
        for holder in part.holders:
            if holder.producer_id == coordinator.producer_id:
                yield from _field("open in", _open_text(holder, part))
    for partition, broker in facts.owed_markers:
        yield from _field("owed", f"a marker in {partition} by broker {broker}")
    if facts.history is None:
        yield from _cause_lines(facts.causes)
    yield from _next_lines(judgement)
    if facts.history is not None:
        yield ""
        if facts.has_hidden_states:
            yield "this cluster hides __transaction_state, so earlier states are not shown"
        for moment in facts.history:
            kind = "cause*" if moment.kind == "cause" else moment.kind
            yield from _wrapped(f"{when(moment.time_ms)}  {kind:7}  ", moment.text)
    if facts.causes:
        yield FOOTNOTE


def _partition_lines(
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
        yield from _field("state", f"{coordinator.state}{where}, timeout {_timeout(coordinator.timeout_ms)}")
        found = causes.get(coordinator.transactional_id)
        yield from _client_lines(found, client_of(found, holder.producer_epoch))
        yield from _cause_lines(found)
    for other in facts.holders[1:]:
        yield from _field("then", f"{other.name} from offset {other.start_offset} with {other.record_count} records")


def _client_lines(causes: list[Cause] | None, client: str | None) -> Iterator[str]:
    if causes is None:
        yield from _field("client", NO_JOURNAL)
    elif client is not None:
        yield from _field("client*", client)
        spark = spark_words(client)
        if spark is not None:
            yield from _field("", spark)


def _cause_lines(causes: list[Cause] | None) -> Iterator[str]:
    shown = [cause for cause in causes or () if cause.event != "ProducerInitialised"]
    for cause in shown[-CAUSES_SHOWN:]:
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
