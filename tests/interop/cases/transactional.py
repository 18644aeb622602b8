"""What a case of transactions works with: producers that say anything, and everything a broker shows of their doings.

Producer ids are compared by the order in which a case met them, times by whether they are set.
"""

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from tests.interop.cases.peer import CLOSED, LEFT_OUT, SETTLING, Case, Peer, produce_request
from tests.peers.batches import RECENTLY_MS, TRANSACTIONAL, batch, read_headers
from tests.support.patience import patient

TRANSACTION_CASES: list[Case] = []
SETTLE_TIMEOUT_SECONDS = patient(10.0)
SHORT_TIMEOUT_MS = int(patient(100))
"""Of a transaction that is to time out: on a busy machine, too, it lasts for the few calls that come before."""
PAUSE_SECONDS = 0.01
COMMIT, ABORT = True, False
# A coordinator with this epoch has written to a partition: the real one, with a lower epoch, is locked out there.
FOREIGN_COORDINATOR_EPOCH = 1_000
STRANGER = 777_777_777
"""A producer id that no broker has handed out."""
IDS = {"ProducerId", "producer_id", "OngoingTxnProducerId"}
TIMES = {"TransactionStartTimeMs", "LastTimestamp"}
SORTED_BY = {
    "Topics": ("Topic", "Name"),
    "TransactionStates": ("TransactionalId",),
    "ResultsByTransaction": ("TransactionalId",),
    "TopicResults": ("Name",),
    "ResultsByTopicV3AndBelow": ("Name",),
    "ResultsByPartition": ("PartitionIndex",),
    "Partitions": ("PartitionIndex",),
    "PartitionResponses": ("Index",),
    "Responses": ("Name", "Topic"),
    "ActiveProducers": ("ProducerId",),
    "Markers": ("ProducerId",),
}


def transaction_case(function: Callable[[Peer], Any]) -> Callable[[Peer], Any]:
    TRANSACTION_CASES.append(Case(function.__name__.strip("_").replace("_", " "), function))
    return function


class Script:
    """One case's view of one broker: calls, and answers in a form that two brokers can share."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._labels: dict[int, str] = {}

    def producer(self, stem: str = "id") -> "Producer":
        return Producer(self, self.peer.name(stem))

    def call(self, api: str, version: int, message: dict[str, Any]) -> Any:
        """The answer as it came, after the broker's coordinators have settled."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
        while True:
            answer = self.peer.call(api, version, message)
            if not SETTLING & set(all_codes(answer)) or time.monotonic() > deadline:
                return answer
            time.sleep(PAUSE_SECONDS)

    def ask(self, api: str, version: int, message: dict[str, Any]) -> Any:
        return self.shown(self.call(api, version, message))

    def label(self, producer_id: int) -> str | int:
        if producer_id < 0 or producer_id == STRANGER:
            return producer_id
        return self._labels.setdefault(producer_id, f"producer {len(self._labels) + 1}")

    def shown(self, answer: Any, field: str = "") -> Any:
        if isinstance(answer, dict):
            return {key: self.shown(value, key) for key, value in answer.items() if key not in LEFT_OUT}
        if isinstance(answer, list):
            found = [self.shown(value, field) for value in answer]
            if field in SORTED_BY and found and isinstance(found[0], dict):
                names = SORTED_BY[field]
                return sorted(found, key=lambda each: [str(each.get(name)) for name in names])
            return sorted(found) if field == "Partitions" else found
        if field in IDS:
            return self.label(answer)
        if field in TIMES:
            return {-1: "never", RECENTLY_MS: "of the batch"}.get(answer, "some time")
        if field == "NodeId":
            return "absent" if answer == -1 else "present"
        if field == "LogAppendTimeMs":
            return "absent" if answer == -1 else "present"
        return answer

    # What can be seen

    def state(
        self, *producers: "Producer", topics: Iterable[str] = (), partitions: Iterable[int] = (0,), group: str = ""
    ) -> dict[str, Any]:
        """Everything that the admin calls, a reader and a group show of these producers and partitions."""
        seen: dict[str, Any] = {"described": [self.describe(each.name) for each in producers]}
        if producers:
            pattern = "|".join(re.escape(each.name) for each in producers)
            seen["listed"] = self.list(TransactionalIdPattern=pattern)
        for topic in topics:
            seen[topic] = [self.partition(topic, partition) for partition in partitions]
            if group:
                seen[group] = [self.offset(group, topic, partition) for partition in partitions]
        return seen

    def describe(self, *names: str) -> Any:
        return self.ask("DescribeTransactions", 0, {"TransactionalIds": list(names)})["TransactionStates"]

    def list(self, version: int = 2, **filters: Any) -> Any:
        return self.ask("ListTransactions", version, {"StateFilters": [], "ProducerIdFilters": [], **filters})

    def partition(self, topic: str, partition: int = 0) -> dict[str, Any]:
        asked = {"Topics": [{"Name": topic, "PartitionIndexes": [partition]}]}
        producers = self.ask("DescribeProducers", 0, asked)["Topics"][0]["Partitions"][0]
        return {
            "producers": [producers["ErrorCode"], producers["ActiveProducers"]],
            "ends": [self.end_offset(topic, partition, isolation) for isolation in (0, 1)],
            "committed": self.fetched(topic, partition, 1),
            "everything": self.fetched(topic, partition, 0),
        }

    def end_offset(self, topic: str, partition: int, isolation: int) -> int:
        wanted = [{"Name": topic, "Partitions": [{"PartitionIndex": partition, "Timestamp": -1}]}]
        answer = self.call("ListOffsets", 5, {"ReplicaId": -1, "IsolationLevel": isolation, "Topics": wanted})
        found: int = answer["Topics"][0]["Partitions"][0]["Offset"]
        return found

    def fetched(self, topic: str, partition: int, isolation: int, offset: int = 0) -> dict[str, Any]:
        part = {"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20}
        request = {
            "MaxWaitMs": 0,
            "MinBytes": 0,
            "IsolationLevel": isolation,
            "SessionEpoch": -1,
            "Topics": [{"Topic": topic, "Partitions": [part]}],
        }
        found = self.call("Fetch", 12, request)["Responses"][0]["Partitions"][0]
        aborted = found["AbortedTransactions"]
        return {
            "error": found["ErrorCode"],
            "ends": [found["HighWatermark"], found["LastStableOffset"]],
            "aborted": aborted and sorted((self.label(each["ProducerId"]), each["FirstOffset"]) for each in aborted),
            "batches": [
                (
                    header.base_offset,
                    header.record_count,
                    header.attributes,
                    self.label(header.producer_id),
                    header.producer_epoch,
                    header.base_sequence,
                    # What a control record says lies at the end of its batch.
                    content_of(found["Records"] or b"", header.base_offset) if header.attributes & 0x20 else "",
                )
                for header in read_headers(found["Records"] or b"")
            ],
        }

    def offset(self, group: str, topic: str, partition: int = 0, stable: bool = True) -> Any:
        topics = [{"Name": topic, "PartitionIndexes": [partition]}]
        answer = self.call("OffsetFetch", 7, {"GroupId": group, "Topics": topics, "RequireStable": stable})
        found = answer["Topics"][0]["Partitions"][0]
        return found["ErrorCode"], found["CommittedOffset"], found["Metadata"]

    def markers(
        self,
        topic: str,
        *partitions: int,
        producer_id: int,
        producer_epoch: int,
        result: bool = ABORT,
        coordinator_epoch: int = 0,
        transaction_version: int | None = None,
        version: int = 1,
    ) -> Any:
        marker = {
            "ProducerId": producer_id,
            "ProducerEpoch": producer_epoch,
            "TransactionResult": result,
            "Topics": [{"Name": topic, "PartitionIndexes": list(partitions or (0,))}],
            "CoordinatorEpoch": coordinator_epoch,
        }
        if transaction_version is not None:
            marker["TransactionVersion"] = transaction_version
        return self.ask("WriteTxnMarkers", version, {"Markers": [marker]})


class Producer:
    """One holder of a transactional id. It remembers the identity it was given, and may claim another."""

    def __init__(self, script: Script, name: str) -> None:
        self.script = script
        self.name = name
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[tuple[str, int, int, int], int] = {}

    def _take(self, answer: Any) -> Any:
        if answer != CLOSED and answer["ErrorCode"] == 0 and answer.get("ProducerId", -1) >= 0:
            self.producer_id, self.epoch = answer["ProducerId"], answer["ProducerEpoch"]
        return self.script.shown(answer)

    def init(self, version: int = 4, timeout_ms: int = 60_000, **fields: Any) -> Any:
        request = {"TransactionalId": self.name, "TransactionTimeoutMs": timeout_ms, **fields}
        return self._take(self.script.call("InitProducerId", version, request))

    def init_again(self, version: int = 4, epoch: int | None = None, producer_id: int | None = None) -> Any:
        """With the identity it holds, or claims to (KIP-360)."""
        return self.init(version, **self._identity(producer_id, epoch))

    def takeover(self, version: int = 4) -> Any:
        """A new holder of the id, who asks again while the open transaction is being aborted."""
        answers = [self.init(version)]
        deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
        while answers[-1]["ErrorCode"] == 51 and time.monotonic() < deadline:
            time.sleep(PAUSE_SECONDS)
            answers.append(self.init(version))
        return answers[0], answers[-1]

    def _identity(self, producer_id: int | None, epoch: int | None) -> dict[str, int]:
        return {
            "ProducerId": self.producer_id if producer_id is None else producer_id,
            "ProducerEpoch": self.epoch if epoch is None else epoch,
        }

    def add(
        self,
        topic: str,
        *partitions: int,
        version: int = 3,
        epoch: int | None = None,
        producer_id: int | None = None,
        **more: list[int],
    ) -> Any:
        topics = [{"Name": topic, "Partitions": list(partitions or (0,))}]
        topics += [{"Name": name, "Partitions": indexes} for name, indexes in more.items()]
        identity = self._identity(producer_id, epoch)
        request = {f"V3AndBelow{key}": value for key, value in identity.items()}
        request |= {"V3AndBelowTransactionalId": self.name, "V3AndBelowTopics": topics}
        return self.script.ask("AddPartitionsToTxn", version, request)

    def batched(
        self,
        topic: str,
        *partitions: int,
        verify: bool = False,
        epoch: int | None = None,
        producer_id: int | None = None,
    ) -> dict[str, Any]:
        """One transaction of a broker's AddPartitionsToTxn."""
        return {
            "TransactionalId": self.name,
            **self._identity(producer_id, epoch),
            "VerifyOnly": verify,
            "Topics": [{"Name": topic, "Partitions": list(partitions or (0,))}],
        }

    def add_offsets(
        self, group: str, version: int = 3, epoch: int | None = None, producer_id: int | None = None
    ) -> Any:
        request = {"TransactionalId": self.name, "GroupId": group, **self._identity(producer_id, epoch)}
        return self.script.ask("AddOffsetsToTxn", version, request)

    def end(
        self,
        result: bool,
        version: int = 4,
        epoch: int | None = None,
        producer_id: int | None = None,
        wait: bool = True,
    ) -> Any:
        request = {"TransactionalId": self.name, "Committed": result, **self._identity(producer_id, epoch)}
        answer = self._take(self.script.call("EndTxn", version, request))
        if wait:
            self.settle()
        return answer

    def settle(self, *states: str) -> Any:
        """Waits until nothing of the id is under way, or until it is in one of the states."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
        while True:
            found = self.script.describe(self.name)[0]["TransactionState"]
            if (found in states if states else not found.startswith("Prepare")) or time.monotonic() > deadline:
                return found
            time.sleep(PAUSE_SECONDS)

    def produce(
        self,
        topic: str,
        count: int = 1,
        *,
        version: int = 11,
        partition: int = 0,
        sequence: int | None = None,
        epoch: int | None = None,
        producer_id: int | None = None,
        transactional: bool = True,
        **fields: Any,
    ) -> Any:
        """One batch; sequences follow each other within an epoch unless they are given."""
        identity = self._identity(producer_id, epoch)
        key = (topic, partition, identity["ProducerId"], identity["ProducerEpoch"])
        start = self._sequences.get(key, 0) if sequence is None else sequence
        content = batch(
            [b"%d" % (start + n) for n in range(count)],
            attributes=TRANSACTIONAL if transactional else 0,
            producer_id=identity["ProducerId"],
            producer_epoch=identity["ProducerEpoch"],
            base_sequence=start,
        )
        request = produce_request(topic, content, partition, **{"TransactionalId": self.name, **fields})
        answer = self.script.ask("Produce", version, request)
        if answer == CLOSED:
            return CLOSED
        found = answer["Responses"][0]["PartitionResponses"][0]
        if found["ErrorCode"] == 0:
            self._sequences[key] = start + count
        return found["ErrorCode"], found["BaseOffset"], found.get("LogStartOffset")

    def commit_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        version: int = 3,
        epoch: int | None = None,
        producer_id: int | None = None,
        metadata: str | None = "",
        partition: int = 0,
        **fields: Any,
    ) -> Any:
        parts = [{"PartitionIndex": partition, "CommittedOffset": offset, "CommittedMetadata": metadata}]
        request = {
            "TransactionalId": self.name,
            "GroupId": group,
            **self._identity(producer_id, epoch),
            "Topics": [{"Name": topic, "Partitions": parts}],
            **fields,
        }
        answer = self.script.ask("TxnOffsetCommit", version, request)
        return answer if answer == CLOSED else answer["Topics"][0]["Partitions"][0]["ErrorCode"]

    def markers(self, topic: str, *partitions: int, **fields: Any) -> Any:
        identity = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        return self.script.markers(topic, *partitions, **{**identity, **fields})

    def open(self, topic: str, version: int = 11) -> Any:
        """Initialised, with one batch in the topic; before version 12 AddPartitionsToTxn comes first."""
        answers = [self.init()] if self.producer_id < 0 else []
        if version < 12:
            answers.append(self.add(topic))
        return [*answers, self.produce(topic, version=version)]

    def lock_coordinator_out(self, topic: str) -> Any:
        """From now on the coordinator's markers are refused there, and its decisions stay half carried out."""
        return self.markers(topic, coordinator_epoch=FOREIGN_COORDINATOR_EPOCH)


def content_of(records: bytes, base_offset: int) -> str:
    position = 0
    for header in read_headers(records):
        end = position + 12 + header.length
        if header.base_offset == base_offset:
            return records[position + 61 : end].hex()
        position = end
    return ""


def all_codes(answer: Any) -> list[int]:
    if isinstance(answer, dict):
        found = [value for key, value in answer.items() if key.endswith("ErrorCode")]
        return found + [code for value in answer.values() for code in all_codes(value)]
    if isinstance(answer, list):
        return [code for value in answer for code in all_codes(value)]
    return []
