"""Administration of a cluster: topics, records, brokers, features and settings.

Groups, transactions and ACLs have modules of their own (`admin_groups`, `admin_transactions`, `admin_acls`);
`AsyncAdmin` inherits all of their calls. Every method is one query or one change, retried where that is safe. It raises
BrokerError if the broker answers with an error.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fencepost.client import apis
from fencepost.client.admin_acls import AclAdmin
from fencepost.client.admin_groups import GroupAdmin
from fencepost.client.admin_transactions import TransactionAdmin
from fencepost.client.cluster import Backoff, Cluster, ClusterCalls, ClusterSession
from fencepost.client.errors import NOT_THERE, UnknownTopic, UnsupportedByBroker, check
from fencepost.client.kafka_types import (
    BrokerAddress,
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    CreatedTopic,
    Features,
    IsolationLevel,
    ListedOffset,
    LogDirectory,
    NewTopic,
    ResourceType,
    TopicMetadata,
)
from fencepost.client.offsets import list_offsets
from fencepost.topic_partition import TopicPartition
from fencepost.wire import messages
from fencepost.wire.errors import ErrorCode, error_code

_SET, _DELETE = 0, 1
_OWNED_BY_A_BROKER = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)


class ConfigAdmin(ClusterCalls):
    """The settings of topics, brokers and groups."""

    async def describe_configs(
        self, resource_type: ResourceType, name: str, *, keys: Iterable[str] | None = None, documentation: bool = False
    ) -> list[ConfigEntry]:
        """Returns the settings of one resource, sorted. The name "" of a broker stands for the defaults of all
        brokers."""
        request_type = messages.DescribeConfigsRequest
        wanted = request_type.DescribeConfigsResource(
            resource_type=int(resource_type),
            resource_name=name,
            configuration_keys=None if keys is None else list(keys),
        )
        request = request_type(resources=[wanted], include_synonyms=True, include_documentation=documentation)

        async def attempt() -> list[ConfigEntry]:
            if self._is_of_one_broker(resource_type, name):
                answer = await self.cluster.call_node(int(name), apis.DESCRIBE_CONFIGS, request)
            else:
                answer = await self.cluster.call_any(apis.DESCRIBE_CONFIGS, request)
            (result,) = answer.results
            check(result.error_code, _subject(resource_type, name), result.error_message)
            return sorted(map(_entry, result.configs), key=lambda entry: entry.name)

        return await self.cluster.retrying(attempt, fatal=NOT_THERE)

    async def alter_configs(
        self,
        resource_type: ResourceType,
        name: str,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change settings. None resets a setting to its default. Settings that are not named keep their values."""
        request_type = messages.IncrementalAlterConfigsRequest
        altered = [
            request_type.AlterConfigsResource.AlterableConfig(
                name=key, config_operation=_DELETE if value is None else _SET, value=value
            )
            for key, value in changes.items()
        ]
        resource = request_type.AlterConfigsResource(
            resource_type=int(resource_type), resource_name=name, configs=altered
        )
        request = request_type(resources=[resource], validate_only=validate_only)

        async def attempt() -> None:
            if self._is_of_one_broker(resource_type, name):
                answer = await self.cluster.call_node(int(name), apis.INCREMENTAL_ALTER_CONFIGS, request)
            else:
                answer = await self.cluster.call_controller(apis.INCREMENTAL_ALTER_CONFIGS, request)
            (result,) = answer.responses
            check(result.error_code, _subject(resource_type, name), result.error_message)

        await self.cluster.retrying(attempt, fatal=NOT_THERE)

    def _is_of_one_broker(self, resource_type: ResourceType, name: str) -> bool:
        return resource_type in _OWNED_BY_A_BROKER and name.isdigit()


def _subject(resource_type: ResourceType, name: str) -> str:
    return f"{resource_type.name.lower()} {name!r}"


def _entry(
    result: "messages.DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult",
) -> ConfigEntry:
    return ConfigEntry(
        name=result.name,
        value=result.value,
        source=_source(result.config_source),
        is_read_only=result.read_only,
        is_sensitive=result.is_sensitive,
        documentation=result.documentation,
        synonyms=tuple((synonym.name, synonym.value, _source(synonym.source)) for synonym in result.synonyms),
    )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN


class AsyncAdmin(GroupAdmin, ConfigAdmin, TransactionAdmin, AclAdmin, ClusterSession):
    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        super().__init__(Cluster(bootstrap_servers, **options))

    # Topics

    async def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> CreatedTopic:
        request_type = messages.CreateTopicsRequest
        wanted = request_type.CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=[
                request_type.CreatableTopic.CreatableTopicConfig(name=name, value=value)
                for name, value in topic.configs.items()
            ],
        )
        request = request_type(topics=[wanted], timeout_ms=self.cluster.request_timeout_ms, validate_only=validate_only)

        async def attempt() -> CreatedTopic:
            answer = await self.cluster.call_controller(apis.CREATE_TOPICS, request)
            (made,) = answer.topics
            check(made.error_code, f"topic {topic.name!r}", made.error_message)
            return CreatedTopic(made.name, made.topic_id, made.num_partitions, made.replication_factor)

        created = await self.cluster.retrying(attempt)
        if not validate_only:
            await self._seen(topic.name)
        return created

    async def _seen(self, name: str) -> None:
        """Waits until the brokers know a new topic: the controller answers before all of them know it."""
        backoff = Backoff(self.cluster.retry_timeout_ms)
        while True:
            try:
                await self.cluster.refresh_topic(name)
                return
            except UnknownTopic:
                if not await backoff.wait():
                    return

    async def delete_topic(self, name: str) -> None:
        request = messages.DeleteTopicsRequest(
            topics=[messages.DeleteTopicsRequest.DeleteTopicState(name=name)],
            topic_names=[name],
            timeout_ms=self.cluster.request_timeout_ms,
        )

        async def attempt() -> None:
            answer = await self.cluster.call_controller(apis.DELETE_TOPICS, request)
            (gone,) = answer.responses
            if gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(name)
            check(gone.error_code, f"topic {name!r}", gone.error_message)

        await self.cluster.retrying(attempt, fatal=NOT_THERE)
        self.cluster.forget_topic(name)

    async def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """Grow a topic to `total` partitions."""
        request = messages.CreatePartitionsRequest(
            topics=[messages.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=total, assignments=None)],
            timeout_ms=self.cluster.request_timeout_ms,
            validate_only=validate_only,
        )

        async def attempt() -> None:
            answer = await self.cluster.call_controller(apis.CREATE_PARTITIONS, request)
            (grown,) = answer.results
            if grown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(name)
            check(grown.error_code, f"topic {name!r}", grown.error_message)

        await self.cluster.retrying(attempt, fatal=NOT_THERE)
        self.cluster.forget_topic(name)

    async def list_topics(self) -> list[TopicMetadata]:
        topics = await self.cluster.topics()
        return [topics[name] for name in sorted(topics)]

    async def describe_topic(self, name: str) -> TopicMetadata:
        return await self.cluster.refresh_topic(name)

    # Records

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset at each timestamp; `Reset.EARLIEST`, `LATEST` and `MAX_TIMESTAMP` are timestamps too."""
        return await list_offsets(self.cluster, timestamps, isolation_level)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below an offset (-1: all) in each partition. Returns the new first offsets."""

        async def one(partition: TopicPartition, offset: int) -> int:
            async def attempt() -> int:
                leader = await self.cluster.leader(partition.topic, partition.partition)
                answer = await self.cluster.call_node(leader.leader, apis.DELETE_RECORDS, request)
                result = answer.topics[0].partitions[0]
                if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self.cluster.forget_topic(partition.topic)
                check(result.error_code, f"partition {partition}")
                return result.low_watermark

            request_type = messages.DeleteRecordsRequest
            wanted = request_type.DeleteRecordsTopic.DeleteRecordsPartition(
                partition_index=partition.partition, offset=offset
            )
            request = request_type(
                topics=[request_type.DeleteRecordsTopic(name=partition.topic, partitions=[wanted])],
                timeout_ms=self.cluster.request_timeout_ms,
            )
            return await self.cluster.retrying(attempt, fatal=NOT_THERE)

        marks = await asyncio.gather(*(one(partition, offset) for partition, offset in before.items()))
        return dict(zip(before, marks, strict=True))

    # Brokers

    async def describe_cluster(self) -> ClusterDescription:
        async def attempt() -> ClusterDescription:
            try:
                answer = await self.cluster.call_any(apis.DESCRIBE_CLUSTER, messages.DescribeClusterRequest())
            except UnsupportedByBroker:
                await self.cluster.topics()
                known = [self.cluster.brokers[node_id] for node_id in sorted(self.cluster.brokers)]
                return ClusterDescription(self.cluster.cluster_id, self.cluster.controller_id, known)
            check(answer.error_code, "cluster", answer.error_message)
            brokers = [
                BrokerAddress(broker.broker_id, broker.host, broker.port, broker.rack) for broker in answer.brokers
            ]
            brokers.sort(key=lambda broker: broker.node_id)
            return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)

        return await self.cluster.retrying(attempt)

    async def describe_log_dirs(self, node_ids: Iterable[int] | None = None) -> list[LogDirectory]:
        """The log directories of some brokers, or of all."""

        async def one(node_id: int) -> list[LogDirectory]:
            request = messages.DescribeLogDirsRequest(topics=None)
            answer = await self.cluster.retrying(
                lambda: self.cluster.call_node(node_id, apis.DESCRIBE_LOG_DIRS, request)
            )
            check(answer.error_code, f"log directories of broker {node_id}")
            return [_log_directory(node_id, result) for result in answer.results]

        wanted = sorted(self.cluster.brokers) if node_ids is None else list(node_ids)
        return [found for several in await asyncio.gather(*map(one, wanted)) for found in several]

    async def describe_features(self) -> Features:
        connection = await self.cluster.any_connection()
        return Features(dict(connection.features), dict(connection.supported_features), connection.features_epoch)

    async def update_features(self, levels: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Finalize feature levels. Level 0 removes a feature. Levels may be lowered."""
        connection = await self.cluster.any_connection()
        safe_downgrade, upgrade = 2, 1
        updates = [
            messages.UpdateFeaturesRequest.FeatureUpdateKey(
                feature=name,
                max_version_level=level,
                upgrade_type=safe_downgrade if level < connection.features.get(name, 0) else upgrade,
                allow_downgrade=level < connection.features.get(name, 0),
            )
            for name, level in levels.items()
        ]
        request = messages.UpdateFeaturesRequest(
            timeout_ms=self.cluster.request_timeout_ms, feature_updates=updates, validate_only=validate_only
        )
        answer = await self.cluster.call_controller(apis.UPDATE_FEATURES, request)
        check(answer.error_code, "features", answer.error_message)
        for result in answer.results:
            check(result.error_code, f"feature {result.feature!r}", result.error_message)


def _log_directory(node_id: int, result: "messages.DescribeLogDirsResponse.DescribeLogDirsResult") -> LogDirectory:
    sizes = {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
    error = None if result.error_code == ErrorCode.NONE else error_code(result.error_code).name
    return LogDirectory(node_id, result.log_dir, result.total_bytes, result.usable_bytes, sizes, error)
