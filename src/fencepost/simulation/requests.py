"""Builds the requests of simulated clients."""

from collections.abc import Iterable, Mapping
from typing import Any

from fencepost.simulation.clients import Request
from fencepost.topic_partition import TopicPartition
from fencepost.wire.acls import AclBinding, creation_fields, exactly, filter_fields
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    EndTxnRequest,
    FetchRequest,
    HeartbeatRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetFetchRequest,
    ProduceRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)

FETCH_VERSION = 12
FETCH_BYTES = 16_384
EARLIEST, LATEST = -2, -1
"""What ListOffsets asks for."""
TOPIC_RESOURCE = 2
_PROTOCOL_TYPE, _PROTOCOL = "copiers", "in turn"


def init_producer_id(
    transactional_id: str | None, timeout_ms: int, producer_id: int = -1, producer_epoch: int = -1
) -> Request:
    message = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return Request(ApiKey.INIT_PRODUCER_ID, 4, message)


def produce(batches: dict[TopicPartition, bytes | bytearray], version: int, transactional_id: str | None) -> Request:
    one = ProduceRequest.TopicProduceData
    topics: dict[str, Any] = {}
    for (topic, partition), records in batches.items():
        data = topics.setdefault(topic, one(name=topic))
        data.partition_data.append(one.PartitionProduceData(index=partition, records=records))
    message = ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=1_000, topic_data=list(topics.values())
    )
    return Request(ApiKey.PRODUCE, version, message)


def add_partitions(transactional_id: str, pair: tuple[int, int], partitions: list[TopicPartition]) -> Request:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    message = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=pair[0],
        v3_and_below_producer_epoch=pair[1],
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in by_topic.items()
        ],
    )
    return Request(ApiKey.ADD_PARTITIONS_TO_TXN, 3, message)


def add_offsets(transactional_id: str, pair: tuple[int, int], group: str) -> Request:
    message = AddOffsetsToTxnRequest(
        transactional_id=transactional_id, group_id=group, producer_id=pair[0], producer_epoch=pair[1]
    )
    return Request(ApiKey.ADD_OFFSETS_TO_TXN, 3, message)


def transactional_offset_commit(
    transactional_id: str, pair: tuple[int, int], group: str, key: TopicPartition, offset: int, version: int
) -> Request:
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    one = topic.TxnOffsetCommitRequestPartition(partition_index=key[1], committed_offset=offset)
    message = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=pair[0],
        producer_epoch=pair[1],
        topics=[topic(name=key[0], partitions=[one])],
    )
    return Request(ApiKey.TXN_OFFSET_COMMIT, version, message)


def end_transaction(transactional_id: str, pair: tuple[int, int], version: int, *, is_commit: bool) -> Request:
    message = EndTxnRequest(
        transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=is_commit
    )
    return Request(ApiKey.END_TXN, version, message)


def offset_fetch(group: str, key: TopicPartition) -> Request:
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = [wanted.OffsetFetchRequestTopics(name=key[0], partition_indexes=[key[1]])]
    message = OffsetFetchRequest(groups=[wanted(group_id=group, topics=topics)], require_stable=True)
    return Request(ApiKey.OFFSET_FETCH, 8, message)


def join_group(group: str, member_id: str, session_timeout_ms: int, rebalance_timeout_ms: int) -> Request:
    message = JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=_PROTOCOL_TYPE,
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")],
    )
    return Request(ApiKey.JOIN_GROUP, 7, message)


def sync_group(group: str, member_id: str, generation_id: int, assignments: dict[str, bytes]) -> Request:
    one = SyncGroupRequest.SyncGroupRequestAssignment
    message = SyncGroupRequest(
        group_id=group,
        member_id=member_id,
        generation_id=generation_id,
        protocol_type=_PROTOCOL_TYPE,
        protocol_name=_PROTOCOL,
        assignments=[one(member_id=name, assignment=assigned) for name, assigned in assignments.items()],
    )
    return Request(ApiKey.SYNC_GROUP, 5, message)


def heartbeat(group: str, member_id: str, generation_id: int) -> Request:
    message = HeartbeatRequest(group_id=group, member_id=member_id, generation_id=generation_id)
    return Request(ApiKey.HEARTBEAT, 4, message)


def fetch(offsets: dict[TopicPartition, int], *, is_committed: bool, max_wait_ms: int, max_bytes: int) -> Request:
    wanted = FetchRequest.FetchTopic
    topics: dict[str, Any] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, wanted(topic=topic)).partitions.append(
            wanted.FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=max_bytes,
                current_leader_epoch=-1,
                last_fetched_epoch=-1,
                log_start_offset=-1,
            )
        )
    message = FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES * 4,
        isolation_level=1 if is_committed else 0,
        session_epoch=-1,
        topics=list(topics.values()),
    )
    return Request(ApiKey.FETCH, FETCH_VERSION, message)


def produce_by_id(
    batches: Mapping[TopicPartition, bytes | bytearray],
    ids: Mapping[str, bytes],
    transactional_id: str | None,
    acks: int,
) -> Request:
    """To topics by their ids; `batches` has whatever `ids` calls them."""
    one = ProduceRequest.TopicProduceData
    topics: dict[str, Any] = {}
    for (label, partition), records in batches.items():
        data = topics.setdefault(label, one(topic_id=ids[label]))
        data.partition_data.append(one.PartitionProduceData(index=partition, records=records))
    message = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=1_000, topic_data=list(topics.values())
    )
    return Request(ApiKey.PRODUCE, 13, message)


def fetch_by_id(
    offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, bytes],
    *,
    is_committed: bool,
    max_wait_ms: int,
    max_bytes: int,
) -> Request:
    request = fetch(dict(offsets), is_committed=is_committed, max_wait_ms=max_wait_ms, max_bytes=max_bytes)
    for topic in request.message.topics:
        topic.topic_id, topic.topic = ids[topic.topic], ""  # reach: a message of the wire
    return Request(ApiKey.FETCH, 13, request.message)


def list_offsets(key: TopicPartition, timestamp: int) -> Request:
    topic = ListOffsetsRequest.ListOffsetsTopic
    one = topic.ListOffsetsPartition(partition_index=key[1], current_leader_epoch=-1, timestamp=timestamp)
    message = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic(name=key[0], partitions=[one])])
    return Request(ApiKey.LIST_OFFSETS, 7, message)


def metadata(names: list[str]) -> Request:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return Request(ApiKey.METADATA, 12, MetadataRequest(topics=topics, allow_auto_topic_creation=False))


# What administrators ask


def create_topic(name: str, partitions: int, settings: Mapping[str, str]) -> Request:
    topic = CreateTopicsRequest.CreatableTopic
    configs = [topic.CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
    wanted = topic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    return Request(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[wanted], timeout_ms=1_000))


def delete_topic(topic_id: bytes) -> Request:
    """By id: a copy that arrives late does not delete the next topic of that name."""
    one = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
    return Request(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=[one], timeout_ms=1_000))


def create_partitions(name: str, count: int) -> Request:
    one = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
    return Request(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=[one], timeout_ms=1_000))


def alter_topic(name: str, settings: Mapping[str, str | None]) -> Request:
    """None: back to the default."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=setting, config_operation=0 if value is not None else 1, value=value)
        for setting, value in settings.items()
    ]
    one = resource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs)
    return Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[one]))


def delete_records(key: TopicPartition, offset: int) -> Request:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    one = topic.DeleteRecordsPartition(partition_index=key[1], offset=offset)
    message = DeleteRecordsRequest(topics=[topic(name=key[0], partitions=[one])], timeout_ms=1_000)
    return Request(ApiKey.DELETE_RECORDS, 2, message)


def create_acls(bindings: Iterable[AclBinding]) -> Request:
    creations = [CreateAclsRequest.AclCreation(**creation_fields(binding)) for binding in bindings]
    return Request(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=creations))


def delete_acls(bindings: Iterable[AclBinding]) -> Request:
    filters = [DeleteAclsRequest.DeleteAclsFilter(**filter_fields(exactly(binding))) for binding in bindings]
    return Request(ApiKey.DELETE_ACLS, 3, DeleteAclsRequest(filters=filters))
