"""When a batch may go on although the one before left no record."""

import pytest

from fencepost.client.values import TopicPartition
from fencepost.spark.markers import Marker
from fencepost.spark.skipped_batches import without_gap

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.mark.parametrize(
    ("stored", "is_of_this_run", "recorded", "before", "expected"),
    [
        # No gap: nothing is touched.
        (4, False, {A: 5}, {A: 5}, 4),
        (5, False, {A: 5}, {A: 5}, 5),
        (6, False, {A: 5}, {A: 5}, 6),
        # Skipped by this run itself, whatever it has read.
        (2, True, {A: 5}, {A: 9}, 4),
        # Skipped by a run before: only if there was nothing to read.
        (3, False, {A: 5, B: 7}, {A: 5, B: 7}, 4),
        (1, False, {A: 5, B: 7}, {A: 5, B: 7}, 4),
        (3, False, {A: 5, B: 7}, {A: 5, B: 8}, 3),
        (3, False, {A: 5}, {A: 5, B: 0}, 3),
        (3, False, {A: 9}, {A: 5}, 3),
        # Without offsets nothing can be shown.
        (3, False, {}, {}, 3),
    ],
)
def test_a_gap_is_closed_where_nothing_is_missing(stored, is_of_this_run, recorded, before, expected) -> None:
    found = without_gap(
        Marker(1, stored, "query"),
        "query",
        5,
        is_of_this_run=is_of_this_run,
        recorded=recorded,
        ends_before=lambda: before,
    )
    assert found == Marker(1, expected, "query")


def test_what_another_query_left_or_nobody_is_as_it_is() -> None:
    def ask(stored: Marker | None) -> Marker | None:
        return without_gap(stored, "query", 5, is_of_this_run=True, recorded={A: 5}, ends_before=lambda: {A: 5})

    assert ask(None) is None
    assert ask(Marker(1, 2, "another")) == Marker(1, 2, "another")
