"""DescribeClientQuotas (0-1) and AlterClientQuotas (0-1): this broker has no quotas, and none can be set.

The versions differ only in their encoding. Describing needs DESCRIBE_CONFIGS on the cluster, altering ALTER_CONFIGS.
"""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.handler import MESSAGES, Handler, Shape
from fencepost.broker.rights import OnCluster
from fencepost.wire.acls import AclOperation
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


_Entry = AlterClientQuotasResponse.EntryData


def describe_client_quotas(
    node: "Node", call: Call, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_message=None, entries=[])


def alter_client_quotas(node: "Node", call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    return _nothing_altered(request, ErrorCode.UNSUPPORTED_VERSION, "This broker has no quotas")


def _nothing_altered(
    request: AlterClientQuotasRequest, error: ErrorCode, message: str | None
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            _Entry(
                error_code=error,
                error_message=message,
                entity=[
                    _Entry.EntityData(entity_type=one.entity_type, entity_name=one.entity_name) for one in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _not_described(call: Call, request: DescribeClientQuotasRequest, error: ErrorCode) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error, error_message=MESSAGES[error], entries=None)


def _not_altered(call: Call, request: AlterClientQuotasRequest, error: ErrorCode) -> AlterClientQuotasResponse:
    return _nothing_altered(request, error, MESSAGES[error])


HANDLERS = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Handler(
        describe_client_quotas,
        reads_only=True,
        needs=(OnCluster(AclOperation.DESCRIBE_CONFIGS),),
        on_error=_not_described,
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Handler(
        alter_client_quotas,
        shapes=(Shape("entries", "entries", None),),
        needs=(OnCluster(AclOperation.ALTER_CONFIGS),),
        on_error=_not_altered,
    ),
}
