"""The controller as its brokers see it: the single voter of `__cluster_metadata`, and the calls that change it.

Records are in the log before they count, and synced before the high watermark passes them: an answer waits for that,
and no broker is shown what a crash could take back. A quorum of one elects nobody: each start is an epoch of its own.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fencepost.internal_topic_names import CLUSTER_METADATA
from fencepost.metadata.controller.features import SUPPORTED
from fencepost.metadata.controller.machine import Controller
from fencepost.metadata.controller.state import Call, Decision
from fencepost.metadata.features import KRAFT_VERSION, METADATA_VERSION
from fencepost.metadata.records import METADATA_TOPIC_ID, MetadataRecord, encode_record
from fencepost.promise import Promise
from fencepost.wire.batch import ControlType, build_batch, control_key
from fencepost.wire.catalog import CONTROLLER_API_VERSIONS, ApiKey, is_flexible
from fencepost.wire.codec import decode, encode
from fencepost.wire.errors import ErrorCode, KafkaError, MalformedMessage
from fencepost.wire.framing import read_known_header, response_frame
from fencepost.wire.messages import (
    AbortTransactionRecord,
    ApiVersionsResponse,
    BeginTransactionRecord,
    ConfigRecord,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndTransactionRecord,
    EnvelopeRequest,
    EnvelopeResponse,
    FeatureLevelRecord,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderChangeMessage,
    RegisterControllerRecord,
    message_class,
)

LISTENER = "CONTROLLER"
FETCH_BYTES_MAX = 8 * 1024 * 1024
OBSERVERS_MAX = 10_000
_TOPIC_ID_SINCE = 13
_ENVELOPE_LENGTH_BYTES = 4
_Partition = FetchResponse.FetchableTopicResponse.PartitionData


class MetadataLog(Protocol):
    """Where the records are: batches, one after the other, and the epochs that they were written in."""

    @property
    def end_offset(self) -> int: ...

    def append(self, batch: bytes, next_offset: int) -> None:
        """A batch whose offsets end before `next_offset`. Raises OSError, with nothing of it kept."""

    def sync(self, done: Callable[[OSError | None], None]) -> None:
        """Make everything up to now durable, then call back."""

    def read(self, offset: int, end_offset: int, bytes_max: int) -> bytes:
        """Whole batches from the one with this offset on, at least one if there is one; none from `end_offset` on."""

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The last epoch up to this one that has records, and where the next one begins."""


class Endpoint(NamedTuple):
    host: str
    port: int


@dataclass(slots=True)
class _Observer:
    directory_id: bytes
    end_offset: int
    fetched_ms: int
    caught_up_ms: int


@dataclass(slots=True)
class _Waiting:
    """A Fetch at the end of the log."""

    request: FetchRequest
    until_ms: int
    answer: Promise[Any]


class ControllerService:
    def __init__(
        self,
        controller: Controller,
        log: MetadataLog,
        *,
        node_id: int,
        cluster_id: str,
        epoch: int,
        endpoint: Endpoint,
    ) -> None:
        self._controller = controller
        self._log = log
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._epoch = epoch
        self._endpoint = endpoint
        self._high_watermark = 0
        self._is_syncing = False
        self.failure: OSError | None = None
        """The log cannot be trusted any more: nothing is answered."""
        self._undurable: deque[tuple[int, Promise[Any], Any]] = deque()
        """Answers and up to where the log must be durable for them."""
        self._waiting: list[_Waiting] = []
        self._observers: dict[int, _Observer] = {}

    # Starting

    def begin(self, bootstrap: Sequence[MetadataRecord], now_ms: int) -> None:
        """A new epoch. `bootstrap` is what an empty log begins with, as one metadata transaction.

        One that a crash has cut short is given up: its end is missing, and it is written anew.
        """
        voter = LeaderChangeMessage.Voter(voter_id=self._node_id)
        change = LeaderChangeMessage(leader_id=self._node_id, voters=[voter], granting_voters=[voter])
        is_empty = not self._controller.image.features
        self._append_batch([(control_key(ControlType.LEADER_CHANGE), encode(change, 0))], now_ms, is_control=True)
        self._controller.skip_to(self._log.end_offset)
        if self._controller.image.in_transaction:
            self._append([MetadataRecord(AbortTransactionRecord(reason="Controller failover"))], now_ms)
        if is_empty:
            begin, end = BeginTransactionRecord(name="Bootstrap records"), EndTransactionRecord()
            self._append([MetadataRecord(begin), *bootstrap, MetadataRecord(end)], now_ms)
        self._controller.begin_sessions(now_ms)
        self._sync()

    def register_itself(self, record: MetadataRecord, now_ms: int) -> None:
        """Brokers and tools look for the controllers' addresses and features in the metadata."""
        self._append_own([record], now_ms)

    # Calls

    def handle(self, request: Any, version: int, now_ms: int, *, is_forwarded: bool = False) -> Promise[Any]:
        """Of a request in a version of `CONTROLLER_API_VERSIONS`: its answer."""
        match request.schema_name:
            case "ApiVersionsRequest":
                return Promise.resolved(self._api_versions())
            case "FetchRequest":
                return self._fetch(request, now_ms)
            case "FetchSnapshotRequest":
                return Promise.resolved(self._fetch_snapshot(request))
            case "DescribeQuorumRequest":
                return Promise.resolved(self._describe_quorum(request, now_ms))
            case "EnvelopeRequest":
                return self._envelope(request, now_ms)
        return self._change(request, Call(version, now_ms, is_forwarded))

    def _change(self, request: Any, call: Call) -> Promise[Any]:
        decision = self._controller.decide(request, call)
        if decision.records:
            self._append(decision.records, call.now_ms)
        self._controller.appended(decision)
        return self._when_durable(decision)

    def _when_durable(self, decision: Decision) -> Promise[Any]:
        # What records nothing may have been decided by what is not durable yet.
        if self._high_watermark >= self._log.end_offset:
            return Promise.resolved(decision.answer)
        promise: Promise[Any] = Promise()
        self._undurable.append((self._log.end_offset, promise, decision.answer))
        self._sync()
        return promise

    def _append(self, records: Sequence[MetadataRecord], now_ms: int) -> None:
        base_offset = self._log.end_offset
        self._append_batch([(None, encode_record(record)) for record in records], now_ms)
        self._controller.take(records, base_offset)

    def _append_batch(
        self, contents: Sequence[tuple[bytes | None, bytes]], now_ms: int, *, is_control: bool = False
    ) -> None:
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        base_offset = self._log.end_offset
        batch = build_batch(
            [(now_ms, key, value, ()) for key, value in contents],
            base_offset=base_offset,
            partition_leader_epoch=self._epoch,
            control=is_control,
        )
        try:
            self._log.append(bytes(batch), base_offset + len(contents))
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _sync(self) -> None:
        if self._is_syncing or self._high_watermark >= self._log.end_offset or self.failure is not None:
            return
        self._is_syncing = True
        end_offset = self._log.end_offset

        def synced(error: OSError | None) -> None:
            self._is_syncing = False
            if error is not None:
                self.failure = error
                return
            self._high_watermark = end_offset
            self._release()
            self._sync()

        self._log.sync(synced)

    def _release(self) -> None:
        while self._undurable and self._undurable[0][0] <= self._high_watermark:
            _, promise, answer = self._undurable.popleft()
            promise.resolve(answer)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.answer.resolve(self._fetched(each.request))

    # What happens by itself

    def tick(self, now_ms: int) -> None:
        """Fence who is silent, and answer fetches that have waited long enough."""
        while True:
            is_over, records = self._controller.fence_one_silent(now_ms)
            if records:
                self._append(records, now_ms)
            if not is_over:
                break
        late = [each for each in self._waiting if each.until_ms <= now_ms]
        self._waiting = [each for each in self._waiting if each.until_ms > now_ms]
        for each in late:
            each.answer.resolve(self._fetched(each.request))
        self._sync()

    def elect(self, now_ms: int) -> None:
        """Leaders go back to their first replicas; who has none gets any, if the topic would rather lose records."""
        self._append_own(self._controller.balanced(), now_ms)
        self._append_own(self._controller.elected_uncleanly(), now_ms)

    def _append_own(self, records: Sequence[MetadataRecord], now_ms: int) -> None:
        if records:
            self._append(records, now_ms)
            self._sync()

    # Reading

    def _api_versions(self) -> ApiVersionsResponse:
        levels = self._controller.image.features
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in CONTROLLER_API_VERSIONS.items()
            ],
            supported_features=[
                ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, (low, high) in SUPPORTED.items()
            ],
            finalized_features_epoch=self._high_watermark - 1,
            finalized_features=[
                ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in levels.items()
            ],
        )

    def _fetch(self, request: FetchRequest, now_ms: int) -> Promise[Any]:
        if request.cluster_id not in (None, self._cluster_id):
            return Promise.resolved(FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        if not _is_of_metadata(request):
            return Promise.resolved(FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
        self._note_observer(request, now_ms)
        answer = self._fetched(request)
        partition = answer.responses[0].partitions[0]
        is_empty = partition.error_code == ErrorCode.NONE and not partition.records
        if not is_empty or partition.diverging_epoch.epoch >= 0 or request.max_wait_ms <= 0:
            return Promise.resolved(answer)
        if 0 <= request.topics[0].partitions[0].high_watermark < self._high_watermark:
            return Promise.resolved(answer)
        waiting = _Waiting(request, now_ms + request.max_wait_ms, Promise())
        self._waiting.append(waiting)
        return waiting.answer

    def _fetched(self, request: FetchRequest) -> FetchResponse:
        wanted = request.topics[0].partitions[0]
        partition = _Partition(
            partition_index=0,
            high_watermark=self._high_watermark,
            log_start_offset=0,
            current_leader=_Partition.LeaderIdAndEpoch(leader_id=self._node_id, leader_epoch=self._epoch),
            aborted_transactions=[],
            records=b"",
        )
        error = self._fetch_error(wanted)
        if error is not None:
            partition.error_code = error
            partition.high_watermark = -1
        else:
            epoch, end_offset = self._log.epoch_end(wanted.last_fetched_epoch)
            if wanted.fetch_offset > end_offset or (wanted.fetch_offset and epoch != wanted.last_fetched_epoch):
                partition.diverging_epoch = _Partition.EpochEndOffset(epoch=epoch, end_offset=end_offset)
            elif wanted.fetch_offset < self._high_watermark:
                partition.records = self._log.read(wanted.fetch_offset, self._high_watermark, FETCH_BYTES_MAX)
        topic = FetchResponse.FetchableTopicResponse(
            topic=CLUSTER_METADATA, topic_id=METADATA_TOPIC_ID, partitions=[partition]
        )
        endpoint = FetchResponse.NodeEndpoint(node_id=self._node_id, host=self._endpoint.host, port=self._endpoint.port)
        return FetchResponse(responses=[topic], node_endpoints=[endpoint])

    def _fetch_error(self, wanted: FetchRequest.FetchTopic.FetchPartition) -> ErrorCode | None:
        """Every one names the leader and its epoch: that is how brokers find it."""
        if wanted.current_leader_epoch < 0 or wanted.fetch_offset < 0 or wanted.last_fetched_epoch < 0:
            return ErrorCode.INVALID_REQUEST
        if wanted.current_leader_epoch < self._epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if wanted.current_leader_epoch > self._epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return None

    def _note_observer(self, request: FetchRequest, now_ms: int) -> None:
        wanted = request.topics[0].partitions[0]
        replica_id = request.replica_state.replica_id
        if replica_id < 0:
            replica_id = request.replica_id
        if replica_id < 0 or wanted.current_leader_epoch != self._epoch:
            return
        known = self._observers.pop(replica_id, None)
        is_caught_up = wanted.fetch_offset >= self._high_watermark
        caught_up_ms = now_ms if is_caught_up else known.caught_up_ms if known is not None else -1
        self._observers[replica_id] = _Observer(wanted.replica_directory_id, wanted.fetch_offset, now_ms, caught_up_ms)
        if len(self._observers) > OBSERVERS_MAX:
            del self._observers[next(iter(self._observers))]

    def _fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """The log begins at its beginning: no snapshot is ever named to a broker."""
        snapshot = FetchSnapshotResponse.TopicSnapshot.PartitionSnapshot(
            index=0,
            error_code=ErrorCode.SNAPSHOT_NOT_FOUND,
            current_leader=FetchSnapshotResponse.TopicSnapshot.PartitionSnapshot.LeaderIdAndEpoch(
                leader_id=self._node_id, leader_epoch=self._epoch
            ),
        )
        return FetchSnapshotResponse(
            topics=[FetchSnapshotResponse.TopicSnapshot(name=CLUSTER_METADATA, partitions=[snapshot])]
        )

    def _describe_quorum(self, request: DescribeQuorumRequest, now_ms: int) -> DescribeQuorumResponse:
        if [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in request.topics] != [
            (CLUSTER_METADATA, [0])
        ]:
            return DescribeQuorumResponse(error_code=ErrorCode.INVALID_REQUEST)
        state = DescribeQuorumResponse.ReplicaState
        partition = DescribeQuorumResponse.TopicData.PartitionData(
            partition_index=0,
            leader_id=self._node_id,
            leader_epoch=self._epoch,
            high_watermark=self._high_watermark,
            current_voters=[
                state(
                    replica_id=self._node_id,
                    log_end_offset=self._log.end_offset,
                    last_fetch_timestamp=now_ms,
                    last_caught_up_timestamp=now_ms,
                )
            ],
            observers=[
                state(
                    replica_id=replica_id,
                    replica_directory_id=each.directory_id,
                    log_end_offset=each.end_offset,
                    last_fetch_timestamp=each.fetched_ms,
                    last_caught_up_timestamp=each.caught_up_ms,
                )
                for replica_id, each in self._observers.items()
            ],
        )
        listener = DescribeQuorumResponse.Node.Listener(
            name=LISTENER, host=self._endpoint.host, port=self._endpoint.port
        )
        return DescribeQuorumResponse(
            topics=[DescribeQuorumResponse.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
            nodes=[DescribeQuorumResponse.Node(node_id=self._node_id, listeners=[listener])],
        )

    # What brokers pass on

    def _envelope(self, request: EnvelopeRequest, now_ms: int) -> Promise[Any]:
        """A client's request as it came, and the answer as it goes back."""
        frame = memoryview(request.request_data)
        try:
            api_key, version = read_api(frame)
            if api_key is ApiKey.ENVELOPE or api_key not in CONTROLLER_API_VERSIONS:
                return Promise.resolved(EnvelopeResponse(response_data=None, error_code=ErrorCode.INVALID_REQUEST))
            correlation_id, inner = read_request(frame, api_key, version)
        except MalformedMessage:
            return Promise.resolved(EnvelopeResponse(response_data=None, error_code=ErrorCode.INVALID_REQUEST))
        answer = self.handle(inner, version, now_ms, is_forwarded=True)
        return answer.map(
            lambda message: EnvelopeResponse(
                response_data=b"".join(response_frame(api_key, version, correlation_id, message))[
                    _ENVELOPE_LENGTH_BYTES:
                ]
            )
        )


def read_api(frame: memoryview) -> tuple[ApiKey, int]:
    """Which call a frame is. Raises MalformedMessage if the controller does not answer it in this version."""
    api_key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
    try:
        key = ApiKey(api_key)
        low, high = CONTROLLER_API_VERSIONS[key]
    except (ValueError, KeyError):
        raise MalformedMessage(f"a controller does not answer API {api_key}") from None
    if not low <= version <= high and key is not ApiKey.API_VERSIONS:
        raise MalformedMessage(f"{key.name} in version {version}; {low} to {high} are answered")
    return key, version


def read_request(frame: memoryview, api_key: ApiKey, version: int) -> tuple[int, Any]:
    """Correlation id and message."""
    correlation_id, _, body = read_known_header(frame, is_flexible(api_key, version))
    return correlation_id, decode(message_class(f"{api_key.camel_name}Request"), version, frame, body)


def bootstrap_records(levels: Sequence[tuple[str, int]], min_insync_replicas: int) -> list[MetadataRecord]:
    """What a new cluster begins with: the levels of its features, and the minimum that ELR is reckoned by."""
    levels = [(name, level) for name, level in levels if level and name != KRAFT_VERSION]
    levels.sort(key=lambda each: (each[0] != METADATA_VERSION, each[0]))
    records = [MetadataRecord(FeatureLevelRecord(name=name, feature_level=level)) for name, level in levels]
    if any(name == "eligible.leader.replicas.version" for name, _ in levels):
        setting = ConfigRecord(
            resource_type=4, resource_name="", name="min.insync.replicas", value=str(min_insync_replicas)
        )
        records.append(MetadataRecord(setting))
    return records


def registration_record(node_id: int, incarnation_id: bytes, address: Endpoint) -> MetadataRecord:
    endpoint = RegisterControllerRecord.ControllerEndpoint(
        name=LISTENER, host=address.host, port=address.port, security_protocol=0
    )
    features = [
        RegisterControllerRecord.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in SUPPORTED.items()
    ]
    record = RegisterControllerRecord(
        controller_id=node_id, incarnation_id=incarnation_id, end_points=[endpoint], features=features
    )
    return MetadataRecord(record)


def refusal(request: Any, error: KafkaError) -> Any:
    """The answer to a request that is refused as a whole."""
    answer = message_class(request.schema_name.replace("Request", "Response"))()
    if hasattr(answer, "error_code"):
        answer.error_code = error.code
    return answer


def _is_of_metadata(request: FetchRequest) -> bool:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    topic = request.topics[0]
    return topic.topic_id == METADATA_TOPIC_ID or topic.topic == CLUSTER_METADATA


class MemoryLog:
    """Batches in memory: where brokers are given them from."""

    def __init__(self) -> None:
        self.end_offset = 0
        self._batches: list[tuple[int, int, bytes]] = []
        self._epochs: list[tuple[int, int]] = []

    @property
    def last_epoch(self) -> int:
        """Of the last batch; 0 if there is none."""
        return self._epochs[-1][0] if self._epochs else 0

    def append(self, batch: bytes, next_offset: int) -> None:
        epoch = int.from_bytes(batch[12:16], "big")
        if not self._epochs or self._epochs[-1][0] != epoch:
            self._epochs.append((epoch, self.end_offset))
        self._batches.append((self.end_offset, next_offset, batch))
        self.end_offset = next_offset

    def sync(self, done: Callable[[OSError | None], None]) -> None:
        done(None)

    def read(self, offset: int, end_offset: int, bytes_max: int) -> bytes:
        found: list[bytes] = []
        size = 0
        for first, following, batch in self._batches:
            if following > offset and first < end_offset:
                if found and size + len(batch) > bytes_max:
                    break
                found.append(batch)
                size += len(batch)
        return b"".join(found)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        known = 0
        for at, (each, _) in enumerate(self._epochs):
            if each <= epoch:
                known = at + 1
        if not known:
            return 0, 0
        end = self._epochs[known][1] if known < len(self._epochs) else self.end_offset
        return self._epochs[known - 1][0], end
