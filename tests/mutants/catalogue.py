"""The mutants. Each breaks one promise of the broker by replacing one or two functions of the production code."""

import dataclasses
from typing import Any

from fencepost.broker.cleaning import Cleaning
from fencepost.broker.cluster_metadata import ClusterMetadata
from fencepost.broker.durability import GroupCommit, Syncing
from fencepost.broker.handlers import produce
from fencepost.broker.node import Node
from fencepost.broker.partition import Partition
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.storage import Storage
from fencepost.broker.transactions import MarkerSender
from fencepost.coordinators import commits
from fencepost.coordinators.offsets import OffsetStore
from fencepost.coordinators.transactions import coordinator, decisions
from fencepost.coordinators.transactions.coordinator import TransactionCoordinator
from fencepost.coordinators.transactions.effects import TimerKind
from fencepost.coordinators.transactions.ghosts import GhostGuard
from fencepost.coordinators.transactions.transaction_states import TransactionState
from fencepost.log import compaction, open_transactions, partition_log, producers, recovery, segment
from fencepost.log.directory import LogDirectory
from fencepost.log.segments import Segments
from fencepost.log.unsynced import Unsynced
from fencepost.wire.errors import ErrorCode
from tests.mutants import directed
from tests.mutants.patching import Mutant, instead, nothing

_Log = partition_log.PartitionLog
_Producers = producers.ProducerStateManager

# Durability


def _acknowledge_at_once(good: Any) -> Any:
    def appended(self: GroupCommit, partition: Partition) -> None:
        good(self, partition)
        partition.advance(partition.log.log_end_offset, partition.appended_bytes)

    return appended


def _start_without_waiting(good: Any) -> Any:
    def start(self: GroupCommit) -> None:
        for partition in list(self._dirty):
            if partition.failure is None:
                partition.log.unsynced.synced_offset = partition.log.log_end_offset
                partition.advance(partition.log.log_end_offset, partition.appended_bytes)
        good(self)

    return start


def _advance_to_the_end(good: Any) -> Any:
    def advance(self: Partition, offset: int, appended_bytes: int) -> None:
        good(self, self.log.log_end_offset, appended_bytes)

    return advance


def _swallow_errors(good: Any) -> Any:
    return lambda self, error, then: good(self, None, then)


def _hand_over_twice(good: Any) -> Any:
    def take(self: Any, log_end_offset: int, active_file: Any) -> Any:
        request = good(self, log_end_offset, active_file)
        self.in_flight = False
        return request

    return take


def _count_to_the_end(good: Any) -> Any:
    def synced(self: Any, request: Any) -> None:
        good(self, request)
        self.synced_offset = max(self.synced_offset, self._requested_offset)

    return synced


def _synced_to_the_end(good: Any) -> Any:
    def synced(self: Any, request: Any) -> None:
        good(self, request)
        self.unsynced.synced_offset = self.log_end_offset

    return synced


def _answer_acks_one(good: Any) -> Any:
    """As it once was: acks=1 is answered when the record is written."""

    def append(node: Any, call: Any, request: Any, *rest: Any) -> Any:
        when_all_durable = produce._when_all_durable
        if request.acks == 1:
            produce._when_all_durable = lambda response, waiting: response
        try:
            return good(node, call, request, *rest)
        finally:
            produce._when_all_durable = when_all_durable

    return append


def _durable_at_once_in_coordinators(good: Any) -> Any:
    def when_durable(self: Partition, last_offset: int, acknowledge: Any) -> None:
        if self.topic == "__transaction_state" and self.failure is None:
            acknowledge(None)
        else:
            good(self, last_offset, acknowledge)

    return when_durable


def _cut_one_batch_too_many(good: Any) -> Any:
    def scan(loader: Any, found: Any, *rest: Any) -> Any:
        end_offset, whole = good(loader, found, *rest)
        batches = list(found.batches())
        if not whole and len(batches) > 1:
            found.cut_file(batches[-1].position)
            return batches[-1].header.base_offset, False
        return end_offset, whole

    return scan


def _pretend_to_write(good: Any) -> Any:
    def append(self: Any, batch: Any, size: int, *rest: Any) -> int:
        try:
            return good(self, batch, size, *rest)
        except OSError:
            return self.size

    return append


def _ignore_damage(good: Any) -> Any:
    def load(self: Any) -> None:
        known = self.checkpoints
        try:
            good(self)
        except recovery.DamagedLog:
            self.checkpoints = dataclasses.replace(known, recovery_point=0)
            good(self)

    return load


# Transactions


def _forget_last_marker(good: Any) -> Any:
    def send(sender: Any, order: Any, done: Any) -> None:
        kept, forgotten = order.partitions[:-1], order.partitions[-1:]
        good(sender, _replaced(order, partitions=kept), done)
        for partition in forgotten:
            done(partition, ErrorCode.NONE)

    return send


def _wrong_last_marker(good: Any) -> Any:
    def send(sender: Any, order: Any, done: Any) -> None:
        if len(order.partitions) < 2:
            good(sender, order, done)
            return
        good(sender, _replaced(order, partitions=order.partitions[:-1]), done)
        good(sender, _replaced(order, partitions=order.partitions[-1:], is_commit=not order.is_commit), done)

    return send


def _markers_done_at_once(good: Any) -> Any:
    def send(sender: Any, order: Any, done: Any) -> None:
        good(sender, order, lambda partition, error: None)
        for partition in order.partitions:
            done(partition, ErrorCode.NONE)

    return send


def _replaced(order: Any, **fields: Any) -> Any:
    names = ("transactional_id", "producer_id", "producer_epoch", "coordinator_epoch", "is_commit",
             "transaction_version", "partitions")  # fmt: skip
    values = {name: getattr(order, name) for name in names}
    return type(order)(**{**values, **fields})


def _resume_nothing(good: Any) -> Any:
    return lambda one, now: []


def _abort_open_ones_at_load(good: Any) -> Any:
    def loaded(self: Any, shard: Any, now: Any) -> None:
        good(self, shard, now)
        for one in list(shard.transactions.values()):
            if one.record.state is TransactionState.ONGOING:
                self._on_timer(one, TimerKind.TIMEOUT, now)

    return loaded


def _resume_as_commit(good: Any) -> Any:
    def resume(one: Any, now: Any) -> Any:
        one.record = one.record._replace(state=TransactionState.PREPARE_COMMIT)
        return good(one, now)

    return resume


def _without_bump(good: Any) -> Any:
    def fenced(record: Any, *rest: Any) -> Any:
        return good(record, *rest)._replace(producer_epoch=record.producer_epoch)

    return fenced


def _init_without_bump(good: Any) -> Any:
    def initialise(record: Any, *rest: Any) -> Any:
        new = good(record, *rest)
        return new._replace(producer_epoch=max(record.producer_epoch, 0), producer_id=record.producer_id)

    return initialise


def _give_up_completing(good: Any) -> Any:
    """As it once was: a Complete record that a full disk refuses is never written again."""

    def lost(*arguments: Any) -> Any:
        return [effect for effect in good(*arguments) if getattr(effect, "kind", None) is not TimerKind.COMPLETE]

    return lost


# Offsets of groups


def _abort_keeps_pending(good: Any) -> Any:
    return lambda self, producer_id, committed: good(self, producer_id, committed) if committed else None


def _abort_counts(good: Any) -> Any:
    return lambda self, producer_id, committed: good(self, producer_id, True)


def _commit_does_not_count(good: Any) -> Any:
    return lambda self, producer_id, committed: good(self, producer_id, False)


def _any_member_in_transactions(good: Any) -> Any:
    def check_commit(*arguments: Any, transactional: bool) -> None:
        if not transactional:
            good(*arguments, transactional=transactional)

    return check_commit


# The log


def _stable_one_too_far(good: Any) -> Any:
    def stable(self: Any) -> int:
        offset: int = good.fget(self)
        return min(offset + 1, self.high_watermark)

    return property(stable)


def _stable_is_high(good: Any) -> Any:
    return property(lambda self: self.high_watermark)


def _aborted_before_data(good: Any) -> Any:
    """The list is as old as the reader's position: what was read since is not in it."""
    return lambda log, from_offset, to_offset: good(log, from_offset, min(to_offset, from_offset + 1))


def _no_duplicates_known(good: Any) -> Any:
    def check(self: Any, header: Any, origin: Any, *rest: Any) -> Any:
        entry = self._producers.get(header.producer_id)
        is_known = entry is not None and entry.producer_epoch == header.producer_epoch
        if is_known and producers.find_duplicate(entry, header.base_sequence, header.last_sequence) is not None:
            return None
        return good(self, header, origin, *rest)

    return check


def _snapshot_without_open(good: Any) -> Any:
    def load(self: Any, data: bytes, log_start_offset: int, now_ms: int) -> None:
        good(self, data, log_start_offset, now_ms)
        for entry in self._producers.values():
            entry.current_txn_first_offset = -1
        self.transactions.clear()

    return load


# Administration


def _only_in_memory(*names: str) -> Any:
    """Changes that consist of these records count and are not logged."""

    def broken(good: Any) -> Any:
        def commit(self: Any, records: list[Any], partitions: Any = None) -> None:
            everything = records + (partitions.records if partitions is not None else [])
            if all(record.name in names for record in everything):
                self._apply(everything)
            else:
                good(self, records, partitions)

        return commit

    return broken


def _keeps_the_oldest(good: Any) -> Any:
    """Of a key that was written again, everything but the newest record stays."""

    def is_newest(self: Any, key: bytes, offset: int) -> bool:
        return not good(self, key, offset) or self._offsets.get(key) is None

    return is_newest


def _open_to_any_id(good: Any) -> Any:
    def start(self: Any, transactional_id: str, producer_id: int, *rest: Any) -> Any:
        entry = self._producers.get(producer_id)
        if entry is not None and entry.has_open_transaction:
            entry.transactional_id = transactional_id
        return good(self, transactional_id, producer_id, *rest)

    return start


def _any_end_raised_the_epoch(good: Any) -> Any:
    return lambda record, given: good(record._replace(client_transaction_version=2), given)


MUTANTS = [
    Mutant("acknowledge-before-sync", "answers and shows what is not synced",
           [(GroupCommit, "appended", _acknowledge_at_once)]),
    Mutant("acknowledge-when-sync-starts", "a sync counts when it is asked for",
           [(GroupCommit, "_start", _start_without_waiting)]),
    Mutant("high-watermark-is-end", "under group flush the high watermark is the log end",
           [(Partition, "advance", _advance_to_the_end)]),
    Mutant("swallow-eio", "a failed sync counts as done", [(Syncing, "_done", _swallow_errors)]),
    Mutant("swallow-enospc", "a batch for which there was no room counts as written",
           [(segment.Segment, "append", _pretend_to_write)]),
    Mutant("decide-before-durable", "coordinators act on records that are not synced",
           [(Partition, "when_durable", _durable_at_once_in_coordinators)]),
    Mutant("forget-new-names", "the directory of a new segment is not synced", [(Unsynced, "note_names", nothing)]),
    Mutant("sync-twice-at-a-time", "two syncs of one log overlap, and the first to end counts for both",
           [(Unsynced, "take", _hand_over_twice), (Unsynced, "synced", _count_to_the_end)],
           directed.overlapping_syncs_count_what_they_cover),
    Mutant("recover-without-crc", "recovery does not look at checksums",
           [(recovery, "verify_crc", instead(lambda *arguments: True))],
           directed.promises_outlast_torn_writes),
    Mutant("recover-too-little", "recovery cuts a good batch with the torn one",
           [(recovery.LogLoader, "_scan", _cut_one_batch_too_many)],
           directed.promises_outlast_torn_writes),
    Mutant("snapshot-forgets-open", "open transactions are lost with a snapshot",
           [(_Producers, "load_snapshot", _snapshot_without_open)]),
    Mutant("reuse-producer-ids", "blocks of producer ids are not journaled",
           [(ClusterMetadata, "_commit", _only_in_memory("ProducerIdsRecord"))],
           directed.producer_ids_are_handed_out_once),
    Mutant("stable-offset-off-by-one", "the last stable offset is one too far",
           [(_Log, "last_stable_offset", _stable_one_too_far)]),
    Mutant("stable-offset-is-high-watermark", "readers of committed records see undecided ones",
           [(_Log, "last_stable_offset", _stable_is_high)]),
    Mutant("aborted-list-before-data", "the aborted list is taken before the data",
           [(_Log, "packed_aborted_transactions", _aborted_before_data)]),
    Mutant("aborted-index-not-written", "aborts are not indexed",
           [(open_transactions.AbortedTransactions, "append_completed", nothing)]),
    Mutant("append-duplicates", "a batch sent again is written again",
           [(_Producers, "check_append", _no_duplicates_known)]),
    Mutant("accept-sequence-gap", "sequences may have gaps", [(_Producers, "_check_sequence", nothing)],
           directed.gaps_in_sequences_are_refused),
    Mutant("skip-epoch-check", "the log takes batches of older epochs", [(_Producers, "_check_epoch", nothing)],
           directed.old_epochs_are_refused),
    Mutant("skip-identity-check", "the coordinator does not compare producer ids and epochs",
           [(decisions, "check_identity", nothing)]),
    Mutant("drop-guard-recheck", "an append does not check that its verification still holds",
           [(_Producers, "_check_verified", nothing)], directed.overtaken_verifications_open_nothing),
    Mutant("forget-a-participant", "one partition of each transaction gets no marker",
           [(MarkerSender, "send", _forget_last_marker)]),
    Mutant("wrong-marker", "the last partition's marker says the opposite",
           [(MarkerSender, "send", _wrong_last_marker)]),
    Mutant("complete-before-markers", "Complete does not wait for the markers to be durable",
           [(MarkerSender, "send", _markers_done_at_once)],
           directed.transactions_count_as_a_whole_at_every_cut),
    Mutant("complete-not-retried", "a Complete record that was refused is given up",
           [(coordinator, "decide_lost", _give_up_completing)],
           directed.full_disks_only_delay_the_end),
    Mutant("prepared-not-resumed", "a restart does not finish what was prepared",
           [(decisions, "resume", _resume_nothing)]),
    Mutant("open-aborted-at-load", "a restart aborts transactions that are open",
           [(TransactionCoordinator, "_shard_loaded", _abort_open_ones_at_load)],
           directed.open_transactions_outlive_a_restart),
    Mutant("abort-resumed-as-commit", "a restart commits what was to be aborted",
           [(decisions, "resume", _resume_as_commit)],
           directed.transactions_count_as_a_whole_at_every_cut),
    Mutant("fence-without-bump", "the coordinator's own abort leaves the epoch as it is",
           [(decisions, "fenced_record", _without_bump)]),
    Mutant("init-without-bump", "a new producer gets the epoch of the last one",
           [(decisions, "initialised_record", _init_without_bump)]),
    Mutant("never-time-out", "open transactions are not timed out",
           [(decisions, "_timed_out", instead(lambda *arguments: []))]),
    Mutant("ghosts-not-dropped", "a late EndTxn of protocol 1 ends the next transaction",
           [(GhostGuard, "is_ghost", instead(lambda *arguments: False))], directed.late_ends_do_nothing),
    Mutant("open-to-any-id", "a transaction that is open takes batches under any transactional id",
           [(_Producers, "maybe_start_verification", _open_to_any_id)], directed.open_transactions_belong_to_their_id),
    Mutant("any-end-raised-the-epoch", "the epoch before is that of a retry, whatever ended the last transaction",
           [(decisions, "is_retry_of_last_end", _any_end_raised_the_epoch)], directed.epochs_before_belong_to_zombies),
    Mutant("pending-kept-on-abort", "an abort leaves its offsets pending",
           [(OffsetStore, "end_transaction", _abort_keeps_pending)]),
    Mutant("abort-commits-offsets", "offsets count although their transaction was aborted",
           [(OffsetStore, "end_transaction", _abort_counts)]),
    Mutant("commit-drops-offsets", "offsets do not count although their transaction was committed",
           [(OffsetStore, "end_transaction", _commit_does_not_count)]),
    Mutant("any-member-in-transactions", "TxnOffsetCommit does not compare member and generation",
           [(commits, "check_commit", _any_member_in_transactions)]),
    Mutant("unstable-offsets-shown", "OffsetFetch with require_stable does not wait for open transactions",
           [(OffsetStore, "is_pending", instead(lambda *arguments: False))], directed.pending_offsets_are_unstable),
    Mutant("synced-past-the-request", "a sync counts for what was written while it ran",
           [(_Log, "synced", _synced_to_the_end)]),
    Mutant("acks-one-before-sync", "acks=1 is answered before the sync", [(produce, "_append", _answer_acks_one)]),
    Mutant("gap-is-the-end", "recovery takes what compaction left out for the end of the log",
           [(recovery.LogLoader, "_is_place", instead(lambda *arguments: False)),
            (recovery.LogLoader, "_judge_hole", instead(lambda *arguments, **named: False))]),
    Mutant("missing-segments-served", "a log whose segments are missing is served",
           [(recovery.LogLoader, "load", _ignore_damage)]),
    Mutant("deleted-log-goes-on", "a deleted log keeps its paths and its pass",
           [(Cleaning, "forget", nothing), (LogDirectory, "retire", nothing),
            (Segments, "retire", nothing)],
           directed.a_deleted_log_leaves_the_next_topics_files_alone),
    Mutant("recreated-keeps-recovery-point", "a topic inherits the recovery point of the last one of its name",
           [(Storage, "forget", nothing)]),
    Mutant("deletions-not-journaled", "a deleted topic is back after a restart",
           [(ClusterMetadata, "_commit", _only_in_memory("RemoveTopicRecord"))]),
    Mutant("widening-not-journaled", "new partitions are gone after a restart",
           [(ClusterMetadata, "_commit", _only_in_memory("PartitionRecord"))]),
    Mutant("settings-not-journaled", "changed settings are gone after a restart",
           [(ClusterMetadata, "_commit", _only_in_memory("ConfigRecord"))]),
    Mutant("rules-not-journaled", "access rules are gone after a restart",
           [(ClusterMetadata, "_commit",
             _only_in_memory("AccessControlEntryRecord", "RemoveAccessControlEntryRecord"))]),
    Mutant("rules-not-asked", "new access rules change nothing", [(Authorizer, "add", nothing)]),
    Mutant("settings-not-applied", "a log goes by its old settings until a restart",
           [(Node, "_apply_topic_config", nothing)]),
    Mutant("deleted-records-return", "DeleteRecords is answered before the new log start is durable",
           [(Node, "write_log_starts", nothing)]),
    Mutant("compaction-keeps-the-oldest", "compaction drops the newest value of a key",
           [(compaction.KeyMap, "is_newest", _keeps_the_oldest)]),
    Mutant("compaction-trusts-aborted", "compaction takes aborted records for committed ones",
           [(compaction.CleanedTransactions, "on_data", instead(lambda *arguments: False))]),
]  # fmt: skip
assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 24
