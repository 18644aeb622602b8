"""DescribeConfigs (1-4), AlterConfigs (0-2), IncrementalAlterConfigs (0-1), ListConfigResources (0-1).

Resources are topics, this broker (its id) and all brokers (the empty name). A topic setting falls back on the broker's
setting of the same meaning. As in Kafka, the answer names where each value comes from, a setting without a default has
no value, and a setting that was given at the start is shown as it was given. Groups and subscriptions to client metrics
have no settings here: describing one shows none, and none can be set. Settings have types and documentation from
DescribeConfigs v3 on; ListConfigResources v0 lists subscriptions to client metrics only.

Describing needs DESCRIBE_CONFIGS on the topic or group, altering ALTER_CONFIGS. For everything else the right is one on
the cluster, also for listing. The journal of causes (`causes.py`), a kind of resource that only Fencepost has, needs
DESCRIBE on the transactional id that it is asked about, or on the cluster.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from functools import cache, partial
from itertools import dropwhile
from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.handler import JOURNAL_PART_ENTRIES, Each, Handler, Repeated, Resource, Shape
from fencepost.broker.handlers.causes import CAUSES, described_causes
from fencepost.broker.internal_topics import check_internal_overrides
from fencepost.broker.rights import OnCluster
from fencepost.config import (
    BROKER_DEFAULT_OF,
    COARSE_SETTINGS,
    COARSER_THAN,
    WITHOUT_DEFAULT,
    TopicConfig,
    broker_config,
    broker_settings,
    check_served,
    topic_config,
    topic_settings,
)
from fencepost.security_config import LISTENER_PREFIX, unprefixed
from fencepost.settings import InvalidSetting, Setting
from fencepost.topic_names import check_topic_name
from fencepost.wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
FROM_TOPIC, FROM_BROKER, FROM_CLUSTER, FROM_START, FROM_DEFAULT = 1, 2, 3, 4, 5
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_TYPE_CODES = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}

# How Kafka names them where they are described and where they are altered.
_WITHOUT_SETTINGS = {CLIENT_METRICS: ("Client metrics subscription", "client metrics"), GROUP: ("Group", "group")}

# The description of one resource is large.
DESCRIBED_PART_ENTRIES = 4

_Layer = tuple[str, str, int]
"""A name, the value under it, and where that comes from."""
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = _Result.DescribeConfigsResourceResult
_Synonym = _Config.DescribeConfigsSynonym


def describe_configs(node: "Node", call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    # A resource that is named twice is answered once: its answer is large.
    wanted_resources = {(each.resource_type, each.resource_name): each for each in request.resources}
    for resource in wanted_resources.values():
        result = _Result(resource_type=resource.resource_type, resource_name=resource.resource_name)
        response.results.append(result)
        try:
            configs = _described(node, resource.resource_type, resource.resource_name)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        wanted = frozenset(resource.configuration_keys or ())
        result.configs = [config for config in configs if not wanted or config.name in wanted]
        for config in result.configs:
            if not request.include_synonyms:
                config.synonyms = []
            if not request.include_documentation:
                config.documentation = None
    return response


def _described(node: "Node", kind: int, name: str) -> list[_Config]:
    if kind == TOPIC:
        check_topic_name(name)
        topic = node.metadata.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        effective = topic_config(topic.overrides, node.config)
        return [_topic_setting(node, setting, effective, topic.overrides) for setting in topic_settings().values()]
    if kind == BROKER:
        if name == "":
            known = broker_settings()
            return [
                _config(known[key], text, [(key, text, FROM_CLUSTER)])
                for key, text in sorted(node.metadata.cluster_overrides.items())
            ]
        _check_broker(node, name)
        return _of_broker(node)
    if kind in _WITHOUT_SETTINGS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{_WITHOUT_SETTINGS[kind][0]} name must not be empty")
        return []
    if kind == CAUSES:
        return described_causes(node, name)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _check_broker(node: "Node", name: str) -> None:
    if name != str(node.config.node_id):
        try:
            int(name)
        except ValueError:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node.config.node_id} or empty string, but received {name}",
        )


def _broker_layers(node: "Node", name: str) -> list[_Layer]:
    """Where a broker setting gets its value from, first the one that counts.

    Those in coarser units are only named behind it: where they count themselves, it has no value and no synonyms.
    """
    layers: list[_Layer] = []
    names = (name, *COARSER_THAN.get(name, ()))
    for texts, source in (
        (node.metadata.broker_overrides, FROM_BROKER),
        (node.metadata.cluster_overrides, FROM_CLUSTER),
        (node.start_settings, FROM_START),
    ):
        layers += [(each, texts[each], source) for each in names if each in texts]
    for each in names:
        setting = _broker_settings()[each]
        if each not in WITHOUT_DEFAULT:
            layers.append((each, setting.render(setting.default), FROM_DEFAULT))
    return list(dropwhile(lambda layer: layer[0] != name, layers))


def _topic_setting(node: "Node", setting: Setting, effective: TopicConfig, overrides: Mapping[str, str]) -> _Config:
    layers: list[_Layer] = []
    if setting.name in overrides:
        layers.append((setting.name, overrides[setting.name], FROM_TOPIC))
    broker_name = BROKER_DEFAULT_OF.get(setting.name)
    if broker_name is not None:
        layers += _broker_layers(node, broker_name)
    if layers:
        return _config(setting, layers[0][1], layers)
    return _config(setting, setting.render(getattr(effective, setting.name.replace(".", "_"))), layers)


@cache
def _broker_settings() -> Mapping[str, Setting]:
    """With those that are only shown, or only another way to say one."""
    directories = Setting("log.dirs", "list", (), "Where the data is; given by the option --data.")
    return {**broker_settings(), **COARSE_SETTINGS, directories.name: directories}


def _of_broker(node: "Node") -> list[_Config]:
    described = []
    for name, setting in _broker_settings().items():
        layers = [(name, node.data_directory, FROM_START)] if name == "log.dirs" else _broker_layers(node, name)
        config = _config(setting, layers[0][1] if layers else None, layers)
        config.read_only = not setting.dynamic
        described.append(config)
    for name, text in node.start_settings.items():
        if name.startswith(LISTENER_PREFIX):
            # Of a single listener: as the setting that it is one of, and hidden if that is not known.
            known = broker_settings().get(unprefixed(name))
            setting = Setting(name, "password", "", "") if known is None else dataclasses.replace(known, name=name)
            config = _config(setting, text, [(name, text, FROM_START)])
            config.read_only = True
            described.append(config)
    return described


def _config(setting: Setting, value: str | None, layers: list[_Layer]) -> _Config:
    is_sensitive = setting.kind == "password"
    source = layers[0][2] if layers else FROM_DEFAULT
    return _Config(
        name=setting.name,
        value=None if is_sensitive else value,
        read_only=False,
        config_source=source,
        is_sensitive=is_sensitive,
        synonyms=[
            _Synonym(name=name, value=None if is_sensitive else text, source=layer) for name, text, layer in layers
        ],
        config_type=_TYPE_CODES[setting.kind],
        documentation=setting.documentation,
    )


def alter_configs(node: "Node", call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace: what is not mentioned goes back to its default."""
    response = AlterConfigsResponse()
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
    for resource in request.resources:
        result = AlterConfigsResponse.AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.responses.append(result)
        try:
            _check_named_once(counts, resource)
            texts = {}
            for config in resource.configs:
                if config.value is None:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
                texts[config.name] = config.value
            current = _overrides(node, resource.resource_type, resource.resource_name)
            _store(node, resource.resource_type, resource.resource_name, current, texts, request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    return response


def incremental_alter_configs(
    node: "Node", call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    response = IncrementalAlterConfigsResponse()
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
    for resource in request.resources:
        result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.responses.append(result)
        try:
            _check_named_once(counts, resource)
            current = _overrides(node, resource.resource_type, resource.resource_name)
            changed = dict(current)
            seen: set[str] = set()
            for config in resource.configs:
                if config.name in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
                seen.add(config.name)
                _change(node, resource.resource_type, changed, config)
            _store(node, resource.resource_type, resource.resource_name, current, changed, request.validate_only)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    return response


def _check_named_once(
    counts: Counter[tuple[int, str]],
    resource: AlterConfigsRequest.AlterConfigsResource | IncrementalAlterConfigsRequest.AlterConfigsResource,
) -> None:
    if counts[resource.resource_type, resource.resource_name] > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _change(
    node: "Node",
    kind: int,
    texts: dict[str, str],
    config: IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig,
) -> None:
    known = topic_settings() if kind == TOPIC else broker_settings()
    setting = known.get(config.name)
    if config.config_operation == DELETE:
        texts.pop(config.name, None)
        return
    if config.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
    if config.config_operation == SET:
        texts[config.name] = config.value
        return
    if config.config_operation not in (APPEND, SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {config.config_operation}")
    if setting is None or setting.kind != "list":
        operation = "APPEND" if config.config_operation == APPEND else "SUBTRACT"
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Can't {operation} to key {config.name} because its type is not LIST."
        )
    source = (
        getattr(node.config, BROKER_DEFAULT_OF[config.name].replace(".", "_"))
        if kind == TOPIC and config.name in BROKER_DEFAULT_OF
        else setting.default
    )
    items = list(setting.parse(texts[config.name]) if config.name in texts else source)
    for item in config.value.split(","):
        if config.config_operation == APPEND and item not in items:
            items.append(item)
        elif config.config_operation == SUBTRACT and item in items:
            items.remove(item)
    texts[config.name] = ",".join(items)


def _overrides(node: "Node", kind: int, name: str) -> Mapping[str, str]:
    if kind == TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_topic_name(name)
        topic = node.metadata.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return topic.overrides
    if kind == BROKER:
        if name == "":
            return node.metadata.cluster_overrides
        _check_broker(node, name)
        return node.metadata.broker_overrides
    if kind in _WITHOUT_SETTINGS:
        if not name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Default {_WITHOUT_SETTINGS[kind][1]} resources are not allowed."
            )
        return {}
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _store(
    node: "Node", kind: int, name: str, current: Mapping[str, str], changed: Mapping[str, str], validate_only: bool
) -> None:
    if kind in _WITHOUT_SETTINGS:
        for key in changed:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown {_WITHOUT_SETTINGS[kind][1]} config name: {key}")
        return
    try:
        if kind == TOPIC:
            check_internal_overrides(name, topic_config(changed, node.config))
            check_served(topic_settings(), changed, current)
        else:
            for key, text in changed.items():
                setting = broker_settings().get(key)
                if setting is not None and not setting.dynamic and current.get(key) != text:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {key}")
            broker_config(dict(changed))
            check_served(broker_settings(), changed, current)
    except InvalidSetting as error:
        # Kafka means to answer INVALID_CONFIG for brokers too, one day.
        code = ErrorCode.INVALID_CONFIG if kind == TOPIC else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, str(error)) from None
    if validate_only:
        return
    if kind == TOPIC:
        node.set_topic_overrides(name, dict(changed))
    else:
        node.set_broker_overrides(dict(changed), of_all_brokers=name == "")


def list_config_resources(node: "Node", call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    known = {
        TOPIC: sorted(node.metadata.topics),
        BROKER: [str(node.config.node_id)],
        BROKER_LOGGER: [str(node.config.node_id)],
        CLIENT_METRICS: [],
        GROUP: [],
    }
    kinds = [CLIENT_METRICS] if call.version == 0 else request.resource_types or list(known)
    if any(kind not in known for kind in kinds):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resource = ListConfigResourcesResponse.ConfigResource
    return ListConfigResourcesResponse(
        config_resources=[
            resource(resource_name=name, resource_type=kind) for kind in dict.fromkeys(kinds) for name in known[kind]
        ]
    )


def _needed(
    operation: AclOperation,
    node: "Node",
    call: Call,
    resource: DescribeConfigsRequest.DescribeConfigsResource
    | AlterConfigsRequest.AlterConfigsResource
    | IncrementalAlterConfigsRequest.AlterConfigsResource,
) -> Resource | None:
    """None for a kind of resource that the handler refuses."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC:
        return operation, ResourceType.TOPIC, name
    if kind == GROUP:
        return operation, ResourceType.GROUP, name
    if kind in (BROKER, BROKER_LOGGER, CLIENT_METRICS):
        return operation, ResourceType.CLUSTER, CLUSTER_NAME
    if kind == CAUSES and name:
        return AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name
    if kind == CAUSES:
        return AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
    return None


_NAMED_BY = ("resource_type", "resource_name")
_ALTERED = Shape(
    "resources",
    "responses",
    _NAMED_BY,
    part_entries=JOURNAL_PART_ENTRIES,
    answer=AlterConfigsResponse.AlterConfigsResourceResponse,
)

HANDLERS = {
    ApiKey.DESCRIBE_CONFIGS: Handler(
        describe_configs,
        reads_only=True,
        shapes=(Shape("resources", "results", _NAMED_BY, part_entries=DESCRIBED_PART_ENTRIES, answer=_Result),),
        needs=(Each(partial(_needed, AclOperation.DESCRIBE_CONFIGS), repeated=Repeated.ANSWERED_ONCE),),
    ),
    ApiKey.ALTER_CONFIGS: Handler(
        alter_configs, shapes=(_ALTERED,), needs=(Each(partial(_needed, AclOperation.ALTER_CONFIGS)),)
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler(
        incremental_alter_configs,
        shapes=(_ALTERED._replace(answer=IncrementalAlterConfigsResponse.AlterConfigsResourceResponse),),
        needs=(Each(partial(_needed, AclOperation.ALTER_CONFIGS)),),
    ),
    ApiKey.LIST_CONFIG_RESOURCES: Handler(
        list_config_resources, reads_only=True, needs=(OnCluster(AclOperation.DESCRIBE_CONFIGS),)
    ),
}
