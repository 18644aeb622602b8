"""How the transaction coordinator refuses a call, with the facts that explain it, and how it tells its own mistakes."""

import enum

from fencepost.wire.errors import ErrorCode, KafkaError


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


class Refused(KafkaError):
    """A call that changes nothing."""

    def __init__(self, code: ErrorCode, cause: RefusalCause) -> None:
        super().__init__(code, cause.value)
        self.cause = cause


class IllegalTransition(Exception):
    """A step that the table of transitions does not have: a mistake of ours, never a client's."""

    def __init__(self, transactional_id: str, current: str, target: str, reason: str = "not in the table") -> None:
        super().__init__(f"{transactional_id}: {current} -> {target}: {reason}")
        self.transactional_id = transactional_id
        self.current = current
        self.target = target
