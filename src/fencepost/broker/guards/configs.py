"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: by what the settings belong to.

Those of brokers are the cluster's. The journal of causes, a kind of resource that only Fencepost has, belongs to the
transactional id it is asked about, or to the cluster.
"""

from typing import Any

from fencepost.broker.guards.visit import MESSAGES, Guard, Visit
from fencepost.broker.handlers.causes import CAUSES
from fencepost.broker.handlers.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from fencepost.wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

ERRORS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def _refusal(visit: Visit, operation: AclOperation, kind: int, name: str) -> ErrorCode | None:
    """Why not; None if it is allowed, or of a kind that the handler refuses."""
    if kind == CAUSES:
        operation = AclOperation.DESCRIBE
    if kind == TOPIC:
        resource, named = ResourceType.TOPIC, name
    elif kind == GROUP:
        resource, named = ResourceType.GROUP, name
    elif kind == CAUSES and name:
        resource, named = ResourceType.TRANSACTIONAL_ID, name
    elif kind in (BROKER, BROKER_LOGGER, CLIENT_METRICS, CAUSES):
        resource, named = ResourceType.CLUSTER, CLUSTER_NAME
    else:
        return None
    return None if visit.access.may(operation, resource, named) else ERRORS[resource]


def describe_configs(visit: Visit, request: DescribeConfigsRequest) -> Any:
    result = DescribeConfigsResponse.DescribeConfigsResult
    allowed: list[DescribeConfigsRequest.DescribeConfigsResource] = []
    refused: list[DescribeConfigsResponse.DescribeConfigsResult] = []
    for resource in {(each.resource_type, each.resource_name): each for each in request.resources}.values():
        error = _refusal(visit, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
        if error is None:
            allowed.append(resource)
        else:
            refused.append(
                result(
                    error_code=error,
                    error_message=MESSAGES[error],
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
    request.resources = allowed

    return visit.pass_on_with(request, "results", refused)


def alter_configs(visit: Visit, request: AlterConfigsRequest | IncrementalAlterConfigsRequest) -> Any:
    is_whole = isinstance(request, AlterConfigsRequest)
    answer = AlterConfigsResponse if is_whole else IncrementalAlterConfigsResponse
    allowed: list[Any] = []
    refused: list[Any] = []
    for resource in request.resources:
        error = _refusal(visit, AclOperation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
        if error is None:
            allowed.append(resource)
        else:
            refused.append(
                answer.AlterConfigsResourceResponse(
                    error_code=error,
                    error_message=MESSAGES[error],
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
    request.resources = allowed

    return visit.pass_on_with(request, "responses", refused)


def list_config_resources(visit: Visit, request: ListConfigResourcesRequest) -> Any:
    if not visit.access.may_cluster(AclOperation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return visit.pass_on(request)


GUARDS: dict[ApiKey, Guard] = {
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources,
}
