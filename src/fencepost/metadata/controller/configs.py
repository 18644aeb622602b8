"""Settings of topics and nodes: AlterConfigs, IncrementalAlterConfigs, and what counts when nothing is set.

The values of a topic's settings are checked here. Those of a node are checked by the broker that passes a request on;
the controller takes any, as it does not know what other brokers can be set to.
"""

import re
from collections.abc import Iterable, Mapping

from fencepost.config import broker_settings, topic_config, topic_settings
from fencepost.metadata.controller.answers import RECORDS_PER_REQUEST_MAX, too_large
from fencepost.metadata.controller.state import (
    CORDONED_SINCE,
    FROM_DEFAULT,
    FROM_TOPIC,
    MIN_INSYNC_REPLICAS,
    Call,
    ControllerState,
    Decision,
)
from fencepost.metadata.image import BROKER_CONFIG, TOPIC_CONFIG, ConfigResource, config_record
from fencepost.metadata.records import MetadataRecord
from fencepost.settings import InvalidSetting, Setting
from fencepost.topic_names import check_topic_name
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ClearElrRecord,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_OPERATION_NAMES = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}
BROKER_LOGGER, CLIENT_METRICS, GROUP = 8, 16, 32
_TYPE_NAMES = {0: "UNKNOWN", BROKER_LOGGER: "BROKER_LOGGER", CLIENT_METRICS: "CLIENT_METRICS", GROUP: "GROUP"}
_TYPES = frozenset({TOPIC_CONFIG, BROKER_CONFIG, BROKER_LOGGER, CLIENT_METRICS, GROUP})
VALUE_LENGTH_MAX = 32_767
SEGMENT_BYTES_MIN = 1_048_576
"""Apache Kafka's brokers take no less; Fencepost's do."""
TIERED = {
    setting.name: setting
    for setting in (
        Setting("local.retention.bytes", "long", -2, "How much of a tiered partition stays local.", minimum=-2),
        Setting("local.retention.ms", "long", -2, "How long a tiered partition's records stay local.", minimum=-2),
        Setting("remote.log.copy.disable", "boolean", False, "Whether a tiered topic is copied no more."),
        Setting("remote.log.delete.on.disable", "boolean", False, "Whether remote data goes with tiering."),
        Setting("remote.storage.enable", "boolean", False, "Whether a topic is tiered."),
    )
}
"""Settings of topics that Apache Kafka's brokers have and Fencepost's do not."""
CORDONED_LOG_DIRS = "cordoned.log.dirs"

Operations = Mapping[str, tuple[int, str | None]]
"""By setting: what to do, and with which value."""


def incremental_alter_configs(state: ControllerState, request: IncrementalAlterConfigsRequest, call: Call) -> Decision:
    answer = IncrementalAlterConfigsResponse()
    records: list[MetadataRecord] = []
    for resource, error in _resources((each.resource_type, each.resource_name) for each in request.resources):
        if error is None:
            operations = {
                config.name: (config.config_operation, config.value)
                for each in request.resources
                if (each.resource_type, each.resource_name) == resource
                for config in each.configs
            }
            try:
                records += changed_settings(state, resource, operations, is_new=False, is_forwarded=call.is_forwarded)
            except KafkaError as refusal:
                error = refusal
        answer.responses.append(
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                resource_type=resource[0],
                resource_name=resource[1],
            )
        )
    _check_size(records)
    return Decision(answer, [] if request.validate_only else records)


def alter_configs(state: ControllerState, request: AlterConfigsRequest, call: Call) -> Decision:
    """All settings of a resource at once: what is not named is removed."""
    answer = AlterConfigsResponse()
    records: list[MetadataRecord] = []
    for resource, error in _resources((each.resource_type, each.resource_name) for each in request.resources):
        if error is None:
            texts = {
                config.name: config.value
                for each in request.resources
                if (each.resource_type, each.resource_name) == resource
                for config in each.configs
            }
            try:
                records += _replaced(state, resource, texts, is_forwarded=call.is_forwarded)
            except KafkaError as refusal:
                error = refusal
        answer.responses.append(
            AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                resource_type=resource[0],
                resource_name=resource[1],
            )
        )
    _check_size(records)
    return Decision(answer, [] if request.validate_only else records)


def _check_size(records: list[MetadataRecord]) -> None:
    if len(records) > RECORDS_PER_REQUEST_MAX:
        raise too_large()


def _resources(named: Iterable[ConfigResource]) -> list[tuple[ConfigResource, KafkaError | None]]:
    """Each once, with what is wrong about naming it so."""
    counts: dict[ConfigResource, int] = {}
    found: list[tuple[ConfigResource, KafkaError | None]] = []
    for resource in named:
        if resource[0] in _TYPES:
            counts[resource] = counts.get(resource, 0) + 1
        else:
            found.append((resource, KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {resource[0]}.")))
    for resource, count in counts.items():
        error = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate resource.") if count > 1 else None
        found.append((resource, error))
    return found


def changed_settings(
    state: ControllerState, resource: ConfigResource, operations: Operations, *, is_new: bool, is_forwarded: bool
) -> list[MetadataRecord]:
    """The records of some changes of one resource. Raises KafkaError."""
    current = state.image.configs.get(resource, {})
    changed: dict[str, str | None] = {}
    for name, (operation, value) in operations.items():
        before = current.get(name)
        after = _after(resource, name, operation, value, before)
        # Nodes take even what they have already: it makes them read passwords and certificates anew.
        if before != after or resource[0] == BROKER_CONFIG:
            changed[name] = after
    _check(state, resource, changed, (), is_new=is_new, is_forwarded=is_forwarded)
    return _records(state, resource, changed)


def _replaced(
    state: ControllerState, resource: ConfigResource, texts: Mapping[str, str | None], *, is_forwarded: bool
) -> list[MetadataRecord]:
    current = state.image.configs.get(resource, {})
    changed = {name: text for name, text in texts.items() if current.get(name) != text or resource[0] == BROKER_CONFIG}
    removed = [name for name in current if name not in texts]
    _check(state, resource, changed, removed, is_new=False, is_forwarded=is_forwarded)
    return _records(state, resource, {**changed, **dict.fromkeys(removed)})


def _records(
    state: ControllerState, resource: ConfigResource, changed: Mapping[str, str | None]
) -> list[MetadataRecord]:
    records = [config_record(resource, name, text) for name, text in changed.items()]
    if state.keeps_elr and MIN_INSYNC_REPLICAS in changed:
        # Who was eligible under another minimum may not be.
        topic = resource[1] if resource[0] == TOPIC_CONFIG else ""
        records.append(MetadataRecord(ClearElrRecord(topic_name=topic)))
    return records


def _after(resource: ConfigResource, name: str, operation: int, value: str | None, before: str | None) -> str | None:
    if operation == SET:
        return value
    if operation == DELETE:
        return None
    if operation not in _OPERATION_NAMES or value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation} for configuration {name}")
    known = topic_settings() if resource[0] == TOPIC_CONFIG else broker_settings()
    if resource[0] not in (TOPIC_CONFIG, BROKER_CONFIG) or name not in known or known[name].kind != "list":
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {_OPERATION_NAMES[operation]} to key {name} because its type is not LIST.",
        )
    parts = [
        part for part in (known[name].render(known[name].default) if before is None else before).split(",") if part
    ]
    for part in _parts(value):
        if operation == APPEND and part not in parts:
            parts.append(part)
        elif operation == SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def _parts(text: str) -> list[str]:
    """As Java splits: nothing empty at the end, but an empty text is one empty part."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts if parts != [""] or not text else []


def _check(
    state: ControllerState,
    resource: ConfigResource,
    changed: Mapping[str, str | None],
    removed: Iterable[str],
    *,
    is_new: bool,
    is_forwarded: bool,
) -> None:
    current = state.image.configs.get(resource, {})
    after = dict(current)
    for name, text in changed.items():
        _check_transition(state, resource, name, text, current, is_forwarded=is_forwarded)
        if text is None:
            after.pop(name, None)
        elif len(text) > VALUE_LENGTH_MAX:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
            )
        else:
            after[name] = text
    for name in removed:
        _check_transition(state, resource, name, None, current, is_forwarded=is_forwarded)
        after.pop(name, None)
    _check_texts(state, resource, after)
    if not is_new:
        _check_exists(state, resource)


def _check_transition(
    state: ControllerState,
    resource: ConfigResource,
    name: str,
    text: str | None,
    current: Mapping[str, str],
    *,
    is_forwarded: bool,
) -> None:
    if resource[0] != BROKER_CONFIG:
        return
    reason = None
    if name == MIN_INSYNC_REPLICAS and state.keeps_elr:
        if resource[1]:
            reason = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        elif text is None:
            reason = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    if name == CORDONED_LOG_DIRS:
        if state.image.metadata_version < CORDONED_SINCE:
            reason = (
                "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= "
                "4.3-IV0"
            )
        elif not is_forwarded and text and text.strip() and not _directories(text) <= _directories(current.get(name)):
            reason = (
                "When updating cordoned.log.dirs via controllers,  the new value must be a subset of the current "
                "configuration value."
            )
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)


def _directories(text: str | None) -> set[str]:
    return set() if text is None else set(re.split(r"\s*,\s*", text.strip()))


def _check_texts(state: ControllerState, resource: ConfigResource, texts: Mapping[str, str]) -> None:
    kind, name = resource
    if kind == TOPIC_CONFIG:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_topic_name(name)
        try:
            if int(texts.get("segment.bytes", SEGMENT_BYTES_MIN)) < SEGMENT_BYTES_MIN:
                raise InvalidSetting(
                    f"Invalid value {texts['segment.bytes']} for configuration segment.bytes: Value must be at least "
                    f"{SEGMENT_BYTES_MIN}"
                )
            topic_config({key: text for key, text in texts.items() if key not in TIERED}, state.settings.config)
            _check_tiered(texts)
        except InvalidSetting as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    elif kind == BROKER_CONFIG:
        if name and not re.fullmatch(r"[+-]?[0-9]+", name):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
        if name and int(name) < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {_TYPE_NAMES[kind]}")


def _check_tiered(texts: Mapping[str, str]) -> None:
    for name, setting in TIERED.items():
        if name in texts and setting.parse(texts[name]) is True and name == "remote.storage.enable":
            raise InvalidSetting(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
                "storage."
            )


def _check_exists(state: ControllerState, resource: ConfigResource) -> None:
    kind, name = resource
    if kind == TOPIC_CONFIG and name not in state.image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if kind == BROKER_CONFIG and name:
        node_id = int(name)
        known = node_id in state.image.brokers or node_id in state.image.controllers
        if not known and node_id != state.settings.node_id:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")


def effective_settings(state: ControllerState, texts: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Every setting of a topic with these texts of its own, and where it comes from."""
    tiered = {
        name: (texts[name], FROM_TOPIC) if name in texts else (setting.render(setting.default), FROM_DEFAULT)
        for name, setting in TIERED.items()
    }
    return {name: state.effective_setting(name, texts) for name in topic_settings()} | tiered
