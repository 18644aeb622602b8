"""Clients of topics that are created, deleted and truncated: they write and read by topic id, as current Kafka clients
do.

They drop the id of a deleted topic, and continue at the first available offset if theirs was deleted. Whether that was
correct is checked here, when it happens, and by `thinning_check` at the end.
"""

from typing import Any

from fencepost.history.operations import READ_COMMITTED, READ_UNCOMMITTED
from fencepost.history.recording import RecordedOperation
from fencepost.simulation import requests
from fencepost.simulation.administered_topics import ANY_OFFSET, PLANS, AdministeredTopics, name_of, plan_of
from fencepost.simulation.client_journal import ClientJournal, partition_name
from fencepost.simulation.clients import RETRIABLE, RETRY_MS, ClientProcess, Request, Sleep, Steps
from fencepost.simulation.consumers import FINAL_TRIES_MAX, CorruptBatch, committed_records, read_to_the_end
from fencepost.simulation.idempotent_producers import Producer
from fencepost.simulation.requests import FETCH_BYTES
from fencepost.simulation.transactional_producers import TransactionalProducer, Verdict
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import build_batch
from fencepost.wire.errors import ErrorCode

KEYS = 6
TOMBSTONES = 0.05
PADDING_BYTES = 120
LOOK_EVERY_MS = 700
TOMBSTONE_HEADER = "tombstone"
GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def now_named(key: TopicPartition) -> TopicPartition:
    """The partition by its topic's name, whichever topic has that now."""
    return TopicPartition(name_of(key.topic), key.partition)


def look_up(topics: AdministeredTopics) -> Steps[bool]:
    """Ask which of the topics there are; whether there was an answer."""
    answer = yield requests.metadata(list(PLANS))
    if answer is None:
        return False
    for topic in answer.topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            topics.missing(topic.name)
        elif not topic.error_code:
            topics.seen(topic.name, topic.topic_id, len(topic.partitions))
    return True


class _KeyedRecords(Producer):
    """Records with keys, some of them tombstones. The value in the history begins with the key."""

    long_bytes = 300
    topics: AdministeredTopics

    def _keyed_value(self) -> str:
        text = f"k{self.source.randrange(KEYS)}={self.next_value()}"
        if self.source.random() < TOMBSTONES:
            return f"{text}!"
        return text + "." * self.source.randrange(PADDING_BYTES)

    def _keyed_batch(self, values: list[str], sequence: int, *, is_transactional: bool) -> bytearray:
        now_ms = self.scheduler.clock.wall_ms()
        return build_batch(
            [
                (now_ms, value.partition("=")[0].encode(), None, ((TOMBSTONE_HEADER, value.encode()),))
                if is_tombstone(value)
                else (now_ms, value.partition("=")[0].encode(), value.encode(), ())
                for value in values
            ],
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            base_sequence=sequence,
            transactional=is_transactional,
        )

    def _gone(self, key: TopicPartition, what: str) -> None:
        """An answer says that there is no such topic or partition any more."""
        label, index = key
        if label in self.topics.deletion_asked:
            if self.topics.current.get(name_of(label)) == label:
                self.topics.missing(name_of(label))
        else:
            self.journal.wonder(f"{self.name}: {what} of {label}-{index}: gone, and nobody has deleted it")


def is_tombstone(value: str) -> bool:
    return value.endswith("!")


class KeyedProducer(_KeyedRecords):
    """Idempotent, one batch at a time to some partition."""

    def __init__(self, *arguments: Any, topics: AdministeredTopics, journal: ClientJournal) -> None:
        super().__init__(*arguments, journal=journal)
        self.topics = topics
        self._last_offset = -1
        """The last that was acknowledged."""

    def run(self) -> Steps[None]:
        self.starts += 1
        yield from self.become_producer()
        sequences: dict[TopicPartition, int] = {}
        looked_ms = -LOOK_EVERY_MS
        while True:
            now_ms = self.scheduler.clock.monotonic_ms()
            places = self.topics.places()
            if not places or now_ms - looked_ms >= LOOK_EVERY_MS:
                looked_ms = now_ms
                yield from look_up(self.topics)
                places = self.topics.places()
            if places:
                key = self.source.choice(places)
                values = [self._keyed_value() for _ in range(self.source.choice((1, 2, 4)))]
                operation = self.journal.recorder.send(self.process, [(partition_name(key), value) for value in values])
                if (yield from self._until_acknowledged(key, values, sequences.get(key, 0), operation)):
                    sequences[key] = sequences.get(key, 0) + len(values)
                    operation.ok()
                    if not plan_of(key[0]).may_go and self.source.random() < 0.1:
                        yield from self._look_at_the_end(key)
                else:
                    # With the topic went whether it arrived.
                    sequences.pop(key, None)
                    operation.info()
            yield Sleep(self.source.choice((10, 30, 120)))

    def _look_at_the_end(self, key: TopicPartition) -> Steps[None]:
        """Everything that was acknowledged, under any acks, is there for the next request."""
        answer = yield requests.list_offsets(now_named(key), requests.LATEST)
        if answer is None or answer.topics[0].partitions[0].error_code:
            return
        end = answer.topics[0].partitions[0].offset
        if end <= self._last_offset:
            self.journal.wonder(f"{self.name}: {key} ends at {end}, and {self._last_offset} was acknowledged")

    def _until_acknowledged(
        self, key: TopicPartition, values: list[str], sequence: int, operation: RecordedOperation
    ) -> Steps[bool]:
        """Until it is acknowledged; False: the topic is gone."""
        acks = self.source.choice((-1, 1))
        while True:
            batch = self._keyed_batch(values, sequence, is_transactional=False)
            answer = yield requests.produce_by_id({key: batch}, self.topics.ids, None, acks)
            if answer is not None:
                data = answer.responses[0].partition_responses[0]
                if not data.error_code:
                    for at in range(len(values)):
                        operation.sent(at, data.base_offset + at)
                    self._last_offset = data.base_offset + len(values) - 1
                    return True
                if data.error_code in GONE:
                    self._gone(key, "Produce")
                    return False
                if data.error_code not in RETRIABLE:
                    name = ErrorCode(data.error_code).name
                    self.journal.wonder(f"{self.name}: {values[0]} to {key} refused with {name}: {data.error_message}")
                    return False
            yield Sleep(self.source.randint(1, 2 * RETRY_MS))


class KeyedTransactions(_KeyedRecords, TransactionalProducer):
    """Transactions of protocol 2 over whatever partitions there are; some are gone before the transaction ends."""

    def __init__(self, *arguments: Any, topics: AdministeredTopics, **producer: Any) -> None:
        super().__init__(*arguments, protocol=2, outputs=[], source_partition=None, **producer)
        self.topics = topics

    def transact(self) -> Steps[Verdict]:
        places = self.topics.places()
        if not places or self.source.random() < 0.2:
            yield from look_up(self.topics)
            places = self.topics.places()
        self.outputs = self.source.sample(places, min(len(places), 3))
        if not self.outputs:
            yield Sleep(RETRY_MS)
            return Verdict.FINE
        return (yield from super().transact())

    def _new_value(self) -> str:
        return self._keyed_value()

    def _transactional_batch(self, key: TopicPartition, sends: list[tuple[int, str]]) -> bytearray:
        return self._keyed_batch([value for _, value in sends], self.next_sequence(*key), is_transactional=True)

    def _produce(self, batches: dict[TopicPartition, bytearray]) -> Request:
        return requests.produce_by_id(batches, self.topics.ids, self.transactional_id, -1)

    def _key_of(self, topic: Any, index: int) -> TopicPartition:
        return TopicPartition(self.topics.label_by_id(topic.topic_id), index)

    def _refused(self, key: TopicPartition, code: ErrorCode) -> Verdict:
        if code in GONE:
            self._gone(key, "Produce in a transaction")
            return Verdict.ABORT
        return super()._refused(key, code)


class KeyedReader(ClientProcess):
    """Follows every partition there is."""

    def __init__(self, *arguments: Any, topics: AdministeredTopics, is_committed: bool, journal: ClientJournal) -> None:
        super().__init__(*arguments)
        self.topics = topics
        self.is_committed = is_committed
        self.journal = journal
        self._offsets: dict[TopicPartition, int] = {}

    def run(self) -> Steps[None]:
        self._offsets = {}
        isolation = READ_COMMITTED if self.is_committed else READ_UNCOMMITTED
        self.journal.recorder.assign(self.name)
        looked_ms = -LOOK_EVERY_MS
        while True:
            now_ms = self.scheduler.clock.monotonic_ms()
            if now_ms - looked_ms >= LOOK_EVERY_MS:
                looked_ms = now_ms
                yield from look_up(self.topics)
            places = self.topics.places()
            self._offsets = {key: self._offsets.get(key, 0) for key in places}
            if not places:
                yield Sleep(RETRY_MS)
                continue
            operation = self.journal.recorder.poll(self.name, isolation)
            answer = yield requests.fetch_by_id(
                self._offsets,
                self.topics.ids,
                is_committed=self.is_committed,
                max_wait_ms=self.source.choice((0, 150, 400)),
                max_bytes=self.source.choice((300, FETCH_BYTES)),
            )
            polled: dict[str, list[tuple[int, str]]] = {}
            lost: list[TopicPartition] = []
            for topic in () if answer is None else answer.responses:
                label = self.topics.label_by_id(topic.topic_id)
                for data in topic.partitions:
                    self._take(TopicPartition(label, data.partition_index), data, polled, lost)
            if polled:
                operation.polled(polled)
            operation.ok()
            for key in lost:
                yield from self._begin_anew(key)
            yield Sleep(self.source.choice((30, 150, 400)))

    def _take(
        self,
        key: TopicPartition,
        data: Any,
        polled: dict[str, list[tuple[int, str]]],
        lost: list[TopicPartition],
    ) -> None:
        code = data.error_code
        if code in GONE:
            if key[0] not in self.topics.deletion_asked:
                self.journal.wonder(f"{self.name} reads {key}: gone, and nobody has deleted it")
            if self.topics.current.get(name_of(key[0])) == key[0]:
                self.topics.missing(name_of(key[0]))
            return
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and plan_of(key[0]).may_be_trimmed:
            lost.append(key)
            return
        if code:
            if code not in RETRIABLE:
                self.journal.wonder(f"{self.name} reads {key} at {self._offsets[key]}: {ErrorCode(code).name}")
            return
        try:
            records, next_offset = committed_records(data, self._offsets[key], is_committed=self.is_committed)
        except CorruptBatch as error:
            self.journal.wonder(f"{self.name} was served a corrupt batch of {key} {error}")
            return
        if records:
            polled[partition_name(key)] = records
        self._offsets[key] = next_offset

    def _begin_anew(self, key: TopicPartition) -> Steps[None]:
        """Where it read was deleted: at the first offset there is. By name, so it may be another topic's."""
        answer = yield requests.list_offsets(now_named(key), requests.EARLIEST)
        if answer is None:
            return
        data = answer.topics[0].partitions[0]
        if not data.error_code and key in self._offsets:
            self._offsets[key] = data.offset
            self.journal.recorder.assign(self.name)


class FinalSurvey(ClientProcess):
    """Reads everything left in the topics at the end."""

    def __init__(self, *arguments: Any, topics: AdministeredTopics, journal: ClientJournal) -> None:
        super().__init__(*arguments)
        self.topics = topics
        self.journal = journal
        self.starts: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, list[tuple[int, str]]] = {}
        self.problems: list[str] = []
        self.is_done = False

    def run(self) -> Steps[None]:
        for _ in range(FINAL_TRIES_MAX):
            if (yield from look_up(self.topics)):
                break
            yield Sleep(RETRY_MS)
        places = self.topics.places()
        for key in places:
            yield from self._bounds(key)
        thinned = {partition_name(key): start for key, start in self.starts.items() if start}
        thinned |= {partition_name(key): ANY_OFFSET for key in places if plan_of(key[0]).may_be_compacted}
        # Of topics that are gone, nobody knows what was deleted from them before.
        thinned |= {
            partition_name((label, index)): ANY_OFFSET
            for label, count in self.topics.partitions.items()
            if label not in self.topics.current.values() and _may_be_thinned(label)
            for index in range(count)
        }
        for isolation, is_committed in ((READ_COMMITTED, True), (READ_UNCOMMITTED, False)):
            starts = {partition_name(key): start for key, start in self.starts.items()}
            operation = self.journal.recorder.final_read(self.name, starts, isolation)
            if thinned:
                operation.thinned(thinned)
            found: dict[TopicPartition, list[tuple[int, str]]] = {}
            for key in self.starts:
                found[key] = yield from self._read(key, is_committed)
            operation.polled({partition_name(key): records for key, records in found.items()})
            operation.ok()
            if is_committed:
                self.committed = found
        self.is_done = True

    def _bounds(self, key: TopicPartition) -> Steps[None]:
        for bounds, timestamp in ((self.starts, requests.EARLIEST), (self.ends, requests.LATEST)):
            for _ in range(FINAL_TRIES_MAX):
                answer = yield requests.list_offsets(now_named(key), timestamp)
                if answer is not None:
                    data = answer.topics[0].partitions[0]
                    if not data.error_code:
                        bounds[key] = data.offset
                        break
                    if data.error_code not in RETRIABLE:
                        self.problems.append(f"the bounds of {key}: {ErrorCode(data.error_code).name}")
                        break
                yield Sleep(RETRY_MS)
            else:
                self.problems.append(f"the bounds of {key} are not told")

    def _read(self, key: TopicPartition, is_committed: bool) -> Steps[list[tuple[int, str]]]:
        def ask(offset: int) -> Request:
            return requests.fetch_by_id(
                {key: offset}, self.topics.ids, is_committed=is_committed, max_wait_ms=0, max_bytes=1 << 20
            )

        found, _ = yield from read_to_the_end(key, self.starts[key], ask, self.problems, is_committed=is_committed)
        return found


def _may_be_thinned(label: str) -> bool:
    plan = plan_of(label)
    return plan.may_be_trimmed or plan.may_be_compacted
