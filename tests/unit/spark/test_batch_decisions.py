"""Every cell of the table: what a checkpoint and a group hold, and what becomes of the batch."""

import dataclasses
from pathlib import Path

import pytest

from fencepost.spark.batch_decisions import CONTINUE, RULES, Situation, Step, View, decide, docs_table, situation_of
from fencepost.spark.commit_records import Marker, Record
from fencepost.spark.errors import BatchRefused
from fencepost.spark.planned_batches import NOTHING_PLANNED, Planned, planned
from fencepost.topic_partition import TopicPartition

QUERY, OTHER = "b7a0", "c8b1"
P0, P1 = TopicPartition("purchases", 0), TopicPartition("purchases", 1)
HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1000,"conf":{}}\n'
DAY_MS = 24 * 3_600_000


def plan(*ends: int) -> Planned:
    """A batch whose partitions end there."""
    offsets = ",".join(f'"{number}":{end}' for number, end in enumerate(ends))
    return planned(HEAD + '{"purchases":{' + offsets + "}}")


def plan_at(at_ms: int) -> Planned:
    return dataclasses.replace(plan(10, 1), planned_ms=at_ms)


def record(batch_id: int, *ends: int, query: str = QUERY, term: int = 3, at: int = 5_000, **facts: object) -> Record:
    made = plan(*ends)
    marker = Marker(term, batch_id, query, made.digest, "app-1 on host-a, process 7", at)
    return Record(dataclasses.replace(marker, **facts), dict(made.offsets))


def old(batch_id: int, *ends: int, query: str = QUERY) -> Record:
    """By the first version: no digest, no writer."""
    return Record(Marker(3, batch_id, query), dict(plan(*ends).offsets))


CHECKPOINT = {4: plan(40, 4), 5: plan(50, 5)}
"""The checkpoint of all cells: batch 4 is done, batch 5 comes."""
WITHOUT_4 = {5: plan(50, 5)}
NOT_KAFKA = {4: planned(HEAD + '{"logOffset":4}'), 5: planned(HEAD + '{"logOffset":5}')}


def view(stored: Record | None, batch_id: int = 5, checkpoint: dict[int, Planned] | None = None, **facts) -> View:
    return View(
        "shop", QUERY, batch_id, stored, planned=(CHECKPOINT if checkpoint is None else checkpoint).get, **facts
    )


CELLS = {
    # The group is empty.
    "both are new": (view(None, 0, {0: plan(10, 1)}), Situation.NEW),
    "a first batch planned not long ago": (
        view(None, 0, {0: plan(10, 1)}, started_ms=1_000 + DAY_MS // 2, retention_ms=DAY_MS),
        Situation.NEW,
    ),
    "a first batch whose record may have expired": (
        view(None, 0, {0: plan(10, 1)}, started_ms=1_001 + DAY_MS // 2, retention_ms=DAY_MS),
        Situation.NEW_BUT_OLD,
    ),
    "the group expired or was deleted": (view(None), Situation.FORGOTTEN),
    # The group expired while this run was writing: its own record counts.
    "expired under a run, next": (view(None, held=record(4, 40, 4)), Situation.NEXT),
    "expired under a run, repeated": (view(None, held=record(5, 50, 5)), Situation.REPLAYED),
    "expired under a run, batches passed by": (view(None, held=record(2, 20, 2)), Situation.PASSED_BY),
    # The group holds the batch before.
    "equal": (view(record(4, 40, 4)), Situation.NEXT),
    "equal, in a run": (view(record(4, 40, 4), held=record(4, 40, 4)), Situation.NEXT),
    "equal, in a run whose checkpoint is not asked": (
        view(record(4, 40, 4), checkpoint={}, held=record(4, 40, 4)),
        Situation.NEXT,
    ),
    "equal, by the first version": (view(old(4, 40, 4)), Situation.NEXT),
    "equal, though the group lost a partition": (
        view(dataclasses.replace(record(4, 40, 4), offsets={P0: 40})),
        Situation.NEXT,
    ),
    "equal, positions in the marker": (
        view(dataclasses.replace(record(4, 40, 4, positions=((P0, 40), (P1, 4))), offsets={P0: 0})),
        Situation.NEXT,
    ),
    "equal, not Kafka": (
        view(
            Record(Marker(3, 4, QUERY, NOT_KAFKA[4].digest, "app", 1, ()), {P0: 0}),
            checkpoint=NOT_KAFKA,
        ),
        Situation.NEXT,
    ),
    "forked": (view(record(4, 41, 4)), Situation.FORKED),
    "forked, by the first version": (view(old(4, 41, 4)), Situation.FORKED),
    "forked, a partition more": (view(record(4, 40, 4, 1)), Situation.FORKED),
    "forked, a partition less": (view(record(4, 40)), Situation.FORKED),
    "forked, by the first version, a partition less": (view(old(4, 40)), Situation.FORKED),
    "forked, positions in the marker did not fit": (
        view(dataclasses.replace(record(4, 41, 4, positions=()), offsets={P0: 0})),
        Situation.FORKED,
    ),
    "forked, not Kafka": (
        view(Record(Marker(3, 4, QUERY, NOT_KAFKA[5].digest, "app", 1, ()), {P0: 0}), checkpoint=NOT_KAFKA),
        Situation.FORKED,
    ),
    "not Kafka, by the first version": (
        view(Record(Marker(3, 4, QUERY), {P0: 0}), checkpoint=NOT_KAFKA),
        Situation.NEXT_UNCOMPARED,
    ),
    "offsets/4 is gone": (view(record(4, 40, 4), checkpoint=WITHOUT_4), Situation.UNREADABLE),
    # The group holds the batch that comes.
    "replayed": (view(record(5, 50, 5)), Situation.REPLAYED),
    "replayed, by the first version": (view(old(5, 50, 5)), Situation.REPLAYED),
    "replayed, offsets/4 is gone": (view(record(5, 50, 5), checkpoint=WITHOUT_4), Situation.REPLAYED),
    "replayed, a load": (
        View("shop.monday", "monday", 0, Record(Marker(1, 0, "monday"), {P0: 0}), planned=lambda _: NOTHING_PLANNED),
        Situation.REPLAYED_UNCOMPARED,
    ),
    "one behind, planned with more": (view(record(5, 45, 5)), Situation.REPLANNED),
    "one behind, planned with less": (view(record(5, 60, 6)), Situation.REPLANNED),
    "one behind, by the first version": (view(old(5, 60, 6)), Situation.REPLANNED),
    "one behind, not Kafka": (
        view(Record(Marker(3, 5, QUERY, NOT_KAFKA[4].digest, "app", 1, ()), {P0: 0}), checkpoint=NOT_KAFKA),
        Situation.REPLANNED,
    ),
    "offsets/5 cannot be read": (view(record(5, 50, 5), checkpoint={}), Situation.UNREADABLE),
    # The group is ahead by more.
    "two behind": (view(record(6, 60, 6)), Situation.BEHIND),
    "begun anew under the same id": (view(record(6, 60, 6), 0, {0: plan(10, 1)}), Situation.BEHIND),
    "overtaken by another driver": (
        view(record(6, 60, 6), checkpoint={**CHECKPOINT, 6: plan(60, 6)}),
        Situation.OVERTAKEN,
    ),
    "a copy that went another way": (
        view(record(6, 60, 6), checkpoint={**CHECKPOINT, 6: plan(61, 6)}),
        Situation.BEHIND,
    ),
    # The group is behind.
    "ahead": (view(record(3, 30, 3)), Situation.MISSING),
    "ahead, offsets/4 is gone": (view(record(3, 30, 3), checkpoint=WITHOUT_4), Situation.MISSING),
    "ahead by batches that read nothing": (view(record(2, 40, 4)), Situation.PASSED_BY),
    "ahead by batches that this run saw pass": (view(record(2, 20, 2), held=record(2, 20, 2)), Situation.PASSED_BY),
    # Another query.
    "another query": (view(record(4, 40, 4, query=OTHER)), Situation.OTHER_QUERY),
    "another query, same batch": (view(record(5, 50, 5, query=OTHER)), Situation.OTHER_QUERY),
    "a new checkpoint": (view(record(4, 40, 4, query=OTHER), 0, {0: plan(10, 1)}), Situation.OTHER_QUERY),
    # Another driver.
    **{
        f"another driver, {name}": (view(stored, has_changed=True), Situation.OTHER_DRIVER)
        for name, stored in {
            "forked": record(4, 41, 4),
            "one behind": record(5, 60, 6),
            "two behind": record(6, 60, 6),
            "ahead": record(3, 30, 3),
            "another query": record(4, 40, 4, query=OTHER),
        }.items()
    },
    "a driver that wrote before this one started": (view(record(6, 60, 6), started_ms=4_999), Situation.BEHIND),
    "a successor may repeat what its predecessor wrote last": (
        view(record(5, 50, 5), has_changed=True),
        Situation.REPLAYED,
    ),
    "taken over by an adopting query": (
        view(record(0, 7, 0, query=OTHER, term=4), held=record(4, 40, 4)),
        Situation.TAKEN_OVER,
    ),
    "taken over by an adopting start of the same query": (
        view(record(4, 40, 4, term=4), held=record(4, 40, 4)),
        Situation.TAKEN_OVER,
    ),
    "a second transaction in one batch": (
        view(record(5, 50, 5), held=record(5, 50, 5), finished=5),
        Situation.WRITTEN_TWICE,
    ),
    # A topic that was deleted and created again.
    "made again": (view(record(4, 40, 4), made_again=("purchases",)), Situation.MADE_AGAIN),
    "made again, after a batch that was skipped": (
        view(record(4, 40, 4), held=record(4, 40, 4), made_again=("purchases",)),
        Situation.MADE_AGAIN,
    ),
    "made again, but the batch was committed": (
        view(record(5, 50, 5), made_again=("purchases",)),
        Situation.REPLAYED,
    ),
    "made again, and forked": (view(record(4, 41, 4), made_again=("purchases",)), Situation.FORKED),
}


@pytest.mark.parametrize("cell", list(CELLS))
def test_cell(cell):
    """What it is, what is done, and that only what may be adopted is, under a higher term."""
    given, expected = CELLS[cell]
    assert situation_of(given) is expected
    rule = RULES[expected]
    if rule.step is not None:
        decision = decide(given)
        assert decision.step is rule.step
        newest = given.record
        expected_marker = Marker(3 if newest else 1, given.batch_id, QUERY)
        if rule.step is Step.WRITE:
            assert decision.marker == expected_marker
        else:
            assert decision.record == newest
        assert decide(given, adopt=CONTINUE) == decision
        return
    with pytest.raises(BatchRefused) as refused:
        decide(given)
    assert "{" not in str(refused.value).replace('{"', "")
    assert ("adopt='continue'" in refused.value.advice) is (rule.may_adopt or expected is Situation.TAKEN_OVER)
    if rule.may_adopt and (given.held is None or expected is Situation.MADE_AGAIN):
        adopted = decide(given, adopt=CONTINUE)
        assert adopted.step is Step.WRITE
        assert adopted.marker == Marker((given.stored.marker.term if given.stored else 0) + 1, given.batch_id, QUERY)
    else:
        with pytest.raises(BatchRefused):
            decide(given, adopt=CONTINUE)


def test_every_situation_has_a_rule_and_a_cell():
    assert set(RULES) == set(Situation) == {expected for _, expected in CELLS.values()}


HOURS = 3_600_000


@pytest.mark.parametrize("ahead_hours", range(-12, 13, 3))
def test_a_first_batch_whose_record_has_expired_is_never_written_again_whatever_two_clocks_say(ahead_hours) -> None:
    """The clock of the host that planned it is ahead of the other's, or behind; offsets are kept for a day."""
    planned_at = 100 * DAY_MS
    for idle_hours in (24 + 1 / 60, 25, 36, 100):
        now = planned_at + round((idle_hours - ahead_hours) * HOURS)
        seen = view(None, 0, {0: plan_at(planned_at)}, started_ms=now, retention_ms=DAY_MS)
        assert situation_of(seen) is Situation.NEW_BUT_OLD


@pytest.mark.parametrize("ahead_hours", range(-11, 12, 2))
def test_a_first_batch_that_was_cut_short_is_written_whatever_two_clocks_say(ahead_hours) -> None:
    planned_at = 100 * DAY_MS
    seen = view(
        None, 0, {0: plan_at(planned_at)}, started_ms=planned_at + (1 - ahead_hours) * HOURS, retention_ms=DAY_MS
    )
    assert situation_of(seen) is Situation.NEW


def test_a_run_that_holds_a_record_never_adopts():
    with pytest.raises(BatchRefused):
        decide(view(record(6, 60, 6), held=record(4, 40, 4)), adopt=CONTINUE)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("one behind, planned with less", "purchases-0: group 60, checkpoint 50, 10 would be read again"),
        ("one behind, planned with more", "purchases-0: group 45, checkpoint 50, 5 would be skipped"),
        ("one behind, planned with less", """startingOffsets='{"purchases":{"0":60,"1":6}}'"""),
        ("one behind, planned with less", "on 1970-01-01 at 00:00:05 UTC by app-1 on host-a, process 7"),
        ("one behind, by the first version", "by an earlier version of this sink"),
        ("two behind", "purchases-0: group 60, checkpoint 40, 20 would be read again; purchases-1: group 6"),
        ("ahead", "purchases-0: group 30, checkpoint 40, 10 would be skipped"),
        ("overtaken by another driver", "another driver runs this query. Stop one of the two"),
        ("another driver, two behind", "another driver is at work"),
        ("the group expired or was deleted", "offsets.retention.minutes"),
        ("the group expired or was deleted", "purchases-0 at 40, purchases-1 at 4"),
        ("made again", "topic purchases was deleted and created again since batch 4 was written"),
        ("made again", "set failOnDataLoss to false"),
        ("forked, not Kafka", "the group does not say at which"),
        ("a first batch whose record may have expired", "planned on 1970-01-01 at 00:00:01 UTC"),
        ("a first batch whose record may have expired", "keeps offsets for 24 hours"),
    ],
)
def test_what_a_person_reads(cell, said):
    with pytest.raises(BatchRefused) as refused:
        decide(CELLS[cell][0])
    assert said in str(refused.value)


def test_the_same_offsets_have_one_digest_in_any_order_and_format_and_others_another():
    kafka, files = '{"a":{"0":3,"1":2},"b":{"0":1}}', '{"logOffset":4}'
    one = planned(f'{HEAD}{{"b":{{"0":1}},"a":{{"1":2,"0":3}}}}\n{files}\n-')
    assert planned(f"{HEAD}{kafka}\n{files}\n-").digest == one.digest
    assert planned(f'{HEAD}{kafka[:-1]},"@start:a":{{"0":1}}}}\n{files}\n-').digest == one.digest
    assert planned(f'v1\n{{"batchTimestampMs":9}}\n{kafka}\n{files}\n-').digest == one.digest
    assert planned(f"{HEAD}{kafka.replace('3', '4')}\n{files}\n-").digest != one.digest
    assert planned(f"{HEAD}{kafka}\n{files.replace('4', '5')}\n-").digest != one.digest
    assert one.planned_ms == 1_000


def test_the_docs_show_the_table():
    docs = Path(__file__).parents[3] / "docs" / "pipelines.md"
    assert docs_table() in docs.read_text()
