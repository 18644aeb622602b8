"""DescribeAcls (1-3), CreateAcls (1-3), DeleteAcls (1-3): the rules of the authorizer.

The versions differ only in their encoding. Describing needs DESCRIBE on the cluster, changing ALTER. Without an
authorizer all three answer SECURITY_DISABLED. The rules of a request are written together and count when they are
durable. Creating a rule that exists succeeds; a filter that matches nothing deletes nothing. Describing and deleting go
through all rules: they are written as steps, which are charged to the client's share (`processor_shares.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from fencepost.broker.connection import Call
from fencepost.broker.handler import JOURNAL_PART_ENTRIES, Handler, Shape
from fencepost.broker.rights import OnCluster
from fencepost.broker.slices import Steps
from fencepost.wire.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    known,
)
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node

NO_AUTHORIZER = "No Authorizer is configured."

_Resource = DescribeAclsResponse.DescribeAclsResource
_Creation = CreateAclsResponse.AclCreationResult
_FilterResult = DeleteAclsResponse.DeleteAclsFilterResult


def describe_acls(node: Node, call: Call, request: DescribeAclsRequest) -> Steps[DescribeAclsResponse]:
    yield None
    if node.authorizer is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    wanted = _filter(request)
    resources: dict[ResourcePattern, _Resource] = {}
    for binding in filter(wanted.matches, node.metadata.acls):
        pattern = binding.pattern
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = _Resource(
                resource_type=pattern.resource_type, resource_name=pattern.name, pattern_type=pattern.pattern_type
            )
        resource.acls.append(
            _Resource.AclDescription(
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission_type,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


def create_acls(node: Node, call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    response = CreateAclsResponse()
    if node.authorizer is None:
        refused = _Creation(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        response.results = [refused for _ in request.creations]
        return response
    new: dict[AclBinding, None] = {}
    for creation in request.creations:
        one = _Creation(error_message=None)
        response.results.append(one)
        try:
            binding = _binding(creation)
        except KafkaError as error:
            one.error_code, one.error_message = error.code, error.message
            continue
        if binding not in node.metadata.acls:
            new[binding] = None
    if new:
        try:
            node.create_acls(list(new), call.connection.principal)
        except KafkaError as error:
            for one in response.results:
                if not one.error_code:
                    one.error_code, one.error_message = error.code, error.message
    return response


def delete_acls(node: Node, call: Call, request: DeleteAclsRequest) -> Steps[DeleteAclsResponse]:
    yield None
    response = DeleteAclsResponse()
    if node.authorizer is None:
        refused = _FilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        response.filter_results = [refused for _ in request.filters]
        return response
    doomed: dict[AclBinding, None] = {}
    for each in request.filters:
        one = _FilterResult(error_message=None)
        response.filter_results.append(one)
        wanted = _filter(each)
        if wanted.is_unknown:
            one.error_code, one.error_message = ErrorCode.INVALID_REQUEST, "The filter has unknown parts."
            continue
        found = list(filter(wanted.matches, node.metadata.acls))
        doomed |= dict.fromkeys(found)
        one.matching_acls = [_matching(binding) for binding in found]
    if doomed:
        try:
            node.delete_acls(list(doomed), call.connection.principal)
        except KafkaError as error:
            response.filter_results = [
                _FilterResult(error_code=error.code, error_message=error.message) for _ in request.filters
            ]
    return response


def _matching(binding: AclBinding) -> _FilterResult.DeleteAclsMatchingAcl:
    return _FilterResult.DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=binding.pattern.resource_type,
        resource_name=binding.pattern.name,
        pattern_type=binding.pattern.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission_type,
    )


def _filter(wanted: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclBindingFilter:
    return AclBindingFilter(
        cast(ResourceType, known(ResourceType, wanted.resource_type_filter)),
        wanted.resource_name_filter,
        cast(PatternType, known(PatternType, wanted.pattern_type_filter)),
        wanted.principal_filter,
        wanted.host_filter,
        cast(AclOperation, known(AclOperation, wanted.operation)),
        cast(AclPermissionType, known(AclPermissionType, wanted.permission_type)),
    )


def _binding(wanted: CreateAclsRequest.AclCreation) -> AclBinding:
    resource_type = cast(ResourceType, known(ResourceType, wanted.resource_type))
    pattern_type = cast(PatternType, known(PatternType, wanted.resource_pattern_type))
    operation = cast(AclOperation, known(AclOperation, wanted.operation))
    permission_type = cast(AclPermissionType, known(AclPermissionType, wanted.permission_type))
    if resource_type is ResourceType.CLUSTER and wanted.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not wanted.resource_name:
        raise _invalid("Invalid empty resource name")
    if resource_type is ResourceType.DELEGATION_TOKEN:
        raise _invalid("There are no delegation tokens here")
    if resource_type <= ResourceType.ANY:
        raise _invalid(f"Invalid resourceType {resource_type.name}")
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {pattern_type.name}")
    if operation <= AclOperation.ANY:
        raise _invalid(f"Invalid operation {operation.name}")
    if permission_type <= AclPermissionType.ANY:
        raise _invalid(f"Invalid permissionType {permission_type.name}")
    kind, colon, _ = wanted.principal.partition(":")
    if not kind or not colon:
        raise _invalid(f"expected a principal like User:alice, not {wanted.principal!r}")
    pattern = ResourcePattern(resource_type, wanted.resource_name, pattern_type)
    return AclBinding(pattern, wanted.principal, wanted.host, operation, permission_type)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


HANDLERS = {
    ApiKey.DESCRIBE_ACLS: Handler(describe_acls, reads_only=True, needs=(OnCluster(AclOperation.DESCRIBE),)),
    ApiKey.CREATE_ACLS: Handler(
        create_acls,
        shapes=(
            Shape("creations", "results", ("resource_name",), part_entries=JOURNAL_PART_ENTRIES, answer=_Creation),
        ),
        needs=(OnCluster(AclOperation.ALTER),),
    ),
    ApiKey.DELETE_ACLS: Handler(
        delete_acls,
        shapes=(
            Shape(
                "filters",
                "filter_results",
                ("resource_name_filter",),
                part_entries=JOURNAL_PART_ENTRIES,
                answer=_FilterResult,
            ),
        ),
        needs=(OnCluster(AclOperation.ALTER),),
    ),
}
