"""The requests this client sends, with the versions of each that it supports.

Some newer versions are left out on purpose: Produce 13, Fetch 13 and OffsetCommit 10 name topics by id only, and
FindCoordinator 4 and OffsetFetch 8 ask for many keys at once; the client names topics and asks for one at a time.

The version of some requests tells which transaction protocol a client uses (KIP-890), so they exist as pairs: `_TV1`
ends below that version, `_TV2` begins with it. AddPartitionsToTxn 4 and above is for brokers.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fencepost.wire import messages

if TYPE_CHECKING:
    from fencepost.wire.messages import (
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        ApiVersionsRequest,
        ApiVersionsResponse,
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
        CreateAclsRequest,
        CreateAclsResponse,
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteAclsRequest,
        DeleteAclsResponse,
        DeleteGroupsRequest,
        DeleteGroupsResponse,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DescribeAclsRequest,
        DescribeAclsResponse,
        DescribeClusterRequest,
        DescribeClusterResponse,
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        DescribeGroupsRequest,
        DescribeGroupsResponse,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        DescribeProducersRequest,
        DescribeProducersResponse,
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
        EndTxnRequest,
        EndTxnResponse,
        FetchRequest,
        FetchResponse,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
        HeartbeatRequest,
        HeartbeatResponse,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
        InitProducerIdRequest,
        InitProducerIdResponse,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        LeaveGroupResponse,
        ListGroupsRequest,
        ListGroupsResponse,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListTransactionsRequest,
        ListTransactionsResponse,
        MetadataRequest,
        MetadataResponse,
        OffsetCommitRequest,
        OffsetCommitResponse,
        OffsetDeleteRequest,
        OffsetDeleteResponse,
        OffsetFetchRequest,
        OffsetFetchResponse,
        ProduceRequest,
        ProduceResponse,
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        SaslHandshakeRequest,
        SaslHandshakeResponse,
        SyncGroupRequest,
        SyncGroupResponse,
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

Q = TypeVar("Q")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class Api(Generic[Q, R]):
    name: str
    key: int
    version_min: int
    version_max: int

    @cached_property
    def response(self) -> Any:
        return messages.message_class(f"{self.name}Response")

    @property
    def versions(self) -> tuple[int, int]:
        return self.version_min, self.version_max


PRODUCE: Api[ProduceRequest, ProduceResponse] = Api("Produce", 0, 3, 12)
FETCH: Api[FetchRequest, FetchResponse] = Api("Fetch", 1, 4, 12)
LIST_OFFSETS: Api[ListOffsetsRequest, ListOffsetsResponse] = Api("ListOffsets", 2, 1, 10)
METADATA: Api[MetadataRequest, MetadataResponse] = Api("Metadata", 3, 4, 13)
OFFSET_COMMIT: Api[OffsetCommitRequest, OffsetCommitResponse] = Api("OffsetCommit", 8, 2, 9)
OFFSET_FETCH: Api[OffsetFetchRequest, OffsetFetchResponse] = Api("OffsetFetch", 9, 2, 7)
FIND_COORDINATOR: Api[FindCoordinatorRequest, FindCoordinatorResponse] = Api("FindCoordinator", 10, 1, 3)
DESCRIBE_GROUPS: Api[DescribeGroupsRequest, DescribeGroupsResponse] = Api("DescribeGroups", 15, 0, 6)
LIST_GROUPS: Api[ListGroupsRequest, ListGroupsResponse] = Api("ListGroups", 16, 0, 5)
API_VERSIONS: Api[ApiVersionsRequest, ApiVersionsResponse] = Api("ApiVersions", 18, 0, 4)
CREATE_TOPICS: Api[CreateTopicsRequest, CreateTopicsResponse] = Api("CreateTopics", 19, 2, 7)
DELETE_TOPICS: Api[DeleteTopicsRequest, DeleteTopicsResponse] = Api("DeleteTopics", 20, 1, 6)
DELETE_RECORDS: Api[DeleteRecordsRequest, DeleteRecordsResponse] = Api("DeleteRecords", 21, 0, 2)
INIT_PRODUCER_ID: Api[InitProducerIdRequest, InitProducerIdResponse] = Api("InitProducerId", 22, 0, 5)
ADD_PARTITIONS_TO_TXN: Api[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse] = Api("AddPartitionsToTxn", 24, 0, 3)
ADD_OFFSETS_TO_TXN: Api[AddOffsetsToTxnRequest, AddOffsetsToTxnResponse] = Api("AddOffsetsToTxn", 25, 0, 4)
PRODUCE_TV1: Api[ProduceRequest, ProduceResponse] = Api("Produce", 0, 3, 11)
PRODUCE_TV2: Api[ProduceRequest, ProduceResponse] = Api("Produce", 0, 12, 12)
END_TXN_TV1: Api[EndTxnRequest, EndTxnResponse] = Api("EndTxn", 26, 0, 4)
END_TXN_TV2: Api[EndTxnRequest, EndTxnResponse] = Api("EndTxn", 26, 5, 5)
TXN_OFFSET_COMMIT_TV1: Api[TxnOffsetCommitRequest, TxnOffsetCommitResponse] = Api("TxnOffsetCommit", 28, 0, 4)
TXN_OFFSET_COMMIT_TV2: Api[TxnOffsetCommitRequest, TxnOffsetCommitResponse] = Api("TxnOffsetCommit", 28, 5, 5)
JOIN_GROUP: Api[JoinGroupRequest, JoinGroupResponse] = Api("JoinGroup", 11, 2, 9)
HEARTBEAT: Api[HeartbeatRequest, HeartbeatResponse] = Api("Heartbeat", 12, 0, 4)
LEAVE_GROUP: Api[LeaveGroupRequest, LeaveGroupResponse] = Api("LeaveGroup", 13, 0, 5)
SYNC_GROUP: Api[SyncGroupRequest, SyncGroupResponse] = Api("SyncGroup", 14, 0, 5)
SASL_HANDSHAKE: Api[SaslHandshakeRequest, SaslHandshakeResponse] = Api("SaslHandshake", 17, 1, 1)
SASL_AUTHENTICATE: Api[SaslAuthenticateRequest, SaslAuthenticateResponse] = Api("SaslAuthenticate", 36, 0, 2)
DESCRIBE_ACLS: Api[DescribeAclsRequest, DescribeAclsResponse] = Api("DescribeAcls", 29, 1, 3)
CREATE_ACLS: Api[CreateAclsRequest, CreateAclsResponse] = Api("CreateAcls", 30, 1, 3)
DELETE_ACLS: Api[DeleteAclsRequest, DeleteAclsResponse] = Api("DeleteAcls", 31, 1, 3)
DESCRIBE_CONFIGS: Api[DescribeConfigsRequest, DescribeConfigsResponse] = Api("DescribeConfigs", 32, 1, 4)
DESCRIBE_LOG_DIRS: Api[DescribeLogDirsRequest, DescribeLogDirsResponse] = Api("DescribeLogDirs", 35, 1, 4)
CREATE_PARTITIONS: Api[CreatePartitionsRequest, CreatePartitionsResponse] = Api("CreatePartitions", 37, 0, 3)
DELETE_GROUPS: Api[DeleteGroupsRequest, DeleteGroupsResponse] = Api("DeleteGroups", 42, 0, 2)
INCREMENTAL_ALTER_CONFIGS: Api[IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse] = Api(
    "IncrementalAlterConfigs", 44, 0, 1
)
OFFSET_DELETE: Api[OffsetDeleteRequest, OffsetDeleteResponse] = Api("OffsetDelete", 47, 0, 0)
UPDATE_FEATURES: Api[UpdateFeaturesRequest, UpdateFeaturesResponse] = Api("UpdateFeatures", 57, 0, 2)
DESCRIBE_CLUSTER: Api[DescribeClusterRequest, DescribeClusterResponse] = Api("DescribeCluster", 60, 0, 2)
CONSUMER_GROUP_DESCRIBE: Api[ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse] = Api(
    "ConsumerGroupDescribe", 69, 0, 1
)
WRITE_TXN_MARKERS: Api[WriteTxnMarkersRequest, WriteTxnMarkersResponse] = Api("WriteTxnMarkers", 27, 1, 2)
DESCRIBE_PRODUCERS: Api[DescribeProducersRequest, DescribeProducersResponse] = Api("DescribeProducers", 61, 0, 0)
DESCRIBE_TRANSACTIONS: Api[DescribeTransactionsRequest, DescribeTransactionsResponse] = Api(
    "DescribeTransactions", 65, 0, 0
)
LIST_TRANSACTIONS: Api[ListTransactionsRequest, ListTransactionsResponse] = Api("ListTransactions", 66, 0, 2)
