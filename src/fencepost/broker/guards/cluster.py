"""What needs a right on the cluster as a whole, FindCoordinator, and what is open to everybody."""

from typing import Any

from fencepost.broker.guards.topics import cluster_operations
from fencepost.broker.guards.visit import MESSAGES, Guard, Visit
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
MESSAGE = MESSAGES[REFUSED]
# Whose coordinator a key asks for.
_COORDINATED = {
    0: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    1: (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
SEVERAL_KEYS_VERSION = 4


def find_coordinator(visit: Visit, request: FindCoordinatorRequest) -> Any:
    if request.key_type not in _COORDINATED:
        return visit.pass_on(request)
    resource_type, error = _COORDINATED[request.key_type]
    is_several = visit.version >= SEVERAL_KEYS_VERSION
    keys = request.coordinator_keys if is_several else [request.key]
    allowed, refused = visit.split(AclOperation.DESCRIBE, resource_type, keys, lambda key: key)
    if not is_several:
        if allowed:
            return visit.pass_on(request)
        return FindCoordinatorResponse(error_code=error, error_message=MESSAGES[error], node_id=-1, host="", port=-1)
    coordinator = FindCoordinatorResponse.Coordinator
    refusals = [
        coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=MESSAGES[error])
        for key in refused
    ]
    if not allowed:
        return FindCoordinatorResponse(coordinators=refusals)
    request.coordinator_keys = allowed

    return visit.pass_on_with(request, "coordinators", refusals)


def describe_cluster(visit: Visit, request: DescribeClusterRequest) -> Any:
    def complete(response: DescribeClusterResponse) -> DescribeClusterResponse:
        if request.include_cluster_authorized_operations and response.error_code == ErrorCode.NONE:
            response.cluster_authorized_operations = cluster_operations(visit)
        return response

    return visit.pass_on(request, complete)


def describe_acls(visit: Visit, request: DescribeAclsRequest) -> Any:
    if visit.access.may_cluster(AclOperation.DESCRIBE):
        return visit.pass_on(request)
    return DescribeAclsResponse(error_code=REFUSED, error_message=MESSAGE)


def create_acls(visit: Visit, request: CreateAclsRequest) -> Any:
    if visit.access.may_cluster(AclOperation.ALTER):
        return visit.pass_on(request)
    result = CreateAclsResponse.AclCreationResult(error_code=REFUSED, error_message=MESSAGE)
    return CreateAclsResponse(results=[result for _ in request.creations])


def delete_acls(visit: Visit, request: DeleteAclsRequest) -> Any:
    if visit.access.may_cluster(AclOperation.ALTER):
        return visit.pass_on(request)
    result = DeleteAclsResponse.DeleteAclsFilterResult(error_code=REFUSED, error_message=MESSAGE)
    return DeleteAclsResponse(filter_results=[result for _ in request.filters])


def describe_log_dirs(visit: Visit, request: DescribeLogDirsRequest) -> Any:
    if visit.access.may_cluster(AclOperation.DESCRIBE):
        return visit.pass_on(request)
    return DescribeLogDirsResponse(error_code=REFUSED)


def elect_leaders(visit: Visit, request: ElectLeadersRequest) -> Any:
    if visit.access.may_cluster(AclOperation.ALTER):
        return visit.pass_on(request)
    result = ElectLeadersResponse.ReplicaElectionResult
    return ElectLeadersResponse(
        error_code=REFUSED,
        replica_election_results=[
            result(
                topic=topic.topic,
                partition_result=[
                    result.PartitionResult(partition_id=index, error_code=REFUSED, error_message=MESSAGE)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def alter_partition_reassignments(visit: Visit, request: AlterPartitionReassignmentsRequest) -> Any:
    if visit.access.may_cluster(AclOperation.ALTER):
        return visit.pass_on(request)
    topic_response = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    partition_response = topic_response.ReassignablePartitionResponse
    return AlterPartitionReassignmentsResponse(
        error_code=REFUSED,
        error_message=MESSAGE,
        responses=[
            topic_response(
                name=topic.name,
                partitions=[
                    partition_response(
                        partition_index=wanted.partition_index, error_code=REFUSED, error_message=MESSAGE
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def alter_replica_log_dirs(visit: Visit, request: AlterReplicaLogDirsRequest) -> Any:
    if visit.access.may_cluster(AclOperation.ALTER):
        return visit.pass_on(request)
    topic_result = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
    partition_result = topic_result.AlterReplicaLogDirPartitionResult
    return AlterReplicaLogDirsResponse(
        results=[
            topic_result(
                topic_name=topic.name,
                partitions=[partition_result(partition_index=index, error_code=REFUSED) for index in topic.partitions],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def list_partition_reassignments(visit: Visit, request: ListPartitionReassignmentsRequest) -> Any:
    if visit.access.may_cluster(AclOperation.DESCRIBE):
        return visit.pass_on(request)
    return ListPartitionReassignmentsResponse(error_code=REFUSED, error_message=MESSAGE)


def describe_client_quotas(visit: Visit, request: DescribeClientQuotasRequest) -> Any:
    if visit.access.may_cluster(AclOperation.DESCRIBE_CONFIGS):
        return visit.pass_on(request)
    return DescribeClientQuotasResponse(error_code=REFUSED, error_message=MESSAGE, entries=None)


def alter_client_quotas(visit: Visit, request: AlterClientQuotasRequest) -> Any:
    if visit.access.may_cluster(AclOperation.ALTER_CONFIGS):
        return visit.pass_on(request)
    data = AlterClientQuotasResponse.EntryData
    return AlterClientQuotasResponse(
        entries=[
            data(
                error_code=REFUSED,
                error_message=MESSAGE,
                entity=[
                    data.EntityData(entity_type=one.entity_type, entity_name=one.entity_name) for one in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def describe_user_scram_credentials(visit: Visit, request: DescribeUserScramCredentialsRequest) -> Any:
    if visit.access.may_cluster(AclOperation.DESCRIBE):
        return visit.pass_on(request)
    result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    return DescribeUserScramCredentialsResponse(
        error_code=REFUSED, error_message=MESSAGE, results=[result(error_code=REFUSED, error_message=MESSAGE)]
    )


def alter_user_scram_credentials(visit: Visit, request: AlterUserScramCredentialsRequest) -> Any:
    if visit.access.may_cluster(AclOperation.ALTER):
        return visit.pass_on(request)
    result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    users = dict.fromkeys([each.name for each in request.deletions] + [each.name for each in request.upsertions])
    return AlterUserScramCredentialsResponse(
        results=[result(user=user, error_code=REFUSED, error_message=MESSAGE) for user in users]
    )


def update_features(visit: Visit, request: UpdateFeaturesRequest) -> Any:
    if visit.access.may_cluster(AclOperation.ALTER):
        return visit.pass_on(request)
    return UpdateFeaturesResponse(error_code=REFUSED, error_message=MESSAGE)


GUARDS: dict[ApiKey, Guard | None] = {
    ApiKey.API_VERSIONS: None,
    ApiKey.SASL_HANDSHAKE: None,
    ApiKey.SASL_AUTHENTICATE: None,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DESCRIBE_ACLS: describe_acls,
    ApiKey.CREATE_ACLS: create_acls,
    ApiKey.DELETE_ACLS: delete_acls,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.ELECT_LEADERS: elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
    ApiKey.UPDATE_FEATURES: update_features,
}
