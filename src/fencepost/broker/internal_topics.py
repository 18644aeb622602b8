"""The settings of the internal topics, and which of them may not be changed."""

from __future__ import annotations

from fencepost.config import BrokerConfig, TopicConfig
from fencepost.internal_topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from fencepost.wire.errors import ErrorCode, KafkaError

TOMBSTONE_RETENTION_MIN_MS = 3_600_000


def internal_topic_settings(name: str, config: BrokerConfig) -> tuple[int, dict[str, str]]:
    """How many partitions an internal topic gets, and its settings."""
    if name == CONSUMER_OFFSETS:
        return config.offsets_topic_num_partitions, {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
    return config.transaction_state_log_num_partitions, {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }


def check_internal_overrides(name: str, config: TopicConfig) -> None:
    """Refuse settings under which an internal topic would forget what it must not."""
    if name not in INTERNAL_TOPICS:
        return
    if config.cleanup_policy != ("compact",):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"cleanup.policy of {name} must be compact: anything else deletes state that is still in use",
        )
    if name == TRANSACTION_STATE and config.delete_retention_ms < TOMBSTONE_RETENTION_MIN_MS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"delete.retention.ms of {name} must be at least {TOMBSTONE_RETENTION_MIN_MS}: a coordinator that loads "
            "the topic while a tombstone is removed would bring an expired transactional id back with its old epoch, "
            "and fencing would be lost",
        )
