"""Brokers: registration, heartbeats, fencing, controlled shutdown, removal; and the registration of controllers.

A broker registers fenced and is unfenced by a heartbeat once it has applied its own registration. One that is not heard
of for a session's time is fenced. One that wants to stop leads nothing any more before it may.
"""

import enum
from collections.abc import Iterable

from fencepost.metadata.controller.state import (
    CONTROLLED_SHUTDOWN_VERSION,
    CORDON_CHANGE_VERSION,
    CORDONED_SINCE,
    DIRECTORIES_SINCE,
    DIRECTORY_CHANGE_VERSION,
    RESERVED_DIRECTORIES,
    Call,
    ControllerState,
    Decision,
)
from fencepost.metadata.features import KRAFT_VERSION, METADATA_VERSION, register_broker_version
from fencepost.metadata.image import NO_LEADER, BrokerRegistration
from fencepost.metadata.records import MetadataRecord
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationChangeRecord,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

FENCE, UNFENCE = 1, -1
CLEAN_SHUTDOWN_KNOWN_SINCE = 3
"""Version of BrokerRegistration in which a broker says which epoch it stopped in."""


class _Life(enum.Enum):
    FENCED = enum.auto()
    UNFENCED = enum.auto()
    CONTROLLED_SHUTDOWN = enum.auto()
    SHUTDOWN_NOW = enum.auto()

    @property
    def is_fenced(self) -> bool:
        return self in (_Life.FENCED, _Life.SHUTDOWN_NOW)


def register_broker(state: ControllerState, request: BrokerRegistrationRequest, call: Call) -> Decision:
    try:
        return _register(state, request, call)
    except KafkaError as error:
        return Decision(BrokerRegistrationResponse(error_code=error.code))


def _register(state: ControllerState, request: BrokerRegistrationRequest, call: Call) -> Decision:
    if request.cluster_id != state.settings.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {state.settings.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    broker_id = request.broker_id
    known = state.image.brokers.get(broker_id)
    is_new = known is None or known.incarnation_id != request.incarnation_id
    if known is not None and is_new and state.heartbeats.has_session(broker_id, known.epoch, call.now_ms):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    level = state.image.metadata_version
    if level >= DIRECTORIES_SINCE:
        _check_directories(state, request)
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        is_migrating_zk_broker=False,
        incarnation_id=request.incarnation_id,
        rack=request.rack,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in request.listeners
        ],
        features=_checked_features(state, request),
        log_dirs=list(request.log_dirs) if level >= DIRECTORIES_SINCE else [],
    )
    records: list[MetadataRecord] = []
    if known is None or is_new:
        is_clean = (
            call.version >= CLEAN_SHUTDOWN_KNOWN_SINCE
            and known is not None
            and known.epoch == request.previous_broker_epoch
        )
        records = _stopped(state, broker_id, is_clean=is_clean)
        record.broker_epoch = state.next_offset
    else:
        record.fenced = known.is_fenced
        record.in_controlled_shutdown = known.is_in_controlled_shutdown
        record.broker_epoch = known.epoch
    records.append(MetadataRecord(record, register_broker_version(level)))
    if is_new:
        state.heartbeats.forget(broker_id)
    return Decision(BrokerRegistrationResponse(broker_epoch=record.broker_epoch), records)


def _check_directories(state: ControllerState, request: BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    reason = None
    if not directories:
        reason = "No directories specified in request"
    elif not RESERVED_DIRECTORIES.isdisjoint(directories):
        reason = "Reserved directory ID in request"
    elif len(set(directories)) != len(directories):
        reason = "Duplicate directory ID in request"
    else:
        for other in state.image.brokers.values():
            if other.broker_id != request.broker_id and not set(other.directories).isdisjoint(directories):
                reason = f"Broker {other.broker_id} is already registered with one of the directories"
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, reason)


def _checked_features(
    state: ControllerState, request: BrokerRegistrationRequest
) -> list[RegisterBrokerRecord.BrokerFeature]:
    """What the broker offers, which must cover every level that the cluster is at."""
    levels = {**state.image.features, METADATA_VERSION: state.image.metadata_version}
    levels[KRAFT_VERSION] = state.kraft_version
    offered = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    for name, (low, high) in offered.items():
        _check_level(name, levels.get(name, 0), low, high)
    if METADATA_VERSION not in offered:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'")
    for name, level in levels.items():
        if level and name not in offered:
            _check_level(name, level, 0, 0)
    return [
        RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in offered.items()
    ]


def _check_level(name: str, level: int, low: int, high: int) -> None:
    if not low <= level <= high:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version {level} of {name}. The broker "
            f"wants a version between {low} and {high}, inclusive.",
        )


def _stopped(state: ControllerState, broker_id: int, *, is_clean: bool) -> list[MetadataRecord]:
    """A new incarnation is here: what the old one led and followed is open, and its end is lost if it crashed."""
    if not state.keeps_elr or is_clean:
        return state.without_broker(state.in_sync.of_broker(broker_id), gone=broker_id)
    return [
        *state.without_broker(state.in_sync.of_broker(broker_id), stopped_uncleanly=broker_id),
        *state.without_broker(state.eligible.of_broker(broker_id), stopped_uncleanly=broker_id),
    ]


def heartbeat(state: ControllerState, request: BrokerHeartbeatRequest, call: Call) -> Decision:
    state.heartbeats.hear(request.broker_id, request.broker_epoch, call.now_ms)
    try:
        registered_at = state.registration_offsets.get(request.broker_id)
        if registered_at is None:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Receive a heartbeat from broker {request.broker_id} before registration",
            )
        known = state.checked_broker(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return Decision(BrokerHeartbeatResponse(error_code=error.code))
    broker_id = request.broker_id
    is_caught_up = request.current_metadata_offset >= registered_at
    current, following = _next_life(state, request, is_caught_up=is_caught_up)
    records: list[MetadataRecord] = []
    if following is not current:
        if following.is_fenced:
            records = fenced(state, known)
        elif following is _Life.UNFENCED:
            records = [
                _registration_change(known, fenced=UNFENCE),
                *state.without_broker(state.in_sync.of_broker(NO_LEADER), here=broker_id),
            ]
        else:
            records = _shutting_down(state, known)
    state.heartbeats.touch(broker_id, is_fenced=following.is_fenced, metadata_offset=request.current_metadata_offset)
    level = state.image.metadata_version
    if level >= DIRECTORIES_SINCE:
        records += _lost_directories(state, known, request.offline_log_dirs)
    if level >= CORDONED_SINCE:
        records += _cordoned(known, request.cordoned_log_dirs)
    answer = BrokerHeartbeatResponse(
        is_caught_up=is_caught_up,
        is_fenced=following.is_fenced,
        should_shut_down=following is _Life.SHUTDOWN_NOW,
    )
    return Decision(answer, records, broker_id if following is _Life.CONTROLLED_SHUTDOWN else None)


def _next_life(state: ControllerState, request: BrokerHeartbeatRequest, *, is_caught_up: bool) -> tuple[_Life, _Life]:
    life = state.heartbeats.lives[request.broker_id]
    leads = state.leaders.has_any(request.broker_id)
    if life.is_shutting_down:
        may_go = not leads and life.shutdown_offset <= state.heartbeats.lowest_active_offset()
        return _Life.CONTROLLED_SHUTDOWN, _Life.SHUTDOWN_NOW if may_go else _Life.CONTROLLED_SHUTDOWN
    current = _Life.FENCED if life.is_fenced else _Life.UNFENCED
    if request.want_shut_down:
        waits = not life.is_fenced and not request.want_fence and leads
        return current, _Life.CONTROLLED_SHUTDOWN if waits else _Life.SHUTDOWN_NOW
    if request.want_fence or (life.is_fenced and not is_caught_up):
        return current, _Life.FENCED
    return current, _Life.UNFENCED


def fenced(state: ControllerState, known: BrokerRegistration) -> list[MetadataRecord]:
    return [
        *state.without_broker(state.in_sync.of_broker(known.broker_id), gone=known.broker_id),
        _registration_change(known, fenced=FENCE),
    ]


def _shutting_down(state: ControllerState, known: BrokerRegistration) -> list[MetadataRecord]:
    records = state.without_broker(state.in_sync.of_broker(known.broker_id), gone=known.broker_id)
    if known.is_in_controlled_shutdown:
        return records
    return [_registration_change(known, CONTROLLED_SHUTDOWN_VERSION, in_controlled_shutdown=1), *records]


def _lost_directories(
    state: ControllerState, known: BrokerRegistration, offline: Iterable[bytes]
) -> list[MetadataRecord]:
    offline = frozenset(offline)
    lost = [directory for directory in _in_order(known.directories) if directory in offline]
    if not lost:
        return []
    records: list[MetadataRecord] = []
    for directory in lost:
        partitions = [
            (topic.topic_id, index)
            for topic in state.image.topics.values()
            for index, partition in topic.partitions.items()
            if directory in partition.directories
        ]
        records += state.without_broker(iter(partitions), gone=known.broker_id)
    left = [directory for directory in _in_order(known.directories) if directory not in offline]
    records.append(_registration_change(known, DIRECTORY_CHANGE_VERSION, log_dirs=left))
    return records


def _in_order(directories: Iterable[bytes]) -> list[bytes]:
    """Of Kafka's UUIDs: two signed numbers."""
    return sorted(
        directories,
        key=lambda each: (int.from_bytes(each[:8], "big", signed=True), int.from_bytes(each[8:], "big", signed=True)),
    )


def _cordoned(known: BrokerRegistration, cordoned: list[bytes] | None) -> list[MetadataRecord]:
    if cordoned is None:
        return []
    if known.cordoned_directories is not None and set(known.cordoned_directories) == set(cordoned):
        return []
    return [_registration_change(known, CORDON_CHANGE_VERSION, cordoned_log_dirs=list(cordoned))]


def _registration_change(
    known: BrokerRegistration,
    version: int = 0,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    log_dirs: list[bytes] | None = None,
    cordoned_log_dirs: list[bytes] | None = None,
) -> MetadataRecord:
    record = BrokerRegistrationChangeRecord(
        broker_id=known.broker_id,
        broker_epoch=known.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=log_dirs or [],
        cordoned_log_dirs=cordoned_log_dirs,
    )
    return MetadataRecord(record, version)


def fence_one_silent(state: ControllerState, now_ms: int) -> tuple[bool, list[MetadataRecord]]:
    """Whether somebody's session was over, and what follows: one at a time, as each changes what the next may lead."""
    expired = state.heartbeats.take_expired(now_ms)
    if expired is None:
        return False, []
    broker_id, epoch = expired
    known = state.image.brokers.get(broker_id)
    if known is None:
        state.heartbeats.forget(broker_id)
        return True, []
    if known.epoch != epoch:
        return True, []
    records = fenced(state, known)
    state.heartbeats.lives[broker_id].is_fenced = True
    return True, records


def unregister_broker(state: ControllerState, request: UnregisterBrokerRequest, call: Call) -> Decision:
    broker_id = request.broker_id
    known = state.image.brokers.get(broker_id)
    if known is None:
        return Decision(
            UnregisterBrokerResponse(
                error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                error_message=f"Broker ID {broker_id} is not currently registered",
            )
        )
    record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=known.epoch)
    records = [
        *state.without_broker(state.in_sync.of_broker(broker_id), gone=broker_id),
        *state.without_broker(state.eligible.of_broker(broker_id), gone=broker_id),
        MetadataRecord(record),
    ]
    return Decision(UnregisterBrokerResponse(), records)


def register_controller(state: ControllerState, request: ControllerRegistrationRequest, call: Call) -> Decision:
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=[
            RegisterControllerRecord.ControllerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in request.listeners
        ],
        features=[
            RegisterControllerRecord.ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
    )
    return Decision(ControllerRegistrationResponse(), [MetadataRecord(record)])
