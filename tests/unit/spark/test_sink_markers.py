"""The skip rule: what the group holds against what the query is about to write."""

import pytest

from fencepost.client.values import CommittedOffset, TopicPartition
from fencepost.spark.errors import BatchRefused
from fencepost.spark.markers import CONTINUE, Marker, Step, decide, newest, parse

QUERY, OTHER = "b7a0", "c8b1"


def entering(batch_id: int, stored: Marker | None, adopt: str = "refuse", held_term: int | None = None):
    return decide("shop", stored, QUERY, batch_id, adopt=adopt, held_term=held_term)


def test_the_first_batch_of_a_new_group_is_written():
    decision = entering(0, None)
    assert (decision.step, decision.marker) == (Step.WRITE, Marker(1, 0, QUERY))


def test_the_batch_after_the_stored_one_is_written_under_the_same_term():
    decision = entering(5, Marker(3, 4, QUERY))
    assert (decision.step, decision.marker) == (Step.WRITE, Marker(3, 5, QUERY))


def test_the_stored_batch_is_skipped():
    assert entering(5, Marker(3, 5, QUERY)).step is Step.SKIP


@pytest.mark.parametrize(
    ("batch_id", "stored"),
    [
        (5, None),
        (5, Marker(1, 3, QUERY)),
        (5, Marker(1, 6, QUERY)),
        (0, Marker(1, 7, QUERY)),
        (0, Marker(1, 7, OTHER)),
        (8, Marker(1, 7, OTHER)),
        (7, Marker(1, 7, OTHER)),
    ],
    ids=["nothing stored", "a gap", "ahead", "begun anew", "new checkpoint", "other query", "other query, same batch"],
)
def test_anything_else_is_refused_and_adopted_only_under_a_higher_term(batch_id, stored):
    with pytest.raises(BatchRefused, match="adopt='continue'"):
        entering(batch_id, stored)
    adopted = entering(batch_id, stored, adopt=CONTINUE)
    assert adopted.step is Step.WRITE
    assert adopted.marker == Marker((stored.term if stored else 0) + 1, batch_id, QUERY)


def test_adopting_does_not_write_a_committed_batch_again():
    assert entering(5, Marker(3, 5, QUERY), adopt=CONTINUE).step is Step.SKIP


@pytest.mark.parametrize("stored", [None, Marker(2, 4, QUERY), Marker(2, 4, OTHER)])
def test_a_run_whose_group_was_taken_over_is_refused_even_if_it_may_adopt(stored):
    with pytest.raises(BatchRefused, match="took over"):
        entering(5, stored, adopt=CONTINUE, held_term=1)


def test_the_newest_marker_counts_and_foreign_metadata_does_not():
    held = [CommittedOffset(1, metadata=text) for text in ("", "consumer-1", '{"a": 1}', Marker(1, 9, QUERY).text())]
    assert newest(held) == Marker(1, 9, QUERY)
    assert newest([*held, CommittedOffset(1, metadata=Marker(2, 3, OTHER).text())]) == Marker(2, 3, OTHER)
    assert newest(held[:3]) is None


def test_a_marker_survives_the_metadata_of_an_offset():
    marker = Marker(7, 12345, QUERY)
    offsets = marker.on({TopicPartition("purchases", 0): 17, TopicPartition("purchases", 1): 4})
    assert [offset.offset for offset in offsets.values()] == [17, 4]
    assert {parse(offset.metadata) for offset in offsets.values()} == {marker}
    assert len(marker.text()) < 200
