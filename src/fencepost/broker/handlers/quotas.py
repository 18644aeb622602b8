"""DescribeClientQuotas (0-1) and AlterClientQuotas (0-1): there are no quotas, and none can be made."""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.dispatch import Handler
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node


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
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Handler(describe_client_quotas),
    ApiKey.ALTER_CLIENT_QUOTAS: Handler(alter_client_quotas),
}
