"""The states of a transactional id and the only steps between them.

The table is the machine: every transition is looked up in it before its record is written, and the picture in
docs/transaction-states.md is drawn from it. Numbers and names are those of Kafka's log and admin calls.
"""

import enum
from collections.abc import Mapping


class TransactionState(enum.IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Only in memory: a tombstone is being written."""
    PREPARE_EPOCH_FENCE = 7
    """Only in memory: the coordinator itself is about to abort, with an epoch above every client's."""

    @property
    def wire_name(self) -> str:
        return _WIRE_NAMES[self]


EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
"""By themselves: asking the class takes ten times as long, and each transaction asks for these some twenty times."""

_WIRE_NAMES = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
STATE_OF_WIRE_NAME = {name: state for state, name in _WIRE_NAMES.items()}

_INITIALISED = "InitProducerId"
_ADDED = "first partition or group added"
_EMPTY_ABORT = "EndTxn(abort) of nothing, protocol 2"
_EXPIRED = "idle for transactional.id.expiration.ms"

TRANSITIONS: Mapping[TransactionState, Mapping[TransactionState, str]] = {
    TransactionState.EMPTY: {
        TransactionState.EMPTY: _INITIALISED,
        TransactionState.COMPLETE_COMMIT: _INITIALISED,
        TransactionState.COMPLETE_ABORT: _INITIALISED,
    },
    TransactionState.ONGOING: {
        TransactionState.ONGOING: "more added, or kept by InitProducerId(KeepPreparedTxn)",
        TransactionState.EMPTY: _ADDED,
        TransactionState.COMPLETE_COMMIT: _ADDED,
        TransactionState.COMPLETE_ABORT: _ADDED,
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.ONGOING: "EndTxn(commit)"},
    TransactionState.PREPARE_ABORT: {
        TransactionState.ONGOING: "EndTxn(abort)",
        TransactionState.PREPARE_EPOCH_FENCE: "epoch bumped",
        TransactionState.EMPTY: _EMPTY_ABORT,
        TransactionState.COMPLETE_COMMIT: _EMPTY_ABORT,
        TransactionState.COMPLETE_ABORT: _EMPTY_ABORT,
    },
    TransactionState.COMPLETE_COMMIT: {TransactionState.PREPARE_COMMIT: "every partition has its marker"},
    TransactionState.COMPLETE_ABORT: {TransactionState.PREPARE_ABORT: "every partition has its marker"},
    TransactionState.DEAD: {
        TransactionState.EMPTY: _EXPIRED,
        TransactionState.COMPLETE_COMMIT: _EXPIRED,
        TransactionState.COMPLETE_ABORT: _EXPIRED,
    },
    TransactionState.PREPARE_EPOCH_FENCE: {TransactionState.ONGOING: "timed out, or taken over by InitProducerId"},
}
"""To a state, from each state it may follow, and what makes it so."""

PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
AT_REST = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""No transaction is open: the next may begin, and the id may expire."""
PERSISTED = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}

COMPLETED_BY = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
