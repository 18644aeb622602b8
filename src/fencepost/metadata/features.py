"""Levels of `metadata.version`: which versions of which records a cluster of that level writes."""

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"

METADATA_VERSION_MIN = 7
"""3.3-IV3, the oldest that Apache Kafka 4.3 reads."""
METADATA_VERSION_MAX = 30
"""4.3-IV0, the newest of Apache Kafka 4.3 that is not marked unstable."""

_MIGRATION = 8
_DIRECTORIES = 17
_ELIGIBLE_REPLICAS = 23
_CORDONED_DIRECTORIES = 30


def partition_record_version(metadata_version: int) -> int:
    """Of PartitionRecord and PartitionChangeRecord alike."""
    if metadata_version >= _ELIGIBLE_REPLICAS:
        return 2
    return 1 if metadata_version >= _DIRECTORIES else 0


def register_broker_version(metadata_version: int) -> int:
    if metadata_version >= _CORDONED_DIRECTORIES:
        return 4
    if metadata_version >= _DIRECTORIES:
        return 3
    return 2 if metadata_version >= _MIGRATION else 1
