"""Events of the transaction coordinator: who was fenced, aborted or refused, by whom and why."""

import dataclasses
import enum

from fencepost.wire.errors import ErrorCode


class RefusalCause(enum.Enum):
    UNKNOWN_ID = "the transactional id is not known: never initialised here, or expired"
    OTHER_PRODUCER_ID = "the transactional id belongs to another producer id now"
    STALE_EPOCH = "a newer epoch has fenced this one"
    FUTURE_EPOCH = "the epoch was never handed out"
    BUSY = "another change of this transactional id is under way"
    COMPLETING = "the previous transaction is still being completed"
    OTHER_OUTCOME = "the transaction was decided the other way"
    NOTHING_OPEN = "no transaction is open"
    KEPT_PREPARED = "the transaction was kept prepared and can only be committed or aborted"
    NOT_IN_TRANSACTION = "the partition is not part of the transaction"
    INVALID_REQUEST = "the request contradicts itself"
    INVALID_TIMEOUT = "the transaction time-out is outside of what the broker allows"
    NOT_ENABLED = "two-phase commit is not enabled on this broker"


class FencingCause(enum.Enum):
    TAKEOVER = "another producer was initialised with the same transactional id"
    SELF = "the producer itself asked for a new epoch"
    TIMEOUT = "the transaction was open for longer than its time-out"
    NEVER_PREPARED = "the two-phase transaction was not prepared in time"
    KEPT = "a new client took charge of the prepared transaction"


class AbortCause(enum.Enum):
    CLIENT = "the client aborted it"
    TAKEOVER = "another producer was initialised with the same transactional id"
    SELF = "the producer itself asked for a new epoch while it was open"
    TIMEOUT = "it was open for longer than its time-out"
    NEVER_PREPARED = "the two-phase transaction was not prepared in time"


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerInitialised:
    """The first producer of an id. Later ones appear in a ProducerFenced, with the producer that they fence."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    client_id: str
    client_host: str
    wall_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerFenced:
    """Epochs before the new one are refused from now on."""

    transactional_id: str
    producer_id: int
    old_epoch: int
    new_producer_id: int
    new_epoch: int
    cause: FencingCause
    client_id: str
    client_host: str
    wall_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class CallRefused:
    """A call of a producer that must not go on like this. Calls that need only be repeated are not reported."""

    transactional_id: str
    operation: str
    error: ErrorCode
    cause: RefusalCause
    producer_id: int
    producer_epoch: int
    current_producer_id: int
    current_epoch: int
    state: str
    fenced_by: FencingCause | None
    client_id: str
    client_host: str
    wall_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionAborted:
    transactional_id: str
    producer_id: int
    old_epoch: int
    new_epoch: int
    cause: AbortCause
    partition_count: int
    open_ms: int
    client_id: str
    client_host: str
    wall_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionTimedOut:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    open_ms: int
    is_two_phase: bool
    wall_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionKept:
    """InitProducerId(KeepPreparedTxn) found an open transaction and left it open."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    client_producer_id: int
    client_epoch: int
    client_id: str
    client_host: str
    wall_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerIdRotated:
    """The epochs of a producer id ran out."""

    transactional_id: str
    old_producer_id: int
    new_producer_id: int
    wall_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class GhostCallDropped:
    """A delayed call on a connection that its client has long replaced; it did nothing."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    operation: str
    connection: int
    newest_connection: int
    client_id: str
    client_host: str
    wall_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class GhostProtectionSwitchedOff:
    """Dropped calls of this id keep coming back: its client uses several connections at a time."""

    transactional_id: str
    operation: str
    client_id: str
    client_host: str
    wall_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class MarkerRefused:
    """A partition has seen a newer epoch or coordinator. The transaction stays prepared until it is loaded again."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic: str
    partition: int
    error: ErrorCode
    wall_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionResumed:
    """A restart found this transaction decided but not complete."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partition_count: int
    wall_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class CoordinatorBehindPartitions:
    """A partition has seen a larger epoch of a producer than its coordinator ever wrote: records of it were lost."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partition_epoch: int
    is_forgotten: bool
    """The id gets a new producer id. If not, it goes on above the partition's epoch."""
    wall_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionalIdsExpired:
    partition: int
    transactional_ids: tuple[str, ...]
    wall_ms: int


TransactionEvent = (
    ProducerInitialised
    | ProducerFenced
    | CallRefused
    | TransactionAborted
    | TransactionTimedOut
    | TransactionKept
    | ProducerIdRotated
    | GhostCallDropped
    | GhostProtectionSwitchedOff
    | MarkerRefused
    | TransactionResumed
    | CoordinatorBehindPartitions
    | TransactionalIdsExpired
)


def stamped(event: TransactionEvent, wall_ms: int, open_since_ms: int | None) -> TransactionEvent:
    """The event as of this moment, which may be later than its decision by as long as a write took."""
    if event.wall_ms == wall_ms:
        return event
    if open_since_ms is not None and isinstance(event, TransactionAborted | TransactionTimedOut):
        return dataclasses.replace(event, wall_ms=wall_ms, open_ms=max(0, wall_ms - open_since_ms))
    return dataclasses.replace(event, wall_ms=wall_ms)
