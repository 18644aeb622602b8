"""Whether what the clients saw and were told can be: exactly once, all or nothing, nothing lost, nothing twice.

Judges `Deeds` against a final reading of every partition. Unknown outcomes may be either, but whole.
"""

from collections import Counter
from collections.abc import Iterator

from fencepost.simulation.consumers import FinalReader
from fencepost.simulation.deeds import Deeds, Outcome, Poll, Transaction
from fencepost.simulation.requests import TopicPartition


def judge(deeds: Deeds, final: FinalReader) -> list[str]:
    """One line for each anomaly, its class first."""
    if not final.is_done:
        return ["unavailable: the final reading did not come to its end"]
    found = [f"final-read: {problem}" for problem in final.problems]
    visible = {key: dict(records) for key, records in final.committed.items()}
    present = {key: dict(records) for key, records in final.uncommitted.items()}
    found += _duplicates(final)
    found += _sends(deeds, visible)
    for transaction in deeds.transactions:
        found += _transaction(transaction, visible)
    found += _polls(deeds, visible, present)
    found += _copies(deeds, final)
    return found


def _duplicates(final: FinalReader) -> Iterator[str]:
    for key, records in final.committed.items():
        for value, count in Counter(value for _, value in records).items():
            if count > 1:
                yield f"duplicate: {value} is {count} times in {key}"


def _sends(deeds: Deeds, visible: dict[TopicPartition, dict[int, str]]) -> Iterator[str]:
    last: dict[tuple[TopicPartition, str], int] = {}
    for sent in deeds.sends:
        key = (sent.topic, sent.partition)
        if sent.offset is None:
            continue
        if visible[key].get(sent.offset) != sent.value:
            yield f"lost-write: {sent.value} was acknowledged at {key} {sent.offset}, where {visible[key].get(sent.offset)} is"
        producer = (key, sent.value.rpartition(".")[0])
        if sent.offset <= last.get(producer, -1):
            yield f"nonmonotonic-send: {sent.value} at {sent.offset} is not after {last[producer]}"
        last[producer] = sent.offset


def _transaction(transaction: Transaction, visible: dict[TopicPartition, dict[int, str]]) -> Iterator[str]:
    sends = transaction.sends
    if not sends:
        return
    shown = [sent for sent in sends if sent.value in _values(visible, (sent.topic, sent.partition))]
    name = f"{transaction.client} at {transaction.begun_ms} ms"
    if transaction.outcome is Outcome.COMMITTED:
        for sent in sends:
            key = (sent.topic, sent.partition)
            if sent.offset is not None and visible[key].get(sent.offset) != sent.value:
                yield f"lost-write: {sent.value} of the committed transaction of {name} is not at {key} {sent.offset}"
    elif transaction.outcome in (Outcome.ABORTED, Outcome.OPEN):
        if shown:
            yield (
                f"aborted-read: {shown[0].value} of the {transaction.outcome.value} transaction of {name} "
                f"is in {shown[0].topic}-{shown[0].partition}"
            )
    elif shown and len(shown) < sends.__len__():
        yield f"torn-transaction: {len(shown)} of {len(sends)} values of {name} are visible"


_cache: dict[int, dict[TopicPartition, set[str]]] = {}


def _values(visible: dict[TopicPartition, dict[int, str]], key: TopicPartition) -> set[str]:
    """The values of a partition, gathered once."""
    if id(visible) not in _cache:
        _cache.clear()
        _cache[id(visible)] = {one: set(records.values()) for one, records in visible.items()}
    return _cache[id(visible)][key]


def _polls(
    deeds: Deeds,
    visible: dict[TopicPartition, dict[int, str]],
    present: dict[TopicPartition, dict[int, str]],
) -> Iterator[str]:
    tried: dict[str, Transaction] = {sent.value: one for one in deeds.transactions for sent in one.sends}
    for poll in deeds.polls:
        key = (poll.topic, poll.partition)
        expected = visible[key] if poll.is_committed else present[key]
        yield from _poll(poll, key, expected, tried)


def _poll(poll: Poll, key: TopicPartition, expected: dict[int, str], tried: dict[str, Transaction]) -> Iterator[str]:
    for offset, value in poll.records:
        if expected.get(offset) != value:
            yield (
                f"inconsistent-read: {poll.client} read {value} at {key} {offset} at {poll.time_ms} ms; "
                f"at the end {expected.get(offset)} is there"
            )
        transaction = tried.get(value) if poll.is_committed else None
        if transaction is not None and not 0 <= transaction.commit_tried_ms <= poll.time_ms:
            yield f"precommitted-read: {poll.client} read {value} at {poll.time_ms} ms before its commit was asked for"
    got = {offset for offset, _ in poll.records}
    for offset in range(poll.from_offset, poll.records[-1][0] if poll.records else poll.from_offset):
        if offset in expected and offset not in got:
            yield f"poll-skip: {poll.client} was not given {expected[offset]} at {key} {offset}"


def _copies(deeds: Deeds, final: FinalReader) -> Iterator[str]:
    """Every input before the group's position has exactly one output in each output partition, none after has one."""
    outputs: dict[TopicPartition, set[TopicPartition]] = {}
    for transaction in deeds.transactions:
        if transaction.offsets is not None:
            source = (transaction.offsets[1], transaction.offsets[2])
            outputs.setdefault(source, set()).update((sent.topic, sent.partition) for sent in transaction.sends)
    for (group, source), position in final.positions.items():
        inputs = {value: offset for offset, value in final.committed[source]}
        for target in sorted(outputs.get(source, ())):
            copied = Counter(value.partition(">")[0] for _, value in final.committed[target] if ">" in value)
            for value, offset in inputs.items():
                expected = 1 if offset < position else 0
                if copied[value] != expected:
                    kind = "outputs-without-offsets" if copied[value] > expected else "offsets-without-outputs"
                    yield (
                        f"{kind}: {value} at {source} {offset} was copied {copied[value]} times to {target}; "
                        f"{group} stands at {position}"
                    )
