"""AddPartitionsToTxn 0-5 and AddOffsetsToTxn 0-4 on the wire: a request in, calls for the decisions out, and back.

Owns which partitions may be added and how an answer looks in each version; knows nothing about states.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

from fencepost.coordinators.context import Caller, Topics
from fencepost.coordinators.transactions.calls import AddCall, Outcome, ProducerPair, VerifyCall
from fencepost.coordinators.transactions.ghosts import DropConnection
from fencepost.coordinators.transactions.transaction_metadata import PROTOCOL_1, PROTOCOL_2
from fencepost.internal_topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.ports import Now
from fencepost.promise import Promise
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

_CLIENTS_MAY_NOT_ADD = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"})
# Clients of earlier versions know only INVALID_PRODUCER_EPOCH.
ADD_FENCED_VERSION = 2
BROKER_VERSION = 4

RequestedTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
RequestedTransaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
TransactionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult

Reply = Promise[Outcome | DropConnection]
Errors = dict[TopicPartition, ErrorCode]
T = TypeVar("T")
Steps = Generator[Promise[Any] | None, None, T]
ENTRIES_PER_STEP = 128


class AddRequests:
    """AddPartitionsToTxn 0-5 and AddOffsetsToTxn 0-4.

    Up to version 3 AddPartitionsToTxn comes from a client and adds to one transaction; one partition that cannot be
    added spoils the call. From version 4 brokers send it for many transactions at a time, to add or only to verify.
    """

    def __init__(
        self,
        add: Callable[[AddCall, Now], Reply],
        verify: Callable[[VerifyCall], Errors],
        topics: Topics,
        group_partition: Callable[[str], int],
        wait_ms: int,
    ) -> None:
        self._add = add
        self._verify = verify
        self._topics = topics
        self._group_partition = group_partition
        self._wait_ms = wait_ms

    def add_partitions(
        self, request: AddPartitionsToTxnRequest, version: int, caller: Caller, now: Now
    ) -> Promise[AddPartitionsToTxnResponse | DropConnection]:
        if version >= BROKER_VERSION:
            return self._add_for_brokers(request, version, caller, now)
        topics = request.v3_and_below_topics
        spoiled = self._check_partitions(topics, is_client=True)
        if spoiled:
            results = _topic_results(topics, spoiled)
            return Promise.resolved(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))
        call = self._call_of_client(request, caller, now)

        def respond(outcome: Outcome | DropConnection) -> AddPartitionsToTxnResponse | DropConnection:
            if isinstance(outcome, DropConnection):
                return outcome
            results = _same_results(topics, outcome.error_for(version, ADD_FENCED_VERSION))
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

        return self._add(call, now).map(respond)

    def add_partitions_in_steps(
        self, request: AddPartitionsToTxnRequest, version: int, caller: Caller, now: Now
    ) -> Steps[AddPartitionsToTxnResponse | DropConnection | Promise[AddPartitionsToTxnResponse | DropConnection]]:
        """The same for many topics. They are checked, and answered, a few at a time, and added at one go."""
        if version >= BROKER_VERSION:
            if all(_weight(transaction.topics) <= ENTRIES_PER_STEP for transaction in request.transactions):
                return self._add_for_brokers(request, version, caller, now)
            asked = []
            for transaction in request.transactions:
                given = ProducerPair(transaction.producer_id, transaction.producer_epoch)
                spoiled = yield from self._check_in_steps(transaction.topics, is_client=False)
                if spoiled:
                    asked.append((transaction, Promise[Errors].resolved(spoiled)))
                    continue
                partitions = _partitions(transaction.topics)
                yield None
                asked.append((transaction, self._add_checked(transaction, given, partitions, caller, now)))
            results = []
            for transaction, answer in asked:
                if not answer.done:
                    yield answer
                topic_results = yield from _topic_results_in_steps(transaction.topics, answer.value)
                results.append(
                    TransactionResult(transactional_id=transaction.transactional_id, topic_results=topic_results)
                )
            return AddPartitionsToTxnResponse(results_by_transaction=results)
        topics = request.v3_and_below_topics
        errors = yield from self._check_in_steps(topics, is_client=True)
        if not errors:
            added = self._add(self._call_of_client(request, caller, now), now)
            if not added.done:
                yield added
            if isinstance(added.value, DropConnection):
                return added.value
            error = added.value.error_for(version, ADD_FENCED_VERSION)
            errors = dict.fromkeys(_partitions(topics), error)
        answers = yield from _topic_results_in_steps(topics, errors)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=answers)

    def add_offsets(
        self, request: AddOffsetsToTxnRequest, version: int, caller: Caller, now: Now
    ) -> Promise[AddOffsetsToTxnResponse | DropConnection]:
        call = AddCall(
            "AddOffsetsToTxn",
            request.transactional_id,
            ProducerPair(request.producer_id, request.producer_epoch),
            frozenset({TopicPartition(CONSUMER_OFFSETS, self._group_partition(request.group_id))}),
            PROTOCOL_1,
            caller,
            now.monotonic_ms + self._wait_ms,
            is_guarded=True,
        )

        def respond(outcome: Outcome | DropConnection) -> AddOffsetsToTxnResponse | DropConnection:
            if isinstance(outcome, DropConnection):
                return outcome
            return AddOffsetsToTxnResponse(error_code=outcome.error_for(version, ADD_FENCED_VERSION))

        return self._add(call, now).map(respond)

    def _add_for_brokers(
        self, request: AddPartitionsToTxnRequest, version: int, caller: Caller, now: Now
    ) -> Promise[AddPartitionsToTxnResponse | DropConnection]:
        reply: Promise[AddPartitionsToTxnResponse | DropConnection] = Promise()
        results: dict[int, TransactionResult] = {}
        if not request.transactions:
            reply.resolve(AddPartitionsToTxnResponse())

        def add_one(index: int, transaction: RequestedTransaction) -> None:
            def answered(errors: Errors) -> None:
                results[index] = TransactionResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=_topic_results(transaction.topics, errors),
                )
                if len(results) == len(request.transactions):
                    in_order = [results[position] for position in range(len(results))]
                    reply.resolve(AddPartitionsToTxnResponse(results_by_transaction=in_order))

            self._add_for_broker(transaction, version, caller, now).then(answered)

        for index, transaction in enumerate(request.transactions):
            add_one(index, transaction)
        return reply

    def _add_for_broker(
        self, transaction: RequestedTransaction, version: int, caller: Caller, now: Now
    ) -> Promise[Errors]:
        partitions = _partitions(transaction.topics)
        given = ProducerPair(transaction.producer_id, transaction.producer_epoch)
        spoiled = self._check_partitions(transaction.topics, is_client=False)
        if spoiled:
            return Promise.resolved(spoiled)
        return self._add_checked(transaction, given, partitions, caller, now)

    def _add_checked(
        self,
        transaction: RequestedTransaction,
        given: ProducerPair,
        partitions: list[TopicPartition],
        caller: Caller,
        now: Now,
    ) -> Promise[Errors]:
        if transaction.verify_only:
            return Promise.resolved(self._verify(VerifyCall(transaction.transactional_id, given, partitions, caller)))
        call = AddCall(
            "AddPartitionsToTxn",
            transaction.transactional_id,
            given,
            frozenset(partitions),
            PROTOCOL_2,
            caller,
            now.monotonic_ms + self._wait_ms,
        )
        return self._add(call, now).map(lambda outcome: everywhere(partitions, outcome))

    def _call_of_client(self, request: AddPartitionsToTxnRequest, caller: Caller, now: Now) -> AddCall:
        return AddCall(
            "AddPartitionsToTxn",
            request.v3_and_below_transactional_id,
            ProducerPair(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            frozenset(_partitions(request.v3_and_below_topics)),
            PROTOCOL_1,
            caller,
            now.monotonic_ms + self._wait_ms,
            is_guarded=True,
        )

    def _check_partitions(self, topics: list[RequestedTopic], *, is_client: bool) -> Errors | None:
        """All or nothing: with one bad partition none is added."""
        errors: Errors = {}
        self._note_bad(topics, errors, is_client=is_client)
        return _spoiled(topics, errors) if errors else None

    def _check_in_steps(self, topics: list[RequestedTopic], *, is_client: bool) -> Steps[Errors | None]:
        errors: Errors = {}
        for some in _some_at_a_time(topics):
            yield None
            self._note_bad(some, errors, is_client=is_client)
        if not errors:
            return None
        spoiled: Errors = {}
        for some in _some_at_a_time(topics):
            yield None
            spoiled.update(_spoiled(some, errors))
        return spoiled

    def _note_bad(self, topics: list[RequestedTopic], errors: Errors, *, is_client: bool) -> None:
        for topic in topics:
            name = topic.name
            if is_client and name in _CLIENTS_MAY_NOT_ADD:
                errors.update(dict.fromkeys(_partitions([topic]), ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            partition_count = self._topics.partition_count_of(name) or 0
            for partition in topic.partitions:
                if not 0 <= partition < partition_count:
                    errors[TopicPartition(name, partition)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _spoiled(topics: list[RequestedTopic], errors: Errors) -> Errors:
    return {partition: errors.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED) for partition in _partitions(topics)}


def _weight(topics: Iterable[RequestedTopic]) -> int:
    return sum(1 + len(topic.partitions) for topic in topics)


def _some_at_a_time(topics: Iterable[RequestedTopic]) -> Iterator[list[RequestedTopic]]:
    """The topics in groups of about `ENTRIES_PER_STEP` partitions, one with more partitions than that in pieces."""
    some: list[RequestedTopic] = []
    weight = 0
    for topic in topics:
        if len(topic.partitions) > ENTRIES_PER_STEP:
            for piece in _pieces(topic.partitions):
                yield [RequestedTopic(name=topic.name, partitions=piece)]
            continue
        some.append(topic)
        weight += 1 + len(topic.partitions)
        if weight >= ENTRIES_PER_STEP:
            yield some
            some, weight = [], 0
    if some:
        yield some


def _pieces(partitions: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(partitions), ENTRIES_PER_STEP):
        yield partitions[start : start + ENTRIES_PER_STEP]


def everywhere(partitions: Iterable[TopicPartition], outcome: Outcome | DropConnection) -> Errors:
    assert not isinstance(outcome, DropConnection), "only calls of clients can be ghosts"
    return dict.fromkeys(partitions, outcome.error)


def _partitions(topics: Iterable[RequestedTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def _same_results(topics: Iterable[RequestedTopic], error: ErrorCode) -> list[TopicResult]:
    return [
        TopicResult(
            name=topic.name,
            results_by_partition=[
                PartitionResult(partition_index=index, partition_error_code=error) for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _topic_results_in_steps(topics: list[RequestedTopic], errors: Errors) -> Steps[list[TopicResult]]:
    results: list[TopicResult] = []
    for topic in topics:
        yield None
        answers: list[PartitionResult] = []
        for piece in _pieces(topic.partitions):
            yield None
            answers += _partition_results(topic.name, piece, errors)
        results.append(TopicResult(name=topic.name, results_by_partition=answers))
    return results


def _partition_results(name: str, partitions: Iterable[int], errors: Errors) -> list[PartitionResult]:
    return [
        PartitionResult(partition_index=index, partition_error_code=errors[TopicPartition(name, index)])
        for index in partitions
    ]


def _topic_results(topics: Iterable[RequestedTopic], errors: Errors) -> list[TopicResult]:
    return [
        TopicResult(name=topic.name, results_by_partition=_partition_results(topic.name, topic.partitions, errors))
        for topic in topics
    ]
