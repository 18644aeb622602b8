"""Effects: the plain values between a decision and the coordinator that carries it out.

A decision returns a list of effects, which are carried out in order. `Append` is a barrier: what comes before it
happens at once, what comes after it happens when the record is durable and applied, and never if it cannot be
written; what happens instead is another decision (`decisions.decide_lost`).
"""

import dataclasses
import enum
from collections.abc import Collection
from typing import NamedTuple

from fencepost.coordinators.transactions.calls import AddCall, Call, Outcome
from fencepost.coordinators.transactions.events import FencingCause, TransactionEvent
from fencepost.coordinators.transactions.ghosts import GhostGuard
from fencepost.coordinators.transactions.transaction_metadata import TransactionRecord
from fencepost.coordinators.transactions.transaction_states import TransactionState
from fencepost.topic_partition import TopicPartition


class Append(NamedTuple):
    """Write the next record of the id, in the slot for it, which is taken now if it was not reserved before."""

    record: TransactionRecord
    calls: tuple[Call, ...] = ()
    """Which get the error if it cannot be written."""
    meanwhile: "tuple[Answer | Drop, ...]" = ()
    """Answers that do not depend on the record, and come when it has its slot: a client may call again at once."""


class Answer(NamedTuple):
    call: Call
    outcome: Outcome


class Drop(NamedTuple):
    """The call is a ghost: no answer, and the end of its connection."""

    call: Call


class Wait(NamedTuple):
    """Decide this call when the id is free, or at its deadline."""

    call: AddCall


class SendMarkers(NamedTuple):
    """Have a marker written to each partition. Without any, the transaction is complete."""

    partitions: Collection[TopicPartition]


class CountMarker(NamedTuple):
    """This partition has its marker, or needs none."""

    partition: TopicPartition


class RetryMarker(NamedTuple):
    """This partition has refused its marker, and is among those that get it with the next SendMarkers."""

    partition: TopicPartition


class Reserve(NamedTuple):
    """Take the slot for a change that will be appended later: until then the id is busy."""

    state: TransactionState


@dataclasses.dataclass(frozen=True, slots=True)
class Release:
    """Free the slot: the change did not happen."""


class TimerKind(enum.StrEnum):
    TIMEOUT = "timeout"
    """Of an open transaction; met at the sweep after it."""
    EXPIRY = "expiry"
    """Of an idle id; met at the sweep after it."""
    MARKERS = "markers"
    """Markers that were refused are sent again."""
    COMPLETE = "complete"
    """A Complete record that could not be written is written again."""


class SetTimer(NamedTuple):
    kind: TimerKind
    delay_ms: int
    """From when the effect is carried out."""


class CancelTimer(NamedTuple):
    kind: TimerKind


class Report(NamedTuple):
    """Emit an event. Its time is that at which the effect is carried out."""

    event: TransactionEvent
    open_since_ms: int | None = None
    """When the transaction began, for an event that says how long it was open."""


class NoteFencing(NamedTuple):
    """Why earlier epochs are refused from now on."""

    cause: FencingCause


class KeepGuard(NamedTuple):
    """What is known about the connections of the client."""

    guard: GhostGuard


class Create(NamedTuple):
    """Begin with an id that was never used."""

    transactional_id: str
    record: TransactionRecord


@dataclasses.dataclass(frozen=True, slots=True)
class Forget:
    """The id is not known any more."""


class CatchUp(NamedTuple):
    """Go on from this record, which is not in the log: partitions have seen its epoch."""

    record: TransactionRecord


@dataclasses.dataclass(frozen=True, slots=True)
class Expire:
    """Write the id's tombstone, together with those of others that expire now."""


@dataclasses.dataclass(frozen=True, slots=True)
class DrawProducerId:
    """Draw a new producer id, and decide again with it."""


Effect = (
    Append
    | Answer
    | Drop
    | Wait
    | SendMarkers
    | CountMarker
    | RetryMarker
    | Reserve
    | Release
    | SetTimer
    | CancelTimer
    | Report
    | NoteFencing
    | KeepGuard
    | Create
    | Forget
    | CatchUp
    | Expire
    | DrawProducerId
)
Effects = list[Effect]


class MarkerOrder(NamedTuple):
    """What a SendMarkers becomes on its way to the partitions' leaders."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    partitions: tuple[TopicPartition, ...]
