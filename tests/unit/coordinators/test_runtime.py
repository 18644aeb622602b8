"""The runtime by itself, with a state machine that only adds: order, durability, rollback, loading."""

from collections.abc import Callable, Sequence

import pytest

from fencepost.coordinators.events import WriteFailed
from fencepost.coordinators.journal import JournalRecord
from fencepost.coordinators.runtime import DURABLE, AppendOutcome, ApplyWhen, CoordinatorRuntime, ShardState
from fencepost.coordinators.transactions.effects import MarkerOrder
from fencepost.log.producers import Marker
from fencepost.ports import Now
from fencepost.promise import Promise
from fencepost.wire.errors import ErrorCode, KafkaError

NOW = Now(0, 0)
FENCED = KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)


def marker(producer_id: int, *, is_commit: bool = True) -> MarkerOrder:
    return MarkerOrder("", producer_id, 0, 0, is_commit, 0, ())


class Total:
    """Words in the order in which they were applied."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.positions: list[int] = []
        self.ended: list[tuple[int, bool]] = []

    def replay(self, position: int, producer_id: int, entry: str) -> Callable[[], None]:
        self.words.append(entry)
        self.positions.append(position)

        def take_back() -> None:
            assert self.words.pop() == entry
            self.positions.pop()

        return take_back

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.ended.append((producer_id, committed))

    def loaded(self, now: Now) -> None: ...

    def unloaded(self) -> None: ...


class Words:
    def encode_entry(self, entry: str) -> JournalRecord:
        return JournalRecord(entry.encode(), b"")

    def decode_entry(self, key: bytes, value: bytes | None) -> str:
        return key.decode()


class Machinery:
    def __init__(self, apply_when: ApplyWhen = ApplyWhen.APPENDED) -> None:
        self.appended: list[tuple[Sequence[JournalRecord], Promise[AppendOutcome]]] = []
        self.refusal: KafkaError | None = None
        self.is_durable_at_once = False
        self.events: list[object] = []
        self.runtime: CoordinatorRuntime[Total, str] = CoordinatorRuntime(
            "__words",
            lambda partition: Total(),
            Words(),
            self._append,
            self,
            self.events.append,
            append_markers=self._append_markers,
            apply_when=apply_when,
        )
        self.runtime.load(0, [], NOW)

    def monotonic_ms(self) -> int:
        return 5

    def wall_ms(self) -> int:
        return 6

    def _append(self, partition: int, records: Sequence[JournalRecord], **_: object) -> Promise[AppendOutcome]:
        if self.refusal is not None:
            raise self.refusal
        promise: Promise[AppendOutcome] = DURABLE if self.is_durable_at_once else Promise()
        self.appended.append((records, promise))
        return promise

    def _append_markers(
        self, partition: int, markers: Sequence[Marker], now_ms: int
    ) -> tuple[list[KafkaError | None], Promise[AppendOutcome]]:
        """Those of producer 13 are refused."""
        promise: Promise[AppendOutcome] = Promise()
        self.appended.append(((), promise))
        return [FENCED if marker.producer_id == 13 else None for marker in markers], promise

    @property
    def words(self) -> list[str]:
        return self.runtime.machine(0).words

    def outcome(self, index: int, error: ErrorCode = ErrorCode.NONE) -> None:
        self.appended[index][1].resolve(AppendOutcome(error))


def test_groups_see_a_write_at_once_and_answer_when_it_is_durable() -> None:
    machinery = Machinery()
    done = machinery.runtime.schedule_write(0, ["a", "b"])
    assert machinery.words == ["a", "b"]
    assert not done.done
    machinery.outcome(0)
    assert (done.value.error, done.value.now) == (ErrorCode.NONE, Now(5, 6))


def test_transactions_see_a_write_only_when_it_is_durable() -> None:
    machinery = Machinery(ApplyWhen.DURABLE)
    seen_when_answered: list[list[str]] = []
    done = machinery.runtime.schedule_write(0, ["a"])
    done.then(lambda _: seen_when_answered.append(list(machinery.words)))
    assert machinery.words == []
    machinery.outcome(0)
    assert seen_when_answered == [["a"]]


def test_a_transaction_that_was_not_durable_was_never_seen() -> None:
    machinery = Machinery(ApplyWhen.DURABLE)
    done = machinery.runtime.schedule_write(0, ["a"])
    machinery.outcome(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert done.value.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert machinery.words == []


def test_a_read_waits_for_the_writes_before_it_and_for_no_others() -> None:
    machinery = Machinery()
    assert machinery.runtime.schedule_write(0, []).done
    machinery.runtime.schedule_write(0, ["a"])
    read = machinery.runtime.schedule_write(0, [])
    machinery.runtime.schedule_write(0, ["b"])
    assert not read.done
    machinery.outcome(0)
    assert read.value.error is ErrorCode.NONE


def test_what_failed_and_what_came_after_it_is_undone_newest_first() -> None:
    machinery = Machinery()
    writes = [machinery.runtime.schedule_write(0, [word, word + "'"]) for word in "abcd"]
    order: list[int] = []
    for index, write in enumerate(writes):
        write.then(lambda _, index=index: order.append(index))  # type: ignore[misc]
    machinery.outcome(0)
    machinery.outcome(1, ErrorCode.KAFKA_STORAGE_ERROR)
    assert machinery.words == ["a", "a'"]
    assert [write.value.error.name for write in writes] == ["NONE"] + ["KAFKA_STORAGE_ERROR"] * 3
    assert order == [0, 1, 2, 3]
    assert machinery.events[-1] == WriteFailed("__words", 0, ErrorCode.KAFKA_STORAGE_ERROR, 3)
    machinery.outcome(2)
    machinery.outcome(3, ErrorCode.KAFKA_STORAGE_ERROR)
    assert machinery.words == ["a", "a'"]


def test_a_refused_append_applies_nothing() -> None:
    machinery = Machinery()
    machinery.refusal = KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
    assert machinery.runtime.schedule_write(0, ["a"]).value.error is ErrorCode.MESSAGE_TOO_LARGE
    assert machinery.words == []


def test_one_entry_that_is_durable_at_once_is_applied_and_told_at_once() -> None:
    machinery = Machinery(ApplyWhen.DURABLE)
    machinery.is_durable_at_once = True
    assert machinery.runtime.write(0, "a", NOW) is None
    assert machinery.words == ["a"]
    assert machinery.runtime.write(0, "b", NOW) is None
    assert machinery.words == ["a", "b"]
    assert machinery.runtime.machine(0).positions == [0, 1]


def test_one_entry_that_is_not_durable_yet_waits_in_line() -> None:
    machinery = Machinery(ApplyWhen.DURABLE)
    told: list[tuple[str, ErrorCode]] = []
    for word in "ab":
        waiting = machinery.runtime.write(0, word, NOW)
        assert waiting is not None
        waiting.then(lambda written, word=word: told.append((word, written.error)))  # type: ignore[misc]
    assert (machinery.words, told) == ([], [])
    machinery.outcome(0)
    machinery.outcome(1, ErrorCode.KAFKA_STORAGE_ERROR)
    assert told == [("a", ErrorCode.NONE), ("b", ErrorCode.KAFKA_STORAGE_ERROR)]
    assert machinery.words == ["a"]


def test_one_entry_that_was_refused_applies_nothing() -> None:
    machinery = Machinery(ApplyWhen.DURABLE)
    machinery.refusal = KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
    refused = machinery.runtime.write(0, "a", NOW)
    assert refused is not None
    assert (machinery.words, refused.value) == ([], (ErrorCode.MESSAGE_TOO_LARGE, NOW))
    assert machinery.events[-1] == WriteFailed("__words", 0, ErrorCode.MESSAGE_TOO_LARGE, 0)


def test_markers_count_when_they_are_durable_and_not_where_they_were_refused() -> None:
    machinery = Machinery()
    refusals, outcome = machinery.runtime.write_markers(0, [marker(7), marker(13), marker(8, is_commit=False)], 0)
    assert refusals == [None, FENCED, None]
    assert machinery.runtime.machine(0).ended == []
    machinery.outcome(0)
    assert machinery.runtime.machine(0).ended == [(7, True), (8, False)]
    assert outcome.value.error_code is ErrorCode.NONE


def test_markers_that_are_lost_end_nothing() -> None:
    machinery = Machinery()
    _, outcome = machinery.runtime.write_markers(0, [marker(7)], 0)
    machinery.outcome(0, ErrorCode.KAFKA_STORAGE_ERROR)
    assert machinery.runtime.machine(0).ended == []
    assert outcome.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR


def test_markers_of_a_partition_that_is_loading_are_left_to_the_loading() -> None:
    machinery = Machinery()
    machinery.runtime.start_loading(0)
    _, outcome = machinery.runtime.write_markers(0, [marker(7)], 0)
    machinery.outcome(0)
    assert outcome.value.error_code is ErrorCode.NONE
    machinery.runtime.finish_loading(0, NOW)
    assert machinery.runtime.machine(0).ended == []


def test_positions_grow_with_the_log_whatever_becomes_of_the_writes() -> None:
    machinery = Machinery()
    machinery.runtime.schedule_write(0, ["a", "b"])
    machinery.outcome(0, ErrorCode.KAFKA_STORAGE_ERROR)
    machinery.runtime.schedule_write(0, ["c"])
    machinery.runtime.schedule_write(0, ["d"])
    assert machinery.runtime.machine(0).positions == [2, 3]


class Forbidden(Exception):
    pass


def forbid(machinery: Machinery, word: str) -> None:
    """The state machine has a mistake: it cannot apply this word."""
    good = machinery.runtime.machine(0).replay

    def replay(position: int, producer_id: int, entry: str) -> Callable[[], None]:
        if entry == word:
            raise Forbidden(entry)
        return good(position, producer_id, entry)

    machinery.runtime.machine(0).replay = replay  # type: ignore[method-assign]


def test_a_durable_record_that_cannot_be_applied_fails_its_call_and_no_other() -> None:
    machinery = Machinery(ApplyWhen.DURABLE)
    forbid(machinery, "b")
    writes = [machinery.runtime.schedule_write(0, [word]) for word in "abc"]
    machinery.outcome(0)
    with pytest.raises(Forbidden):
        machinery.outcome(1)
    machinery.outcome(2)
    assert [write.value.error.name for write in writes] == ["NONE", "UNKNOWN_SERVER_ERROR", "NONE"]
    assert (machinery.words, machinery.runtime.machine(0).positions) == (["a", "c"], [0, 2])


@pytest.mark.parametrize("is_durable_at_once", [False, True])
def test_an_appended_record_that_cannot_be_applied_leaves_the_state_as_it_was(is_durable_at_once: bool) -> None:
    machinery = Machinery()
    machinery.is_durable_at_once = is_durable_at_once
    forbid(machinery, "b")
    machinery.runtime.schedule_write(0, ["a"])
    for entries in (["a'", "b"], ["b"]):
        with pytest.raises(Forbidden):
            machinery.runtime.schedule_write(0, entries)
    if is_durable_at_once:
        with pytest.raises(Forbidden):
            machinery.runtime.write(0, "b", NOW)
    machinery.runtime.schedule_write(0, ["c"])
    assert machinery.words == ["a", "c"]
    # Their records are in the log: nothing else gets their positions.
    assert machinery.runtime.machine(0).positions == [0, 5 if is_durable_at_once else 4]


def test_a_writer_that_fails_when_it_hears_of_a_loss_does_not_keep_it_from_the_others() -> None:
    machinery = Machinery()
    writes = [machinery.runtime.schedule_write(0, [word]) for word in "abc"]

    def fails(_: object) -> None:
        raise Forbidden

    writes[0].then(fails)
    with pytest.raises(Forbidden):
        machinery.outcome(0, ErrorCode.KAFKA_STORAGE_ERROR)
    assert {write.value.error for write in writes} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert machinery.words == []


def test_a_partition_that_is_not_active_answers_what_it_is() -> None:
    machinery = Machinery()
    for state, error in (
        (ShardState.NOT_OWNER, ErrorCode.NOT_COORDINATOR),
        (ShardState.LOADING, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ):
        if state is ShardState.LOADING:
            machinery.runtime.start_loading(7)
        assert machinery.runtime.state_of(7) is state
        with pytest.raises(KafkaError) as refused:
            machinery.runtime.schedule_write(7, ["a"])
        assert refused.value.code is error
    machinery.runtime.finish_loading(7, NOW)
    assert machinery.runtime.state_of(7) is ShardState.ACTIVE


def test_outcomes_that_arrive_after_the_partition_was_given_up_change_nothing() -> None:
    machinery = Machinery()
    done = machinery.runtime.schedule_write(0, ["a"])
    machinery.runtime.unload(0)
    assert done.value.error is ErrorCode.NOT_COORDINATOR
    machinery.runtime.load(0, [], NOW)
    machinery.outcome(0, ErrorCode.KAFKA_STORAGE_ERROR)
    assert machinery.words == []
