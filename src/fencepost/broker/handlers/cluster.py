"""UpdateFeatures (0-2) and DescribeLogDirs (1-5).

UpdateFeatures needs ALTER on the cluster and changes transaction.version. It is all or nothing: the first error is the
answer. A v0 request allows a downgrade by a flag, a later one by its upgrade type. DescribeLogDirs needs DESCRIBE on
the cluster; without topics it describes all of them, and from v4 on it tells how large the disk is.
"""

from typing import TYPE_CHECKING

from fencepost.broker.cluster_metadata import SUPPORTED_FEATURES
from fencepost.broker.connection import Call
from fencepost.broker.handler import Handler
from fencepost.broker.rights import OnCluster
from fencepost.broker.slices import Steps
from fencepost.wire.acls import AclOperation
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def update_features(node: "Node", call: Call, request: UpdateFeaturesRequest) -> Steps[UpdateFeaturesResponse]:
    by_feature: dict[str, UpdateFeaturesRequest.FeatureUpdateKey] = {}
    for update in request.feature_updates:
        yield None
        by_feature[update.feature] = update
    updates = list(by_feature.values())
    errors: list[tuple[ErrorCode, str | None]] = []
    for update in updates:
        yield None
        errors.append(_feature_error(node, call, update))
    has_error = any(code for code, _ in errors)
    if not has_error and not request.validate_only:
        for at, update in enumerate(updates):
            try:
                node.metadata.set_feature(update.feature, update.max_version_level)
            except KafkaError as error:
                errors[at] = (error.code, error.message)
    result = UpdateFeaturesResponse.UpdatableFeatureResult
    response = UpdateFeaturesResponse(error_message=None)
    first = next((error for error in errors if error[0]), None)
    if first is not None:
        response.error_code, response.error_message = first
        return response
    response.results = [
        result(feature=update.feature, error_code=code, error_message=message)
        for update, (code, message) in zip(updates, errors, strict=True)
    ]
    return response


def _feature_error(
    node: "Node", call: Call, update: UpdateFeaturesRequest.FeatureUpdateKey
) -> tuple[ErrorCode, str | None]:
    if update.feature not in SUPPORTED_FEATURES:
        return ErrorCode.INVALID_UPDATE_VERSION, (
            f"Invalid update version {update.max_version_level} for feature {update.feature}. "
            "Local controller does not support this feature."
        )
    low, high = SUPPORTED_FEATURES[update.feature]
    if not low <= update.max_version_level <= high:
        return ErrorCode.INVALID_UPDATE_VERSION, (
            f"Invalid update version {update.max_version_level} for feature {update.feature}. "
            f"Local controller only supports versions {low}-{high}"
        )
    current = node.metadata.features.get(update.feature, 0)
    allows_downgrade = (
        update.allow_downgrade if call.version == 0 else update.upgrade_type in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)
    )
    if update.max_version_level < current and not allows_downgrade:
        return ErrorCode.INVALID_UPDATE_VERSION, (
            f"Invalid update version {update.max_version_level} for feature {update.feature}. "
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    return ErrorCode.NONE, None


def describe_log_dirs(node: "Node", call: Call, request: DescribeLogDirsRequest) -> Steps[DescribeLogDirsResponse]:
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    topic_result = result.DescribeLogDirsTopic
    if request.topics is None:
        wanted = {name: list(range(topic.partition_count)) for name, topic in node.metadata.topics.items()}
    else:
        wanted = {topic.topic: topic.partitions for topic in request.topics}
    topics = []
    for name, indexes in wanted.items():
        partitions = node.partitions.get(name, [])
        sizes = []
        for index in indexes:
            yield None
            if 0 <= index < len(partitions):
                size_bytes = partitions[index].log.size_bytes
                sizes.append(topic_result.DescribeLogDirsPartition(partition_index=index, partition_size=size_bytes))
        if sizes:
            topics.append(topic_result(name=name, partitions=sizes))
    total, usable = node.disk_space()
    failed = node.storage_failure is not None
    return DescribeLogDirsResponse(
        results=[
            result(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NONE,
                log_dir=node.data_directory,
                topics=[] if failed else topics,
                total_bytes=total,
                usable_bytes=usable,
            )
        ]
    )


HANDLERS = {
    ApiKey.UPDATE_FEATURES: Handler(update_features, needs=(OnCluster(AclOperation.ALTER),)),
    ApiKey.DESCRIBE_LOG_DIRS: Handler(describe_log_dirs, reads_only=True, needs=(OnCluster(AclOperation.DESCRIBE),)),
}
