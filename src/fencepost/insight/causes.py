"""The journal of causes that Fencepost keeps, read over the wire or from a data directory.

Apache Kafka records no causes and answers with an error; the caller then says that causes are not recorded.
"""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fencepost.client import apis
from fencepost.client.errors import BrokerError, ClientError
from fencepost.client.kafka_types import CoordinatorKind
from fencepost.insight.cluster_view import ClusterView
from fencepost.wire import messages
from fencepost.wire.errors import ErrorCode

CAUSES_RESOURCE = 100
"""The kind of resource that only Fencepost describes."""
JOURNAL_NAME = "cause-journal.jsonl"

WORDS = {
    "TAKEOVER": "another producer was initialized with the same transactional id",
    "SELF": "the producer itself asked for a new epoch",
    "TIMEOUT": "the transaction was open for longer than its timeout",
    "NEVER_PREPARED": "the two-phase transaction was not prepared in time",
    "KEPT": "a new client took charge of the prepared transaction",
    "CLIENT": "the client aborted it",
}
_PRODUCER_FIELDS = ("producer_id", "new_producer_id", "old_producer_id", "client_producer_id")


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """One event of the journal."""

    event: str
    time_ms: int
    transactional_id: str
    fields: dict[str, Any]

    @property
    def client(self) -> str | None:
        """The client that caused it, as `client id at host`; None if no client did."""
        client_id = self.fields.get("client_id")
        host = self.fields.get("client_host") or self.fields.get("peer")
        if not client_id and not host:
            return None
        return f"{client_id or '(no client id)'} at {host}" if host else str(client_id)

    @property
    def is_refusal(self) -> bool:
        return self.event in ("CallRefused", "BatchRefused", "GhostCallDropped")

    @property
    def is_beginning(self) -> bool:
        """Whether a producer got an epoch."""
        return self.event in ("ProducerInitialised", "ProducerFenced", "TransactionKept")

    def concerns(self, producer_id: int) -> bool:
        return any(self.fields.get(name) == producer_id for name in _PRODUCER_FIELDS)

    def text(self) -> str:
        """The event as a sentence."""
        fields, by = self.fields, f" by {self.client}" if self.client else ""
        match self.event:
            case "ProducerInitialised":
                return f"initialized as producer {fields['producer_id']} epoch {fields['producer_epoch']}{by}"
            case "ProducerFenced":
                why = WORDS.get(str(fields["cause"]), str(fields["cause"]))
                fenced = f"producer {fields['producer_id']} epoch {fields['old_epoch']} was fenced{by}"
                return f"{fenced}, the epoch is now {fields['new_epoch']}: {why}"
            case "TransactionAborted":
                why = WORDS.get(str(fields["cause"]), str(fields["cause"]))
                return f"aborted after {fields['open_ms']} ms in {fields['partition_count']} partitions{by}: {why}"
            case "TransactionTimedOut":
                return f"timed out: open for {fields['open_ms']} ms, the timeout is {fields['timeout_ms']} ms"
            case "CallRefused":
                return self._refused_call(by)
            case "BatchRefused":
                place = f"{fields['topic']}-{fields['partition']}"
                return (
                    f"Produce to {place}{by} (epoch {fields['producer_epoch']}) was refused with {fields['error']}:"
                    f" {fields['reason']}"
                )
            case _:
                known = {name: value for name, value in fields.items() if name not in ("wall_ms",)}
                return f"{self.event} {json.dumps(known, ensure_ascii=False)}"

    def _refused_call(self, by: str) -> str:
        fields = self.fields
        text = (
            f"{fields['operation']}{by} (epoch {fields['producer_epoch']}) was refused with {fields['error']}:"
            f" the id was {fields['state']} at epoch {fields['current_epoch']}"
        )
        fenced_by = fields.get("fenced_by")
        return f"{text}, because {WORDS.get(str(fenced_by), str(fenced_by))}" if fenced_by else text

    def document(self) -> dict[str, Any]:
        return {"time_ms": self.time_ms, "event": self.event, "text": self.text(), **self.fields}


def read_cause(entry: Any) -> Cause | None:
    """Returns None if the entry is not an event."""
    if not isinstance(entry, dict) or not isinstance(entry.get("transactional_id"), str):
        return None
    fields = {name: value for name, value in entry.items() if name not in ("event", "time_ms")}
    cause = Cause(str(entry.get("event")), int(entry.get("time_ms") or 0), entry["transactional_id"], fields)
    try:
        cause.text()
    except KeyError:
        return None
    return cause


async def causes_of(view: ClusterView, transactional_id: str) -> list[Cause] | None:
    """The causes of one id, oldest first, or with an empty id the latest of all ids; None if the broker keeps no
    journal."""
    request_type = messages.DescribeConfigsRequest
    resource = request_type.DescribeConfigsResource(
        resource_type=CAUSES_RESOURCE, resource_name=transactional_id, configuration_keys=None
    )
    request = request_type(resources=[resource])
    try:
        if transactional_id:
            answer = await view.cluster.call_coordinator(
                CoordinatorKind.TRANSACTION, transactional_id, apis.DESCRIBE_CONFIGS, request
            )
        else:
            answer = await view.cluster.call_any(apis.DESCRIBE_CONFIGS, request)
    except BrokerError:
        return None
    except ClientError:
        raise
    if not answer.results or answer.results[0].error_code != ErrorCode.NONE:
        return None
    return _read(json.loads(config.value or "null") for config in answer.results[0].configs)


def causes_in(directory: Path) -> list[Cause] | None:
    """The causes in a data directory; None if it has no journal."""
    path = directory / JOURNAL_NAME
    if not path.is_file():
        return None
    entries = []
    for line in path.read_bytes().splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue  # torn by a crash
    return _read(entries)


def _read(entries: Iterable[Any]) -> list[Cause]:
    return [cause for cause in map(read_cause, entries) if cause is not None]
