"""Incremental fetch sessions (KIP-227): what each consumer asked for last time, so that it need not say it again.

A bounded cache. A session lives on one connection's client; its partitions keep the order in which they should be
served, those that returned data last go to the end.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from fencepost.broker.slices import Steps
from fencepost.ports import Randomness
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import FetchRequest

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
TOPIC_ID_VERSION = 13
SESSION_EPOCH_MAX = 2**31 - 1
# Of all sessions together; a session may be small to ask for and large to keep.
PARTITIONS_PER_SLICE = 64
SESSION_PARTITIONS_MAX = 250_000

# A topic is a name before v13 and an id from then on.
Key = tuple[str | bytes, int]


@dataclass(slots=True, eq=False)
class Wanted:
    """One partition of a fetch: what is asked, and what was last answered."""

    topic: str
    topic_id: bytes
    index: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    answered_high_watermark: int = -1
    answered_log_start_offset: int = -1
    answered_error: bool = False

    def take(self, other: "Wanted") -> None:
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch

    def answered(self, high_watermark: int, log_start_offset: int, *, is_error: bool) -> None:
        self.answered_high_watermark = high_watermark
        self.answered_log_start_offset = log_start_offset
        self.answered_error = is_error


@dataclass(slots=True, eq=False)
class FetchSession:
    session_id: int
    uses_topic_ids: bool
    epoch: int = 1
    partitions: OrderedDict[Key, Wanted] = field(default_factory=OrderedDict)
    is_incremental: bool = False


class FetchSessions:
    def __init__(self, slots_max: int, randomness: Randomness) -> None:
        self._slots_max = slots_max
        self._randomness = randomness
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.partition_total = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(
        self, request: FetchRequest, version: int, wanted: list[tuple[Key, Wanted]] | None = None
    ) -> FetchSession:
        """The session that a request belongs to (id 0: none), with its partitions brought up to date.

        `wanted` is what `wanted_of` makes of the request, if the caller has it already."""
        uses_topic_ids = version >= TOPIC_ID_VERSION
        if wanted is None:
            wanted = []
            for asked in request.topics:
                wanted += _wanted_of(asked, asked.partitions, uses_topic_ids)
        epoch, session_id = request.session_epoch, request.session_id
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._forget(session_id)
            session = FetchSession(0, uses_topic_ids, partitions=OrderedDict(wanted))
            if epoch == INITIAL_EPOCH and wanted:
                self._add(session)
            return session
        found = self._sessions.get(session_id)
        if found is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != found.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if found.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        found.epoch = found.epoch + 1 if found.epoch < SESSION_EPOCH_MAX else 1
        found.is_incremental = True
        self._sessions.move_to_end(session_id)
        self.partition_total -= len(found.partitions)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                found.partitions.pop((topic.topic_id if uses_topic_ids else topic.topic, index), None)
        for key, one in wanted:
            known = found.partitions.get(key)
            if known is None:
                found.partitions[key] = one
            else:
                known.take(one)
        self.partition_total += len(found.partitions)
        if not found.partitions:
            # As Kafka does: a session that has lost its last partition is over.
            self._forget(session_id)
            return FetchSession(0, uses_topic_ids)
        self._evict(self._slots_max)
        return found

    def _add(self, session: FetchSession) -> None:
        if self._slots_max == 0 or len(session.partitions) > SESSION_PARTITIONS_MAX:
            return
        self.partition_total += len(session.partitions)
        self._evict(self._slots_max - 1)
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = int.from_bytes(self._randomness.random_bytes(4), "big") & 0x7FFFFFFF
        session.session_id = session_id
        self._sessions[session_id] = session

    def _evict(self, slots_max: int) -> None:
        """Let the sessions go that were not used for longest, until the rest fits."""
        while self._sessions and (len(self._sessions) > slots_max or self.partition_total > SESSION_PARTITIONS_MAX):
            self._forget(next(iter(self._sessions)))

    def _forget(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_total -= len(session.partitions)


def wanted_of(request: FetchRequest, version: int) -> Steps[list[tuple[Key, Wanted]]]:
    """What a request asks for, made in slices."""
    wanted: list[tuple[Key, Wanted]] = []
    for topic in request.topics:
        for start in range(0, len(topic.partitions), PARTITIONS_PER_SLICE):
            yield None
            some = topic.partitions[start : start + PARTITIONS_PER_SLICE]
            wanted += _wanted_of(topic, some, version >= TOPIC_ID_VERSION)
    return wanted


def _wanted_of(
    topic: FetchRequest.FetchTopic, partitions: list[FetchRequest.FetchTopic.FetchPartition], uses_topic_ids: bool
) -> list[tuple[Key, Wanted]]:
    name, topic_id = topic.topic, topic.topic_id
    key = topic_id if uses_topic_ids else name
    return [
        (
            (key, one.partition),
            Wanted(
                name,
                topic_id,
                one.partition,
                one.fetch_offset,
                one.partition_max_bytes,
                one.current_leader_epoch,
                one.last_fetched_epoch,
            ),
        )
        for one in partitions
    ]
