"""What must hold inside the broker: the cheap part after every step, the rest by reading every log again.

Owns what it has seen so far (how high each watermark stood, which topics there were) across restarts, since a log may
never come back shorter than what somebody could have read, nor a topic that was deleted. A log is known by its topic's
id: one of the same name is another. Looks at the broker and its disk; changes nothing.
"""

from typing import NamedTuple

from fencepost.broker.node import Node
from fencepost.broker.partition import Partition
from fencepost.config import topic_config
from fencepost.coordinators.runtime import ShardState
from fencepost.coordinators.transactions.transaction_states import AT_REST, TransactionState
from fencepost.internal_topic_names import CONSUMER_OFFSETS
from fencepost.log.open_transactions import AbortedTransaction
from fencepost.log.partition_log import PartitionLog
from fencepost.log.producers import ProducerStateManager
from fencepost.simulation.administered_topics import PLANS
from fencepost.simulation.disk import SimulatedDisk
from fencepost.wire.acls import AclBinding
from fencepost.wire.batch import verify_crc

LogKey = tuple[bytes, int]
"""Topic id and partition."""


class InvariantBroken(AssertionError):
    """Names the invariant and the facts."""

    def __init__(self, name: str, facts: str) -> None:
        super().__init__(f"{name}: {facts}")
        self.name = name


class _Metadata(NamedTuple):
    """What a broker knows of topics and rules, to be compared with what the next one knows."""

    topics: dict[bytes, tuple[str, int, dict[str, str]]]
    acls: tuple[AclBinding, ...]

    @classmethod
    def of(cls, node: Node) -> "_Metadata":
        topics = {
            topic.topic_id: (topic.name, topic.partition_count, dict(topic.overrides))
            for topic in node.metadata.topics.values()
        }
        return cls(topics, tuple(node.metadata.acls))

    def differences(self, other: "_Metadata") -> list[str]:
        found = [
            f"{topic_id.hex()}: {self.topics.get(topic_id)} -> {other.topics.get(topic_id)}"
            for topic_id in dict.fromkeys((*self.topics, *other.topics))
            if self.topics.get(topic_id) != other.topics.get(topic_id)
        ]
        if self.acls != other.acls:
            found.append(f"{len(self.acls)} rules -> {len(other.acls)}")
        return found


class Invariants:
    def __init__(self, disk: SimulatedDisk, *, is_group_commit: bool = True) -> None:
        self._disk = disk
        self._is_group_commit = is_group_commit
        self._node: Node | None = None
        self._watched: list[Partition] = []
        self._stable: list[int] = []
        self._high: list[int] = []
        self._synced: list[int] = []
        self._version = -1
        """Of the metadata, when the partitions were last listed."""
        self._metadata: _Metadata | None = None
        """As the last broker knew it when it ended."""
        self.readable: dict[LogKey, int] = {}
        """The highest high watermark each partition has ever had."""
        self.excused: frozenset[tuple[str, int]] = frozenset()
        """Partitions whose files somebody has taken away: these have to be out of service."""
        self._open_before: set[tuple[str, int, int]] = set()
        """Transactions that were open at the last rescan of this broker."""

    # Restarts

    def excuse(self, partitions: frozenset[tuple[str, int]]) -> None:
        """Of these partitions files are missing: their logs are not judged."""
        self.excused = partitions

    def started(self, node: Node) -> None:
        """A broker has opened its logs: nothing that could be read may be gone."""
        self._node = node
        before, self._metadata = self._metadata, None
        # A change that was under way may have reached the disk or not.
        differences = [] if before is None else before.differences(_Metadata.of(node))
        if len(differences) > 1:
            raise InvariantBroken("topics, settings and rules outlive a restart", "; ".join(differences))
        self._watch()
        for partition in self._watched:
            log = partition.log
            if (partition.topic, partition.index) in self.excused:
                if partition.failure is None:
                    raise InvariantBroken("what is missing is out of service", f"{log!r} is served")
                continue
            if partition.failure is not None:
                raise InvariantBroken("a start finds every log", f"{log!r}: {partition.failure}")
            readable = self.readable.get(_log_key(partition), 0)
            if log.log_end_offset < readable:
                raise InvariantBroken(
                    "no truncation below an observed high watermark",
                    f"{log.topic_partition} ended at {readable} for readers and is {log!r} after the restart",
                )

    def stopped(self) -> None:
        self._remember()
        if self._node is not None:
            self._metadata = _Metadata.of(self._node)
        self._node = None
        self._open_before.clear()
        self._watched, self._stable, self._high, self._synced = [], [], [], []

    def _remember(self) -> None:
        """How far readers have come. A reader of a topic that was deleted meanwhile has not seen its end."""
        for partition, high in zip(self._watched, self._high, strict=True):
            key = _log_key(partition)
            self.readable[key] = max(self.readable.get(key, 0), high)

    def _watch(self) -> None:
        assert self._node is not None
        self._version = self._node.metadata.version
        self._watched = list(self._node.all_partitions())
        self._stable = [partition.log.last_stable_offset for partition in self._watched]
        self._high = [partition.log.high_watermark for partition in self._watched]
        self._synced = [-1] * len(self._watched)

    # After every step

    def check_step(self) -> None:
        node = self._node
        if node is None:
            return
        if self._version != node.metadata.version:
            self._remember()
            self._watch()
        stable, high, synced = self._stable, self._high, self._synced
        for at, partition in enumerate(self._watched):
            log = partition.log
            high_watermark = log.high_watermark
            last_stable_offset = log.last_stable_offset
            if not log.log_start_offset <= last_stable_offset <= high_watermark <= log.log_end_offset:
                raise InvariantBroken("log start <= LSO <= HW <= LEO", repr(log))
            synced_offset = log.synced_offset
            if high_watermark > synced_offset and self._is_group_commit:
                raise InvariantBroken("HW <= synced offset", repr(log))
            if synced_offset != synced[at]:
                synced[at] = synced_offset
                self._check_durable(log)
            if last_stable_offset < stable[at] or high_watermark < high[at]:
                raise InvariantBroken("LSO and HW never fall", f"{log!r}; were {stable[at]} and {high[at]}")
            stable[at], high[at] = last_stable_offset, high_watermark
        self._check_pending_offsets(node)

    def _check_durable(self, log: PartitionLog) -> None:
        """What counts as synced survives every power cut: the disk knows."""
        if log.failure is not None:
            return
        for segment in log.segments[-2:]:
            size = segment.size
            durable = self._disk.durable_bytes(segment.log_path)
            if durable >= size or segment.base_offset >= log.synced_offset:
                continue
            for found in segment.batches():
                header = found.header
                if header.base_offset < log.synced_offset and found.position + header.size_bytes > durable:
                    raise InvariantBroken(
                        "what counts as synced is on the disk",
                        f"{log!r}: of {segment.log_path} {durable} of {size} bytes, without {header.base_offset}",
                    )

    def _check_pending_offsets(self, node: Node) -> None:
        """Offsets wait for a transaction only as long as it is open, or its marker not durable."""
        for partition in node.partitions.get(CONSUMER_OFFSETS, ()):
            runtime = node.groups.coordinator.runtime
            if runtime.state_of(partition.index) is not ShardState.ACTIVE or partition.failure is not None:
                continue
            for producer_id in runtime.machine(partition.index).offsets.pending_producer_ids():
                entry = partition.log.producers.last_entry(producer_id)
                is_open = entry is not None and entry.has_open_transaction
                if not is_open and partition.log.high_watermark == partition.log.log_end_offset:
                    raise InvariantBroken(
                        "pending offsets only with an open transaction", f"producer {producer_id} in {partition.log!r}"
                    )

    # By reading everything

    def rescan(self) -> None:
        node = self._node
        if node is None:
            return
        for partition in node.all_partitions():
            if partition.failure is None and partition.log.failure is None:
                check_log(partition.log)
        self._check_settings(node)
        self._check_groups(node)
        if node.storage_failure is None:
            self._check_ages(node)

    def _check_settings(self, node: Node) -> None:
        """Every log goes by its topic's settings, and access by the rules there are."""
        for topic in node.metadata.topics.values():
            config = topic_config(topic.overrides, node.config)
            for partition in node.partitions[topic.name]:
                if partition.log.config != config:
                    raise InvariantBroken("logs go by their topic's settings", f"{partition.log!r}: {topic.overrides}")
                if partition.log.topic_id != topic.topic_id:
                    raise InvariantBroken("a topic has its own logs", f"{partition.log!r} is of another topic")

    def _check_groups(self, node: Node) -> None:
        for shard in node.groups.coordinator.runtime.active_machines():
            for group in shard.groups.values():
                contradiction = group.contradiction()
                if contradiction is not None:
                    raise InvariantBroken(
                        "a group at rest is what its record says", f"{group.group_id}: {contradiction}"
                    )

    def _check_ages(self, node: Node) -> None:
        """Between two rescans lie several timeouts: what was open at both has outlived its own."""
        still_open = {
            (name, metadata.record.producer_epoch, metadata.record.start_timestamp_ms)
            for shard in node.transactions.coordinator.runtime.active_machines()
            for name, metadata in shard.transactions.items()
            if metadata.record.state is TransactionState.ONGOING
        }
        if still_open & self._open_before:
            raise InvariantBroken(
                "no open transaction older than its timeout and grace", str(sorted(still_open & self._open_before))
            )
        self._open_before = still_open

    def check_rest(self) -> None:
        """Long after the last fault and the last client: every transaction is over."""
        node = self._node
        if node is None:
            raise InvariantBroken("the broker runs at the end", "it does not")
        for partition in node.all_partitions():
            log = partition.log
            if partition.failure is not None:
                raise InvariantBroken("no failure outlasts its repair", f"{log!r}: {partition.failure}")
            if not log.last_stable_offset == log.high_watermark == log.log_end_offset:
                raise InvariantBroken("no open transaction outlives its timeout", repr(log))
        for runtime_name, runtime in (
            ("transactions", node.transactions.coordinator.runtime),
            ("groups", node.groups.coordinator.runtime),
        ):
            if runtime.is_loading:
                raise InvariantBroken("coordinators load", f"{runtime_name} are still loading")
        for shard in node.transactions.coordinator.runtime.active_machines():
            for name, metadata in shard.transactions.items():
                if metadata.record.state not in AT_REST or metadata.pending_state is not None:
                    raise InvariantBroken(
                        "every decided transaction is completed",
                        f"{name} is {metadata.record.state.name}, pending {metadata.pending_state}, "
                        f"waits for markers in {sorted(metadata.awaiting_markers)}",
                    )
        for group_shard in node.groups.coordinator.runtime.active_machines():
            if group_shard.offsets.pending_producer_ids():
                raise InvariantBroken("pending offsets only with an open transaction", "some are pending at the end")


def _log_key(partition: Partition) -> LogKey:
    return partition.log.topic_id, partition.index


def check_log(log: PartitionLog) -> None:
    """A log against a full replay of its batches: indexes, aborted transactions, producers, markers."""
    producers = ProducerStateManager(log.topic_partition, log.producers.producer_id_expiration_ms)
    plan = PLANS.get(log.topic)
    is_compacted = log.config.is_compacted or (plan is not None and plan.may_be_compacted)
    aborted: list[AbortedTransaction] = []
    ended: set[tuple[int, int]] = set()
    next_offset = log.segments[0].base_offset
    for segment in log.segments:
        position = 0
        for found in segment.batches():
            header = found.header
            if not verify_crc(found.block, found.start, header):
                raise InvariantBroken("every batch has its checksum", f"{log!r} at {header.base_offset}")
            if header.base_offset != next_offset and not (is_compacted and header.base_offset > next_offset):
                raise InvariantBroken("offsets have no holes", f"{log!r}: {header.base_offset} after {next_offset}")
            next_offset = header.next_offset
            position = found.position + header.size_bytes
            entry = producers.last_entry(header.producer_id)
            epoch = None if entry is None else entry.producer_epoch
            completed = producers.replay_batch(found.block, found.start, header)
            if completed is not None and epoch is not None and header.producer_epoch > epoch:
                # The epoch was raised for this marker, so it is of this transaction alone.
                if (header.producer_id, header.producer_epoch) in ended:
                    raise InvariantBroken("one effective marker per transaction and partition", f"{log!r}: {header}")
                ended.add((header.producer_id, header.producer_epoch))
            if completed is not None and completed.is_aborted:
                aborted.append(AbortedTransaction(completed.producer_id, *completed[1:3], completed.last_stable_offset))
        if position != segment.size:
            raise InvariantBroken("a segment holds whole batches", f"{segment.log_path}: {position} of {segment.size}")
    if is_compacted:
        if next_offset > log.log_end_offset:
            raise InvariantBroken("the log ends where its batches do", f"{log!r}: {next_offset}")
        return
    if next_offset != log.log_end_offset:
        raise InvariantBroken("the log ends where its batches do", f"{log!r}: {next_offset}")
    if log.segments[0].base_offset > 0:
        # Transactions and producers of what was deleted cannot be found out again.
        _check_producers(log, producers, is_trimmed=True)
        return
    indexed = [entry for segment in log.segments for entry in log.aborted_index_of(segment).entries()]
    if indexed != aborted:
        raise InvariantBroken("aborted index equals a rescan", f"{log!r}: index {indexed[-3:]}, rescan {aborted[-3:]}")
    unstable = producers.first_unstable_offset(log.high_watermark, log.log_start_offset)
    stable = log.high_watermark if unstable is None else min(unstable, log.high_watermark)
    if stable != log.last_stable_offset:
        raise InvariantBroken("LSO equals a rescan", f"{log!r}: {stable}")
    _check_producers(log, producers)


def _check_producers(log: PartitionLog, replayed: ProducerStateManager, *, is_trimmed: bool = False) -> None:
    known, expected = log.producers.producers, replayed.producers
    if known.keys() != expected.keys() and not (is_trimmed and known.keys() > expected.keys()):
        raise InvariantBroken(
            "producer state equals a full replay", f"{log!r}: {sorted(known.keys() ^ expected.keys())} differ"
        )
    for producer_id, other in expected.items():
        entry = known[producer_id]
        for name in ("producer_epoch", "last_sequence", "current_txn_first_offset", "coordinator_epoch"):
            if is_trimmed and name in ("current_txn_first_offset", "coordinator_epoch"):
                continue
            if getattr(entry, name) != getattr(other, name):
                raise InvariantBroken(
                    "producer state equals a full replay",
                    f"{log!r}: {name} of {producer_id} is {getattr(entry, name)}, replay {getattr(other, name)}",
                )
