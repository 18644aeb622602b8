"""What a case works with: one broker under Kafka's raw protocol, and answers made comparable."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.interop.allowed import ABSENT_TOPIC_CONFIGS
from tests.peers.batches import batch, read_headers
from tests.peers.broker_process import BrokerProcess
from tests.peers.raw import ConnectionClosed, RawClient
from tests.peers.schemas import NO_UUID, Message
from tests.support.patience import patient

CLOSED = "connection closed"
READY_TIMEOUT_SECONDS = patient(20)
# Not loaded yet, not available yet, not the coordinator yet: the answers of a broker that is still settling.
SETTLING = {14, 15, 16}


class Peer:
    """One broker in one case. Names carry the case's name, so that cases cannot disturb each other."""

    def __init__(self, broker: BrokerProcess, case: str) -> None:
        self.broker = broker
        self._case = case.replace(" ", "-")
        self._connections: list[RawClient] = []
        self._client: RawClient | None = None

    def name(self, stem: str = "t") -> str:
        return f"{self._case}-{stem}"[:200]

    def connect(self, client_id: str = "raw") -> RawClient:
        client = RawClient(self.broker.address, client_id)
        self._connections.append(client)
        return client

    def call(self, api: str, version: int, message: Message | None = None, body: bytes | None = None) -> Any:
        """The answer, or `CLOSED`; a closed connection is replaced for the next call."""
        if self._client is None:
            self._client = self.connect()
        try:
            return self._client.call(api, version, message, body)
        except ConnectionClosed:
            self._client = None
            return CLOSED

    def settled(self, api: str, version: int, message: Message | None = None) -> Any:
        """Like `call`, repeated while a coordinator is still loading."""
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while True:
            answer = self.call(api, version, message)
            if not (SETTLING & set(error_codes(answer))) or time.monotonic() > deadline:
                return answer
            time.sleep(0.05)

    def topic(self, stem: str = "t", partitions: int = 1, **configs: str) -> str:
        """Creates a topic and waits until its partitions have a leader."""
        name = self.name(stem)
        settings = [{"Name": key.replace("_", "."), "Value": value} for key, value in configs.items()]
        wanted = {"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1, "Configs": settings}
        made = self.call("CreateTopics", 5, {"Topics": [wanted], "timeoutMs": 10_000})
        assert made["Topics"][0]["ErrorCode"] == 0, made
        # Metadata may already name a leader that has yet to learn of it: ask what only the leader answers.
        wanted_offsets = [{"PartitionIndex": partition, "Timestamp": -1} for partition in range(partitions)]
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            request = {"ReplicaId": -1, "Topics": [{"Name": name, "Partitions": wanted_offsets}]}
            if set(error_codes(self.call("ListOffsets", 5, request))) == {0}:
                return name
            time.sleep(0.01)
        raise AssertionError(f"{name} never had leaders")

    def describe_topic(self, name: str) -> Any:
        answer = self.call("Metadata", 12, {"Topics": [{"Name": name}], "AllowAutoTopicCreation": False})
        return answer["Topics"][0]

    def topic_id(self, name: str) -> str:
        found: str = self.describe_topic(name)["TopicId"]
        return found

    def producer_id(self) -> int:
        answer = self.settled("InitProducerId", 4, {"TransactionalId": None, "TransactionTimeoutMs": 60_000})
        assert answer["ErrorCode"] == 0, answer
        found: int = answer["ProducerId"]
        return found

    def produce(
        self, topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, version: int = 9, **fields: Any
    ) -> Any:
        """Produces one batch and returns what is said of the partition, made comparable."""
        answer = self.call("Produce", version, produce_request(topic, records, partition, acks, **fields))
        if answer == CLOSED:
            return CLOSED
        return comparable(answer["Responses"][0]["PartitionResponses"][0])

    def fill(self, topic: str, count: int = 10, partition: int = 0, **fields: Any) -> None:
        """Writes so many records, one per batch."""
        for n in range(count):
            answer = self.produce(topic, batch([b"value %d" % n], **fields), partition=partition)
            assert answer["ErrorCode"] == 0, answer

    def fetch(self, topic: str, offset: int, *, version: int = 12, partition: int = 0, **fields: Any) -> Any:
        """Fetches one partition and returns the whole answer, made comparable."""
        return comparable(self.call("Fetch", version, fetch_request(topic, offset, partition, **fields)))

    def close(self) -> None:
        for client in self._connections:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    run: Callable[[Peer], Any]


CASES: list[Case] = []


def case(function: Callable[[Peer], Any]) -> Callable[[Peer], Any]:
    """Registers a function as a case; its name, read as words, is the case's name."""
    CASES.append(Case(function.__name__.strip("_").replace("_", " "), function))
    return function


def produce_request(topic: str, records: bytes | None, partition: int = 0, acks: int = -1, **fields: Any) -> Message:
    data = [{"Index": partition, "Records": records}]
    return {"Acks": acks, "TimeoutMs": 5000, "TopicData": [{"Name": topic, "PartitionData": data}], **fields}


def fetch_request(topic: str, offset: int, partition: int = 0, **fields: Any) -> Message:
    """A fetch outside of any session; fields named like those of a partition go there."""
    inner: dict[str, Any] = {
        key: fields.pop(key) for key in ("CurrentLeaderEpoch", "LastFetchedEpoch", "PartitionMaxBytes") if key in fields
    }
    wanted = {"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20, **inner}
    request = {"MaxWaitMs": 0, "MinBytes": 1, "SessionEpoch": -1, **fields}
    return {**request, "Topics": [{"Topic": topic, "Partitions": [wanted]}]}


def error_codes(answer: Any) -> list[int]:
    if isinstance(answer, dict):
        found = [answer["ErrorCode"]] if "ErrorCode" in answer else []
        return found + [code for value in answer.values() for code in error_codes(value)]
    if isinstance(answer, list):
        return [code for value in answer for code in error_codes(value)]
    return []


# What two brokers may say differently, by field name: left out, or replaced by whether it is there.
LEFT_OUT = {"ThrottleTimeMs", "ErrorMessage", "BatchIndexErrorMessage", "Host", "Port", "ClusterId", "SessionId"}
REPLACED = {
    "MemberId", "Leader", "MemberIds", "NodeId", "LeaderId", "ControllerId", "BrokerId", "ProducerId", "TopicId",
    "LogAppendTimeMs", "ReplicaNodes", "IsrNodes", "BatchIndexErrors", "LogDir", "TotalBytes", "UsableBytes",
}  # fmt: skip
ABSENT: tuple[Any, ...] = (None, "", -1, 0, NO_UUID, [], b"")


def is_elr_setting(config: dict[str, Any]) -> bool:
    """With eligible leader replicas Kafka pins min.insync.replicas for the whole cluster."""
    return bool(config["Name"] == "min.insync.replicas" and config["Value"] == "1")


def comparable(answer: Any, field: str = "") -> Any:
    """The answer with ids, addresses and times replaced, and records as their length."""
    if isinstance(answer, dict):
        return {key: comparable(value, key) for key, value in answer.items() if key not in LEFT_OUT}
    if field in REPLACED:
        return "absent" if answer in ABSENT else "present"
    if isinstance(answer, list):
        found = [comparable(value, field) for value in answer]
        # Kafka answers these in the order of a hash table.
        if field == "PartitionResponses":
            return sorted(found, key=lambda each: int(each["Index"]))
        if field == "Configs":
            present = [each for each in found if each["Name"] not in ABSENT_TOPIC_CONFIGS and not is_elr_setting(each)]
            return sorted(present, key=lambda each: str(each["Name"]))
        return found
    if isinstance(answer, bytes):
        # Kafka may cut the last batch of a fetch where the limit falls; only whole batches are records.
        size = sum(12 + header.length for header in read_headers(answer)) if field == "Records" else len(answer)
        return f"{size} bytes"
    return answer
