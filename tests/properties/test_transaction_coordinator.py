"""Whatever clients, crashes, slow disks and clocks do in whatever order, the promises of transactions hold."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.coordinators.transactions.scene import Scene

from fencepost.coordinators.transactions.transaction_metadata import TransactionRecord
from fencepost.coordinators.transactions.transaction_states import COMPLETED_BY, PREPARED, TRANSITIONS, TransactionState
from fencepost.promise import Promise
from fencepost.wire.errors import ErrorCode

PARTITIONS = [("out", 0), ("out", 1), ("audit", 0)]
NAMES = ["first", "second"]
names = st.sampled_from(NAMES)
partitions = st.sampled_from(PARTITIONS)
# Mostly the pair that was handed out last, sometimes one of long ago, sometimes one that nobody has.
staleness = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 5])
connections = st.integers(1, 4)


class Transactions(RuleBasedStateMachine):
    @initialize(
        first_epoch=st.sampled_from([0, 32763, 32766]),
        level=st.sampled_from([0, 2, 2]),
        protection=st.booleans(),
    )
    def begin(self, first_epoch: int, level: int, protection: bool) -> None:
        self.scene = Scene(
            markers_at_once=False,
            transaction_version=level,
            transaction_two_phase_commit_enable="true",
            transaction_two_phase_commit_unprepared_timeout_ms=300_000,
            transaction_ghost_protection_enable=str(protection).lower(),
            transactional_id_expiration_ms=4_000_000,
            transaction_remove_expired_transaction_cleanup_interval_ms=100_000,
        )
        self.handed_out: dict[str, list[tuple[int, int]]] = {name: [(999, 0)] for name in NAMES}
        self.acknowledged: list[tuple[str, int, bool]] = []
        self.replies: list[Promise[Any]] = []
        for index, name in enumerate(NAMES):
            record = TransactionRecord(500 + index, first_epoch, 60_000, TransactionState.EMPTY)
            self.scene.seed(record, name)
            self.handed_out[name].append((500 + index, first_epoch))

    def pair(self, name: str, age: int) -> tuple[int, int]:
        history = self.handed_out[name]
        return history[-1 - age] if age < len(history) else (history[-1][0], 32767)

    def remember(self, name: str, reply: Promise[Any]) -> None:
        self.replies.append(reply)

        def answered(response: Any) -> None:
            if getattr(response, "error_code", 1) == ErrorCode.NONE and getattr(response, "producer_id", -1) >= 0:
                new = (response.producer_id, response.producer_epoch)
                assert response.producer_epoch < 32767, "the reserved epoch was handed out"
                self.handed_out[name].append(new)

        reply.then(answered)

    # What clients do

    @rule(name=names, age=st.sampled_from([None, None, 0, 0, 1, 2]), keep=st.booleans(), two_phase=st.booleans())
    def init(self, name: str, age: int | None, keep: bool, two_phase: bool) -> None:
        held = (-1, -1) if age is None else self.pair(name, age)
        self.remember(name, self.scene.init(name, held, version=6, keep=keep, two_phase=two_phase))

    @rule(name=names, age=staleness, partition=partitions, connection=connections, version=st.sampled_from([1, 3, 5]))
    def add(self, name: str, age: int, partition: Any, connection: int, version: int) -> None:
        pair = self.pair(name, age)
        reply = self.scene.add(pair, partition, transactional_id=name, version=version, connection=connection)
        self.replies.append(reply)

    @rule(name=names, age=staleness, partition=partitions)
    def add_implicitly(self, name: str, age: int, partition: Any) -> None:
        pair = self.pair(name, age)
        self.replies.append(self.scene.coordinator.verify_or_add(name, *pair, [partition], add=True))

    @rule(name=names, age=staleness, connection=connections)
    def add_offsets(self, name: str, age: int, connection: int) -> None:
        pair = self.pair(name, age)
        self.replies.append(self.scene.offsets(pair, "shop", transactional_id=name, connection=connection))

    @rule(
        name=names, age=staleness, commit=st.booleans(), version=st.sampled_from([1, 4, 5, 5]), connection=connections
    )
    def end(self, name: str, age: int, commit: bool, version: int, connection: int) -> None:
        pair = self.pair(name, age)
        before = len(self.scene.written)
        reply = self.scene.end(pair, commit=commit, transactional_id=name, version=version, connection=connection)
        if len(self.scene.written) > before:
            position = before

            def answered(response: Any) -> None:
                if response.error_code == ErrorCode.NONE:
                    self.acknowledged.append((name, position, commit))

            reply.then(answered)
        self.remember(name, reply)

    # What happens to the coordinator

    @rule(is_slow=st.booleans())
    def disk(self, is_slow: bool) -> None:
        self.scene.is_disk_slow = is_slow
        self.scene.sync()

    @rule()
    def sync(self) -> None:
        self.scene.sync()

    @precondition(lambda self: not self.scene.unsynced)
    @rule(error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]))
    def fail_next_write(self, error: ErrorCode) -> None:
        self.scene.failures[:] = [error]

    @precondition(lambda self: self.scene.marker_done)
    @rule(data=st.data(), error=st.sampled_from([ErrorCode.NONE] * 4 + [ErrorCode.NOT_LEADER_OR_FOLLOWER]))
    def mark(self, data: st.DataObject, error: ErrorCode) -> None:
        self.scene.marked(data.draw(st.sampled_from(sorted(self.scene.marker_done))), error)

    @rule(milliseconds=st.sampled_from([1, 50, 100, 10_000, 70_000, 400_000, 5_000_000]))
    def wait(self, milliseconds: int) -> None:
        self.scene.advance(milliseconds)

    @rule(milliseconds=st.sampled_from([-3_600_000, 3_600_000]))
    def set_the_wall_clock(self, milliseconds: int) -> None:
        self.scene.wall_jump_ms += milliseconds

    @rule()
    def crash(self) -> None:
        self.replies.clear()
        self.scene.failures.clear()
        self.scene.restart()

    # What must hold

    @invariant()
    def every_record_follows_from_the_one_before(self) -> None:
        """No step outside of the table, no epoch that falls, one outcome for each transaction, all of them complete."""
        if not hasattr(self, "scene"):
            return
        last: dict[str, TransactionRecord] = {}
        epochs: dict[int, int] = {}
        owners: dict[int, str] = {}
        for entry in self.scene.written:
            name, record = entry.transactional_id, entry.record
            if record is None:
                assert last.pop(name).state in TRANSITIONS[TransactionState.DEAD]
                continue
            before = last.get(name)
            assert epochs.get(record.producer_id, -1) <= record.producer_epoch, "an epoch fell"
            assert owners.setdefault(record.producer_id, name) == name, "a producer id has two owners"
            epochs[record.producer_id] = record.producer_epoch
            if before is not None:
                follows = before.state in TRANSITIONS[record.state]
                assert follows, f"{before.state.name} -> {record.state.name}"
                if before.state in PREPARED:
                    assert record.state is COMPLETED_BY[before.state], "a decision was turned round"
            last[name] = record

    @invariant()
    def memory_shows_only_what_is_durable(self) -> None:
        if not hasattr(self, "scene"):
            return
        durable = self.scene.durable_count()
        expected: dict[str, TransactionState] = {}
        for entry in self.scene.written[:durable]:
            expected.pop(entry.transactional_id, None)
            if entry.record is not None:
                expected[entry.transactional_id] = entry.record.state
        shard = self.scene.coordinator.runtime.machine(0)
        shown = {
            name: metadata.record.state
            for name, metadata in shard.transactions.items()
            if metadata.record.producer_epoch >= 0
        }
        assert shown == expected

    @invariant()
    def what_was_acknowledged_stays_decided(self) -> None:
        if not hasattr(self, "scene"):
            return
        for name, position, commit in self.acknowledged:
            entry = self.scene.written[position]
            assert entry.transactional_id == name
            assert entry.record is not None
            outcome = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
            assert entry.record.state is outcome

    def teardown(self) -> None:
        """Heal everything: each decision reaches its end, nothing stays open, and nobody is left without an answer."""
        if not hasattr(self, "scene"):
            return
        scene = self.scene
        scene.failures.clear()
        scene.is_disk_slow = False
        scene.sync()
        scene.markers_at_once = True
        for partition in list(scene.marker_done):
            scene.marked(partition)
        scene.advance(1_000)
        for metadata in scene.coordinator.runtime.machine(0).transactions.values():
            assert metadata.waiters == []
            # Only a disk that fails for good stops a completion; the next coordinator goes on with it.
            assert metadata.record.state not in PREPARED or metadata.pending_state is None
        assert all(reply.done for reply in self.replies)
        scene.restart()
        scene.advance(1_000_000)
        for name, metadata in scene.coordinator.runtime.machine(0).transactions.items():
            record = metadata.record
            assert record.state not in PREPARED, f"{name} was decided and never completed"
            assert metadata.pending_state is None
            assert record.state is not TransactionState.ONGOING or (record.is_kept and record.is_two_phase)
            assert metadata.waiters == []


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
