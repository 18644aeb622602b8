"""Administration of transactions: list, describe, producers of a partition, writing a marker by hand (KIP-664)."""

import asyncio
import collections
from collections.abc import Iterable

from fencepost.client import apis
from fencepost.client.cluster import ClusterCalls
from fencepost.client.errors import (
    NOT_THERE,
    STALE_COORDINATOR,
    STALE_LEADER,
    BrokerError,
    ClientError,
    NoLeader,
    check,
)
from fencepost.client.kafka_types import (
    CoordinatorKind,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    by_topic,
)
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.errors import ErrorCode, error_code

_TRANSACTION = CoordinatorKind.TRANSACTION
_FATAL = frozenset({ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, *NOT_THERE})


class TransactionAdmin(ClusterCalls):
    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Asks every coordinator. Raises UnsupportedByBroker for a pattern if a broker is older than Kafka 4.1."""
        request = messages.ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            transactional_id_pattern=transactional_id_pattern,
        )

        async def one(node_id: int) -> list[TransactionListing]:
            async def attempt() -> list[TransactionListing]:
                answer = await self.cluster.call_node(node_id, apis.LIST_TRANSACTIONS, request)
                check(answer.error_code, f"transactions of broker {node_id}")
                return [
                    TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node_id)
                    for each in answer.transaction_states
                ]

            return await self.cluster.retrying(attempt)

        found = await asyncio.gather(*map(one, self.cluster.brokers))
        return sorted((each for several in found for each in several), key=lambda each: each.transactional_id)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Raises TRANSACTIONAL_ID_NOT_FOUND if the coordinator does not know the id."""
        request = messages.DescribeTransactionsRequest(transactional_ids=[transactional_id])

        async def attempt() -> TransactionDescription:
            answer = await self.cluster.call_coordinator(
                _TRANSACTION, transactional_id, apis.DESCRIBE_TRANSACTIONS, request
            )
            (found,) = answer.transaction_states
            if found.error_code in STALE_COORDINATOR:
                self.cluster.forget_coordinator(_TRANSACTION, transactional_id)
            check(found.error_code, f"transactional id {transactional_id!r}")
            return TransactionDescription(
                transactional_id,
                found.transaction_state,
                found.producer_id,
                found.producer_epoch,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms,
                await self.cluster.coordinator(_TRANSACTION, transactional_id),
                tuple(
                    TopicPartition(topic.topic, partition)
                    for topic in found.topics
                    for partition in sorted(topic.partitions)
                ),
            )

        return await self.cluster.retrying(attempt, fatal=_FATAL)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState] | ClientError]:
        """The producers of each partition, according to its leader; or the error, if the leader cannot be asked."""
        by_leader: dict[int, list[TopicPartition]] = collections.defaultdict(list)
        found: dict[TopicPartition, list[ProducerState] | ClientError] = {}
        for partition in partitions:
            try:
                leader = await self.cluster.leader(partition.topic, partition.partition)
                by_leader[leader.leader].append(partition)
            except NoLeader as error:
                found[partition] = error
        answers = await asyncio.gather(*(self._producers_at(*each) for each in by_leader.items()))
        for answer in answers:
            found.update(answer)
        return found

    async def _producers_at(
        self, node_id: int, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState] | ClientError]:
        request_type = messages.DescribeProducersRequest
        request = request_type(
            topics=[
                request_type.TopicRequest(name=name, partition_indexes=indexes)
                for name, indexes in by_topic(partitions).items()
            ]
        )
        answer = await self.cluster.retrying(lambda: self.cluster.call_node(node_id, apis.DESCRIBE_PRODUCERS, request))
        found: dict[TopicPartition, list[ProducerState] | ClientError] = {}
        for topic in answer.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                if result.error_code != ErrorCode.NONE:
                    if result.error_code in STALE_LEADER:
                        self.cluster.forget_topic(topic.name)
                    found[partition] = BrokerError(
                        error_code(result.error_code), f"producers of {partition}", result.error_message
                    )
                    continue
                found[partition] = [
                    ProducerState(
                        each.producer_id,
                        each.producer_epoch,
                        each.last_sequence,
                        each.last_timestamp,
                        each.coordinator_epoch,
                        each.current_txn_start_offset,
                    )
                    for each in result.active_producers
                ]
        return found

    async def write_abort_marker(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Ends a transaction in one partition by hand, without asking its coordinator. Only for transactions that no
        coordinator knows."""
        request_type = messages.WriteTxnMarkersRequest
        marker = request_type.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[
                request_type.WritableTxnMarker.WritableTxnMarkerTopic(
                    name=partition.topic, partition_indexes=[partition.partition]
                )
            ],
            coordinator_epoch=max(coordinator_epoch, 0),
        )

        async def attempt() -> None:
            leader = await self.cluster.leader(partition.topic, partition.partition)
            answer = await self.cluster.call_node(leader.leader, apis.WRITE_TXN_MARKERS, request_type(markers=[marker]))
            for written in answer.markers:
                for topic in written.topics:
                    for result in topic.partitions:
                        if result.error_code in STALE_LEADER:
                            self.cluster.forget_topic(topic.name)
                        check(result.error_code, f"marker in {partition}")

        await self.cluster.retrying(attempt)
