"""One change of one partition: who leads, who is in sync, where its replicas are; and the record that says so.

What the caller wants is in `Wanted`; `record` completes a reassignment that this finishes, keeps the eligible
leader replicas (KIP-966), elects a leader if there must be another one, and tells what is different, or None.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fencepost.metadata.features import partition_record_version
from fencepost.metadata.image import NO_LEADER, NO_LEADER_CHANGE, PartitionState
from fencepost.metadata.records import MetadataRecord
from fencepost.wire.messages import PartitionChangeRecord

RECOVERED, RECOVERING = 0, 1
_NO_RECOVERY_CHANGE = -1
_DIRECTORIES_SINCE = 17
_NO_EPOCH_FOR_SHRINKING_SINCE = 12
"""metadata.version 3.6-IV0: followers find out by themselves that they have left the ISR."""


class Election(enum.Enum):
    ONLINE = enum.auto()
    """A leader in the ISR if it has none, by the order of its replicas."""
    PREFERRED = enum.auto()
    """The first replica, if it may lead."""
    UNCLEAN = enum.auto()
    """Any replica that is there rather than none: what only others had is lost."""


def is_reassigning(partition: PartitionState) -> bool:
    return bool(partition.removing_replicas or partition.adding_replicas)


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a partition is to be; what is None stays."""

    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    removing: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    leader_recovery_state: int | None = None
    stopped_uncleanly: int | None = None
    """A replica that may have lost its end: it is not eligible any more."""
    directories: Sequence[tuple[int, bytes]] = ()
    """Where replicas are, if not where they were."""


class PartitionChange:
    def __init__(
        self,
        partition: PartitionState,
        *,
        may_lead: Callable[[int], bool],
        default_directory: Callable[[int], bytes],
        min_isr: int,
        keeps_elr: bool,
        metadata_version: int,
        election: Election,
        wanted: "Wanted",
    ) -> None:
        self._before = partition
        self._may_lead = may_lead
        self._default_directory = default_directory
        self._min_isr = min_isr
        self._keeps_elr = keeps_elr
        self._metadata_version = metadata_version
        self._election = election
        self._isr = _or(wanted.isr, partition.isr)
        self._replicas = _or(wanted.replicas, partition.replicas)
        self._removing = _or(wanted.removing, partition.removing_replicas)
        self._adding = _or(wanted.adding, partition.adding_replicas)
        self._leader_recovery_state = partition.leader_recovery_state
        if wanted.leader_recovery_state is not None:
            self._leader_recovery_state = wanted.leader_recovery_state
        self._stopped_uncleanly = wanted.stopped_uncleanly
        self._directories = dict(zip(partition.replicas, partition.directories, strict=True)) | dict(wanted.directories)
        self._elr: Sequence[int] = partition.elr

    def record(self, topic_id: bytes, index: int) -> MetadataRecord | None:
        before = self._before
        record = PartitionChangeRecord(topic_id=topic_id, partition_id=index)
        self._complete_reassignment()
        self._find_elr()
        self._elect(record)
        if record.leader == NO_LEADER_CHANGE and not set(before.replicas) <= set(self._replicas):
            # Replicas that are gone must not be taken for followers of this epoch.
            record.leader = before.leader
        if record.isr is not None or not self._keeps_elr:
            # An unclean election ends every eligibility.
            self._elr = ()
        if tuple(self._elr) != before.elr:
            record.eligible_leader_replicas = list(self._elr)
        if record.isr is None and (self._isr or self._keeps_elr) and tuple(self._isr) != before.isr:
            record.isr = list(self._isr)
        self._raise_epoch_of_shrinking(record)
        self._remember_last_leader(record)
        self._assign(record)
        if self._leader_recovery_state != before.leader_recovery_state:
            record.leader_recovery_state = self._leader_recovery_state
        if _says_nothing(record):
            return None
        return MetadataRecord(record, partition_record_version(self._metadata_version))

    def _complete_reassignment(self) -> None:
        if not (self._removing or self._adding):
            return
        isr = [replica for replica in self._isr if replica not in self._removing]
        replicas = [replica for replica in self._replicas if replica not in self._removing]
        if not set(self._adding) <= set(isr) or (self._removing and not (isr and replicas)):
            return
        # With fewer than before, all of them must be in sync.
        if len(self._adding) < len(self._removing) and not set(replicas) <= set(isr):
            return
        self._isr, self._replicas, self._removing, self._adding = isr, replicas, (), ()

    def _find_elr(self) -> None:
        if not self._keeps_elr:
            return
        if len(self._isr) >= self._min_isr:
            self._elr = ()
            return
        candidates = {*self._elr, *self._before.isr} - set(self._isr)
        self._elr = sorted(candidates - {self._stopped_uncleanly})

    def _elect(self, record: PartitionChangeRecord) -> None:
        before = self._before
        leader, is_unclean = self._elected()
        if leader == before.leader:
            return
        if leader in self._elr:
            self._isr = [leader]
            self._elr = [replica for replica in self._elr if replica != leader]
        record.leader = leader
        if is_unclean:
            record.isr = [leader]
            if before.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING

    def _elected(self) -> tuple[int, bool]:
        """Who leads, and whether it may lack what was committed."""
        before = self._before
        prefers_first = self._election is Election.PREFERRED
        first = (self._replicas[0], before.leader) if prefers_first else (before.leader,)
        for replica in (*first, *self._replicas):
            if self._may_lead_cleanly(replica):
                return replica, False
        if self._may_lead_last():
            return before.last_known_elr[0], True
        if self._election is Election.UNCLEAN:
            for replica in self._replicas:
                if self._may_lead(replica):
                    return replica, True
        return NO_LEADER, False

    def _may_lead_cleanly(self, replica: int) -> bool:
        is_in_sync = replica in (self._isr or self._elr)
        return is_in_sync and self._may_lead(replica)

    def _may_lead_last(self) -> bool:
        """Nobody is eligible, and the last one that led is back."""
        last = self._before.last_known_elr
        return self._keeps_elr and not self._elr and not self._isr and len(last) == 1 and self._may_lead(last[0])

    def _raise_epoch_of_shrinking(self, record: PartitionChangeRecord) -> None:
        if self._metadata_version >= _NO_EPOCH_FOR_SHRINKING_SINCE or record.leader != NO_LEADER_CHANGE:
            return
        if record.isr is not None and not set(self._before.isr) <= set(record.isr):
            record.leader = self._before.leader

    def _remember_last_leader(self, record: PartitionChangeRecord) -> None:
        if not self._keeps_elr:
            return
        if record.leader == NO_LEADER and not self._before.last_known_elr:
            record.last_known_elr = [self._before.leader]
        elif record.leader >= 0 and self._before.last_known_elr:
            record.last_known_elr = []

    def _assign(self, record: PartitionChangeRecord) -> None:
        before = self._before
        if self._replicas:
            if self._metadata_version >= _DIRECTORIES_SINCE:
                directories = [
                    self._directories[replica] if replica in self._directories else self._default_directory(replica)
                    for replica in self._replicas
                ]
                if tuple(directories) != before.directories:
                    record.directories = directories
            if tuple(self._replicas) != before.replicas:
                record.replicas = list(self._replicas)
        if tuple(self._removing) != before.removing_replicas:
            record.removing_replicas = list(self._removing)
        if tuple(self._adding) != before.adding_replicas:
            record.adding_replicas = list(self._adding)


def _or(wanted: Sequence[int] | None, known: Sequence[int]) -> Sequence[int]:
    return known if wanted is None else wanted


def _says_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == _NO_RECOVERY_CHANGE
        and record.isr is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.directories is None
    )
