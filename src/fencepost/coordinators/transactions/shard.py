"""The transactional ids of one partition of __transaction_state: the state machine that the runtime replays into."""

from collections.abc import Callable

from fencepost.coordinators.context import Now
from fencepost.coordinators.transactions.metadata import TransactionMetadata
from fencepost.coordinators.transactions.transaction_journal import TransactionEntry


def _nothing_to_undo() -> None:
    """What is applied is durable already."""


class TransactionShard:
    def __init__(
        self,
        partition: int,
        on_loaded: Callable[["TransactionShard", Now], None],
        on_unloaded: Callable[["TransactionShard"], None],
    ) -> None:
        self.partition = partition
        self.transactions: dict[str, TransactionMetadata] = {}
        self.is_loaded = False
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded

    def replay(self, position: int, producer_id: int, entry: TransactionEntry) -> Callable[[], None]:
        if entry.record is None:
            self.transactions.pop(entry.transactional_id, None)
        elif self.is_loaded:
            self.transactions[entry.transactional_id].apply(entry.record)
        else:
            # The last record of an id says everything: those before it may have been compacted away.
            metadata = TransactionMetadata(entry.transactional_id, self.partition, entry.record)
            self.transactions[entry.transactional_id] = metadata
        return _nothing_to_undo

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Nobody writes to this topic in a transaction."""

    def loaded(self, now: Now) -> None:
        self.is_loaded = True
        self._on_loaded(self, now)

    def unloaded(self) -> None:
        self._on_unloaded(self)
