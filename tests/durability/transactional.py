"""A transactional client in a few short words, of either protocol, and what a reader of committed records sees."""

from typing import Any

from fencepost.topic_partition import TopicPartition
from fencepost.wire.batch import build_batch, iterate_headers
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from tests.durability.scene import EARLIEST, Client, values_in

READ_COMMITTED = 1


def find_coordinators(client: Client, groups: list[str], transactional_ids: list[str]) -> None:
    """Makes the internal topics, if they are not there."""
    for key_type, keys in ((0, groups), (1, transactional_ids)):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
        answer = client.socket.call(ApiKey.FIND_COORDINATOR, 4, request)
        assert all(one.error_code == 0 for one in answer.coordinators), answer


class TransactionalClient:
    def __init__(self, client: Client, transactional_id: str, *, is_new: bool = True, timeout_ms: int = 30_000) -> None:
        """`is_new`: of the protocol in which every transaction has an epoch of its own."""
        self.client = client
        self.transactional_id = transactional_id
        self.is_new = is_new
        self.timeout_ms = timeout_ms
        self.producer_id = self.producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()

    def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms)
        self._become(self._call(ApiKey.INIT_PRODUCER_ID, 4, request))

    def produce(self, topic: str, partition: int, *values: bytes, key: bytes | None = None) -> int:
        """The base offset of the batch."""
        at = TopicPartition(topic, partition)
        if not self.is_new and at not in self._added:
            self._add(at)
        now_ms = self.client.machine.clock.wall_ms()
        batch = build_batch(
            [(now_ms, key, value, ()) for value in values],
            base_sequence=self._sequences.get(at, 0),
            transactional=True,
            **self._identity(),
        )
        data = ProduceRequest.TopicProduceData.PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = self._call(ApiKey.PRODUCE, 12 if self.is_new else 9, request).responses[0].partition_responses[0]
        assert answer.error_code == 0, answer
        self._sequences[at] = self._sequences.get(at, 0) + len(values)
        return int(answer.base_offset)

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        if not self.is_new:
            request = AddOffsetsToTxnRequest(transactional_id=self.transactional_id, group_id=group, **self._identity())
            assert self._call(ApiKey.ADD_OFFSETS_TO_TXN, 3, request).error_code == 0
        wanted = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        one = wanted.TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        commit = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            topics=[wanted(name=topic, partitions=[one])],
            **self._identity(),
        )
        answer = self._call(ApiKey.TXN_OFFSET_COMMIT, 5 if self.is_new else 3, commit)
        assert answer.topics[0].partitions[0].error_code == 0, answer

    def end(self, *, is_commit: bool) -> None:
        request = EndTxnRequest(transactional_id=self.transactional_id, committed=is_commit, **self._identity())
        answer = self._call(ApiKey.END_TXN, 5 if self.is_new else 3, request)
        assert answer.error_code == 0, answer
        self._added.clear()
        if self.is_new:
            self._become(answer)

    def _become(self, answer: Any) -> None:
        assert answer.error_code == 0, answer
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._added.clear()

    def _add(self, at: TopicPartition) -> None:
        wanted = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[wanted(name=at[0], partitions=[at[1]])],
        )
        answer = self._call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
        assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0, answer
        self._added.add(at)

    def _identity(self) -> dict[str, int]:
        return {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}

    def _call(self, api: ApiKey, version: int, request: Any) -> Any:
        """Again while an earlier transaction is being finished, as every client does."""
        for _ in range(100):
            answer = self.client.socket.call(api, version, request)
            if _is_busy(answer):
                self.client.machine.scheduler.run_for(20)
                continue
            return answer
        raise AssertionError(f"{api} still meets a transaction that is being finished")


CONCURRENT_TRANSACTIONS = 51


def _is_busy(answer: Any) -> bool:
    if hasattr(answer, "results_by_topic_v3_and_below"):
        results = [one for topic in answer.results_by_topic_v3_and_below for one in topic.results_by_partition]
        return any(one.partition_error_code == CONCURRENT_TRANSACTIONS for one in results)
    if hasattr(answer, "responses"):
        return any(
            one.error_code == CONCURRENT_TRANSACTIONS for topic in answer.responses for one in topic.partition_responses
        )
    if hasattr(answer, "topics"):
        return any(one.error_code == CONCURRENT_TRANSACTIONS for topic in answer.topics for one in topic.partitions)
    return bool(answer.error_code == CONCURRENT_TRANSACTIONS)


def fetch_committed(client: Client, topic: str, partition: int, offset: int) -> tuple[Any, list[tuple[int, bytes]]]:
    """One fetch with isolation read_committed: the answer's data, and what a consumer would hand on of it."""
    answer = client.fetch(topic, {partition: offset}, isolation_level=READ_COMMITTED)
    data = answer.responses[0].partitions[0]
    return data, committed_in(data, offset)


def committed_in(data: Any, offset: int) -> list[tuple[int, bytes]]:
    """As every consumer filters: skip what an aborted producer wrote until its marker."""
    aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
    active: set[int] = set()
    found: list[tuple[int, bytes]] = []
    view = memoryview(data.records or b"")
    for position, header in iterate_headers(view):
        while aborted and aborted[0][0] <= header.last_offset:
            active.add(aborted.pop(0)[1])
        if header.is_control:
            active.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in active):
            batch = view[position : position + header.size_bytes]
            found += [(at, value) for at, value in values_in(batch) if at >= offset]
    return found


def read_committed(client: Client, topic: str, partition: int = 0) -> list[tuple[int, bytes]]:
    """Everything up to the last stable offset."""
    found: list[tuple[int, bytes]] = []
    offset = client.offset(topic, partition, EARLIEST)
    while True:
        data, records = fetch_committed(client, topic, partition, offset)
        assert data.error_code == 0, data.error_code
        if not data.records:
            assert offset == data.last_stable_offset
            return found
        found += records
        offset = max(header.next_offset for _, header in iterate_headers(data.records))


def is_decided(client: Client, topic: str, partition: int = 0) -> bool:
    data = client.fetch(topic, {partition: 0}, isolation_level=READ_COMMITTED).responses[0].partitions[0]
    return bool(data.last_stable_offset == data.high_watermark)
