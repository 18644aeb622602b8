"""InitProducerId (0-6): a producer id and an epoch. With a transactional id the transaction coordinator answers.

Needs WRITE on the transactional id, and TWO_PHASE_COMMIT for transactions that outlive their time-out (v6). Without a
transactional id the right to write to any topic is enough, or IDEMPOTENT_WRITE on the cluster (KIP-679). A producer may
name the id and epoch that it has from v3 on.
"""

from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.handler import Handler
from fencepost.broker.rights import OnCluster
from fencepost.broker.security.access import Access
from fencepost.promise import Promise
from fencepost.wire.acls import AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node


def init_producer_id(
    node: "Node", call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse | Promise[InitProducerIdResponse]:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(call, request, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        host = node.transactions
        return host.coordinator.init_producer_id(request, call.version, call.caller, host.now())
    try:
        return InitProducerIdResponse(producer_id=node.metadata.next_producer_id(), producer_epoch=0)
    except KafkaError as error:
        return _refused(call, request, error.code)


def _may_have_an_id(access: Access, call: Call, request: InitProducerIdRequest) -> ErrorCode:
    transactional_id = request.transactional_id
    if transactional_id is None:
        may_write = access.could_any(AclOperation.WRITE, ResourceType.TOPIC)
        return ErrorCode.NONE if may_write else OnCluster(AclOperation.IDEMPOTENT_WRITE)(access, call, request)
    operations = [AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT] if request.enable2_pc else [AclOperation.WRITE]
    is_allowed = all(access.may(each, ResourceType.TRANSACTIONAL_ID, transactional_id) for each in operations)
    return ErrorCode.NONE if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _refused(call: Call, request: InitProducerIdRequest, error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


HANDLERS = {ApiKey.INIT_PRODUCER_ID: Handler(init_producer_id, needs=(_may_have_an_id,), on_error=_refused)}
