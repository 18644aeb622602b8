"""What can go wrong in a transaction: typed, and sorted into retry, abort and fatal as Kafka's Java producer sorts it.

The table at the end is the whole policy. One entry differs from Java on purpose: INVALID_TXN_STATE as the answer to a
TV2 commit means that the coordinator has ended the transaction itself (it timed out), and such a producer can go on.
"""

import enum

from fencepost.client.accumulator import ProducerIdentity
from fencepost.client.errors import ClientError
from fencepost.wire.errors import RETRIABLE, ErrorCode


class TransactionError(ClientError):
    """Something about one transaction of one transactional id."""

    def __init__(self, transactional_id: str, identity: ProducerIdentity | None, text: str) -> None:
        who = "" if identity is None else f" (producer id {identity.producer_id}, epoch {identity.producer_epoch})"
        super().__init__(f"transaction of {transactional_id!r}{who}: {text}")
        self.transactional_id = transactional_id
        self.producer_id = -1 if identity is None else identity.producer_id
        self.producer_epoch = -1 if identity is None else identity.producer_epoch


class _Caused(TransactionError):
    fact = ""

    def __init__(self, transactional_id: str, identity: ProducerIdentity | None, cause: Exception) -> None:
        super().__init__(transactional_id, identity, f"{self.fact}: {cause}")
        self.cause = cause
        self.__cause__ = cause


class ProducerFenced(_Caused):
    """Another producer has taken the transactional id over, or the coordinator has given up on this one. For good."""

    fact = "fenced"
    advice = "another producer uses this transactional id, or the transaction took longer than its timeout"


class TransactionMustAbort(_Caused):
    """The transaction cannot be committed any more: abort it, then begin another."""

    fact = "cannot be committed"
    advice = "abort it and do its work again"


class TransactionAborted(_Caused):
    """The transaction was aborted: nothing it wrote is visible, and its work may be done again."""

    fact = "aborted"
    advice = "nothing it wrote is visible; do its work again"


class TransactionFailed(_Caused):
    """The producer cannot go on under this identity. A new `init` takes the transactional id over again."""

    fact = "failed"
    advice = "initialize the producer again"


class TransactionOutcomeUnknown(_Caused):
    """A commit was asked for and no answer came in time. It may have happened."""

    fact = "committed or not, no answer came in time"
    advice = "call commit again to learn the outcome"


class TransactionCallTimedOut(_Caused):
    """A call to the coordinator was not answered in time, however often it was repeated."""

    def __init__(
        self, transactional_id: str, identity: ProducerIdentity | None, call: str, timeout_ms: int, cause: Exception
    ) -> None:
        self.fact = f"no answer to {call} within {timeout_ms} ms"
        super().__init__(transactional_id, identity, cause)
        self.call = call
        self.timeout_ms = timeout_ms


class TransactionMisused(TransactionError):
    """A call that makes no sense in the producer's state."""

    def __init__(self, transactional_id: str, call: str, state: str) -> None:
        super().__init__(transactional_id, None, f"{call} is not possible while {state.lower().replace('_', ' ')}")
        self.call = call
        self.state = state


class Call(enum.Enum):
    """The calls a transaction is made of."""

    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    COMMIT = "EndTxn (commit, TV1)"
    COMMIT_TV2 = "EndTxn (commit, TV2)"
    ABORT = "EndTxn (abort)"
    PRODUCE = "Produce"


class Verdict(enum.Enum):
    RETRY = enum.auto()
    LOOK_UP = enum.auto()
    """Find the coordinator anew, then retry."""
    ABORT = enum.auto()
    REINITIALIZE = enum.auto()
    """Abort; the coordinator no longer knows the producer, so instead of EndTxn ask for a new epoch."""
    FENCED = enum.auto()
    FATAL = enum.auto()


_E = ErrorCode
_EVERYWHERE = {
    _E.NOT_COORDINATOR: Verdict.LOOK_UP,
    _E.COORDINATOR_NOT_AVAILABLE: Verdict.LOOK_UP,
    _E.INVALID_PRODUCER_EPOCH: Verdict.FENCED,
    _E.PRODUCER_FENCED: Verdict.FENCED,
    _E.INVALID_TXN_STATE: Verdict.FATAL,
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
    _E.INVALID_PRODUCER_ID_MAPPING: Verdict.REINITIALIZE,
    _E.UNKNOWN_PRODUCER_ID: Verdict.REINITIALIZE,
    _E.TRANSACTION_ABORTABLE: Verdict.ABORT,
    _E.TOPIC_AUTHORIZATION_FAILED: Verdict.ABORT,
    _E.GROUP_AUTHORIZATION_FAILED: Verdict.ABORT,
}
_BY_CALL: dict[Call, dict[ErrorCode, Verdict]] = {
    Call.INIT: {_E.INVALID_PRODUCER_ID_MAPPING: Verdict.FATAL, _E.UNKNOWN_PRODUCER_ID: Verdict.FATAL},
    Call.ADD_PARTITIONS: {_E.OPERATION_NOT_ATTEMPTED: Verdict.ABORT, _E.UNKNOWN_SERVER_ERROR: Verdict.ABORT},
    Call.ADD_OFFSETS: {},
    Call.COMMIT_OFFSETS: {
        _E.REQUEST_TIMED_OUT: Verdict.LOOK_UP,
        _E.UNKNOWN_MEMBER_ID: Verdict.ABORT,
        _E.ILLEGAL_GENERATION: Verdict.ABORT,
        _E.FENCED_INSTANCE_ID: Verdict.ABORT,
        _E.GROUP_ID_NOT_FOUND: Verdict.ABORT,
        _E.STALE_MEMBER_EPOCH: Verdict.ABORT,
        _E.OFFSET_METADATA_TOO_LARGE: Verdict.ABORT,
        _E.INVALID_COMMIT_OFFSET_SIZE: Verdict.ABORT,
    },
    Call.COMMIT: {},
    Call.COMMIT_TV2: {_E.INVALID_TXN_STATE: Verdict.ABORT},
    Call.ABORT: {},
    Call.PRODUCE: {
        # A leader cannot tell a takeover from a transaction that was ended by its timeout: the abort will tell.
        _E.INVALID_PRODUCER_EPOCH: Verdict.ABORT,
        _E.INVALID_TXN_STATE: Verdict.ABORT,
        _E.UNKNOWN_PRODUCER_ID: Verdict.ABORT,
        _E.INVALID_PRODUCER_ID_MAPPING: Verdict.FATAL,
        _E.CLUSTER_AUTHORIZATION_FAILED: Verdict.FATAL,
        _E.UNSUPPORTED_VERSION: Verdict.FATAL,
        _E.NOT_COORDINATOR: Verdict.RETRY,
        _E.COORDINATOR_NOT_AVAILABLE: Verdict.RETRY,
    },
}


def verdict(call: Call, code: ErrorCode) -> Verdict:
    found = _BY_CALL[call].get(code) or _EVERYWHERE.get(code)
    if found is not None:
        return found
    if code in RETRIABLE:
        return Verdict.RETRY
    return Verdict.ABORT if call is Call.PRODUCE else Verdict.FATAL
