"""The errors that the client raises. Each has its facts as attributes, and what to do next in `advice`."""

from typing import Any

from fencepost.client.kafka_types import ProducerIdentity
from fencepost.wire.errors import RETRIABLE, ErrorCode, error_code


class ClientError(Exception):
    """Base class of the client's errors. `str()` says in one line what happened, `advice` what to do about it."""

    advice = ""

    @property
    def is_retriable(self) -> bool:
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, unpickling calls the class with the message alone. Errors of writers arrive pickled from other
        # processes.
        return _revived, (type(self), self.args, self.__dict__)


def _revived(kind: type[ClientError], args: tuple[Any, ...], facts: dict[str, Any]) -> ClientError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class InvalidAddress(ClientError):
    advice = "write addresses as HOST:PORT, separated by commas"

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is not an address")
        self.text = text


class BrokerUnreachable(ClientError):
    """No connection could be made, or the connection was lost before the answer arrived."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot reach {address}: {reason}")
        self.address = address
        self.reason = reason

    @property
    def advice(self) -> str:  # type: ignore[override]
        return "check that a broker is running there (`fencepost serve` starts one), or give another address"

    @property
    def is_retriable(self) -> bool:
        return True


class NotAKafkaBroker(ClientError):
    """The server at this address does not speak Kafka's protocol."""

    advice = "check the port, and that security.protocol matches the listener"

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address} does not answer as a Kafka broker: {reason}")
        self.address = address
        self.reason = reason


class NotTrusted(ClientError):
    """The TLS handshake failed: a certificate was rejected, or the broker does not use TLS."""

    advice = "check ssl.ca.location, the port, and that the certificate is valid for this address"

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"TLS handshake with {address} failed: {reason}")
        self.address = address
        self.reason = reason


class RequestTimedOut(ClientError):
    advice = "check the broker's log, or increase the timeout"

    def __init__(self, address: str, api: str, timeout_ms: int) -> None:
        super().__init__(f"{address} did not answer {api} within {timeout_ms} ms")
        self.address = address
        self.api = api
        self.timeout_ms = timeout_ms

    @property
    def is_retriable(self) -> bool:
        return True


class UnsupportedByBroker(ClientError):
    """Broker and client have no version of this request in common."""

    def __init__(self, address: str, api: str, ours: tuple[int, int], theirs: tuple[int, int] | None) -> None:
        offered = "does not support it" if theirs is None else f"supports versions {theirs[0]} to {theirs[1]}"
        super().__init__(f"{api} needs a version between {ours[0]} and {ours[1]}; {address} {offered}")
        self.address = address
        self.api = api
        self.ours = ours
        self.theirs = theirs
        self.advice = "use a newer broker" if theirs is None or theirs[1] < ours[0] else "use a newer fencepost"


class BrokerError(ClientError):
    """The broker answered a request with an error of the protocol."""

    def __init__(self, code: ErrorCode, subject: str, message: str | None = None) -> None:
        reason = message or _MEANINGS.get(code) or code.name.lower().replace("_", " ")
        super().__init__(f"{subject}: {reason} ({code.name})")
        self.code = code
        self.subject = subject
        self.message = message
        self.advice = _ADVICE.get(code, "")

    @property
    def is_retriable(self) -> bool:
        return self.code in RETRIABLE


class UnknownTopic(ClientError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} does not exist")
        self.topic = topic
        self.advice = (
            f"create it with `fencepost topics create {topic}`; `fencepost topics list` lists the existing topics"
        )


class UnknownPartition(ClientError):
    def __init__(self, topic: str, partition: int, partition_count: int) -> None:
        super().__init__(f"topic {topic!r} has no partition {partition}")
        self.topic = topic
        self.partition = partition
        self.advice = f"its partitions are 0 to {partition_count - 1}"


class NoLeader(ClientError):
    advice = "wait until a leader is elected; `fencepost topics describe` shows the replicas"

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(f"partition {topic}-{partition} currently has no leader")
        self.topic = topic
        self.partition = partition

    @property
    def is_retriable(self) -> bool:
        return True


class DeliveryFailed(ClientError):
    """A record was not acknowledged. If the last answer was lost, it may have been written nevertheless."""

    def __init__(self, topic: str, partition: int, cause: Exception, *, may_be_written: bool) -> None:
        fate = "; it may have been written nevertheless" if may_be_written else ""
        super().__init__(f"record for {topic}-{partition} was not acknowledged: {cause}{fate}")
        self.topic = topic
        self.partition = partition
        self.cause = cause
        self.may_be_written = may_be_written
        self.advice = getattr(cause, "advice", "")


class OffsetOutOfRange(ClientError):
    def __init__(self, topic: str, partition: int, offset: int, earliest: int, latest: int) -> None:
        super().__init__(f"offset {offset} of {topic}-{partition} is not in the log ({earliest} to {latest})")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.earliest = earliest
        self.latest = latest
        self.advice = "start from `earliest`, `latest` or an offset in that range"


class CorruptRecords(ClientError):
    advice = "they were damaged on disk or in transit; `kafka-dump-log` on the segment shows the batch"

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(f"records at offset {offset} of {topic}-{partition} are damaged: {reason}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason


class GroupIsActive(ClientError):
    advice = "stop its consumers first"

    def __init__(self, group_id: str, state: str) -> None:
        super().__init__(f"the offsets of group {group_id!r} can be reset only while it is empty, but it is {state}")
        self.group_id = group_id
        self.state = state


class ClientClosed(ClientError):
    def __init__(self) -> None:
        super().__init__("the client is closed")


class ClientForked(ClientClosed):
    """A fork copies an event loop but not the thread that runs it: a call would wait for ever."""

    def __init__(self) -> None:
        ClientError.__init__(self, "the client was created before this process was forked; create one in each process")


_MEANINGS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "does not exist",
    ErrorCode.GROUP_ID_NOT_FOUND: "does not exist",
    ErrorCode.TOPIC_ALREADY_EXISTS: "already exists",
    ErrorCode.NON_EMPTY_GROUP: "still has members",
    ErrorCode.MESSAGE_TOO_LARGE: "is larger than the topic's max.message.bytes",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is not in the log",
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker failed with an unexpected error",
}

_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`fencepost topics list` lists the existing topics",
    ErrorCode.GROUP_ID_NOT_FOUND: "`fencepost groups list` lists the existing groups",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or delete it first",
    ErrorCode.NON_EMPTY_GROUP: "stop its consumers first",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller records, or raise max.message.bytes of the topic",
    ErrorCode.UNKNOWN_SERVER_ERROR: "check the broker's log",
    ErrorCode.INVALID_REPLICATION_FACTOR: "a topic cannot have more replicas than there are brokers",
    ErrorCode.NOT_ENOUGH_REPLICAS: "start more brokers, or lower the topic's min.insync.replicas",
}


# Transactions


class TransactionError(ClientError):
    """An error in a transaction of a transactional id."""

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
    """Another producer has taken over the transactional id, or the coordinator has fenced this one. It cannot be used
    again."""

    fact = "fenced"
    advice = "another producer uses this transactional id, or the transaction took longer than its timeout"


class TransactionMustAbort(_Caused):
    """The transaction can no longer be committed. Abort it and begin another."""

    fact = "cannot be committed"
    advice = "abort it and repeat its work"


class TransactionAborted(_Caused):
    """The transaction was aborted. Nothing it wrote is visible, and its work can be repeated."""

    fact = "aborted"
    advice = "nothing it wrote is visible; repeat its work"


class TransactionFailed(_Caused):
    """The producer cannot continue with this identity. Another `init` takes over the transactional id again."""

    fact = "failed"
    advice = "initialize the producer again"


class TransactionOutcomeUnknown(_Caused):
    """A commit was not answered in time. The transaction may or may not be committed."""

    fact = "the outcome is unknown because the commit was not answered in time"
    advice = "call commit again to learn the outcome"


class TransactionCallTimedOut(_Caused):
    """A call to the coordinator was repeated but not answered in time."""

    def __init__(
        self, transactional_id: str, identity: ProducerIdentity | None, call: str, timeout_ms: int, cause: Exception
    ) -> None:
        self.fact = f"no answer to {call} within {timeout_ms} ms"
        super().__init__(transactional_id, identity, cause)
        self.call = call
        self.timeout_ms = timeout_ms


class TransactionMisused(TransactionError):
    """The producer's state does not allow this call."""

    def __init__(self, transactional_id: str, call: str, state: str, reason: str = "") -> None:
        text = f"{call} is not possible while {state.lower().replace('_', ' ')}"
        super().__init__(transactional_id, None, f"{text}: {reason}" if reason else text)
        self.call = call
        self.state = state


# From an error code in an answer to an exception

NOT_THERE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_ID})
"""Kafka calls these retriable, because brokers learn about a new topic with a delay. Here they mean that the name does
not exist."""

STALE_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
"""The client's knowledge of the partition's leader is out of date."""

STALE_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


def check(number: int, subject: str, message: str | None = None) -> None:
    """Raises BrokerError unless the error code is NONE."""
    if number != ErrorCode.NONE:
        raise BrokerError(error_code(number), subject, message)
