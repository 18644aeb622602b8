"""A simulated administrator: lists and describes transactions, and now and then fences a transactional id."""

from typing import Any

from fencepost.simulation import requests
from fencepost.simulation.clients import RETRIABLE, RETRY_MS, ClientProcess, Request, Sleep, Steps
from fencepost.simulation.deeds import Deeds
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import DescribeTransactionsRequest, ListTransactionsRequest

_NOT_THERE = frozenset({ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})


class Administrator(ClientProcess):
    def __init__(self, *arguments: Any, transactional_ids: list[str], timeout_ms: int, deeds: Deeds) -> None:
        super().__init__(*arguments)
        self.transactional_ids = transactional_ids
        self.timeout_ms = timeout_ms
        self.deeds = deeds
        self.fencings = 0

    def run(self) -> Steps[None]:
        while True:
            yield Sleep(self.source.randint(500, 3_000))
            answer = yield Request(ApiKey.LIST_TRANSACTIONS, 1, ListTransactionsRequest(duration_filter=-1))
            if answer is None or answer.error_code:
                continue
            listed = [one.transactional_id for one in answer.transaction_states]
            if listed:
                message = DescribeTransactionsRequest(transactional_ids=listed)
                answer = yield Request(ApiKey.DESCRIBE_TRANSACTIONS, 0, message)
                self._look_at(answer)
            if self.source.random() < 0.1:
                yield from self._fence(self.source.choice(self.transactional_ids))

    def _look_at(self, answer: Any) -> None:
        for state in () if answer is None else answer.transaction_states:
            if state.error_code and state.error_code not in RETRIABLE | _NOT_THERE:
                name = ErrorCode(state.error_code).name
                self.deeds.wonder(f"{self.name}: {state.transactional_id} described with {name}")

    def _fence(self, transactional_id: str) -> Steps[None]:
        """As the AdminClient's fenceProducers does."""
        operation = self.deeds.recorder.init(self.name, transactional_id)
        for _ in range(5):
            answer = yield requests.init_producer_id(transactional_id, self.timeout_ms)
            if answer is not None and answer.error_code == 0:
                self.fencings += 1
                self.deeds.handed_out((answer.producer_id, answer.producer_epoch), self.name)
                operation.ok()
                return
            yield Sleep(RETRY_MS)
        operation.info()
