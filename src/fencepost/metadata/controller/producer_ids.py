"""Producer ids, which brokers get in blocks: AllocateProducerIds. No id is ever in two blocks."""

from fencepost.metadata.controller.state import Call, ControllerState, Decision
from fencepost.metadata.records import MetadataRecord
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse, ProducerIdsRecord

BLOCK_IDS = 1_000
PRODUCER_ID_MAX = 2**63 - 1


def allocate_producer_ids(state: ControllerState, request: AllocateProducerIdsRequest, call: Call) -> Decision:
    try:
        state.checked_broker(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return Decision(AllocateProducerIdsResponse(error_code=error.code))
    first = max(0, state.image.next_producer_id)
    if first > PRODUCER_ID_MAX - BLOCK_IDS:
        return Decision(AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_IDS
    )
    answer = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_IDS)
    return Decision(answer, [MetadataRecord(record)])
