"""ListTransactions 0-2 and DescribeTransactions 0: what administrators see of the transactional ids."""

from collections.abc import Callable, Generator

from fencepost.coordinators.runtime import CoordinatorRuntime
from fencepost.coordinators.transactions.patterns import InvalidPattern, compile_pattern
from fencepost.coordinators.transactions.transaction_journal import by_topic
from fencepost.coordinators.transactions.transaction_metadata import (
    TransactionEntry,
    TransactionMetadata,
    TransactionShard,
)
from fencepost.coordinators.transactions.transaction_states import PREPARED, STATE_OF_WIRE_NAME, TransactionState
from fencepost.ports import Now
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

Described = DescribeTransactionsResponse.TransactionState


class TransactionAdmin:
    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard, TransactionEntry],
        find: Callable[[str], TransactionMetadata | None],
    ) -> None:
        self._runtime = runtime
        self._find = find

    def list_transactions(
        self, request: ListTransactionsRequest, now: Now, may_see: Callable[[str], bool] | None
    ) -> Generator[None, None, ListTransactionsResponse]:
        """Yields where it can be interrupted: there may be many ids, and a pattern takes its time. A pattern is matched
        only against ids that the caller may see."""
        runtime = self._runtime
        if runtime.is_loading:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        try:
            is_wanted = _filter(request, now, may_see)
            wanted: list[ListTransactionsResponse.TransactionState] = []
            for shard in list(runtime.active_machines()):
                for metadata in list(shard.transactions.values()):
                    yield
                    if is_wanted(metadata):
                        wanted.append(
                            ListTransactionsResponse.TransactionState(
                                transactional_id=metadata.transactional_id,
                                producer_id=metadata.record.producer_id,
                                transaction_state=metadata.record.state.wire_name,
                            )
                        )
        except InvalidPattern:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        return ListTransactionsResponse(
            unknown_state_filters=[
                name for name in dict.fromkeys(request.state_filters) if name not in STATE_OF_WIRE_NAME
            ],
            transaction_states=wanted,
        )

    def describe(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=[self._describe(transactional_id) for transactional_id in request.transactional_ids]
        )

    def _describe(self, transactional_id: str) -> Described:
        if not transactional_id:
            return Described(transactional_id=transactional_id, error_code=ErrorCode.INVALID_REQUEST)
        try:
            metadata = self._find(transactional_id)
        except KafkaError as error:
            return Described(transactional_id=transactional_id, error_code=error.code)
        if metadata is None or metadata.pending_state is TransactionState.DEAD:
            return Described(transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        record = metadata.record
        partitions = metadata.awaiting_markers if record.state in PREPARED else record.partitions
        return Described(
            transactional_id=transactional_id,
            transaction_state=record.state.wire_name,
            transaction_timeout_ms=record.timeout_ms,
            transaction_start_time_ms=record.start_timestamp_ms,
            producer_id=record.producer_id,
            producer_epoch=record.producer_epoch,
            topics=[Described.TopicData(topic=topic, partitions=ids) for topic, ids in by_topic(partitions).items()],
        )


def _filter(
    request: ListTransactionsRequest, now: Now, may_see: Callable[[str], bool] | None
) -> Callable[[TransactionMetadata], bool]:
    """A state filter that names no known state still filters: it finds nothing. Raises InvalidPattern."""
    states = {STATE_OF_WIRE_NAME[name] for name in request.state_filters if name in STATE_OF_WIRE_NAME}
    producer_ids = set(request.producer_id_filters)
    pattern = compile_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None

    def is_wanted(metadata: TransactionMetadata) -> bool:
        record = metadata.record
        if metadata.pending_state is TransactionState.DEAD:
            return False
        if request.state_filters and record.state not in states:
            return False
        if producer_ids and record.producer_id not in producer_ids:
            return False
        if request.duration_filter >= 0 and now.wall_ms - record.start_timestamp_ms <= request.duration_filter:
            return False
        if may_see is not None and not may_see(metadata.transactional_id):
            return False
        return pattern is None or pattern.matches(metadata.transactional_id)

    return is_wanted
