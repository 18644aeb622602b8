"""ACL and quota calls: without an authorizer they answer SECURITY_DISABLED or nothing, as Kafka does."""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.dispatch import Handler
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node

NO_AUTHORIZER = "No Authorizer is configured."


def describe_acls(node: "Node", call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


def create_acls(node: "Node", call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    result = CreateAclsResponse.AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[result for _ in request.creations])


def delete_acls(node: "Node", call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    result = DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
    )
    return DeleteAclsResponse(filter_results=[result for _ in request.filters])


def describe_client_quotas(
    node: "Node", call: Call, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_message=None, entries=[])


def alter_client_quotas(node: "Node", call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    data = AlterClientQuotasResponse.EntryData
    return AlterClientQuotasResponse(
        entries=[
            data(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                error_message="This broker has no quotas",
                entity=[
                    data.EntityData(entity_type=one.entity_type, entity_name=one.entity_name) for one in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


HANDLERS = {
    ApiKey.DESCRIBE_ACLS: Handler(describe_acls),
    ApiKey.CREATE_ACLS: Handler(create_acls),
    ApiKey.DELETE_ACLS: Handler(delete_acls),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Handler(describe_client_quotas),
    ApiKey.ALTER_CLIENT_QUOTAS: Handler(alter_client_quotas),
}
