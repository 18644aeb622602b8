"""What a pipeline asks of the broker, written down as a history by a tap on the wire, before the broker gets it.

Drivers and executors are what users run: nothing in them knows that they are watched. A transaction begins with the
first call that puts something into it; it is asked to end by EndTxn, and has ended when the broker says so. What was
never asked to commit cannot have been committed, and what was asked and not answered stays unknown.
"""

import dataclasses
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from fencepost.client.loop_thread import LoopThread
from fencepost.history import HistoryRecorder, RecordedOperation
from fencepost.tap.proxy import Address, Tap
from tests.spark.chaos.examples import INPUT_PARTITIONS, Example

Message = Mapping[str, Any]
Identity = tuple[int, int]
"""Producer id and epoch."""


@dataclasses.dataclass(slots=True)
class _Transaction:
    identity: Identity
    operation: RecordedOperation
    sends: dict[tuple[str, int], list[int]] = dataclasses.field(default_factory=dict)
    """The numbers of the sends of a batch, by its partition and first sequence: a batch may be sent again."""
    is_ending: bool = False


@dataclasses.dataclass(slots=True)
class _Driver:
    """One application of Spark, by the client id of its calls."""

    process: str
    current: RecordedOperation | None = None
    """The last of its operations. What came before and was not completed stays unknown."""
    open: _Transaction | None = None
    newest: Identity = (-1, -1)
    late: dict[Identity, _Transaction] = dataclasses.field(default_factory=dict)

    def complete(self, operation: RecordedOperation, outcome: str) -> None:
        if operation is self.current and not operation.is_complete:
            getattr(operation, outcome)()


class PipelineTap:
    """A way to the broker that tells what passes to a recorder."""

    def __init__(self, broker: Address, example: Example, recorder: HistoryRecorder) -> None:
        self._history = _PipelineHistory(example, recorder)
        self._loop = LoopThread()
        self._tap = Tap(broker, ("127.0.0.1", 0), self._history.take, with_contents=True)

    def __enter__(self) -> Self:
        self._loop.run(self._tap.start())
        return self

    @property
    def bootstrap_servers(self) -> str:
        return "{}:{}".format(*self._tap.address)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._tap.stop())
        self._loop.close()


class _PipelineHistory:
    def __init__(self, example: Example, recorder: HistoryRecorder) -> None:
        self._example = example
        self._recorder = recorder
        self._none: dict[str, Any] = {}
        for partition in range(INPUT_PARTITIONS):
            self._none |= registers(f"{example.source}-{partition}", -1, None)
        self._drivers: dict[str, _Driver] = {}
        self._asked: dict[int, Any] = {}
        """By the number of a call, what its answer completes."""

    def take(self, line: Message) -> None:
        """One line of the tap's recording."""
        if line["type"] == "request" and line["message"] is not None:
            taker = getattr(self, f"_asked_{line['api']}", None)
            if taker is not None and (then := taker(self._driver(line["client_id"]), line["message"])) is not None:
                self._asked[line["call"]] = then
        elif line["type"] in ("response", "lost"):
            then = self._asked.pop(line["call"], None)
            if then is not None:
                then(line.get("message"))

    def _driver(self, client_id: str | None) -> _Driver:
        process = (client_id or "nobody").rpartition("/")[0] or "nobody"
        return self._drivers.setdefault(process, _Driver(process))

    # Transactions

    def _transaction(self, driver: _Driver, identity: Identity) -> _Transaction:
        """The one that a call with this identity belongs to."""
        if driver.open is not None and driver.open.identity == identity:
            return driver.open
        if identity < driver.newest:
            # A straggler of an attempt that is over: nobody will ask for its commit.
            if identity not in driver.late:
                process = f"{driver.process}, late with epoch {identity[1]}"
                driver.late[identity] = self._begun(process, identity)
            return driver.late[identity]
        driver.newest = identity
        driver.open = self._begun(driver.process, identity)
        driver.current = driver.open.operation
        return driver.open

    def _begun(self, process: str, identity: Identity) -> _Transaction:
        return _Transaction(identity, self._recorder.transaction(process, self._example.name))

    def _asked_InitProducerId(self, driver: _Driver, request: Message) -> Any:
        if request["transactional_id"] != self._example.name:
            return None
        driver.open = None
        operation = driver.current = self._recorder.init(driver.process, self._example.name)

        def answered(response: Message | None) -> None:
            if response is not None and response["error_code"] == 0:
                driver.newest = max(driver.newest, (response["producer_id"], response["producer_epoch"]))
                driver.complete(operation, "ok")
            else:
                driver.complete(operation, "info")

        return answered

    def _asked_Produce(self, driver: _Driver, request: Message) -> Any:
        if request["transactional_id"] != self._example.name:
            return None
        told: dict[str, tuple[_Transaction, list[int]]] = {}
        for topic in request["topic_data"]:
            for data in topic["partition_data"]:
                place = f"{topic.get('topic_name') or topic['name']}-{data['index']}"
                for batch in data["batches"]:
                    transaction = self._transaction(driver, (batch["producer_id"], batch["producer_epoch"]))
                    told[_place(topic, data)] = transaction, self._sends(transaction, place, batch)

        def answered(response: Message | None) -> None:
            for topic in (response or {}).get("responses", ()):
                for data in topic["partition_responses"]:
                    transaction, numbers = told[_place(topic, data)]
                    if data["error_code"] == 0 and data["base_offset"] >= 0:
                        for number, offset in zip(numbers, range(data["base_offset"], 1 << 62), strict=False):
                            transaction.operation.sent(number, offset)

        return answered

    def _sends(self, transaction: _Transaction, place: str, batch: Message) -> list[int]:
        key = place, batch["base_sequence"]
        if key not in transaction.sends:
            transaction.sends[key] = [
                transaction.operation.sending(place, self._example.name_of(json.loads(record["value"])))
                for record in batch["contents"]
            ]
        return transaction.sends[key]

    def _asked_TxnOffsetCommit(self, driver: _Driver, request: Message) -> Any:
        if request["transactional_id"] != self._example.name:
            return None
        transaction = self._transaction(driver, (request["producer_id"], request["producer_epoch"]))
        offsets: dict[str, int] = {}
        for topic in request["topics"]:
            for each in topic["partitions"]:
                place = f"{topic['name']}-{each['partition_index']}"
                offsets |= registers(place, each["committed_offset"], each["committed_metadata"])
        transaction.operation.committing_offsets(request["group_id"], offsets)
        return None

    def _asked_EndTxn(self, driver: _Driver, request: Message) -> Any:
        identity = (request["producer_id"], request["producer_epoch"])
        transaction = driver.open
        if request["transactional_id"] != self._example.name or transaction is None or transaction.identity != identity:
            return None  # nothing was put into it, or its end is asked for again and was told before
        if not transaction.is_ending:
            transaction.is_ending = True
            transaction.operation.ending(request["committed"])

        def answered(response: Message | None) -> None:
            if response is None or response["error_code"] != 0:
                return
            driver.complete(transaction.operation, "ok" if request["committed"] else "fail")
            if driver.open is transaction:
                driver.open = None
                driver.newest = max(driver.newest, (response["producer_id"], response["producer_epoch"]))

        return answered

    # Offsets of the group

    def _asked_OffsetFetch(self, driver: _Driver, request: Message) -> Any:
        groups = [each["group_id"] for each in request.get("groups") or ()] or [request.get("group_id")]
        if groups != [self._example.name] or not request["require_stable"]:
            return None
        reader = self._driver(f"{driver.process}, offsets/")
        operation = reader.current = self._recorder.fetch_offsets(reader.process)

        def answered(response: Message | None) -> None:
            found = None if response is None else _fetched(response)
            if operation is not reader.current:
                return
            if found is not None:
                operation.fetched(self._example.name, {**self._none, **found})
            reader.complete(operation, "info" if found is None else "ok")

        return answered


def _place(topic: Message, data: Message) -> str:
    return f"{topic.get('name') or topic.get('topic_id')}-{data['index']}"


def registers(place: str, offset: int, metadata: str | None) -> dict[str, Any]:
    """What a group holds of a partition: an offset, and the batch that the marker in its metadata names.

    The copy of the marker on an output has no offset."""
    marked = {f"batch that marks {place}": json.loads(metadata)["batch"] if metadata else None}
    return marked if metadata and offset < 0 else {place: offset if offset >= 0 else None, **marked}


def _fetched(response: Message) -> dict[str, Any] | None:
    """None where the answer is an error, which is asked again."""
    groups = response.get("groups") or [response]
    found: dict[str, Any] = {}
    for group in groups:
        if group.get("error_code"):
            return None
        for topic in group["topics"]:
            for each in topic["partitions"]:
                if each["error_code"]:
                    return None
                place = f"{topic['name']}-{each['partition_index']}"
                found |= registers(place, each["committed_offset"], each["metadata"])
    return found
