"""Describe and alter the settings of topics, brokers and groups."""

from collections.abc import Iterable, Mapping

from fencepost.client import apis
from fencepost.client.cluster import Cluster
from fencepost.client.values import ConfigEntry, ConfigSource, ResourceType
from fencepost.client.verdicts import NOT_THERE, check
from fencepost.wire import messages

_SET, _DELETE = 0, 1
_OWNED_BY_A_BROKER = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)


class ConfigAdmin:
    _cluster: Cluster

    async def describe_configs(
        self, resource_type: ResourceType, name: str, *, keys: Iterable[str] | None = None, documentation: bool = False
    ) -> list[ConfigEntry]:
        """The settings of one resource, sorted. The broker "" is the default of all brokers."""
        request_type = messages.DescribeConfigsRequest
        wanted = request_type.DescribeConfigsResource(
            resource_type=int(resource_type),
            resource_name=name,
            configuration_keys=None if keys is None else list(keys),
        )
        request = request_type(resources=[wanted], include_synonyms=True, include_documentation=documentation)

        async def attempt() -> list[ConfigEntry]:
            if self._is_of_one_broker(resource_type, name):
                answer = await self._cluster.call_node(int(name), apis.DESCRIBE_CONFIGS, request)
            else:
                answer = await self._cluster.call_any(apis.DESCRIBE_CONFIGS, request)
            (result,) = answer.results
            check(result.error_code, _subject(resource_type, name), result.error_message)
            return sorted(map(_entry, result.configs), key=lambda entry: entry.name)

        return await self._cluster.retrying(attempt, fatal=NOT_THERE)

    async def alter_configs(
        self,
        resource_type: ResourceType,
        name: str,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set settings; None gives one back to its default. Settings not named stay as they are."""
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
                answer = await self._cluster.call_node(int(name), apis.INCREMENTAL_ALTER_CONFIGS, request)
            else:
                answer = await self._cluster.call_controller(apis.INCREMENTAL_ALTER_CONFIGS, request)
            (result,) = answer.responses
            check(result.error_code, _subject(resource_type, name), result.error_message)

        await self._cluster.retrying(attempt, fatal=NOT_THERE)

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
