"""Every setting, limit and default, under Kafka's own names where Kafka has one.

`TopicConfig` is what one partition's log runs on. `BrokerConfig` is the broker's; its `log.*` settings are the defaults
of the topics. Names that only Fencepost has say so in their documentation.
"""

import dataclasses
import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from fencepost.security_config import SecurityConfig, without_listener_settings
from fencepost.settings import INT_MAX, LONG_MAX, InvalidSetting, Setting, declared_settings, parse_settings, setting

# All replicas, or partition:broker.
_REPLICA = r"\*|[0-9]+:[0-9]+"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PRINCIPAL = r"[^:]+:.+"
_POLICIES = ("compact", "delete")
_REMOVED_AT_ONCE: dict[str, Any] = {
    "served": (60_000, 0),
    "unserved_because": "the files of a deleted segment are removed at once; readers that are in the midst of it go on",
}
_NOT_PREALLOCATED: dict[str, Any] = {
    "served": (False,),
    "unserved_because": "files grow as they are written, and a preallocated one could not be told from a damaged one",
}
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    cleanup_policy: tuple[str, ...] = setting(
        "list", ("delete",), "Delete old segments, compact them, or both.", choices=_POLICIES
    )
    compression_type: str = setting(
        "string", "producer", "Codec the log keeps; `producer` keeps what was sent.", choices=_CODECS
    )
    compression_gzip_level: int = setting(
        "int", -1, "Level when the broker itself compresses with gzip.", minimum=1, maximum=9, also=(-1,)
    )
    compression_lz4_level: int = setting(
        "int", 9, "Level when the broker itself compresses with lz4.", minimum=1, maximum=17
    )
    compression_zstd_level: int = setting(
        "int", 3, "Level when the broker itself compresses with zstd.", minimum=-131072, maximum=22
    )
    delete_retention_ms: int = setting(
        "long", 86_400_000, "How long tombstones and markers outlive compaction.", minimum=0
    )
    file_delete_delay_ms: int = setting(
        "long", 60_000, "Kafka: wait before a deleted segment's files are removed. Here they go at once.", minimum=0,
        **_REMOVED_AT_ONCE,
    )  # fmt: skip
    flush_messages: int = setting(
        "long", LONG_MAX, "Force a sync after this many records; if set, before every acknowledgement.", minimum=1
    )
    flush_ms: int = setting(
        "long", LONG_MAX, "Force a sync after this time; if set, before every acknowledgement.", minimum=0
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "list", (), "Replicas whose catching up is throttled.", pattern=_REPLICA
    )
    index_interval_bytes: int = setting("int", 4096, "Bytes of log between two index entries.", minimum=0)
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "list", (), "Replicas whose serving is throttled.", pattern=_REPLICA
    )
    max_compaction_lag_ms: int = setting("long", LONG_MAX, "Longest time a record may wait for compaction.", minimum=1)
    max_message_bytes: int = setting("int", 1_048_588, "Largest batch accepted.", minimum=0)
    message_timestamp_after_max_ms: int = setting(
        "long", 3_600_000, "How far a timestamp may lie in the future.", minimum=0
    )
    message_timestamp_before_max_ms: int = setting(
        "long", LONG_MAX, "How far a timestamp may lie in the past.", minimum=0
    )
    message_timestamp_type: str = setting(
        "string", "CreateTime", "Whose clock stamps records.", choices=("CreateTime", "LogAppendTime")
    )
    min_cleanable_dirty_ratio: float = setting(
        "double", 0.5, "Share of dirty log that starts a compaction.", minimum=0, maximum=1
    )
    min_compaction_lag_ms: int = setting("long", 0, "Shortest time a record stays uncompacted.", minimum=0)
    min_insync_replicas: int = setting(
        "int",
        1,
        "Replicas that must have a record before acks=all is answered; never more than the partition has.",
        minimum=1,
    )
    preallocate: bool = setting("boolean", False, "Kafka: preallocate a new segment's file.", **_NOT_PREALLOCATED)
    retention_bytes: int = setting("long", -1, "Size a partition may grow to; -1 is no limit.")
    retention_ms: int = setting("long", 604_800_000, "Age a record may reach; -1 is no limit.", minimum=-1)
    segment_bytes: int = setting("int", 1_073_741_824, "Size at which a segment is rolled.", minimum=14)
    segment_index_bytes: int = setting("int", 10_485_760, "Largest index of a segment.", minimum=4)
    segment_jitter_ms: int = setting(
        "long", 0, "Most that is taken off segment.ms, differently for each segment.", minimum=0
    )
    segment_ms: int = setting("long", 604_800_000, "Age at which a segment is rolled.", minimum=1)
    unclean_leader_election_enable: bool = setting("boolean", False, "Whether an out-of-sync replica may lead.")

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        return "delete" in self.cleanup_policy


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(SecurityConfig):
    # Who we are
    node_id: int = setting("int", 1, "Id of this broker.", minimum=0)
    broker_rack: str = setting("string", "", "Rack of this broker.")
    listeners: tuple[str, ...] = setting(
        "list",
        ("PLAINTEXT://127.0.0.1:9092",),
        "Listeners as NAME://HOST:PORT; those of the command line (--listen) count instead.",
    )
    advertised_listeners: tuple[str, ...] = setting("list", (), "Addresses given to clients, as NAME://HOST:PORT.")
    unstable_api_versions_enable: bool = setting(
        "boolean", False, "Advertise request versions that Kafka calls unstable."
    )

    # Who may do what
    authorizer_class_name: str = setting(
        "string",
        "",
        "Whether ACLs are looked at: empty lets everybody do everything; Kafka's own class name turns them on.",
        choices=("", STANDARD_AUTHORIZER),
    )
    super_users: str = setting(
        "string", "", "Principals that may do everything, as User:NAME;User:NAME. Looked at with an authorizer."
    )
    allow_everyone_if_no_acl_found: bool = setting(
        "boolean", False, "Whether everybody may do everything to a resource that no ACL speaks of."
    )

    # Durability
    flush: str = setting(
        "string",
        "group",
        "Fencepost: `group` answers acks=1 and acks=all after one sync shared by all that wait; "
        "`os` trusts the page cache.",
        choices=("group", "os"),
    )
    flush_threads: int = setting("int", 4, "Fencepost: threads that sync files.", minimum=1, maximum=64)
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "int", 60_000, "How often recovery points are written, at the least.", minimum=0
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "int", 60_000, "How often log start offsets are written, at the least.", minimum=0
    )

    # Topics
    auto_create_topics_enable: bool = setting("boolean", True, "Create a topic that Metadata asks for.")
    num_partitions: int = setting("int", 1, "Partitions of a topic created without a number.", minimum=1)
    default_replication_factor: int = setting("int", 1, "Replicas of a topic created without a number.", minimum=1)
    delete_topic_enable: bool = setting("boolean", True, "Whether topics can be deleted.")
    max_partitions_per_broker: int = setting("int", 20_000, "Fencepost: partitions this broker will hold.", minimum=1)

    # Defaults of topics
    compression_type: str = setting("string", "producer", "Codec of topics.", choices=_CODECS, dynamic=True)
    compression_gzip_level: int = setting(
        "int", -1, "See the topic setting.", minimum=1, maximum=9, also=(-1,), dynamic=True
    )
    compression_lz4_level: int = setting("int", 9, "See the topic setting.", minimum=1, maximum=17, dynamic=True)
    compression_zstd_level: int = setting("int", 3, "See the topic setting.", minimum=-131072, maximum=22, dynamic=True)
    log_cleanup_policy: tuple[str, ...] = setting(
        "list", ("delete",), "See cleanup.policy.", choices=_POLICIES, dynamic=True
    )
    log_cleaner_delete_retention_ms: int = setting(
        "long", 86_400_000, "See delete.retention.ms.", minimum=0, dynamic=True
    )
    log_segment_delete_delay_ms: int = setting(
        "long", 60_000, "See file.delete.delay.ms.", minimum=0, dynamic=True, **_REMOVED_AT_ONCE
    )
    log_flush_interval_messages: int = setting("long", LONG_MAX, "See flush.messages.", minimum=1, dynamic=True)
    log_flush_interval_ms: int = setting("long", LONG_MAX, "See flush.ms.", minimum=0, dynamic=True)
    log_index_interval_bytes: int = setting("int", 4096, "See index.interval.bytes.", minimum=0, dynamic=True)
    log_cleaner_max_compaction_lag_ms: int = setting(
        "long", LONG_MAX, "See max.compaction.lag.ms.", minimum=1, dynamic=True
    )
    message_max_bytes: int = setting("int", 1_048_588, "See max.message.bytes.", minimum=0, dynamic=True)
    log_message_timestamp_after_max_ms: int = setting(
        "long", 3_600_000, "See message.timestamp.after.max.ms.", minimum=0, dynamic=True
    )
    log_message_timestamp_before_max_ms: int = setting(
        "long", LONG_MAX, "See message.timestamp.before.max.ms.", minimum=0, dynamic=True
    )
    log_message_timestamp_type: str = setting(
        "string", "CreateTime", "See message.timestamp.type.", choices=("CreateTime", "LogAppendTime"), dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "double", 0.5, "See min.cleanable.dirty.ratio.", minimum=0, maximum=1, dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = setting("long", 0, "See min.compaction.lag.ms.", minimum=0, dynamic=True)
    min_insync_replicas: int = setting("int", 1, "See the topic setting.", minimum=1, dynamic=True)
    log_preallocate: bool = setting("boolean", False, "See preallocate.", dynamic=True, **_NOT_PREALLOCATED)
    log_retention_bytes: int = setting("long", -1, "See retention.bytes.", dynamic=True)
    log_retention_ms: int = setting("long", 604_800_000, "See retention.ms.", minimum=-1, dynamic=True)
    log_segment_bytes: int = setting("int", 1_073_741_824, "See segment.bytes.", minimum=14, dynamic=True)
    log_index_size_max_bytes: int = setting("int", 10_485_760, "See segment.index.bytes.", minimum=4, dynamic=True)
    log_roll_jitter_ms: int = setting("long", 0, "See segment.jitter.ms.", minimum=0, dynamic=True)
    log_roll_ms: int = setting("long", 604_800_000, "See segment.ms.", minimum=1, dynamic=True)
    unclean_leader_election_enable: bool = setting("boolean", False, "See the topic setting.", dynamic=True)

    # Cleaning
    log_retention_check_interval_ms: int = setting("long", 300_000, "How often retention is applied.", minimum=1)
    log_cleaner_enable: bool = setting("boolean", True, "Whether compacted topics are compacted.")
    log_cleaner_backoff_ms: int = setting(
        "long", 15_000, "Wait between two looks for something to compact.", minimum=0, dynamic=True
    )
    log_cleaner_dedupe_keys_max: int = setting(
        "int", 5_000_000, "Fencepost: distinct keys one compaction pass holds in memory.", minimum=1
    )

    # Producers
    producer_id_expiration_ms: int = setting(
        "int", 86_400_000, "Idle time after which a producer is forgotten.", minimum=1, dynamic=True
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "int", 600_000, "How often idle producers are looked for.", minimum=1
    )

    # Groups
    group_initial_rebalance_delay_ms: int = setting("int", 3_000, "Wait for more members before the first rebalance.")
    group_min_session_timeout_ms: int = setting("int", 6_000, "Shortest session time-out a member may ask for.")
    group_max_session_timeout_ms: int = setting("int", 1_800_000, "Longest session time-out a member may ask for.")
    group_max_size: int = setting("int", INT_MAX, "Members one group may have.", minimum=1)
    offset_metadata_max_bytes: int = setting("int", 4096, "Largest metadata of a committed offset.")
    offsets_commit_timeout_ms: int = setting(
        "int",
        5_000,
        "Kafka: how long a commit waits for other replicas.",
        minimum=1,
        served=(5_000,),
        unserved_because="there are no other replicas to wait for: a commit is answered when it is synced",
    )
    offsets_retention_minutes: int = setting("int", 10_080, "How long offsets of an empty group are kept.", minimum=1)
    offsets_retention_check_interval_ms: int = setting(
        "long", 600_000, "How often expired offsets are looked for.", minimum=1
    )
    offsets_topic_num_partitions: int = setting("int", 50, "Partitions of __consumer_offsets.", minimum=1)
    offsets_topic_replication_factor: int = setting("short", 1, "Replicas of __consumer_offsets.", minimum=1)
    offsets_topic_segment_bytes: int = setting("int", 104_857_600, "Segment size of __consumer_offsets.", minimum=1)
    offsets_topic_compression_codec: int = setting("int", 0, "Codec of __consumer_offsets.", minimum=0, maximum=0)

    # Transactions
    transaction_state_log_num_partitions: int = setting("int", 50, "Partitions of __transaction_state.", minimum=1)
    transaction_state_log_replication_factor: int = setting("short", 1, "Replicas of __transaction_state.", minimum=1)
    transaction_state_log_min_isr: int = setting("int", 1, "In-sync replicas of __transaction_state.", minimum=1)
    transaction_state_log_segment_bytes: int = setting(
        "int", 104_857_600, "Segment size of __transaction_state.", minimum=1
    )
    transaction_state_log_load_buffer_size: int = setting(
        "int", 5_242_880, "Bytes read at a time when __transaction_state is loaded.", minimum=1
    )
    transaction_max_timeout_ms: int = setting(
        "int", 900_000, "Longest time-out a transactional producer may ask for.", minimum=1
    )
    transactional_id_expiration_ms: int = setting(
        "int", 604_800_000, "Idle time after which a transactional id is forgotten.", minimum=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "int", 10_000, "How often open transactions are looked at for their time-outs.", minimum=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "int", 3_600_000, "How often idle transactional ids are looked for.", minimum=1
    )
    transaction_partition_verification_enable: bool = setting(
        "boolean",
        True,
        "Ask the coordinator whether a partition is part of a transaction before it opens there, for old clients.",
        dynamic=True,
    )
    transaction_two_phase_commit_enable: bool = setting(
        "boolean", False, "Allow transactions that an outside coordinator commits (KIP-939)."
    )
    transaction_two_phase_commit_unprepared_timeout_ms: int = setting(
        "long",
        0,
        "Fencepost: time after which a two-phase transaction that no client has kept by KeepPreparedTxn is aborted; "
        "0 is never, as in Kafka.",
        minimum=0,
    )
    transaction_ghost_protection_enable: bool = setting(
        "boolean",
        True,
        "Fencepost: drop delayed calls of old clients that would hit the wrong transaction (KAFKA-17754).",
    )
    transaction_cause_journal_max_bytes: int = setting(
        "int",
        4_194_304,
        "Fencepost: size of the file that keeps why transactions were fenced or aborted.",
        minimum=4096,
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        "int", 20, "Wait before a partition is added again to a transaction whose predecessor is completing.", minimum=1
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        "int", 100, "Longest time an add waits for the transaction before it to complete.", minimum=0
    )

    # Fetching
    fetch_max_bytes: int = setting("int", 57_671_680, "Most bytes one fetch returns.", minimum=1024)
    max_incremental_fetch_session_cache_slots: int = setting("int", 1_000, "Fetch sessions kept.", minimum=0)

    # Latency
    busy_poll_us: int = setting(
        "int",
        150,
        "Fencepost: time to look for the next request before sleeping, while that pays; 0 is never.",
        minimum=0,
        maximum=1000,
    )

    # Bounds
    socket_request_max_bytes: int = setting("int", 104_857_600, "Largest request accepted.", minimum=1)
    connections_max_idle_ms: int = setting("long", 600_000, "Idle connections end after this.")
    max_connections: int = setting(
        "int", 4_096, "Connections at one time; fewer where the process may not have enough descriptors.", minimum=0
    )
    max_connections_per_ip: int = setting(
        "int",
        1_024,
        "Connections of one address at one time; unless it is set, at most three quarters of all there may be.",
        minimum=0,
    )
    request_frame_timeout_ms: int = setting(
        "long", 30_000, "Fencepost: time a started request may take to arrive.", minimum=1
    )
    response_buffer_max_bytes: int = setting(
        "int",
        262_144,
        "Fencepost: unread answers of a connection before its next request waits for it to read.",
        minimum=1024,
    )
    response_buffers_max_bytes: int = setting(
        "long",
        268_435_456,
        "Fencepost: unread answers of all such connections. Fetches get less as it fills; beyond, the connection that "
        "waits longest is cut off.",
        minimum=1_048_576,
    )
    response_stall_timeout_ms: int = setting(
        "long", 30_000, "Fencepost: time a reader may leave a full buffer unread.", minimum=1
    )
    pipelined_requests_max: int = setting(
        "int", 1_000, "Fencepost: unanswered requests of one connection before it is read no further.", minimum=1
    )
    parked_requests_max: int = setting(
        "int", 50_000, "Fencepost: requests of all connections that may wait at one time.", minimum=1
    )
    request_elements_max: int = setting(
        "int",
        50_000,
        "Fencepost: entries of all arrays, and tagged fields, of one request.",
        minimum=1_000,
    )
    expensive_request_percentage: int = setting(
        "int",
        20,
        "Fencepost: share of the processor for what one client's requests use beyond what their bytes pay for. 100 is "
        "no limit.",
        minimum=1,
        maximum=100,
    )
    expensive_request_burst_ms: int = setting(
        "int",
        1_000,
        "Fencepost: processor time beyond its share that a client may use before its expensive requests wait.",
        minimum=1,
    )
    receive_buffers_max_bytes: int = setting(
        "long", 1_073_741_824, "Fencepost: memory for requests in arrival.", minimum=1_048_576
    )
    decompressed_batch_max_bytes: int = setting(
        "int", 67_108_864, "Fencepost: what one compressed batch may unpack to.", minimum=1024
    )
    opened_records_max: int = setting(
        "int",
        200_000,
        "Fencepost: records of one Produce request that are read before they are appended, because a topic is "
        "compacted or keeps another codec. Their batches together may unpack to decompressed.batch.max.bytes.",
        minimum=1,
    )
    open_files_max: int = setting(
        "int",
        0,
        "Fencepost: log files kept open at a time; 0 takes what connections leave of the process's descriptors, at "
        "most three quarters.",
        minimum=0,
    )


# A topic setting takes its default from this broker setting.
BROKER_DEFAULT_OF: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

_HOUR_MS = 3_600_000
# Settings of Kafka's that mean the same in coarser units, the finer first. They count where the finer are not set.
COARSER_THAN: Mapping[str, Mapping[str, int]] = {
    "log.retention.ms": {"log.retention.minutes": 60_000, "log.retention.hours": _HOUR_MS},
    "log.roll.ms": {"log.roll.hours": _HOUR_MS},
    "log.roll.jitter.ms": {"log.roll.jitter.hours": _HOUR_MS},
}
COARSE_SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("log.retention.minutes", "int", None, "See log.retention.ms.", minimum=1, also=(-1,)),
        Setting("log.retention.hours", "int", 168, "See log.retention.ms.", minimum=1, also=(-1,)),
        Setting("log.roll.hours", "int", 168, "See log.roll.ms.", minimum=1),
        Setting("log.roll.jitter.hours", "int", 0, "See log.roll.jitter.ms.", minimum=0),
    )
}

# Without a value unless they are given one, which is not the same as an empty one.
WITHOUT_DEFAULT = frozenset(
    {
        "advertised.listeners",
        "broker.rack",
        "log.flush.interval.ms",
        "log.retention.minutes",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.server.callback.handler.class",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
    }
)

# Names people write that are another setting's, or Kafka's in another form.
BROKER_NAME_HINTS: Mapping[str, str] = {
    "broker.id": "use node.id",
    "log.dirs": "use the option --data",
    "log.dir": "use the option --data",
    "port": "use the option --listen",
    "transactional.id.timeout.ms": (
        "use transactional.id.expiration.ms (idle ids) or transaction.max.timeout.ms (open transactions)"
    ),
    "max.transaction.timeout.ms": "use transaction.max.timeout.ms",
}


@cache
def topic_settings() -> Mapping[str, Setting]:
    return declared_settings(TopicConfig)


@cache
def broker_settings() -> Mapping[str, Setting]:
    declared = declared_settings(BrokerConfig)
    # What is inherited comes first; a reader of the list wants the broker's own.
    inherited = declared_settings(SecurityConfig)
    return {name: one for name, one in declared.items() if name not in inherited} | inherited


def broker_config(texts: Mapping[str, str]) -> BrokerConfig:
    config = parse_settings(BrokerConfig, _in_finest_units(without_listener_settings(texts)), BROKER_NAME_HINTS)
    for principal in super_users(config):
        if not re.fullmatch(_PRINCIPAL, principal):
            raise InvalidSetting(
                f"Invalid value {principal} for configuration super.users: expected principals like User:alice, "
                "with a semicolon between them"
            )
    return config


def _in_finest_units(texts: Mapping[str, str]) -> dict[str, str]:
    found = {name: text for name, text in texts.items() if name not in COARSE_SETTINGS}
    for fine, coarser in COARSER_THAN.items():
        for name, unit_ms in coarser.items():
            if name in texts:
                value = COARSE_SETTINGS[name].parse(texts[name])
                found.setdefault(fine, str(value * unit_ms if value > 0 else value))
    return found


def check_served(
    known: Mapping[str, Setting], texts: Mapping[str, str], current: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Refuse values that would be kept and do nothing, unless they are there already. Raises InvalidSetting."""
    for name, text in texts.items():
        if name in known and current.get(name) != text:
            known[name].check_served(text)


def super_users(config: BrokerConfig) -> list[str]:
    return [text.strip() for text in config.super_users.split(";") if text.strip()]


def topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """A topic's settings: its own overrides on top of the broker's defaults. Raises InvalidSetting."""
    inherited = {
        name.replace(".", "_"): getattr(broker, source.replace(".", "_")) for name, source in BROKER_DEFAULT_OF.items()
    }
    config = dataclasses.replace(TopicConfig(**inherited), **_parsed(overrides))
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidSetting(
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    return config


def _parsed(overrides: Mapping[str, str]) -> dict[str, Any]:
    known = topic_settings()
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        if name not in known:
            raise InvalidSetting(f"Unknown topic config name: {name}")
        values[name.replace(".", "_")] = known[name].parse(text)
    return values
