# Written by scripts/extract_schemas.py; do not edit.
from typing import Any

from fencepost.ports import Buffer

def message_class(name: str) -> type[Any]: ...
def schema_of(name: str) -> dict[str, Any]: ...
def message_names() -> list[str]: ...
def snake_case(name: str) -> str: ...
def default_of(field: dict[str, Any]) -> Any: ...

class AbortTransactionRecord:
    reason: str | None
    def __init__(self, *, reason: str | None = ...) -> None: ...

class AccessControlEntryRecord:
    id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    def __init__(self, *, id: bytes = ..., resource_type: int = ..., resource_name: str = ..., pattern_type: int = ..., principal: str = ..., host: str = ..., operation: int = ..., permission_type: int = ...) -> None: ...

class AddOffsetsToTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    def __init__(self, *, transactional_id: str = ..., producer_id: int = ..., producer_epoch: int = ..., group_id: str = ...) -> None: ...

class AddOffsetsToTxnResponse:
    throttle_time_ms: int
    error_code: int
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ...) -> None: ...

class AddPartitionsToTxnRequest:
    class AddPartitionsToTxnTopic:
        name: str
        partitions: list[int]
        def __init__(self, *, name: str = ..., partitions: list[int] = ...) -> None: ...
    class AddPartitionsToTxnTransaction:
        transactional_id: str
        producer_id: int
        producer_epoch: int
        verify_only: bool
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
        def __init__(self, *, transactional_id: str = ..., producer_id: int = ..., producer_epoch: int = ..., verify_only: bool = ..., topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...) -> None: ...
    transactions: list[AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
    def __init__(self, *, transactions: list[AddPartitionsToTxnTransaction] = ..., v3_and_below_transactional_id: str = ..., v3_and_below_producer_id: int = ..., v3_and_below_producer_epoch: int = ..., v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...) -> None: ...

class AddPartitionsToTxnResponse:
    class AddPartitionsToTxnTopicResult:
        name: str
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]
        def __init__(self, *, name: str = ..., results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = ...) -> None: ...
    class AddPartitionsToTxnPartitionResult:
        partition_index: int
        partition_error_code: int
        def __init__(self, *, partition_index: int = ..., partition_error_code: int = ...) -> None: ...
    class AddPartitionsToTxnResult:
        transactional_id: str
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
        def __init__(self, *, transactional_id: str = ..., topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., results_by_transaction: list[AddPartitionsToTxnResult] = ..., results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...) -> None: ...

class AddRaftVoterRequest:
    class Listener:
        name: str
        host: str
        port: int
        def __init__(self, *, name: str = ..., host: str = ..., port: int = ...) -> None: ...
    cluster_id: str | None
    timeout_ms: int
    voter_id: int
    voter_directory_id: bytes
    listeners: list[Listener]
    ack_when_committed: bool
    def __init__(self, *, cluster_id: str | None = ..., timeout_ms: int = ..., voter_id: int = ..., voter_directory_id: bytes = ..., listeners: list[Listener] = ..., ack_when_committed: bool = ...) -> None: ...

class AddRaftVoterResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...

class AllocateProducerIdsRequest:
    broker_id: int
    broker_epoch: int
    def __init__(self, *, broker_id: int = ..., broker_epoch: int = ...) -> None: ...

class AllocateProducerIdsResponse:
    throttle_time_ms: int
    error_code: int
    producer_id_start: int
    producer_id_len: int
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., producer_id_start: int = ..., producer_id_len: int = ...) -> None: ...

class AlterClientQuotasRequest:
    class EntryData:
        class EntityData:
            entity_type: str
            entity_name: str | None
            def __init__(self, *, entity_type: str = ..., entity_name: str | None = ...) -> None: ...
        class OpData:
            key: str
            value: float
            remove: bool
            def __init__(self, *, key: str = ..., value: float = ..., remove: bool = ...) -> None: ...
        entity: list[EntityData]
        ops: list[OpData]
        def __init__(self, *, entity: list[EntityData] = ..., ops: list[OpData] = ...) -> None: ...
    entries: list[EntryData]
    validate_only: bool
    def __init__(self, *, entries: list[EntryData] = ..., validate_only: bool = ...) -> None: ...

class AlterClientQuotasResponse:
    class EntryData:
        class EntityData:
            entity_type: str
            entity_name: str | None
            def __init__(self, *, entity_type: str = ..., entity_name: str | None = ...) -> None: ...
        error_code: int
        error_message: str | None
        entity: list[EntityData]
        def __init__(self, *, error_code: int = ..., error_message: str | None = ..., entity: list[EntityData] = ...) -> None: ...
    throttle_time_ms: int
    entries: list[EntryData]
    def __init__(self, *, throttle_time_ms: int = ..., entries: list[EntryData] = ...) -> None: ...

class AlterConfigsRequest:
    class AlterConfigsResource:
        class AlterableConfig:
            name: str
            value: str | None
            def __init__(self, *, name: str = ..., value: str | None = ...) -> None: ...
        resource_type: int
        resource_name: str
        configs: list[AlterableConfig]
        def __init__(self, *, resource_type: int = ..., resource_name: str = ..., configs: list[AlterableConfig] = ...) -> None: ...
    resources: list[AlterConfigsResource]
    validate_only: bool
    def __init__(self, *, resources: list[AlterConfigsResource] = ..., validate_only: bool = ...) -> None: ...

class AlterConfigsResponse:
    class AlterConfigsResourceResponse:
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(self, *, error_code: int = ..., error_message: str | None = ..., resource_type: int = ..., resource_name: str = ...) -> None: ...
    throttle_time_ms: int
    responses: list[AlterConfigsResourceResponse]
    def __init__(self, *, throttle_time_ms: int = ..., responses: list[AlterConfigsResourceResponse] = ...) -> None: ...

class AlterPartitionReassignmentsRequest:
    class ReassignableTopic:
        class ReassignablePartition:
            partition_index: int
            replicas: list[int] | None
            def __init__(self, *, partition_index: int = ..., replicas: list[int] | None = ...) -> None: ...
        name: str
        partitions: list[ReassignablePartition]
        def __init__(self, *, name: str = ..., partitions: list[ReassignablePartition] = ...) -> None: ...
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[ReassignableTopic]
    def __init__(self, *, timeout_ms: int = ..., allow_replication_factor_change: bool = ..., topics: list[ReassignableTopic] = ...) -> None: ...

class AlterPartitionReassignmentsResponse:
    class ReassignableTopicResponse:
        class ReassignablePartitionResponse:
            partition_index: int
            error_code: int
            error_message: str | None
            def __init__(self, *, partition_index: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
        name: str
        partitions: list[ReassignablePartitionResponse]
        def __init__(self, *, name: str = ..., partitions: list[ReassignablePartitionResponse] = ...) -> None: ...
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[ReassignableTopicResponse]
    def __init__(self, *, throttle_time_ms: int = ..., allow_replication_factor_change: bool = ..., error_code: int = ..., error_message: str | None = ..., responses: list[ReassignableTopicResponse] = ...) -> None: ...

class AlterPartitionRequest:
    class TopicData:
        class PartitionData:
            class BrokerState:
                broker_id: int
                broker_epoch: int
                def __init__(self, *, broker_id: int = ..., broker_epoch: int = ...) -> None: ...
            partition_index: int
            leader_epoch: int
            new_isr: list[int]
            new_isr_with_epochs: list[BrokerState]
            leader_recovery_state: int
            partition_epoch: int
            def __init__(self, *, partition_index: int = ..., leader_epoch: int = ..., new_isr: list[int] = ..., new_isr_with_epochs: list[BrokerState] = ..., leader_recovery_state: int = ..., partition_epoch: int = ...) -> None: ...
        topic_id: bytes
        partitions: list[PartitionData]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[PartitionData] = ...) -> None: ...
    broker_id: int
    broker_epoch: int
    topics: list[TopicData]
    def __init__(self, *, broker_id: int = ..., broker_epoch: int = ..., topics: list[TopicData] = ...) -> None: ...

class AlterPartitionResponse:
    class TopicData:
        class PartitionData:
            partition_index: int
            error_code: int
            leader_id: int
            leader_epoch: int
            isr: list[int]
            leader_recovery_state: int
            partition_epoch: int
            def __init__(self, *, partition_index: int = ..., error_code: int = ..., leader_id: int = ..., leader_epoch: int = ..., isr: list[int] = ..., leader_recovery_state: int = ..., partition_epoch: int = ...) -> None: ...
        topic_id: bytes
        partitions: list[PartitionData]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[PartitionData] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    topics: list[TopicData]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., topics: list[TopicData] = ...) -> None: ...

class AlterReplicaLogDirsRequest:
    class AlterReplicaLogDir:
        class AlterReplicaLogDirTopic:
            name: str
            partitions: list[int]
            def __init__(self, *, name: str = ..., partitions: list[int] = ...) -> None: ...
        path: str
        topics: list[AlterReplicaLogDirTopic]
        def __init__(self, *, path: str = ..., topics: list[AlterReplicaLogDirTopic] = ...) -> None: ...
    dirs: list[AlterReplicaLogDir]
    def __init__(self, *, dirs: list[AlterReplicaLogDir] = ...) -> None: ...

class AlterReplicaLogDirsResponse:
    class AlterReplicaLogDirTopicResult:
        class AlterReplicaLogDirPartitionResult:
            partition_index: int
            error_code: int
            def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...
        topic_name: str
        partitions: list[AlterReplicaLogDirPartitionResult]
        def __init__(self, *, topic_name: str = ..., partitions: list[AlterReplicaLogDirPartitionResult] = ...) -> None: ...
    throttle_time_ms: int
    results: list[AlterReplicaLogDirTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[AlterReplicaLogDirTopicResult] = ...) -> None: ...

class AlterUserScramCredentialsRequest:
    class ScramCredentialDeletion:
        name: str
        mechanism: int
        def __init__(self, *, name: str = ..., mechanism: int = ...) -> None: ...
    class ScramCredentialUpsertion:
        name: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes
        def __init__(self, *, name: str = ..., mechanism: int = ..., iterations: int = ..., salt: bytes = ..., salted_password: bytes = ...) -> None: ...
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]
    def __init__(self, *, deletions: list[ScramCredentialDeletion] = ..., upsertions: list[ScramCredentialUpsertion] = ...) -> None: ...

class AlterUserScramCredentialsResponse:
    class AlterUserScramCredentialsResult:
        user: str
        error_code: int
        error_message: str | None
        def __init__(self, *, user: str = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    results: list[AlterUserScramCredentialsResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[AlterUserScramCredentialsResult] = ...) -> None: ...

class ApiVersionsRequest:
    client_software_name: str
    client_software_version: str
    def __init__(self, *, client_software_name: str = ..., client_software_version: str = ...) -> None: ...

class ApiVersionsResponse:
    class ApiVersion:
        api_key: int
        min_version: int
        max_version: int
        def __init__(self, *, api_key: int = ..., min_version: int = ..., max_version: int = ...) -> None: ...
    class SupportedFeatureKey:
        name: str
        min_version: int
        max_version: int
        def __init__(self, *, name: str = ..., min_version: int = ..., max_version: int = ...) -> None: ...
    class FinalizedFeatureKey:
        name: str
        max_version_level: int
        min_version_level: int
        def __init__(self, *, name: str = ..., max_version_level: int = ..., min_version_level: int = ...) -> None: ...
    error_code: int
    api_keys: list[ApiVersion]
    throttle_time_ms: int
    supported_features: list[SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: list[FinalizedFeatureKey]
    zk_migration_ready: bool
    def __init__(self, *, error_code: int = ..., api_keys: list[ApiVersion] = ..., throttle_time_ms: int = ..., supported_features: list[SupportedFeatureKey] = ..., finalized_features_epoch: int = ..., finalized_features: list[FinalizedFeatureKey] = ..., zk_migration_ready: bool = ...) -> None: ...

class AssignReplicasToDirsRequest:
    class DirectoryData:
        class TopicData:
            class PartitionData:
                partition_index: int
                def __init__(self, *, partition_index: int = ...) -> None: ...
            topic_id: bytes
            partitions: list[PartitionData]
            def __init__(self, *, topic_id: bytes = ..., partitions: list[PartitionData] = ...) -> None: ...
        id: bytes
        topics: list[TopicData]
        def __init__(self, *, id: bytes = ..., topics: list[TopicData] = ...) -> None: ...
    broker_id: int
    broker_epoch: int
    directories: list[DirectoryData]
    def __init__(self, *, broker_id: int = ..., broker_epoch: int = ..., directories: list[DirectoryData] = ...) -> None: ...

class AssignReplicasToDirsResponse:
    class DirectoryData:
        class TopicData:
            class PartitionData:
                partition_index: int
                error_code: int
                def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...
            topic_id: bytes
            partitions: list[PartitionData]
            def __init__(self, *, topic_id: bytes = ..., partitions: list[PartitionData] = ...) -> None: ...
        id: bytes
        topics: list[TopicData]
        def __init__(self, *, id: bytes = ..., topics: list[TopicData] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    directories: list[DirectoryData]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., directories: list[DirectoryData] = ...) -> None: ...

class BeginQuorumEpochRequest:
    class TopicData:
        class PartitionData:
            partition_index: int
            voter_directory_id: bytes
            leader_id: int
            leader_epoch: int
            def __init__(self, *, partition_index: int = ..., voter_directory_id: bytes = ..., leader_id: int = ..., leader_epoch: int = ...) -> None: ...
        topic_name: str
        partitions: list[PartitionData]
        def __init__(self, *, topic_name: str = ..., partitions: list[PartitionData] = ...) -> None: ...
    class LeaderEndpoint:
        name: str
        host: str
        port: int
        def __init__(self, *, name: str = ..., host: str = ..., port: int = ...) -> None: ...
    cluster_id: str | None
    voter_id: int
    topics: list[TopicData]
    leader_endpoints: list[LeaderEndpoint]
    def __init__(self, *, cluster_id: str | None = ..., voter_id: int = ..., topics: list[TopicData] = ..., leader_endpoints: list[LeaderEndpoint] = ...) -> None: ...

class BeginQuorumEpochResponse:
    class TopicData:
        class PartitionData:
            partition_index: int
            error_code: int
            leader_id: int
            leader_epoch: int
            def __init__(self, *, partition_index: int = ..., error_code: int = ..., leader_id: int = ..., leader_epoch: int = ...) -> None: ...
        topic_name: str
        partitions: list[PartitionData]
        def __init__(self, *, topic_name: str = ..., partitions: list[PartitionData] = ...) -> None: ...
    class NodeEndpoint:
        node_id: int
        host: str
        port: int
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ...) -> None: ...
    error_code: int
    topics: list[TopicData]
    node_endpoints: list[NodeEndpoint]
    def __init__(self, *, error_code: int = ..., topics: list[TopicData] = ..., node_endpoints: list[NodeEndpoint] = ...) -> None: ...

class BeginTransactionRecord:
    name: str | None
    def __init__(self, *, name: str | None = ...) -> None: ...

class BrokerHeartbeatRequest:
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: list[bytes]
    cordoned_log_dirs: list[bytes] | None
    def __init__(self, *, broker_id: int = ..., broker_epoch: int = ..., current_metadata_offset: int = ..., want_fence: bool = ..., want_shut_down: bool = ..., offline_log_dirs: list[bytes] = ..., cordoned_log_dirs: list[bytes] | None = ...) -> None: ...

class BrokerHeartbeatResponse:
    throttle_time_ms: int
    error_code: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., is_caught_up: bool = ..., is_fenced: bool = ..., should_shut_down: bool = ...) -> None: ...

class BrokerRegistrationChangeRecord:
    broker_id: int
    broker_epoch: int
    fenced: int
    in_controlled_shutdown: int
    log_dirs: list[bytes]
    cordoned_log_dirs: list[bytes] | None
    def __init__(self, *, broker_id: int = ..., broker_epoch: int = ..., fenced: int = ..., in_controlled_shutdown: int = ..., log_dirs: list[bytes] = ..., cordoned_log_dirs: list[bytes] | None = ...) -> None: ...

class BrokerRegistrationRequest:
    class Listener:
        name: str
        host: str
        port: int
        security_protocol: int
        def __init__(self, *, name: str = ..., host: str = ..., port: int = ..., security_protocol: int = ...) -> None: ...
    class Feature:
        name: str
        min_supported_version: int
        max_supported_version: int
        def __init__(self, *, name: str = ..., min_supported_version: int = ..., max_supported_version: int = ...) -> None: ...
    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: list[Listener]
    features: list[Feature]
    rack: str | None
    is_migrating_zk_broker: bool
    log_dirs: list[bytes]
    previous_broker_epoch: int
    def __init__(self, *, broker_id: int = ..., cluster_id: str = ..., incarnation_id: bytes = ..., listeners: list[Listener] = ..., features: list[Feature] = ..., rack: str | None = ..., is_migrating_zk_broker: bool = ..., log_dirs: list[bytes] = ..., previous_broker_epoch: int = ...) -> None: ...

class BrokerRegistrationResponse:
    throttle_time_ms: int
    error_code: int
    broker_epoch: int
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., broker_epoch: int = ...) -> None: ...

class ClearElrRecord:
    topic_name: str
    def __init__(self, *, topic_name: str = ...) -> None: ...

class ClientQuotaRecord:
    class EntityData:
        entity_type: str
        entity_name: str | None
        def __init__(self, *, entity_type: str = ..., entity_name: str | None = ...) -> None: ...
    entity: list[EntityData]
    key: str
    value: float
    remove: bool
    def __init__(self, *, entity: list[EntityData] = ..., key: str = ..., value: float = ..., remove: bool = ...) -> None: ...

class ConfigRecord:
    resource_type: int
    resource_name: str
    name: str
    value: str | None
    def __init__(self, *, resource_type: int = ..., resource_name: str = ..., name: str = ..., value: str | None = ...) -> None: ...

class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str
    member_id: str
    def __init__(self, *, group_id: str = ..., member_id: str = ...) -> None: ...

class ConsumerGroupCurrentMemberAssignmentValue:
    class TopicPartitions:
        topic_id: bytes
        partitions: list[int]
        assignment_epochs: list[int] | None
        def __init__(self, *, topic_id: bytes = ..., partitions: list[int] = ..., assignment_epochs: list[int] | None = ...) -> None: ...
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    def __init__(self, *, member_epoch: int = ..., previous_member_epoch: int = ..., state: int = ..., assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ..., partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...) -> None: ...

class ConsumerGroupDescribeRequest:
    group_ids: list[str]
    include_authorized_operations: bool
    def __init__(self, *, group_ids: list[str] = ..., include_authorized_operations: bool = ...) -> None: ...

class ConsumerGroupDescribeResponse:
    class TopicPartitions:
        topic_id: bytes
        topic_name: str
        partitions: list[int]
        def __init__(self, *, topic_id: bytes = ..., topic_name: str = ..., partitions: list[int] = ...) -> None: ...
    class Assignment:
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions]
        def __init__(self, *, topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = ...) -> None: ...
    class DescribedGroup:
        class Member:
            member_id: str
            instance_id: str | None
            rack_id: str | None
            member_epoch: int
            client_id: str
            client_host: str
            subscribed_topic_names: list[str]
            subscribed_topic_regex: str | None
            assignment: ConsumerGroupDescribeResponse.Assignment
            target_assignment: ConsumerGroupDescribeResponse.Assignment
            member_type: int
            def __init__(self, *, member_id: str = ..., instance_id: str | None = ..., rack_id: str | None = ..., member_epoch: int = ..., client_id: str = ..., client_host: str = ..., subscribed_topic_names: list[str] = ..., subscribed_topic_regex: str | None = ..., assignment: ConsumerGroupDescribeResponse.Assignment = ..., target_assignment: ConsumerGroupDescribeResponse.Assignment = ..., member_type: int = ...) -> None: ...
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[Member]
        authorized_operations: int
        def __init__(self, *, error_code: int = ..., error_message: str | None = ..., group_id: str = ..., group_state: str = ..., group_epoch: int = ..., assignment_epoch: int = ..., assignor_name: str = ..., members: list[Member] = ..., authorized_operations: int = ...) -> None: ...
    throttle_time_ms: int
    groups: list[DescribedGroup]
    def __init__(self, *, throttle_time_ms: int = ..., groups: list[DescribedGroup] = ...) -> None: ...

class ConsumerGroupHeartbeatRequest:
    class TopicPartitions:
        topic_id: bytes
        partitions: list[int]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[int] = ...) -> None: ...
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[TopicPartitions] | None
    def __init__(self, *, group_id: str = ..., member_id: str = ..., member_epoch: int = ..., instance_id: str | None = ..., rack_id: str | None = ..., rebalance_timeout_ms: int = ..., subscribed_topic_names: list[str] | None = ..., subscribed_topic_regex: str | None = ..., server_assignor: str | None = ..., topic_partitions: list[TopicPartitions] | None = ...) -> None: ...

class ConsumerGroupHeartbeatResponse:
    class TopicPartitions:
        topic_id: bytes
        partitions: list[int]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[int] = ...) -> None: ...
    class Assignment:
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions]
        def __init__(self, *, topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., member_id: str | None = ..., member_epoch: int = ..., heartbeat_interval_ms: int = ..., assignment: Assignment | None = ...) -> None: ...

class ConsumerGroupMemberMetadataKey:
    group_id: str
    member_id: str
    def __init__(self, *, group_id: str = ..., member_id: str = ...) -> None: ...

class ConsumerGroupMemberMetadataValue:
    class ClassicMemberMetadata:
        class ClassicProtocol:
            name: str
            metadata: bytes
            def __init__(self, *, name: str = ..., metadata: bytes = ...) -> None: ...
        session_timeout_ms: int
        supported_protocols: list[ClassicProtocol]
        def __init__(self, *, session_timeout_ms: int = ..., supported_protocols: list[ClassicProtocol] = ...) -> None: ...
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None
    def __init__(self, *, instance_id: str | None = ..., rack_id: str | None = ..., client_id: str = ..., client_host: str = ..., subscribed_topic_names: list[str] = ..., subscribed_topic_regex: str | None = ..., rebalance_timeout_ms: int = ..., server_assignor: str | None = ..., classic_member_metadata: ClassicMemberMetadata | None = ...) -> None: ...

class ConsumerGroupMetadataKey:
    group_id: str
    def __init__(self, *, group_id: str = ...) -> None: ...

class ConsumerGroupMetadataValue:
    epoch: int
    metadata_hash: int
    def __init__(self, *, epoch: int = ..., metadata_hash: int = ...) -> None: ...

class ConsumerGroupPartitionMetadataKey:
    group_id: str
    def __init__(self, *, group_id: str = ...) -> None: ...

class ConsumerGroupPartitionMetadataValue:
    class TopicMetadata:
        class PartitionMetadata:
            partition: int
            racks: list[str]
            def __init__(self, *, partition: int = ..., racks: list[str] = ...) -> None: ...
        topic_id: bytes
        topic_name: str
        num_partitions: int
        partition_metadata: list[PartitionMetadata]
        def __init__(self, *, topic_id: bytes = ..., topic_name: str = ..., num_partitions: int = ..., partition_metadata: list[PartitionMetadata] = ...) -> None: ...
    topics: list[TopicMetadata]
    def __init__(self, *, topics: list[TopicMetadata] = ...) -> None: ...

class ConsumerGroupRegularExpressionKey:
    group_id: str
    regular_expression: str
    def __init__(self, *, group_id: str = ..., regular_expression: str = ...) -> None: ...

class ConsumerGroupRegularExpressionValue:
    topics: list[str]
    version: int
    timestamp: int
    def __init__(self, *, topics: list[str] = ..., version: int = ..., timestamp: int = ...) -> None: ...

class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str
    member_id: str
    def __init__(self, *, group_id: str = ..., member_id: str = ...) -> None: ...

class ConsumerGroupTargetAssignmentMemberValue:
    class TopicPartition:
        topic_id: bytes
        partitions: list[int]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[int] = ...) -> None: ...
    topic_partitions: list[TopicPartition]
    def __init__(self, *, topic_partitions: list[TopicPartition] = ...) -> None: ...

class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str
    def __init__(self, *, group_id: str = ...) -> None: ...

class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int
    assignment_timestamp: int
    def __init__(self, *, assignment_epoch: int = ..., assignment_timestamp: int = ...) -> None: ...

class ConsumerProtocolAssignment:
    class TopicPartition:
        topic: str
        partitions: list[int]
        def __init__(self, *, topic: str = ..., partitions: list[int] = ...) -> None: ...
    assigned_partitions: list[TopicPartition]
    user_data: bytes | None
    def __init__(self, *, assigned_partitions: list[TopicPartition] = ..., user_data: bytes | None = ...) -> None: ...

class ConsumerProtocolSubscription:
    class TopicPartition:
        topic: str
        partitions: list[int]
        def __init__(self, *, topic: str = ..., partitions: list[int] = ...) -> None: ...
    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[TopicPartition]
    generation_id: int
    rack_id: str | None
    def __init__(self, *, topics: list[str] = ..., user_data: bytes | None = ..., owned_partitions: list[TopicPartition] = ..., generation_id: int = ..., rack_id: str | None = ...) -> None: ...

class ControllerRegistrationRequest:
    class Listener:
        name: str
        host: str
        port: int
        security_protocol: int
        def __init__(self, *, name: str = ..., host: str = ..., port: int = ..., security_protocol: int = ...) -> None: ...
    class Feature:
        name: str
        min_supported_version: int
        max_supported_version: int
        def __init__(self, *, name: str = ..., min_supported_version: int = ..., max_supported_version: int = ...) -> None: ...
    controller_id: int
    incarnation_id: bytes
    zk_migration_ready: bool
    listeners: list[Listener]
    features: list[Feature]
    def __init__(self, *, controller_id: int = ..., incarnation_id: bytes = ..., zk_migration_ready: bool = ..., listeners: list[Listener] = ..., features: list[Feature] = ...) -> None: ...

class ControllerRegistrationResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...

class CreateAclsRequest:
    class AclCreation:
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(self, *, resource_type: int = ..., resource_name: str = ..., resource_pattern_type: int = ..., principal: str = ..., host: str = ..., operation: int = ..., permission_type: int = ...) -> None: ...
    creations: list[AclCreation]
    def __init__(self, *, creations: list[AclCreation] = ...) -> None: ...

class CreateAclsResponse:
    class AclCreationResult:
        error_code: int
        error_message: str | None
        def __init__(self, *, error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    results: list[AclCreationResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[AclCreationResult] = ...) -> None: ...

class CreatePartitionsRequest:
    class CreatePartitionsTopic:
        class CreatePartitionsAssignment:
            broker_ids: list[int]
            def __init__(self, *, broker_ids: list[int] = ...) -> None: ...
        name: str
        count: int
        assignments: list[CreatePartitionsAssignment] | None
        def __init__(self, *, name: str = ..., count: int = ..., assignments: list[CreatePartitionsAssignment] | None = ...) -> None: ...
    topics: list[CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(self, *, topics: list[CreatePartitionsTopic] = ..., timeout_ms: int = ..., validate_only: bool = ...) -> None: ...

class CreatePartitionsResponse:
    class CreatePartitionsTopicResult:
        name: str
        error_code: int
        error_message: str | None
        def __init__(self, *, name: str = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    results: list[CreatePartitionsTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[CreatePartitionsTopicResult] = ...) -> None: ...

class CreateTopicsRequest:
    class CreatableTopic:
        class CreatableReplicaAssignment:
            partition_index: int
            broker_ids: list[int]
            def __init__(self, *, partition_index: int = ..., broker_ids: list[int] = ...) -> None: ...
        class CreatableTopicConfig:
            name: str
            value: str | None
            def __init__(self, *, name: str = ..., value: str | None = ...) -> None: ...
        name: str
        num_partitions: int
        replication_factor: int
        assignments: list[CreatableReplicaAssignment]
        configs: list[CreatableTopicConfig]
        def __init__(self, *, name: str = ..., num_partitions: int = ..., replication_factor: int = ..., assignments: list[CreatableReplicaAssignment] = ..., configs: list[CreatableTopicConfig] = ...) -> None: ...
    topics: list[CreatableTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(self, *, topics: list[CreatableTopic] = ..., timeout_ms: int = ..., validate_only: bool = ...) -> None: ...

class CreateTopicsResponse:
    class CreatableTopicResult:
        class CreatableTopicConfigs:
            name: str
            value: str | None
            read_only: bool
            config_source: int
            is_sensitive: bool
            def __init__(self, *, name: str = ..., value: str | None = ..., read_only: bool = ..., config_source: int = ..., is_sensitive: bool = ...) -> None: ...
        name: str
        topic_id: bytes
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: list[CreatableTopicConfigs] | None
        def __init__(self, *, name: str = ..., topic_id: bytes = ..., error_code: int = ..., error_message: str | None = ..., topic_config_error_code: int = ..., num_partitions: int = ..., replication_factor: int = ..., configs: list[CreatableTopicConfigs] | None = ...) -> None: ...
    throttle_time_ms: int
    topics: list[CreatableTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[CreatableTopicResult] = ...) -> None: ...

class DefaultPrincipalData:
    type: str
    name: str
    token_authenticated: bool
    def __init__(self, *, type: str = ..., name: str = ..., token_authenticated: bool = ...) -> None: ...

class DelegationTokenRecord:
    owner: str
    requester: str
    renewers: list[str]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str
    def __init__(self, *, owner: str = ..., requester: str = ..., renewers: list[str] = ..., issue_timestamp: int = ..., max_timestamp: int = ..., expiration_timestamp: int = ..., token_id: str = ...) -> None: ...

class DeleteAclsRequest:
    class DeleteAclsFilter:
        resource_type_filter: int
        resource_name_filter: str | None
        pattern_type_filter: int
        principal_filter: str | None
        host_filter: str | None
        operation: int
        permission_type: int
        def __init__(self, *, resource_type_filter: int = ..., resource_name_filter: str | None = ..., pattern_type_filter: int = ..., principal_filter: str | None = ..., host_filter: str | None = ..., operation: int = ..., permission_type: int = ...) -> None: ...
    filters: list[DeleteAclsFilter]
    def __init__(self, *, filters: list[DeleteAclsFilter] = ...) -> None: ...

class DeleteAclsResponse:
    class DeleteAclsFilterResult:
        class DeleteAclsMatchingAcl:
            error_code: int
            error_message: str | None
            resource_type: int
            resource_name: str
            pattern_type: int
            principal: str
            host: str
            operation: int
            permission_type: int
            def __init__(self, *, error_code: int = ..., error_message: str | None = ..., resource_type: int = ..., resource_name: str = ..., pattern_type: int = ..., principal: str = ..., host: str = ..., operation: int = ..., permission_type: int = ...) -> None: ...
        error_code: int
        error_message: str | None
        matching_acls: list[DeleteAclsMatchingAcl]
        def __init__(self, *, error_code: int = ..., error_message: str | None = ..., matching_acls: list[DeleteAclsMatchingAcl] = ...) -> None: ...
    throttle_time_ms: int
    filter_results: list[DeleteAclsFilterResult]
    def __init__(self, *, throttle_time_ms: int = ..., filter_results: list[DeleteAclsFilterResult] = ...) -> None: ...

class DeleteGroupsRequest:
    groups_names: list[str]
    def __init__(self, *, groups_names: list[str] = ...) -> None: ...

class DeleteGroupsResponse:
    class DeletableGroupResult:
        group_id: str
        error_code: int
        def __init__(self, *, group_id: str = ..., error_code: int = ...) -> None: ...
    throttle_time_ms: int
    results: list[DeletableGroupResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[DeletableGroupResult] = ...) -> None: ...

class DeleteRecordsRequest:
    class DeleteRecordsTopic:
        class DeleteRecordsPartition:
            partition_index: int
            offset: int
            def __init__(self, *, partition_index: int = ..., offset: int = ...) -> None: ...
        name: str
        partitions: list[DeleteRecordsPartition]
        def __init__(self, *, name: str = ..., partitions: list[DeleteRecordsPartition] = ...) -> None: ...
    topics: list[DeleteRecordsTopic]
    timeout_ms: int
    def __init__(self, *, topics: list[DeleteRecordsTopic] = ..., timeout_ms: int = ...) -> None: ...

class DeleteRecordsResponse:
    class DeleteRecordsTopicResult:
        class DeleteRecordsPartitionResult:
            partition_index: int
            low_watermark: int
            error_code: int
            def __init__(self, *, partition_index: int = ..., low_watermark: int = ..., error_code: int = ...) -> None: ...
        name: str
        partitions: list[DeleteRecordsPartitionResult]
        def __init__(self, *, name: str = ..., partitions: list[DeleteRecordsPartitionResult] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[DeleteRecordsTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[DeleteRecordsTopicResult] = ...) -> None: ...

class DeleteTopicsRequest:
    class DeleteTopicState:
        name: str | None
        topic_id: bytes
        def __init__(self, *, name: str | None = ..., topic_id: bytes = ...) -> None: ...
    topics: list[DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int
    def __init__(self, *, topics: list[DeleteTopicState] = ..., topic_names: list[str] = ..., timeout_ms: int = ...) -> None: ...

class DeleteTopicsResponse:
    class DeletableTopicResult:
        name: str | None
        topic_id: bytes
        error_code: int
        error_message: str | None
        def __init__(self, *, name: str | None = ..., topic_id: bytes = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    responses: list[DeletableTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., responses: list[DeletableTopicResult] = ...) -> None: ...

class DescribeAclsRequest:
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    def __init__(self, *, resource_type_filter: int = ..., resource_name_filter: str | None = ..., pattern_type_filter: int = ..., principal_filter: str | None = ..., host_filter: str | None = ..., operation: int = ..., permission_type: int = ...) -> None: ...

class DescribeAclsResponse:
    class DescribeAclsResource:
        class AclDescription:
            principal: str
            host: str
            operation: int
            permission_type: int
            def __init__(self, *, principal: str = ..., host: str = ..., operation: int = ..., permission_type: int = ...) -> None: ...
        resource_type: int
        resource_name: str
        pattern_type: int
        acls: list[AclDescription]
        def __init__(self, *, resource_type: int = ..., resource_name: str = ..., pattern_type: int = ..., acls: list[AclDescription] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: list[DescribeAclsResource]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., resources: list[DescribeAclsResource] = ...) -> None: ...

class DescribeClientQuotasRequest:
    class ComponentData:
        entity_type: str
        match_type: int
        match: str | None
        def __init__(self, *, entity_type: str = ..., match_type: int = ..., match: str | None = ...) -> None: ...
    components: list[ComponentData]
    strict: bool
    def __init__(self, *, components: list[ComponentData] = ..., strict: bool = ...) -> None: ...

class DescribeClientQuotasResponse:
    class EntryData:
        class EntityData:
            entity_type: str
            entity_name: str | None
            def __init__(self, *, entity_type: str = ..., entity_name: str | None = ...) -> None: ...
        class ValueData:
            key: str
            value: float
            def __init__(self, *, key: str = ..., value: float = ...) -> None: ...
        entity: list[EntityData]
        values: list[ValueData]
        def __init__(self, *, entity: list[EntityData] = ..., values: list[ValueData] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[EntryData] | None
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., entries: list[EntryData] | None = ...) -> None: ...

class DescribeClusterRequest:
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool
    def __init__(self, *, include_cluster_authorized_operations: bool = ..., endpoint_type: int = ..., include_fenced_brokers: bool = ...) -> None: ...

class DescribeClusterResponse:
    class DescribeClusterBroker:
        broker_id: int
        host: str
        port: int
        rack: str | None
        is_fenced: bool
        def __init__(self, *, broker_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ..., is_fenced: bool = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: int
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., endpoint_type: int = ..., cluster_id: str = ..., controller_id: int = ..., brokers: list[DescribeClusterBroker] = ..., cluster_authorized_operations: int = ...) -> None: ...

class DescribeConfigsRequest:
    class DescribeConfigsResource:
        resource_type: int
        resource_name: str
        configuration_keys: list[str] | None
        def __init__(self, *, resource_type: int = ..., resource_name: str = ..., configuration_keys: list[str] | None = ...) -> None: ...
    resources: list[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(self, *, resources: list[DescribeConfigsResource] = ..., include_synonyms: bool = ..., include_documentation: bool = ...) -> None: ...

class DescribeConfigsResponse:
    class DescribeConfigsResult:
        class DescribeConfigsResourceResult:
            class DescribeConfigsSynonym:
                name: str
                value: str | None
                source: int
                def __init__(self, *, name: str = ..., value: str | None = ..., source: int = ...) -> None: ...
            name: str
            value: str | None
            read_only: bool
            config_source: int
            is_sensitive: bool
            synonyms: list[DescribeConfigsSynonym]
            config_type: int
            documentation: str | None
            def __init__(self, *, name: str = ..., value: str | None = ..., read_only: bool = ..., config_source: int = ..., is_sensitive: bool = ..., synonyms: list[DescribeConfigsSynonym] = ..., config_type: int = ..., documentation: str | None = ...) -> None: ...
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: list[DescribeConfigsResourceResult]
        def __init__(self, *, error_code: int = ..., error_message: str | None = ..., resource_type: int = ..., resource_name: str = ..., configs: list[DescribeConfigsResourceResult] = ...) -> None: ...
    throttle_time_ms: int
    results: list[DescribeConfigsResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[DescribeConfigsResult] = ...) -> None: ...

class DescribeGroupsRequest:
    groups: list[str]
    include_authorized_operations: bool
    def __init__(self, *, groups: list[str] = ..., include_authorized_operations: bool = ...) -> None: ...

class DescribeGroupsResponse:
    class DescribedGroup:
        class DescribedGroupMember:
            member_id: str
            group_instance_id: str | None
            client_id: str
            client_host: str
            member_metadata: bytes
            member_assignment: bytes
            def __init__(self, *, member_id: str = ..., group_instance_id: str | None = ..., client_id: str = ..., client_host: str = ..., member_metadata: bytes = ..., member_assignment: bytes = ...) -> None: ...
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: list[DescribedGroupMember]
        authorized_operations: int
        def __init__(self, *, error_code: int = ..., error_message: str | None = ..., group_id: str = ..., group_state: str = ..., protocol_type: str = ..., protocol_data: str = ..., members: list[DescribedGroupMember] = ..., authorized_operations: int = ...) -> None: ...
    throttle_time_ms: int
    groups: list[DescribedGroup]
    def __init__(self, *, throttle_time_ms: int = ..., groups: list[DescribedGroup] = ...) -> None: ...

class DescribeLogDirsRequest:
    class DescribableLogDirTopic:
        topic: str
        partitions: list[int]
        def __init__(self, *, topic: str = ..., partitions: list[int] = ...) -> None: ...
    topics: list[DescribableLogDirTopic] | None
    def __init__(self, *, topics: list[DescribableLogDirTopic] | None = ...) -> None: ...

class DescribeLogDirsResponse:
    class DescribeLogDirsResult:
        class DescribeLogDirsTopic:
            class DescribeLogDirsPartition:
                partition_index: int
                partition_size: int
                offset_lag: int
                is_future_key: bool
                def __init__(self, *, partition_index: int = ..., partition_size: int = ..., offset_lag: int = ..., is_future_key: bool = ...) -> None: ...
            name: str
            partitions: list[DescribeLogDirsPartition]
            def __init__(self, *, name: str = ..., partitions: list[DescribeLogDirsPartition] = ...) -> None: ...
        error_code: int
        log_dir: str
        topics: list[DescribeLogDirsTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool
        def __init__(self, *, error_code: int = ..., log_dir: str = ..., topics: list[DescribeLogDirsTopic] = ..., total_bytes: int = ..., usable_bytes: int = ..., is_cordoned: bool = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    results: list[DescribeLogDirsResult]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., results: list[DescribeLogDirsResult] = ...) -> None: ...

class DescribeProducersRequest:
    class TopicRequest:
        name: str
        partition_indexes: list[int]
        def __init__(self, *, name: str = ..., partition_indexes: list[int] = ...) -> None: ...
    topics: list[TopicRequest]
    def __init__(self, *, topics: list[TopicRequest] = ...) -> None: ...

class DescribeProducersResponse:
    class TopicResponse:
        class PartitionResponse:
            class ProducerState:
                producer_id: int
                producer_epoch: int
                last_sequence: int
                last_timestamp: int
                coordinator_epoch: int
                current_txn_start_offset: int
                def __init__(self, *, producer_id: int = ..., producer_epoch: int = ..., last_sequence: int = ..., last_timestamp: int = ..., coordinator_epoch: int = ..., current_txn_start_offset: int = ...) -> None: ...
            partition_index: int
            error_code: int
            error_message: str | None
            active_producers: list[ProducerState]
            def __init__(self, *, partition_index: int = ..., error_code: int = ..., error_message: str | None = ..., active_producers: list[ProducerState] = ...) -> None: ...
        name: str
        partitions: list[PartitionResponse]
        def __init__(self, *, name: str = ..., partitions: list[PartitionResponse] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[TopicResponse]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[TopicResponse] = ...) -> None: ...

class DescribeQuorumRequest:
    class TopicData:
        class PartitionData:
            partition_index: int
            def __init__(self, *, partition_index: int = ...) -> None: ...
        topic_name: str
        partitions: list[PartitionData]
        def __init__(self, *, topic_name: str = ..., partitions: list[PartitionData] = ...) -> None: ...
    topics: list[TopicData]
    def __init__(self, *, topics: list[TopicData] = ...) -> None: ...

class DescribeQuorumResponse:
    class ReplicaState:
        replica_id: int
        replica_directory_id: bytes
        log_end_offset: int
        last_fetch_timestamp: int
        last_caught_up_timestamp: int
        def __init__(self, *, replica_id: int = ..., replica_directory_id: bytes = ..., log_end_offset: int = ..., last_fetch_timestamp: int = ..., last_caught_up_timestamp: int = ...) -> None: ...
    class TopicData:
        class PartitionData:
            partition_index: int
            error_code: int
            error_message: str | None
            leader_id: int
            leader_epoch: int
            high_watermark: int
            current_voters: list[DescribeQuorumResponse.ReplicaState]
            observers: list[DescribeQuorumResponse.ReplicaState]
            def __init__(self, *, partition_index: int = ..., error_code: int = ..., error_message: str | None = ..., leader_id: int = ..., leader_epoch: int = ..., high_watermark: int = ..., current_voters: list[DescribeQuorumResponse.ReplicaState] = ..., observers: list[DescribeQuorumResponse.ReplicaState] = ...) -> None: ...
        topic_name: str
        partitions: list[PartitionData]
        def __init__(self, *, topic_name: str = ..., partitions: list[PartitionData] = ...) -> None: ...
    class Node:
        class Listener:
            name: str
            host: str
            port: int
            def __init__(self, *, name: str = ..., host: str = ..., port: int = ...) -> None: ...
        node_id: int
        listeners: list[Listener]
        def __init__(self, *, node_id: int = ..., listeners: list[Listener] = ...) -> None: ...
    error_code: int
    error_message: str | None
    topics: list[TopicData]
    nodes: list[Node]
    def __init__(self, *, error_code: int = ..., error_message: str | None = ..., topics: list[TopicData] = ..., nodes: list[Node] = ...) -> None: ...

class DescribeTopicPartitionsRequest:
    class TopicRequest:
        name: str
        def __init__(self, *, name: str = ...) -> None: ...
    class Cursor:
        topic_name: str
        partition_index: int
        def __init__(self, *, topic_name: str = ..., partition_index: int = ...) -> None: ...
    topics: list[TopicRequest]
    response_partition_limit: int
    cursor: Cursor | None
    def __init__(self, *, topics: list[TopicRequest] = ..., response_partition_limit: int = ..., cursor: Cursor | None = ...) -> None: ...

class DescribeTopicPartitionsResponse:
    class DescribeTopicPartitionsResponseTopic:
        class DescribeTopicPartitionsResponsePartition:
            error_code: int
            partition_index: int
            leader_id: int
            leader_epoch: int
            replica_nodes: list[int]
            isr_nodes: list[int]
            eligible_leader_replicas: list[int] | None
            last_known_elr: list[int] | None
            offline_replicas: list[int]
            def __init__(self, *, error_code: int = ..., partition_index: int = ..., leader_id: int = ..., leader_epoch: int = ..., replica_nodes: list[int] = ..., isr_nodes: list[int] = ..., eligible_leader_replicas: list[int] | None = ..., last_known_elr: list[int] | None = ..., offline_replicas: list[int] = ...) -> None: ...
        error_code: int
        name: str | None
        topic_id: bytes
        is_internal: bool
        partitions: list[DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int
        def __init__(self, *, error_code: int = ..., name: str | None = ..., topic_id: bytes = ..., is_internal: bool = ..., partitions: list[DescribeTopicPartitionsResponsePartition] = ..., topic_authorized_operations: int = ...) -> None: ...
    class Cursor:
        topic_name: str
        partition_index: int
        def __init__(self, *, topic_name: str = ..., partition_index: int = ...) -> None: ...
    throttle_time_ms: int
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[DescribeTopicPartitionsResponseTopic] = ..., next_cursor: Cursor | None = ...) -> None: ...

class DescribeTransactionsRequest:
    transactional_ids: list[str]
    def __init__(self, *, transactional_ids: list[str] = ...) -> None: ...

class DescribeTransactionsResponse:
    class TransactionState:
        class TopicData:
            topic: str
            partitions: list[int]
            def __init__(self, *, topic: str = ..., partitions: list[int] = ...) -> None: ...
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int
        transaction_start_time_ms: int
        producer_id: int
        producer_epoch: int
        topics: list[TopicData]
        def __init__(self, *, error_code: int = ..., transactional_id: str = ..., transaction_state: str = ..., transaction_timeout_ms: int = ..., transaction_start_time_ms: int = ..., producer_id: int = ..., producer_epoch: int = ..., topics: list[TopicData] = ...) -> None: ...
    throttle_time_ms: int
    transaction_states: list[TransactionState]
    def __init__(self, *, throttle_time_ms: int = ..., transaction_states: list[TransactionState] = ...) -> None: ...

class DescribeUserScramCredentialsRequest:
    class UserName:
        name: str
        def __init__(self, *, name: str = ...) -> None: ...
    users: list[UserName] | None
    def __init__(self, *, users: list[UserName] | None = ...) -> None: ...

class DescribeUserScramCredentialsResponse:
    class DescribeUserScramCredentialsResult:
        class CredentialInfo:
            mechanism: int
            iterations: int
            def __init__(self, *, mechanism: int = ..., iterations: int = ...) -> None: ...
        user: str
        error_code: int
        error_message: str | None
        credential_infos: list[CredentialInfo]
        def __init__(self, *, user: str = ..., error_code: int = ..., error_message: str | None = ..., credential_infos: list[CredentialInfo] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[DescribeUserScramCredentialsResult]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., results: list[DescribeUserScramCredentialsResult] = ...) -> None: ...

class ElectLeadersRequest:
    class TopicPartitions:
        topic: str
        partitions: list[int]
        def __init__(self, *, topic: str = ..., partitions: list[int] = ...) -> None: ...
    election_type: int
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: int
    def __init__(self, *, election_type: int = ..., topic_partitions: list[TopicPartitions] | None = ..., timeout_ms: int = ...) -> None: ...

class ElectLeadersResponse:
    class ReplicaElectionResult:
        class PartitionResult:
            partition_id: int
            error_code: int
            error_message: str | None
            def __init__(self, *, partition_id: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
        topic: str
        partition_result: list[PartitionResult]
        def __init__(self, *, topic: str = ..., partition_result: list[PartitionResult] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    replica_election_results: list[ReplicaElectionResult]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., replica_election_results: list[ReplicaElectionResult] = ...) -> None: ...

class EndQuorumEpochRequest:
    class TopicData:
        class PartitionData:
            class ReplicaInfo:
                candidate_id: int
                candidate_directory_id: bytes
                def __init__(self, *, candidate_id: int = ..., candidate_directory_id: bytes = ...) -> None: ...
            partition_index: int
            leader_id: int
            leader_epoch: int
            preferred_successors: list[int]
            preferred_candidates: list[ReplicaInfo]
            def __init__(self, *, partition_index: int = ..., leader_id: int = ..., leader_epoch: int = ..., preferred_successors: list[int] = ..., preferred_candidates: list[ReplicaInfo] = ...) -> None: ...
        topic_name: str
        partitions: list[PartitionData]
        def __init__(self, *, topic_name: str = ..., partitions: list[PartitionData] = ...) -> None: ...
    class LeaderEndpoint:
        name: str
        host: str
        port: int
        def __init__(self, *, name: str = ..., host: str = ..., port: int = ...) -> None: ...
    cluster_id: str | None
    topics: list[TopicData]
    leader_endpoints: list[LeaderEndpoint]
    def __init__(self, *, cluster_id: str | None = ..., topics: list[TopicData] = ..., leader_endpoints: list[LeaderEndpoint] = ...) -> None: ...

class EndQuorumEpochResponse:
    class TopicData:
        class PartitionData:
            partition_index: int
            error_code: int
            leader_id: int
            leader_epoch: int
            def __init__(self, *, partition_index: int = ..., error_code: int = ..., leader_id: int = ..., leader_epoch: int = ...) -> None: ...
        topic_name: str
        partitions: list[PartitionData]
        def __init__(self, *, topic_name: str = ..., partitions: list[PartitionData] = ...) -> None: ...
    class NodeEndpoint:
        node_id: int
        host: str
        port: int
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ...) -> None: ...
    error_code: int
    topics: list[TopicData]
    node_endpoints: list[NodeEndpoint]
    def __init__(self, *, error_code: int = ..., topics: list[TopicData] = ..., node_endpoints: list[NodeEndpoint] = ...) -> None: ...

class EndTransactionRecord:
    def __init__(self) -> None: ...

class EndTxnMarker:
    coordinator_epoch: int
    def __init__(self, *, coordinator_epoch: int = ...) -> None: ...

class EndTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    def __init__(self, *, transactional_id: str = ..., producer_id: int = ..., producer_epoch: int = ..., committed: bool = ...) -> None: ...

class EndTxnResponse:
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., producer_id: int = ..., producer_epoch: int = ...) -> None: ...

class EnvelopeRequest:
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes
    def __init__(self, *, request_data: bytes = ..., request_principal: bytes | None = ..., client_host_address: bytes = ...) -> None: ...

class EnvelopeResponse:
    response_data: bytes | None
    error_code: int
    def __init__(self, *, response_data: bytes | None = ..., error_code: int = ...) -> None: ...

class FeatureLevelRecord:
    name: str
    feature_level: int
    def __init__(self, *, name: str = ..., feature_level: int = ...) -> None: ...

class FenceBrokerRecord:
    id: int
    epoch: int
    def __init__(self, *, id: int = ..., epoch: int = ...) -> None: ...

class FetchRequest:
    class ReplicaState:
        replica_id: int
        replica_epoch: int
        def __init__(self, *, replica_id: int = ..., replica_epoch: int = ...) -> None: ...
    class FetchTopic:
        class FetchPartition:
            partition: int
            current_leader_epoch: int
            fetch_offset: int
            last_fetched_epoch: int
            log_start_offset: int
            partition_max_bytes: int
            replica_directory_id: bytes
            high_watermark: int
            def __init__(self, *, partition: int = ..., current_leader_epoch: int = ..., fetch_offset: int = ..., last_fetched_epoch: int = ..., log_start_offset: int = ..., partition_max_bytes: int = ..., replica_directory_id: bytes = ..., high_watermark: int = ...) -> None: ...
        topic: str
        topic_id: bytes
        partitions: list[FetchPartition]
        def __init__(self, *, topic: str = ..., topic_id: bytes = ..., partitions: list[FetchPartition] = ...) -> None: ...
    class ForgottenTopic:
        topic: str
        topic_id: bytes
        partitions: list[int]
        def __init__(self, *, topic: str = ..., topic_id: bytes = ..., partitions: list[int] = ...) -> None: ...
    cluster_id: str | None
    replica_id: int
    replica_state: ReplicaState
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]
    rack_id: str
    def __init__(self, *, cluster_id: str | None = ..., replica_id: int = ..., replica_state: ReplicaState = ..., max_wait_ms: int = ..., min_bytes: int = ..., max_bytes: int = ..., isolation_level: int = ..., session_id: int = ..., session_epoch: int = ..., topics: list[FetchTopic] = ..., forgotten_topics_data: list[ForgottenTopic] = ..., rack_id: str = ...) -> None: ...

class FetchResponse:
    class FetchableTopicResponse:
        class PartitionData:
            class EpochEndOffset:
                epoch: int
                end_offset: int
                def __init__(self, *, epoch: int = ..., end_offset: int = ...) -> None: ...
            class LeaderIdAndEpoch:
                leader_id: int
                leader_epoch: int
                def __init__(self, *, leader_id: int = ..., leader_epoch: int = ...) -> None: ...
            class SnapshotId:
                end_offset: int
                epoch: int
                def __init__(self, *, end_offset: int = ..., epoch: int = ...) -> None: ...
            class AbortedTransaction:
                producer_id: int
                first_offset: int
                def __init__(self, *, producer_id: int = ..., first_offset: int = ...) -> None: ...
            partition_index: int
            error_code: int
            high_watermark: int
            last_stable_offset: int
            log_start_offset: int
            diverging_epoch: EpochEndOffset
            current_leader: LeaderIdAndEpoch
            snapshot_id: SnapshotId
            aborted_transactions: list[AbortedTransaction] | None
            preferred_read_replica: int
            records: Buffer | None
            def __init__(self, *, partition_index: int = ..., error_code: int = ..., high_watermark: int = ..., last_stable_offset: int = ..., log_start_offset: int = ..., diverging_epoch: EpochEndOffset = ..., current_leader: LeaderIdAndEpoch = ..., snapshot_id: SnapshotId = ..., aborted_transactions: list[AbortedTransaction] | None = ..., preferred_read_replica: int = ..., records: Buffer | None = ...) -> None: ...
        topic: str
        topic_id: bytes
        partitions: list[PartitionData]
        def __init__(self, *, topic: str = ..., topic_id: bytes = ..., partitions: list[PartitionData] = ...) -> None: ...
    class NodeEndpoint:
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., session_id: int = ..., responses: list[FetchableTopicResponse] = ..., node_endpoints: list[NodeEndpoint] = ...) -> None: ...

class FetchSnapshotRequest:
    class TopicSnapshot:
        class PartitionSnapshot:
            class SnapshotId:
                end_offset: int
                epoch: int
                def __init__(self, *, end_offset: int = ..., epoch: int = ...) -> None: ...
            partition: int
            current_leader_epoch: int
            snapshot_id: SnapshotId
            position: int
            replica_directory_id: bytes
            def __init__(self, *, partition: int = ..., current_leader_epoch: int = ..., snapshot_id: SnapshotId = ..., position: int = ..., replica_directory_id: bytes = ...) -> None: ...
        name: str
        partitions: list[PartitionSnapshot]
        def __init__(self, *, name: str = ..., partitions: list[PartitionSnapshot] = ...) -> None: ...
    cluster_id: str | None
    replica_id: int
    max_bytes: int
    topics: list[TopicSnapshot]
    def __init__(self, *, cluster_id: str | None = ..., replica_id: int = ..., max_bytes: int = ..., topics: list[TopicSnapshot] = ...) -> None: ...

class FetchSnapshotResponse:
    class TopicSnapshot:
        class PartitionSnapshot:
            class SnapshotId:
                end_offset: int
                epoch: int
                def __init__(self, *, end_offset: int = ..., epoch: int = ...) -> None: ...
            class LeaderIdAndEpoch:
                leader_id: int
                leader_epoch: int
                def __init__(self, *, leader_id: int = ..., leader_epoch: int = ...) -> None: ...
            index: int
            error_code: int
            snapshot_id: SnapshotId
            current_leader: LeaderIdAndEpoch
            size: int
            position: int
            unaligned_records: Buffer | None
            def __init__(self, *, index: int = ..., error_code: int = ..., snapshot_id: SnapshotId = ..., current_leader: LeaderIdAndEpoch = ..., size: int = ..., position: int = ..., unaligned_records: Buffer | None = ...) -> None: ...
        name: str
        partitions: list[PartitionSnapshot]
        def __init__(self, *, name: str = ..., partitions: list[PartitionSnapshot] = ...) -> None: ...
    class NodeEndpoint:
        node_id: int
        host: str
        port: int
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    topics: list[TopicSnapshot]
    node_endpoints: list[NodeEndpoint]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., topics: list[TopicSnapshot] = ..., node_endpoints: list[NodeEndpoint] = ...) -> None: ...

class FindCoordinatorRequest:
    key: str
    key_type: int
    coordinator_keys: list[str]
    def __init__(self, *, key: str = ..., key_type: int = ..., coordinator_keys: list[str] = ...) -> None: ...

class FindCoordinatorResponse:
    class Coordinator:
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None
        def __init__(self, *, key: str = ..., node_id: int = ..., host: str = ..., port: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: list[Coordinator]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., node_id: int = ..., host: str = ..., port: int = ..., coordinators: list[Coordinator] = ...) -> None: ...

class GroupMetadataKey:
    group: str
    def __init__(self, *, group: str = ...) -> None: ...

class GroupMetadataValue:
    class MemberMetadata:
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        rebalance_timeout: int
        session_timeout: int
        subscription: bytes
        assignment: bytes
        def __init__(self, *, member_id: str = ..., group_instance_id: str | None = ..., client_id: str = ..., client_host: str = ..., rebalance_timeout: int = ..., session_timeout: int = ..., subscription: bytes = ..., assignment: bytes = ...) -> None: ...
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: list[GroupMetadataValue.MemberMetadata]
    def __init__(self, *, protocol_type: str = ..., generation: int = ..., protocol: str | None = ..., leader: str | None = ..., current_state_timestamp: int = ..., members: list[GroupMetadataValue.MemberMetadata] = ...) -> None: ...

class HeartbeatRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    def __init__(self, *, group_id: str = ..., generation_id: int = ..., member_id: str = ..., group_instance_id: str | None = ...) -> None: ...

class HeartbeatResponse:
    throttle_time_ms: int
    error_code: int
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ...) -> None: ...

class IncrementalAlterConfigsRequest:
    class AlterConfigsResource:
        class AlterableConfig:
            name: str
            config_operation: int
            value: str | None
            def __init__(self, *, name: str = ..., config_operation: int = ..., value: str | None = ...) -> None: ...
        resource_type: int
        resource_name: str
        configs: list[AlterableConfig]
        def __init__(self, *, resource_type: int = ..., resource_name: str = ..., configs: list[AlterableConfig] = ...) -> None: ...
    resources: list[AlterConfigsResource]
    validate_only: bool
    def __init__(self, *, resources: list[AlterConfigsResource] = ..., validate_only: bool = ...) -> None: ...

class IncrementalAlterConfigsResponse:
    class AlterConfigsResourceResponse:
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(self, *, error_code: int = ..., error_message: str | None = ..., resource_type: int = ..., resource_name: str = ...) -> None: ...
    throttle_time_ms: int
    responses: list[AlterConfigsResourceResponse]
    def __init__(self, *, throttle_time_ms: int = ..., responses: list[AlterConfigsResourceResponse] = ...) -> None: ...

class InitProducerIdRequest:
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool
    def __init__(self, *, transactional_id: str | None = ..., transaction_timeout_ms: int = ..., producer_id: int = ..., producer_epoch: int = ..., enable2_pc: bool = ..., keep_prepared_txn: bool = ...) -> None: ...

class InitProducerIdResponse:
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., producer_id: int = ..., producer_epoch: int = ..., ongoing_txn_producer_id: int = ..., ongoing_txn_producer_epoch: int = ...) -> None: ...

class JoinGroupRequest:
    class JoinGroupRequestProtocol:
        name: str
        metadata: bytes
        def __init__(self, *, name: str = ..., metadata: bytes = ...) -> None: ...
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: str | None
    def __init__(self, *, group_id: str = ..., session_timeout_ms: int = ..., rebalance_timeout_ms: int = ..., member_id: str = ..., group_instance_id: str | None = ..., protocol_type: str = ..., protocols: list[JoinGroupRequestProtocol] = ..., reason: str | None = ...) -> None: ...

class JoinGroupResponse:
    class JoinGroupResponseMember:
        member_id: str
        group_instance_id: str | None
        metadata: bytes
        def __init__(self, *, member_id: str = ..., group_instance_id: str | None = ..., metadata: bytes = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: list[JoinGroupResponseMember]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., generation_id: int = ..., protocol_type: str | None = ..., protocol_name: str | None = ..., leader: str = ..., skip_assignment: bool = ..., member_id: str = ..., members: list[JoinGroupResponseMember] = ...) -> None: ...

class KRaftVersionRecord:
    version: int
    k_raft_version: int
    def __init__(self, *, version: int = ..., k_raft_version: int = ...) -> None: ...

class LeaderChangeMessage:
    class Voter:
        voter_id: int
        voter_directory_id: bytes
        def __init__(self, *, voter_id: int = ..., voter_directory_id: bytes = ...) -> None: ...
    version: int
    leader_id: int
    voters: list[LeaderChangeMessage.Voter]
    granting_voters: list[LeaderChangeMessage.Voter]
    def __init__(self, *, version: int = ..., leader_id: int = ..., voters: list[LeaderChangeMessage.Voter] = ..., granting_voters: list[LeaderChangeMessage.Voter] = ...) -> None: ...

class LeaveGroupRequest:
    class MemberIdentity:
        member_id: str
        group_instance_id: str | None
        reason: str | None
        def __init__(self, *, member_id: str = ..., group_instance_id: str | None = ..., reason: str | None = ...) -> None: ...
    group_id: str
    member_id: str
    members: list[MemberIdentity]
    def __init__(self, *, group_id: str = ..., member_id: str = ..., members: list[MemberIdentity] = ...) -> None: ...

class LeaveGroupResponse:
    class MemberResponse:
        member_id: str
        group_instance_id: str | None
        error_code: int
        def __init__(self, *, member_id: str = ..., group_instance_id: str | None = ..., error_code: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    members: list[MemberResponse]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., members: list[MemberResponse] = ...) -> None: ...

class LegacyOffsetCommitKey:
    group: str
    topic: str
    partition: int
    def __init__(self, *, group: str = ..., topic: str = ..., partition: int = ...) -> None: ...

class LegacyOffsetCommitValue:
    offset: int
    metadata: str
    commit_timestamp: int
    def __init__(self, *, offset: int = ..., metadata: str = ..., commit_timestamp: int = ...) -> None: ...

class ListConfigResourcesRequest:
    resource_types: list[int]
    def __init__(self, *, resource_types: list[int] = ...) -> None: ...

class ListConfigResourcesResponse:
    class ConfigResource:
        resource_name: str
        resource_type: int
        def __init__(self, *, resource_name: str = ..., resource_type: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    config_resources: list[ConfigResource]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., config_resources: list[ConfigResource] = ...) -> None: ...

class ListGroupsRequest:
    states_filter: list[str]
    types_filter: list[str]
    def __init__(self, *, states_filter: list[str] = ..., types_filter: list[str] = ...) -> None: ...

class ListGroupsResponse:
    class ListedGroup:
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str
        def __init__(self, *, group_id: str = ..., protocol_type: str = ..., group_state: str = ..., group_type: str = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    groups: list[ListedGroup]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., groups: list[ListedGroup] = ...) -> None: ...

class ListOffsetsRequest:
    class ListOffsetsTopic:
        class ListOffsetsPartition:
            partition_index: int
            current_leader_epoch: int
            timestamp: int
            def __init__(self, *, partition_index: int = ..., current_leader_epoch: int = ..., timestamp: int = ...) -> None: ...
        name: str
        partitions: list[ListOffsetsPartition]
        def __init__(self, *, name: str = ..., partitions: list[ListOffsetsPartition] = ...) -> None: ...
    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsTopic]
    timeout_ms: int
    def __init__(self, *, replica_id: int = ..., isolation_level: int = ..., topics: list[ListOffsetsTopic] = ..., timeout_ms: int = ...) -> None: ...

class ListOffsetsResponse:
    class ListOffsetsTopicResponse:
        class ListOffsetsPartitionResponse:
            partition_index: int
            error_code: int
            timestamp: int
            offset: int
            leader_epoch: int
            def __init__(self, *, partition_index: int = ..., error_code: int = ..., timestamp: int = ..., offset: int = ..., leader_epoch: int = ...) -> None: ...
        name: str
        partitions: list[ListOffsetsPartitionResponse]
        def __init__(self, *, name: str = ..., partitions: list[ListOffsetsPartitionResponse] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[ListOffsetsTopicResponse]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[ListOffsetsTopicResponse] = ...) -> None: ...

class ListPartitionReassignmentsRequest:
    class ListPartitionReassignmentsTopics:
        name: str
        partition_indexes: list[int]
        def __init__(self, *, name: str = ..., partition_indexes: list[int] = ...) -> None: ...
    timeout_ms: int
    topics: list[ListPartitionReassignmentsTopics] | None
    def __init__(self, *, timeout_ms: int = ..., topics: list[ListPartitionReassignmentsTopics] | None = ...) -> None: ...

class ListPartitionReassignmentsResponse:
    class OngoingTopicReassignment:
        class OngoingPartitionReassignment:
            partition_index: int
            replicas: list[int]
            adding_replicas: list[int]
            removing_replicas: list[int]
            def __init__(self, *, partition_index: int = ..., replicas: list[int] = ..., adding_replicas: list[int] = ..., removing_replicas: list[int] = ...) -> None: ...
        name: str
        partitions: list[OngoingPartitionReassignment]
        def __init__(self, *, name: str = ..., partitions: list[OngoingPartitionReassignment] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[OngoingTopicReassignment]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., topics: list[OngoingTopicReassignment] = ...) -> None: ...

class ListTransactionsRequest:
    state_filters: list[str]
    producer_id_filters: list[int]
    duration_filter: int
    transactional_id_pattern: str | None
    def __init__(self, *, state_filters: list[str] = ..., producer_id_filters: list[int] = ..., duration_filter: int = ..., transactional_id_pattern: str | None = ...) -> None: ...

class ListTransactionsResponse:
    class TransactionState:
        transactional_id: str
        producer_id: int
        transaction_state: str
        def __init__(self, *, transactional_id: str = ..., producer_id: int = ..., transaction_state: str = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: list[str]
    transaction_states: list[TransactionState]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., unknown_state_filters: list[str] = ..., transaction_states: list[TransactionState] = ...) -> None: ...

class MetadataRequest:
    class MetadataRequestTopic:
        topic_id: bytes
        name: str | None
        def __init__(self, *, topic_id: bytes = ..., name: str | None = ...) -> None: ...
    topics: list[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool
    def __init__(self, *, topics: list[MetadataRequestTopic] | None = ..., allow_auto_topic_creation: bool = ..., include_cluster_authorized_operations: bool = ..., include_topic_authorized_operations: bool = ...) -> None: ...

class MetadataResponse:
    class MetadataResponseBroker:
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...
    class MetadataResponseTopic:
        class MetadataResponsePartition:
            error_code: int
            partition_index: int
            leader_id: int
            leader_epoch: int
            replica_nodes: list[int]
            isr_nodes: list[int]
            offline_replicas: list[int]
            def __init__(self, *, error_code: int = ..., partition_index: int = ..., leader_id: int = ..., leader_epoch: int = ..., replica_nodes: list[int] = ..., isr_nodes: list[int] = ..., offline_replicas: list[int] = ...) -> None: ...
        error_code: int
        name: str | None
        topic_id: bytes
        is_internal: bool
        partitions: list[MetadataResponsePartition]
        topic_authorized_operations: int
        def __init__(self, *, error_code: int = ..., name: str | None = ..., topic_id: bytes = ..., is_internal: bool = ..., partitions: list[MetadataResponsePartition] = ..., topic_authorized_operations: int = ...) -> None: ...
    throttle_time_ms: int
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int
    def __init__(self, *, throttle_time_ms: int = ..., brokers: list[MetadataResponseBroker] = ..., cluster_id: str | None = ..., controller_id: int = ..., topics: list[MetadataResponseTopic] = ..., cluster_authorized_operations: int = ..., error_code: int = ...) -> None: ...

class NoOpRecord:
    def __init__(self) -> None: ...

class OffsetCommitKey:
    group: str
    topic: str
    partition: int
    def __init__(self, *, group: str = ..., topic: str = ..., partition: int = ...) -> None: ...

class OffsetCommitRequest:
    class OffsetCommitRequestTopic:
        class OffsetCommitRequestPartition:
            partition_index: int
            committed_offset: int
            committed_leader_epoch: int
            committed_metadata: str | None
            def __init__(self, *, partition_index: int = ..., committed_offset: int = ..., committed_leader_epoch: int = ..., committed_metadata: str | None = ...) -> None: ...
        name: str
        topic_id: bytes
        partitions: list[OffsetCommitRequestPartition]
        def __init__(self, *, name: str = ..., topic_id: bytes = ..., partitions: list[OffsetCommitRequestPartition] = ...) -> None: ...
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequestTopic]
    def __init__(self, *, group_id: str = ..., generation_id_or_member_epoch: int = ..., member_id: str = ..., group_instance_id: str | None = ..., retention_time_ms: int = ..., topics: list[OffsetCommitRequestTopic] = ...) -> None: ...

class OffsetCommitResponse:
    class OffsetCommitResponseTopic:
        class OffsetCommitResponsePartition:
            partition_index: int
            error_code: int
            def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...
        name: str
        topic_id: bytes
        partitions: list[OffsetCommitResponsePartition]
        def __init__(self, *, name: str = ..., topic_id: bytes = ..., partitions: list[OffsetCommitResponsePartition] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[OffsetCommitResponseTopic]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[OffsetCommitResponseTopic] = ...) -> None: ...

class OffsetCommitValue:
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: bytes
    def __init__(self, *, offset: int = ..., leader_epoch: int = ..., metadata: str = ..., commit_timestamp: int = ..., expire_timestamp: int = ..., topic_id: bytes = ...) -> None: ...

class OffsetDeleteRequest:
    class OffsetDeleteRequestTopic:
        class OffsetDeleteRequestPartition:
            partition_index: int
            def __init__(self, *, partition_index: int = ...) -> None: ...
        name: str
        partitions: list[OffsetDeleteRequestPartition]
        def __init__(self, *, name: str = ..., partitions: list[OffsetDeleteRequestPartition] = ...) -> None: ...
    group_id: str
    topics: list[OffsetDeleteRequestTopic]
    def __init__(self, *, group_id: str = ..., topics: list[OffsetDeleteRequestTopic] = ...) -> None: ...

class OffsetDeleteResponse:
    class OffsetDeleteResponseTopic:
        class OffsetDeleteResponsePartition:
            partition_index: int
            error_code: int
            def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...
        name: str
        partitions: list[OffsetDeleteResponsePartition]
        def __init__(self, *, name: str = ..., partitions: list[OffsetDeleteResponsePartition] = ...) -> None: ...
    error_code: int
    throttle_time_ms: int
    topics: list[OffsetDeleteResponseTopic]
    def __init__(self, *, error_code: int = ..., throttle_time_ms: int = ..., topics: list[OffsetDeleteResponseTopic] = ...) -> None: ...

class OffsetFetchRequest:
    class OffsetFetchRequestTopic:
        name: str
        partition_indexes: list[int]
        def __init__(self, *, name: str = ..., partition_indexes: list[int] = ...) -> None: ...
    class OffsetFetchRequestGroup:
        class OffsetFetchRequestTopics:
            name: str
            topic_id: bytes
            partition_indexes: list[int]
            def __init__(self, *, name: str = ..., topic_id: bytes = ..., partition_indexes: list[int] = ...) -> None: ...
        group_id: str
        member_id: str | None
        member_epoch: int
        topics: list[OffsetFetchRequestTopics] | None
        def __init__(self, *, group_id: str = ..., member_id: str | None = ..., member_epoch: int = ..., topics: list[OffsetFetchRequestTopics] | None = ...) -> None: ...
    group_id: str
    topics: list[OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequestGroup]
    require_stable: bool
    def __init__(self, *, group_id: str = ..., topics: list[OffsetFetchRequestTopic] | None = ..., groups: list[OffsetFetchRequestGroup] = ..., require_stable: bool = ...) -> None: ...

class OffsetFetchResponse:
    class OffsetFetchResponseTopic:
        class OffsetFetchResponsePartition:
            partition_index: int
            committed_offset: int
            committed_leader_epoch: int
            metadata: str | None
            error_code: int
            def __init__(self, *, partition_index: int = ..., committed_offset: int = ..., committed_leader_epoch: int = ..., metadata: str | None = ..., error_code: int = ...) -> None: ...
        name: str
        partitions: list[OffsetFetchResponsePartition]
        def __init__(self, *, name: str = ..., partitions: list[OffsetFetchResponsePartition] = ...) -> None: ...
    class OffsetFetchResponseGroup:
        class OffsetFetchResponseTopics:
            class OffsetFetchResponsePartitions:
                partition_index: int
                committed_offset: int
                committed_leader_epoch: int
                metadata: str | None
                error_code: int
                def __init__(self, *, partition_index: int = ..., committed_offset: int = ..., committed_leader_epoch: int = ..., metadata: str | None = ..., error_code: int = ...) -> None: ...
            name: str
            topic_id: bytes
            partitions: list[OffsetFetchResponsePartitions]
            def __init__(self, *, name: str = ..., topic_id: bytes = ..., partitions: list[OffsetFetchResponsePartitions] = ...) -> None: ...
        group_id: str
        topics: list[OffsetFetchResponseTopics]
        error_code: int
        def __init__(self, *, group_id: str = ..., topics: list[OffsetFetchResponseTopics] = ..., error_code: int = ...) -> None: ...
    throttle_time_ms: int
    topics: list[OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponseGroup]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[OffsetFetchResponseTopic] = ..., error_code: int = ..., groups: list[OffsetFetchResponseGroup] = ...) -> None: ...

class OffsetForLeaderEpochRequest:
    class OffsetForLeaderTopic:
        class OffsetForLeaderPartition:
            partition: int
            current_leader_epoch: int
            leader_epoch: int
            def __init__(self, *, partition: int = ..., current_leader_epoch: int = ..., leader_epoch: int = ...) -> None: ...
        topic: str
        partitions: list[OffsetForLeaderPartition]
        def __init__(self, *, topic: str = ..., partitions: list[OffsetForLeaderPartition] = ...) -> None: ...
    replica_id: int
    topics: list[OffsetForLeaderTopic]
    def __init__(self, *, replica_id: int = ..., topics: list[OffsetForLeaderTopic] = ...) -> None: ...

class OffsetForLeaderEpochResponse:
    class OffsetForLeaderTopicResult:
        class EpochEndOffset:
            error_code: int
            partition: int
            leader_epoch: int
            end_offset: int
            def __init__(self, *, error_code: int = ..., partition: int = ..., leader_epoch: int = ..., end_offset: int = ...) -> None: ...
        topic: str
        partitions: list[EpochEndOffset]
        def __init__(self, *, topic: str = ..., partitions: list[EpochEndOffset] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[OffsetForLeaderTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[OffsetForLeaderTopicResult] = ...) -> None: ...

class PartitionChangeRecord:
    partition_id: int
    topic_id: bytes
    isr: list[int] | None
    leader: int
    replicas: list[int] | None
    removing_replicas: list[int] | None
    adding_replicas: list[int] | None
    leader_recovery_state: int
    directories: list[bytes] | None
    eligible_leader_replicas: list[int] | None
    last_known_elr: list[int] | None
    def __init__(self, *, partition_id: int = ..., topic_id: bytes = ..., isr: list[int] | None = ..., leader: int = ..., replicas: list[int] | None = ..., removing_replicas: list[int] | None = ..., adding_replicas: list[int] | None = ..., leader_recovery_state: int = ..., directories: list[bytes] | None = ..., eligible_leader_replicas: list[int] | None = ..., last_known_elr: list[int] | None = ...) -> None: ...

class PartitionRecord:
    partition_id: int
    topic_id: bytes
    replicas: list[int]
    isr: list[int]
    removing_replicas: list[int]
    adding_replicas: list[int]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    directories: list[bytes]
    eligible_leader_replicas: list[int] | None
    last_known_elr: list[int] | None
    def __init__(self, *, partition_id: int = ..., topic_id: bytes = ..., replicas: list[int] = ..., isr: list[int] = ..., removing_replicas: list[int] = ..., adding_replicas: list[int] = ..., leader: int = ..., leader_recovery_state: int = ..., leader_epoch: int = ..., partition_epoch: int = ..., directories: list[bytes] = ..., eligible_leader_replicas: list[int] | None = ..., last_known_elr: list[int] | None = ...) -> None: ...

class ProduceRequest:
    class TopicProduceData:
        class PartitionProduceData:
            index: int
            records: Buffer | None
            def __init__(self, *, index: int = ..., records: Buffer | None = ...) -> None: ...
        name: str
        topic_id: bytes
        partition_data: list[PartitionProduceData]
        def __init__(self, *, name: str = ..., topic_id: bytes = ..., partition_data: list[PartitionProduceData] = ...) -> None: ...
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[TopicProduceData]
    def __init__(self, *, transactional_id: str | None = ..., acks: int = ..., timeout_ms: int = ..., topic_data: list[TopicProduceData] = ...) -> None: ...

class ProduceResponse:
    class TopicProduceResponse:
        class PartitionProduceResponse:
            class BatchIndexAndErrorMessage:
                batch_index: int
                batch_index_error_message: str | None
                def __init__(self, *, batch_index: int = ..., batch_index_error_message: str | None = ...) -> None: ...
            class LeaderIdAndEpoch:
                leader_id: int
                leader_epoch: int
                def __init__(self, *, leader_id: int = ..., leader_epoch: int = ...) -> None: ...
            index: int
            error_code: int
            base_offset: int
            log_append_time_ms: int
            log_start_offset: int
            record_errors: list[BatchIndexAndErrorMessage]
            error_message: str | None
            current_leader: LeaderIdAndEpoch
            def __init__(self, *, index: int = ..., error_code: int = ..., base_offset: int = ..., log_append_time_ms: int = ..., log_start_offset: int = ..., record_errors: list[BatchIndexAndErrorMessage] = ..., error_message: str | None = ..., current_leader: LeaderIdAndEpoch = ...) -> None: ...
        name: str
        topic_id: bytes
        partition_responses: list[PartitionProduceResponse]
        def __init__(self, *, name: str = ..., topic_id: bytes = ..., partition_responses: list[PartitionProduceResponse] = ...) -> None: ...
    class NodeEndpoint:
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...
    responses: list[TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]
    def __init__(self, *, responses: list[TopicProduceResponse] = ..., throttle_time_ms: int = ..., node_endpoints: list[NodeEndpoint] = ...) -> None: ...

class ProducerIdsRecord:
    broker_id: int
    broker_epoch: int
    next_producer_id: int
    def __init__(self, *, broker_id: int = ..., broker_epoch: int = ..., next_producer_id: int = ...) -> None: ...

class RegisterBrokerRecord:
    class BrokerEndpoint:
        name: str
        host: str
        port: int
        security_protocol: int
        def __init__(self, *, name: str = ..., host: str = ..., port: int = ..., security_protocol: int = ...) -> None: ...
    class BrokerFeature:
        name: str
        min_supported_version: int
        max_supported_version: int
        def __init__(self, *, name: str = ..., min_supported_version: int = ..., max_supported_version: int = ...) -> None: ...
    broker_id: int
    is_migrating_zk_broker: bool
    incarnation_id: bytes
    broker_epoch: int
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: list[bytes]
    cordoned_log_dirs: list[bytes] | None
    def __init__(self, *, broker_id: int = ..., is_migrating_zk_broker: bool = ..., incarnation_id: bytes = ..., broker_epoch: int = ..., end_points: list[BrokerEndpoint] = ..., features: list[BrokerFeature] = ..., rack: str | None = ..., fenced: bool = ..., in_controlled_shutdown: bool = ..., log_dirs: list[bytes] = ..., cordoned_log_dirs: list[bytes] | None = ...) -> None: ...

class RegisterControllerRecord:
    class ControllerEndpoint:
        name: str
        host: str
        port: int
        security_protocol: int
        def __init__(self, *, name: str = ..., host: str = ..., port: int = ..., security_protocol: int = ...) -> None: ...
    class ControllerFeature:
        name: str
        min_supported_version: int
        max_supported_version: int
        def __init__(self, *, name: str = ..., min_supported_version: int = ..., max_supported_version: int = ...) -> None: ...
    controller_id: int
    incarnation_id: bytes
    zk_migration_ready: bool
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]
    def __init__(self, *, controller_id: int = ..., incarnation_id: bytes = ..., zk_migration_ready: bool = ..., end_points: list[ControllerEndpoint] = ..., features: list[ControllerFeature] = ...) -> None: ...

class RemoveAccessControlEntryRecord:
    id: bytes
    def __init__(self, *, id: bytes = ...) -> None: ...

class RemoveDelegationTokenRecord:
    token_id: str
    def __init__(self, *, token_id: str = ...) -> None: ...

class RemoveRaftVoterRequest:
    cluster_id: str | None
    voter_id: int
    voter_directory_id: bytes
    def __init__(self, *, cluster_id: str | None = ..., voter_id: int = ..., voter_directory_id: bytes = ...) -> None: ...

class RemoveRaftVoterResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...

class RemoveTopicRecord:
    topic_id: bytes
    def __init__(self, *, topic_id: bytes = ...) -> None: ...

class RemoveUserScramCredentialRecord:
    name: str
    mechanism: int
    def __init__(self, *, name: str = ..., mechanism: int = ...) -> None: ...

class SaslAuthenticateRequest:
    auth_bytes: bytes
    def __init__(self, *, auth_bytes: bytes = ...) -> None: ...

class SaslAuthenticateResponse:
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
    def __init__(self, *, error_code: int = ..., error_message: str | None = ..., auth_bytes: bytes = ..., session_lifetime_ms: int = ...) -> None: ...

class SaslHandshakeRequest:
    mechanism: str
    def __init__(self, *, mechanism: str = ...) -> None: ...

class SaslHandshakeResponse:
    error_code: int
    mechanisms: list[str]
    def __init__(self, *, error_code: int = ..., mechanisms: list[str] = ...) -> None: ...

class SnapshotFooterRecord:
    version: int
    def __init__(self, *, version: int = ...) -> None: ...

class SnapshotHeaderRecord:
    version: int
    last_contained_log_timestamp: int
    def __init__(self, *, version: int = ..., last_contained_log_timestamp: int = ...) -> None: ...

class SyncGroupRequest:
    class SyncGroupRequestAssignment:
        member_id: str
        assignment: bytes
        def __init__(self, *, member_id: str = ..., assignment: bytes = ...) -> None: ...
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[SyncGroupRequestAssignment]
    def __init__(self, *, group_id: str = ..., generation_id: int = ..., member_id: str = ..., group_instance_id: str | None = ..., protocol_type: str | None = ..., protocol_name: str | None = ..., assignments: list[SyncGroupRequestAssignment] = ...) -> None: ...

class SyncGroupResponse:
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., protocol_type: str | None = ..., protocol_name: str | None = ..., assignment: bytes = ...) -> None: ...

class TopicRecord:
    name: str
    topic_id: bytes
    def __init__(self, *, name: str = ..., topic_id: bytes = ...) -> None: ...

class TransactionLogKey:
    transactional_id: str
    def __init__(self, *, transactional_id: str = ...) -> None: ...

class TransactionLogValue:
    class PartitionsSchema:
        topic: str
        partition_ids: list[int]
        def __init__(self, *, topic: str = ..., partition_ids: list[int] = ...) -> None: ...
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    next_producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    client_transaction_version: int
    def __init__(self, *, producer_id: int = ..., previous_producer_id: int = ..., next_producer_id: int = ..., producer_epoch: int = ..., next_producer_epoch: int = ..., transaction_timeout_ms: int = ..., transaction_status: int = ..., transaction_partitions: list[PartitionsSchema] | None = ..., transaction_last_update_timestamp_ms: int = ..., transaction_start_timestamp_ms: int = ..., client_transaction_version: int = ...) -> None: ...

class TxnOffsetCommitRequest:
    class TxnOffsetCommitRequestTopic:
        class TxnOffsetCommitRequestPartition:
            partition_index: int
            committed_offset: int
            committed_leader_epoch: int
            committed_metadata: str | None
            def __init__(self, *, partition_index: int = ..., committed_offset: int = ..., committed_leader_epoch: int = ..., committed_metadata: str | None = ...) -> None: ...
        name: str
        partitions: list[TxnOffsetCommitRequestPartition]
        def __init__(self, *, name: str = ..., partitions: list[TxnOffsetCommitRequestPartition] = ...) -> None: ...
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequestTopic]
    def __init__(self, *, transactional_id: str = ..., group_id: str = ..., producer_id: int = ..., producer_epoch: int = ..., generation_id: int = ..., member_id: str = ..., group_instance_id: str | None = ..., topics: list[TxnOffsetCommitRequestTopic] = ...) -> None: ...

class TxnOffsetCommitResponse:
    class TxnOffsetCommitResponseTopic:
        class TxnOffsetCommitResponsePartition:
            partition_index: int
            error_code: int
            def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...
        name: str
        partitions: list[TxnOffsetCommitResponsePartition]
        def __init__(self, *, name: str = ..., partitions: list[TxnOffsetCommitResponsePartition] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponseTopic]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[TxnOffsetCommitResponseTopic] = ...) -> None: ...

class UnfenceBrokerRecord:
    id: int
    epoch: int
    def __init__(self, *, id: int = ..., epoch: int = ...) -> None: ...

class UnregisterBrokerRecord:
    broker_id: int
    broker_epoch: int
    def __init__(self, *, broker_id: int = ..., broker_epoch: int = ...) -> None: ...

class UnregisterBrokerRequest:
    broker_id: int
    def __init__(self, *, broker_id: int = ...) -> None: ...

class UnregisterBrokerResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...

class UpdateFeaturesRequest:
    class FeatureUpdateKey:
        feature: str
        max_version_level: int
        allow_downgrade: bool
        upgrade_type: int
        def __init__(self, *, feature: str = ..., max_version_level: int = ..., allow_downgrade: bool = ..., upgrade_type: int = ...) -> None: ...
    timeout_ms: int
    feature_updates: list[FeatureUpdateKey]
    validate_only: bool
    def __init__(self, *, timeout_ms: int = ..., feature_updates: list[FeatureUpdateKey] = ..., validate_only: bool = ...) -> None: ...

class UpdateFeaturesResponse:
    class UpdatableFeatureResult:
        feature: str
        error_code: int
        error_message: str | None
        def __init__(self, *, feature: str = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[UpdatableFeatureResult]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., results: list[UpdatableFeatureResult] = ...) -> None: ...

class UpdateRaftVoterRequest:
    class Listener:
        name: str
        host: str
        port: int
        def __init__(self, *, name: str = ..., host: str = ..., port: int = ...) -> None: ...
    class KRaftVersionFeature:
        min_supported_version: int
        max_supported_version: int
        def __init__(self, *, min_supported_version: int = ..., max_supported_version: int = ...) -> None: ...
    cluster_id: str | None
    current_leader_epoch: int
    voter_id: int
    voter_directory_id: bytes
    listeners: list[Listener]
    k_raft_version_feature: KRaftVersionFeature
    def __init__(self, *, cluster_id: str | None = ..., current_leader_epoch: int = ..., voter_id: int = ..., voter_directory_id: bytes = ..., listeners: list[Listener] = ..., k_raft_version_feature: KRaftVersionFeature = ...) -> None: ...

class UpdateRaftVoterResponse:
    class CurrentLeader:
        leader_id: int
        leader_epoch: int
        host: str
        port: int
        def __init__(self, *, leader_id: int = ..., leader_epoch: int = ..., host: str = ..., port: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    current_leader: CurrentLeader
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., current_leader: CurrentLeader = ...) -> None: ...

class UserScramCredentialRecord:
    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    def __init__(self, *, name: str = ..., mechanism: int = ..., salt: bytes = ..., stored_key: bytes = ..., server_key: bytes = ..., iterations: int = ...) -> None: ...

class VoteRequest:
    class TopicData:
        class PartitionData:
            partition_index: int
            replica_epoch: int
            replica_id: int
            replica_directory_id: bytes
            voter_directory_id: bytes
            last_offset_epoch: int
            last_offset: int
            pre_vote: bool
            def __init__(self, *, partition_index: int = ..., replica_epoch: int = ..., replica_id: int = ..., replica_directory_id: bytes = ..., voter_directory_id: bytes = ..., last_offset_epoch: int = ..., last_offset: int = ..., pre_vote: bool = ...) -> None: ...
        topic_name: str
        partitions: list[PartitionData]
        def __init__(self, *, topic_name: str = ..., partitions: list[PartitionData] = ...) -> None: ...
    cluster_id: str | None
    voter_id: int
    topics: list[TopicData]
    def __init__(self, *, cluster_id: str | None = ..., voter_id: int = ..., topics: list[TopicData] = ...) -> None: ...

class VoteResponse:
    class TopicData:
        class PartitionData:
            partition_index: int
            error_code: int
            leader_id: int
            leader_epoch: int
            vote_granted: bool
            def __init__(self, *, partition_index: int = ..., error_code: int = ..., leader_id: int = ..., leader_epoch: int = ..., vote_granted: bool = ...) -> None: ...
        topic_name: str
        partitions: list[PartitionData]
        def __init__(self, *, topic_name: str = ..., partitions: list[PartitionData] = ...) -> None: ...
    class NodeEndpoint:
        node_id: int
        host: str
        port: int
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ...) -> None: ...
    error_code: int
    topics: list[TopicData]
    node_endpoints: list[NodeEndpoint]
    def __init__(self, *, error_code: int = ..., topics: list[TopicData] = ..., node_endpoints: list[NodeEndpoint] = ...) -> None: ...

class VotersRecord:
    class Voter:
        class Endpoint:
            name: str
            host: str
            port: int
            def __init__(self, *, name: str = ..., host: str = ..., port: int = ...) -> None: ...
        class KRaftVersionFeature:
            min_supported_version: int
            max_supported_version: int
            def __init__(self, *, min_supported_version: int = ..., max_supported_version: int = ...) -> None: ...
        voter_id: int
        voter_directory_id: bytes
        endpoints: list[Endpoint]
        k_raft_version_feature: KRaftVersionFeature
        def __init__(self, *, voter_id: int = ..., voter_directory_id: bytes = ..., endpoints: list[Endpoint] = ..., k_raft_version_feature: KRaftVersionFeature = ...) -> None: ...
    version: int
    voters: list[Voter]
    def __init__(self, *, version: int = ..., voters: list[Voter] = ...) -> None: ...

class WriteTxnMarkersRequest:
    class WritableTxnMarker:
        class WritableTxnMarkerTopic:
            name: str
            partition_indexes: list[int]
            def __init__(self, *, name: str = ..., partition_indexes: list[int] = ...) -> None: ...
        producer_id: int
        producer_epoch: int
        transaction_result: bool
        topics: list[WritableTxnMarkerTopic]
        coordinator_epoch: int
        transaction_version: int
        def __init__(self, *, producer_id: int = ..., producer_epoch: int = ..., transaction_result: bool = ..., topics: list[WritableTxnMarkerTopic] = ..., coordinator_epoch: int = ..., transaction_version: int = ...) -> None: ...
    markers: list[WritableTxnMarker]
    def __init__(self, *, markers: list[WritableTxnMarker] = ...) -> None: ...

class WriteTxnMarkersResponse:
    class WritableTxnMarkerResult:
        class WritableTxnMarkerTopicResult:
            class WritableTxnMarkerPartitionResult:
                partition_index: int
                error_code: int
                def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...
            name: str
            partitions: list[WritableTxnMarkerPartitionResult]
            def __init__(self, *, name: str = ..., partitions: list[WritableTxnMarkerPartitionResult] = ...) -> None: ...
        producer_id: int
        topics: list[WritableTxnMarkerTopicResult]
        def __init__(self, *, producer_id: int = ..., topics: list[WritableTxnMarkerTopicResult] = ...) -> None: ...
    markers: list[WritableTxnMarkerResult]
    def __init__(self, *, markers: list[WritableTxnMarkerResult] = ...) -> None: ...

class ZkMigrationStateRecord:
    zk_migration_state: int
    def __init__(self, *, zk_migration_state: int = ...) -> None: ...
