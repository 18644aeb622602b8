"""What the scenarios on a simulated machine have in common: a client in a few short words, and what a log holds."""

from collections.abc import Sequence
from typing import Any

from fencepost.simulation.node import DATA_DIRECTORY, LISTENER, SimulatedNode, SimulatedSocket
from fencepost.wire.batch import build_batch, iterate_headers, verify_crc
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from fencepost.wire.records import read_records

PRODUCE_VERSION = 9
FETCH_VERSION = 12
EARLIEST, LATEST = -2, -1
ALL, LEADER = -1, 1
ROOMY_BYTES = 1 << 24

# Fifty partitions of committed offsets would only make every scenario slower.
SMALL = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


class Client:
    def __init__(self, machine: SimulatedNode, listener: str = LISTENER) -> None:
        self.machine = machine
        self.socket: SimulatedSocket = machine.connect(listener)

    # Topics

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> int:
        creatable = CreateTopicsRequest.CreatableTopic
        wanted = creatable(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                creatable.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        answer = self.socket.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[wanted], timeout_ms=1000))
        return int(answer.topics[0].error_code)

    def delete_topic(self, name: str) -> int:
        topics = [DeleteTopicsRequest.DeleteTopicState(name=name)]
        answer = self.socket.call(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=topics, timeout_ms=1000))
        return int(answer.responses[0].error_code)

    def topics(self) -> dict[str, int]:
        answer = self.metadata()
        return {topic.name: len(topic.partitions) for topic in answer.topics}

    def metadata(self) -> Any:
        return self.socket.call(ApiKey.METADATA, 12, MetadataRequest(topics=None))

    # Producing

    def producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1)
        return int(self.socket.call(ApiKey.INIT_PRODUCER_ID, 4, request).producer_id)

    def send(self, topic: str, batches: dict[int, bytes | bytearray], acks: int = ALL) -> int:
        partition = ProduceRequest.TopicProduceData.PartitionProduceData
        data = [partition(index=index, records=bytes(records)) for index, records in batches.items()]
        request = ProduceRequest(
            acks=acks,
            timeout_ms=30_000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=data)],
        )
        return self.socket.send(ApiKey.PRODUCE, PRODUCE_VERSION, request)

    def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = ALL, **producer: int) -> Any:
        """One batch; the partition's answer."""
        return self.produced(self.send(topic, {partition: self.batch(*values, **producer)}, acks))

    def produced(self, correlation_id: int) -> Any:
        """The answer for the first partition of a request sent before."""
        self.socket.wait(correlation_id)
        return self.socket.answers[correlation_id].responses[0].partition_responses[0]

    def batch(self, *values: bytes, **producer: int) -> bytearray:
        now_ms = self.machine.clock.wall_ms()
        return build_batch([(now_ms, None, value, ()) for value in values], **producer)

    def keyed_batch(self, key: bytes, value: bytes) -> bytearray:
        return build_batch([(self.machine.clock.wall_ms(), key, value, ())])

    # Reading

    def fetch_request(self, topic: str, offsets: dict[int, int], **fields: Any) -> FetchRequest:
        wanted = FetchRequest.FetchTopic.FetchPartition
        partition_max_bytes = fields.pop("partition_max_bytes", ROOMY_BYTES)
        settings: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": ROOMY_BYTES,
            "session_epoch": -1,
            **fields,
        }
        partitions = [
            wanted(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=-1,
                last_fetched_epoch=-1,
                log_start_offset=-1,
            )
            for index, offset in offsets.items()
        ]
        topics = [FetchRequest.FetchTopic(topic=topic, partitions=partitions)] if offsets else []
        return FetchRequest(replica_id=-1, topics=topics, **settings)

    def start_fetch(self, topic: str, offsets: dict[int, int], **fields: Any) -> int:
        return self.socket.send(ApiKey.FETCH, FETCH_VERSION, self.fetch_request(topic, offsets, **fields))

    def fetch(self, topic: str, offsets: dict[int, int], **fields: Any) -> Any:
        return self.socket.call(ApiKey.FETCH, FETCH_VERSION, self.fetch_request(topic, offsets, **fields))

    def read_all(self, topic: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
        """Offset and value of everything that a consumer gets."""
        found: list[tuple[int, bytes | None]] = []
        offset = self.offset(topic, partition, EARLIEST)
        while True:
            data = self.fetch(topic, {partition: offset}).responses[0].partitions[0]
            assert data.error_code == 0, data.error_code
            if not data.records:
                assert offset == data.high_watermark
                return found
            found += [one for one in values_in(data.records) if one[0] >= offset]
            # Compaction leaves batches without records: a consumer goes by what the batch says.
            offset = max(header.next_offset for _, header in iterate_headers(memoryview(data.records)))

    def offset(self, topic: str, partition: int, timestamp: int) -> int:
        wanted = ListOffsetsRequest.ListOffsetsTopic
        one = wanted.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[wanted(name=topic, partitions=[one])])
        return int(self.socket.call(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions[0].offset)

    # Groups

    def find_coordinator(self, group: str) -> int:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        return int(self.socket.call(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code)

    def send_commit(self, group: str, topic: str, partition: int, offset: int) -> int:
        wanted = OffsetCommitRequest.OffsetCommitRequestTopic
        one = wanted.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[wanted(name=topic, partitions=[one])],
        )
        return self.socket.send(ApiKey.OFFSET_COMMIT, 8, request)

    def commit(self, group: str, topic: str, partition: int, offset: int) -> int:
        correlation_id = self.send_commit(group, topic, partition, offset)
        self.socket.wait(correlation_id)
        return int(self.socket.answers[correlation_id].topics[0].partitions[0].error_code)

    def committed(self, group: str, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup
        request = OffsetFetchRequest(
            groups=[
                wanted(
                    group_id=group,
                    topics=[wanted.OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))],
                )
            ],
        )
        (answer,) = self.socket.call(ApiKey.OFFSET_FETCH, 8, request).groups
        assert answer.error_code == 0, answer.error_code
        return {one.partition_index: one.committed_offset for one in answer.topics[0].partitions}


def values_in(records: Any) -> list[tuple[int, bytes | None]]:
    found = []
    view = memoryview(records)
    for position, header in iterate_headers(view):
        assert verify_crc(view, position, header)
        batch = view[position : position + header.size_bytes]
        found += [(record.offset, record.value) for record in read_records(batch, ROOMY_BYTES)]
    return found


def log_files(machine: SimulatedNode, topic: str, partition: int = 0) -> list[str]:
    directory = f"{DATA_DIRECTORY}/{topic}-{partition}"
    return [f"{directory}/{name}" for name in machine.disk.list(directory) if name.endswith(".log")]
