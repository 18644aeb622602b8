"""Events of the group coordinator and of the runtime: what happened and why. Values only."""

import dataclasses
import enum

from fencepost.wire.errors import ErrorCode


class RemovalReason(enum.Enum):
    LEFT = "left the group"
    SESSION_EXPIRED = "sent no heartbeat within its session time-out"
    JOIN_EXPIRED = "did not rejoin within the rebalance time-out"
    SYNC_EXPIRED = "did not fetch its assignment within the rebalance time-out"
    NEVER_JOINED = "asked for a member id and did not come back with it"
    GROUP_FULL = "the group has reached group.max.size"


@dataclasses.dataclass(frozen=True, slots=True)
class CoordinatorLoaded:
    topic: str
    partition: int
    record_count: int
    skipped_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class CoordinatorUnloaded:
    topic: str
    partition: int


@dataclasses.dataclass(frozen=True, slots=True)
class RecordSkipped:
    """A record of an internal topic that this broker does not understand; the rest of the log still counts."""

    topic: str
    partition: int
    offset: int
    cause: str


@dataclasses.dataclass(frozen=True, slots=True)
class WriteFailed:
    """An append to an internal topic failed; what had been applied was rolled back."""

    topic: str
    partition: int
    error: ErrorCode
    rolled_back_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class RebalanceStarted:
    group_id: str
    generation_id: int
    cause: str


@dataclasses.dataclass(frozen=True, slots=True)
class GroupRebalanced:
    """The members of a new generation are known; the leader now computes their assignment."""

    group_id: str
    generation_id: int
    leader_id: str
    protocol: str
    member_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class GroupStabilized:
    """The assignment of a generation is durable and handed out."""

    group_id: str
    generation_id: int


@dataclasses.dataclass(frozen=True, slots=True)
class GroupEmptied:
    group_id: str
    generation_id: int


@dataclasses.dataclass(frozen=True, slots=True)
class MemberRemoved:
    group_id: str
    member_id: str
    reason: RemovalReason
    client_reason: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class StaticMemberReplaced:
    """A new process took over an instance id; the one that held it before is fenced."""

    group_id: str
    group_instance_id: str
    old_member_id: str
    new_member_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class MemberFenced:
    group_id: str
    group_instance_id: str
    member_id: str
    current_member_id: str
    operation: str


@dataclasses.dataclass(frozen=True, slots=True)
class GroupDeleted:
    group_id: str
    cause: str


@dataclasses.dataclass(frozen=True, slots=True)
class OffsetsRemoved:
    group_id: str
    count: int
    cause: str
