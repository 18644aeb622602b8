"""Levels of features: UpdateFeatures. A level is taken only if this controller and every broker support it."""

from collections.abc import Iterator, Mapping

from fencepost.metadata.controller.state import (
    ELIGIBLE_LEADER_REPLICAS,
    MIN_INSYNC_REPLICAS,
    Call,
    ControllerState,
    Decision,
)
from fencepost.metadata.features import KRAFT_VERSION, METADATA_VERSION, METADATA_VERSION_MAX, METADATA_VERSION_MIN
from fencepost.metadata.image import BROKER_CONFIG, config_record
from fencepost.metadata.records import MetadataRecord
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import FeatureLevelRecord, NoOpRecord, UpdateFeaturesRequest, UpdateFeaturesResponse

TRANSACTION_VERSION = "transaction.version"
SUPPORTED: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    KRAFT_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    "group.version": (0, 1),
    ELIGIBLE_LEADER_REPLICAS: (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}
"""What Apache Kafka 4.3's controller supports: the levels are for the brokers, which say what they can."""
_ELR_SINCE = 23
_CHANGED_METADATA = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""Levels of metadata.version that brought new records: one cannot go back below them."""
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


def update_features(state: ControllerState, request: UpdateFeaturesRequest, call: Call) -> Decision:
    updates = {each.feature: each.max_version_level for each in request.feature_updates}
    kinds = {each.feature: each.upgrade_type for each in request.feature_updates}
    levels = {**state.image.features, METADATA_VERSION: state.image.metadata_version, **updates}
    records: list[MetadataRecord] = []
    try:
        for name, level in updates.items():
            record = _update(state, name, level, kinds[name], levels)
            if record is not None:
                records.append(record)
    except KafkaError as error:
        message = f"The update failed for all features since the following feature had an error: {error.message}"
        return Decision(UpdateFeaturesResponse(error_code=error.code, error_message=message))
    answer = UpdateFeaturesResponse(error_message=None)
    if call.version <= 1:
        answer.results = [
            UpdateFeaturesResponse.UpdatableFeatureResult(feature=name, error_message="NONE") for name in updates
        ]
    if request.validate_only:
        return Decision(answer)
    if updates.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0:
        records = [*_min_isr_for_all(state), *records]
    return Decision(answer, records)


def _update(
    state: ControllerState, name: str, level: int, kind: int, levels: Mapping[str, int]
) -> MetadataRecord | None:
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise _invalid(name, level, "The controller does not support the given upgrade type.")
    current = state.kraft_version if name == KRAFT_VERSION else levels_before(state).get(name, 0)
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    for reason in _unsupported(state, name, level):
        raise _invalid(name, level, reason)
    if level < current and kind == _UPGRADE:
        raise _invalid(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if level > current and kind != _UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        _check_metadata_downgrade(current, level, is_unsafe=kind == _UNSAFE_DOWNGRADE)
    elif name == KRAFT_VERSION:
        return _kraft_update(level, current, kind)
    elif name not in SUPPORTED:
        raise _invalid(name, level, f"Feature {name} not found.")
    elif name == ELIGIBLE_LEADER_REPLICAS and level >= 1 and levels[METADATA_VERSION] < _ELR_SINCE:
        raise _invalid(
            name,
            level,
            f"{name} could not be set to {level} because it depends on {METADATA_VERSION} level {_ELR_SINCE}",
        )
    return MetadataRecord(FeatureLevelRecord(name=name, feature_level=level))


def levels_before(state: ControllerState) -> dict[str, int]:
    return {**state.image.features, METADATA_VERSION: state.image.metadata_version}


def _kraft_update(level: int, current: int, kind: int) -> MetadataRecord | None:
    if level == current:
        return MetadataRecord(NoOpRecord()) if kind == _UPGRADE else None
    if level < current:
        raise _invalid(KRAFT_VERSION, level, "Can't downgrade the version of this feature.")
    raise _invalid(KRAFT_VERSION, level, "The voters of this controller cannot change.")


def _unsupported(state: ControllerState, name: str, level: int) -> Iterator[str]:
    nodes = [(f"Local controller {state.settings.node_id}", SUPPORTED.get(name, (0, 0)))]
    nodes += [
        (f"Broker {broker_id}", known.features.get(name, (0, 0))) for broker_id, known in state.image.brokers.items()
    ]
    for what, (low, high) in nodes:
        if not low <= level <= high:
            versions = str(low) if low == high else f"{low}-{high}"
            yield f"{what} only supports versions {versions}" if high else f"{what} does not support this feature."


def _check_metadata_downgrade(current: int, level: int, *, is_unsafe: bool) -> None:
    if not any(level < changed <= current for changed in _CHANGED_METADATA):
        return
    reason = (
        "Unsafe metadata downgrade is not supported in this version."
        if is_unsafe
        else "Refusing to perform the requested downgrade because it might delete metadata information."
    )
    raise KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
    )


def _invalid(name: str, level: int, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}")


def _min_isr_for_all(state: ControllerState) -> list[MetadataRecord]:
    """Who is eligible follows from one minimum for all nodes: it is written down, and those of single nodes go."""
    records = []
    if MIN_INSYNC_REPLICAS not in state.image.configs.get((BROKER_CONFIG, ""), {}):
        minimum = state.settings.static.get(MIN_INSYNC_REPLICAS) or str(state.settings.config.min_insync_replicas)
        records.append(config_record((BROKER_CONFIG, ""), MIN_INSYNC_REPLICAS, minimum))
    for resource, texts in state.image.configs.items():
        if resource[0] == BROKER_CONFIG and resource[1] and MIN_INSYNC_REPLICAS in texts:
            records.append(config_record(resource, MIN_INSYNC_REPLICAS, None))
    return records
