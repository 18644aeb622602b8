"""The calls of producers and partition leaders, and what they learn: the same for every version of a request."""

import dataclasses
from collections.abc import Collection
from typing import ClassVar, NamedTuple

from fencepost.coordinators.context import Caller
from fencepost.coordinators.transactions.ghosts import DropConnection
from fencepost.promise import Promise
from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from fencepost.wire.errors import ErrorCode


class ProducerPair(NamedTuple):
    producer_id: int
    producer_epoch: int


NO_PAIR = ProducerPair(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Outcome(NamedTuple):
    """What a client learns, whatever its version of the request."""

    error: ErrorCode
    client: ProducerPair = NO_PAIR
    """What it goes on with."""
    ongoing: ProducerPair = NO_PAIR
    """The pair of the prepared transaction that it is to end."""

    def error_for(self, version: int, fenced_version: int) -> ErrorCode:
        """Clients before a version know no PRODUCER_FENCED."""
        is_old = self.error is ErrorCode.PRODUCER_FENCED and version < fenced_version
        return ErrorCode.INVALID_PRODUCER_EPOCH if is_old else self.error


AGREED = Outcome(ErrorCode.NONE)


@dataclasses.dataclass(slots=True, eq=False)
class InitCall:
    operation: ClassVar[str] = "InitProducerId"

    transactional_id: str | None
    """None: the client is idempotent only, and wants no more than a producer id."""
    given: ProducerPair
    """The pair it holds, if it only wants a new epoch after an error (KIP-360); else NO_PAIR."""
    timeout_ms: int
    is_two_phase: bool
    keeps_prepared: bool
    caller: Caller
    reply: Promise[Outcome | DropConnection] = dataclasses.field(default_factory=Promise)


@dataclasses.dataclass(slots=True, eq=False)
class AddCall:
    operation: str
    transactional_id: str
    given: ProducerPair
    partitions: frozenset[TopicPartition]
    transaction_version: int
    caller: Caller
    deadline_ms: int
    is_guarded: bool = False
    """Sent by a client of protocol 1: may be a ghost."""
    reply: Promise[Outcome | DropConnection] = dataclasses.field(default_factory=Promise)


@dataclasses.dataclass(slots=True, eq=False)
class EndCall:
    operation: ClassVar[str] = "EndTxn"

    transactional_id: str
    given: ProducerPair
    is_commit: bool
    is_protocol_2: bool
    caller: Caller
    reply: Promise[Outcome | DropConnection] = dataclasses.field(default_factory=Promise)


class VerifyCall(NamedTuple):
    """A partition leader's question, which is answered without an effect."""

    transactional_id: str
    given: ProducerPair
    partitions: Collection[TopicPartition]
    caller: Caller

    @property
    def operation(self) -> str:
        return "verify"


Call = InitCall | AddCall | EndCall
