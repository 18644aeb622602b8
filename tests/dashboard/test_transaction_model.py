"""The model against a plain replay of the same changes: whatever happened, in whatever order the ids took turns."""

import dataclasses
import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.client import TopicPartition
from fencepost.client.kafka_types import TransactionDescription, TransactionListing
from fencepost.dashboard.event_series import KEPT_SECONDS, Durations, PerSecond, percentile
from fencepost.dashboard.transaction_model import ENDINGS_PER_ID_MAX, OPEN, TransactionModel
from fencepost.dashboard.transaction_table import SORTS, TableQuery, choose
from fencepost.insight.state_changes import StateChange

NOW_MS = 1_700_000_500_000
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
LIVES = ("commit", "abort", "open", "prepared", "init", "expire")


@st.composite
def histories(draw: st.DrawFn) -> list[StateChange]:
    """Changes of some ids as coordinators write them; the ids take turns at random, each in its own order."""
    noise = random.Random(draw(st.integers(0, 2**32)))
    lanes: list[list[StateChange]] = []
    for number in range(draw(st.integers(1, 5))):
        lives = draw(st.lists(st.sampled_from(LIVES), max_size=6))
        lanes.append(_lane(f"id-{number}", number, lives, noise))
    mixed = []
    while any(lanes):
        mixed.append(noise.choice([lane for lane in lanes if lane]).pop(0))
    return mixed


def _lane(name: str, producer_id: int, lives: list[str], noise: random.Random) -> list[StateChange]:
    changes: list[StateChange] = []
    clock = NOW_MS - noise.randrange(200_000)

    def write(state: str | None, start_ms: int = -1, partitions: tuple[TopicPartition, ...] = ()) -> None:
        nonlocal clock
        clock += noise.randrange(2_000)
        if state is None:
            changes.append(StateChange(name, len(changes), clock, None))
        else:
            change = StateChange(name, len(changes), clock, state, producer_id, 0, 60_000, start_ms, partitions)
            changes.append(change)

    write("Empty")
    for life in lives:
        if life in ("init", "expire"):
            write("Empty" if life == "init" else None)
            continue
        start_ms, touched = clock, tuple(noise.sample(PARTITIONS, noise.randrange(1, 4)))
        write("Ongoing", start_ms, touched[:1])
        write("Ongoing", start_ms, touched)
        if life == "open":
            continue
        word = "Abort" if life == "abort" else "Commit"
        write(f"Prepare{word}", start_ms, touched)
        if life != "prepared":
            write(f"Complete{word}", start_ms)
    return changes


def applied(changes: list[StateChange]) -> TransactionModel:
    model = TransactionModel()
    for change in changes:
        model.apply(change, NOW_MS)
    return model


def consistent(model: TransactionModel) -> None:
    """What the model counts along is what a look at its rows gives."""
    assert model.state_counts() == dict(sorted(Counter(row.state for row in model.rows.values()).items()))
    there: dict[TopicPartition, set[str]] = {}
    for row in model.rows.values():
        for at in row.partitions if row.state in OPEN else ():
            there.setdefault(at, set()).add(row.transactional_id)
    assert model.open_in == there


def seen(model: TransactionModel) -> tuple[object, ...]:
    rows = {name: dataclasses.replace(row, touched=0) for name, row in model.rows.items()}
    end_s = NOW_MS // 1000 + 1
    return rows, model.totals(), model.rates(end_s), model.latency(end_s), model.duration(end_s), list(model.recent)


@given(histories())
@settings(max_examples=60, deadline=None)
def test_the_model_is_what_the_last_changes_and_the_ends_add_up_to(changes: list[StateChange]) -> None:
    model = applied(changes)
    consistent(model)
    last = {change.transactional_id: change for change in changes}
    living = {name: change for name, change in last.items() if change.state is not None}
    assert {name: row.state for name, row in model.rows.items()} == {name: each.state for name, each in living.items()}
    for name, change in living.items():
        row = model.rows[name]
        assert (row.producer_epoch, row.changed_ms) == (change.producer_epoch, min(change.timestamp_ms, NOW_MS))
        assert set(row.partitions) == (set(change.partitions) if change.state in OPEN else set())
    ends = [change for change in changes if (change.state or "").startswith("Complete")]
    commits = sum(change.is_commit for change in ends)
    assert (model.commits, model.aborts) == (commits, len(ends) - commits)
    rates = model.rates(NOW_MS // 1000 + 1)
    assert (sum(rates["commits"]), sum(rates["aborts"])) == (commits, len(ends) - commits)
    for row in model.rows.values():
        assert len(row.endings) <= ENDINGS_PER_ID_MAX
        assert all(each.start_ms is not None and each.prepared_ms is not None for each in row.endings)
        assert all(each.partition_count > 0 for each in row.endings)


@given(histories(), st.data())
@settings(max_examples=60, deadline=None)
def test_reading_a_part_of_the_log_again_changes_nothing(changes: list[StateChange], data: st.DataObject) -> None:
    # An id that was forgotten is not known to have been there: what expired is left out.
    kept = [change for change in changes if change.state is not None]
    model = applied(kept)
    before = seen(model)
    start = data.draw(st.integers(0, len(kept)))
    for change in kept[start:]:
        model.apply(change, NOW_MS)
    assert seen(model) == before
    consistent(model)


@given(histories(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_listing_corrects_what_the_tail_has_missed_and_nothing_else(
    changes: list[StateChange], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(changes)))
    model = applied(changes[:cut])
    known = set(model.rows)
    since = model.mark()
    truth = applied(changes)
    late = changes[cut : data.draw(st.integers(cut, len(changes)))]
    for change in late:
        model.apply(change, NOW_MS)
    listed = [
        TransactionListing(row.transactional_id, row.producer_id, row.state, 1) for row in truth.rows.values()
    ]  # fmt: skip
    model.apply_listing(listed, since)
    consistent(model)
    touched = {change.transactional_id for change in late}
    for name, row in model.rows.items():
        assert name in truth.rows or name in touched, "what is not listed is gone"
        if name not in touched and name in truth.rows:
            assert row.state == truth.rows[name].state
    assert set(model.rows) >= (set(truth.rows) - touched)
    assert set(model.rows) <= known | touched | set(truth.rows)


def test_a_description_fills_in_only_what_is_still_so() -> None:
    model = TransactionModel()
    model.apply_listing([TransactionListing("billing", 7, "Ongoing", 1)], model.mark())
    model.apply_description(TransactionDescription("billing", "Empty", 7, 3, 60_000, -1, 1, ()))
    assert model.rows["billing"].producer_epoch is None
    model.apply_description(
        TransactionDescription("billing", "Ongoing", 7, 3, 60_000, NOW_MS - 9_000, 1, PARTITIONS[:1])
    )
    row = model.rows["billing"]
    assert (row.producer_epoch, row.timeout_ms, row.age_ms(NOW_MS)) == (3, 60_000, 9_000)
    assert model.open_in == {PARTITIONS[0]: {"billing"}}
    assert model.oldest_open() is row
    assert model.holder_of(PARTITIONS[0]) is row
    assert model.row_of_producer(7) is row


def test_after_a_log_was_cut_the_offsets_count_anew() -> None:
    model = applied([StateChange("billing", 40, NOW_MS - 50, "Empty", 1, 0, 60_000)])
    cut = StateChange("billing", 3, NOW_MS - 10, "Ongoing", 1, 1, 60_000, NOW_MS - 10, (PARTITIONS[0],))
    model.apply(cut, NOW_MS)
    assert model.rows["billing"].state == "Empty"
    model.forget_offsets()
    model.apply(cut, NOW_MS)
    assert model.rows["billing"].state == "Ongoing"


def test_what_happened_before_the_page_is_shown_but_not_counted() -> None:
    model = TransactionModel()
    for offset, state in enumerate(("Ongoing", "PrepareCommit", "CompleteCommit")):
        change = StateChange("billing", offset, NOW_MS - 5_000, state, 1, 0, 60_000, NOW_MS - 6_000, (PARTITIONS[0],))
        model.apply(change, NOW_MS, is_live=False)
    assert model.commits == 0
    assert sum(model.rates(NOW_MS // 1000)["commits"]) == 1


@given(st.lists(st.integers(0, 5_000), min_size=1), st.integers(1, 100))
def test_percentiles_are_those_of_the_sorted_values(values: list[int], percent: int) -> None:
    rank = max(1, -(-len(values) * percent // 100))
    assert percentile(Counter(values), percent) == sorted(values)[rank - 1]


def test_old_seconds_are_dropped() -> None:
    counts, durations = PerSecond(), Durations()
    for second in range(3 * KEPT_SECONDS):
        counts.add(second * 1000)
        durations.add(second * 1000, second)
    assert counts.window(3 * KEPT_SECONDS) == [1] * KEPT_SECONDS
    assert durations.window(3 * KEPT_SECONDS, 50)[-1] == 3 * KEPT_SECONDS - 1
    assert counts.window(KEPT_SECONDS) == [0] * KEPT_SECONDS
    assert durations.window(KEPT_SECONDS, 99) == [None] * KEPT_SECONDS


@given(
    histories(),
    st.sampled_from(sorted(SORTS)),
    st.booleans(),
    st.integers(1, 4),
    st.sampled_from(["", "id-", "id-1", "2"]),
)
@settings(max_examples=60, deadline=None)
def test_the_pages_of_a_table_are_the_whole_in_order(
    changes: list[StateChange], sort: str, is_descending: bool, limit: int, text: str
) -> None:
    rows = applied(changes).rows.values()
    query = TableQuery(text=text, sort=sort, is_descending=is_descending, limit=1_000)
    matched, whole = choose(rows, query, NOW_MS)
    assert matched == len(whole)
    assert {row.transactional_id for row in whole} == {
        row.transactional_id for row in rows if text in row.transactional_id or text == str(row.producer_id)
    }
    pages = []
    for offset in range(0, matched, limit):
        pages += choose(rows, dataclasses.replace(query, limit=limit, offset=offset), NOW_MS)[1]
    assert pages == whole
    values = [value for row in whole if (value := SORTS[sort](row, NOW_MS)) is not None]
    assert values == sorted(values, reverse=is_descending)
