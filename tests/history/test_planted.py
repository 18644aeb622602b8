"""Every anomaly, planted by hand: the checker finds it, and nothing that does not follow from it."""

from collections.abc import Callable

import pytest

from fencepost.history import ANOMALIES
from fencepost.history.operations import READ_UNCOMMITTED
from tests.history.story import INPUT, P, Q, Story

Planted = Callable[[Story], None]
STORIES: list[tuple[str, Planted]] = []
COMPANIONS = {
    # Whoever reads in a circle has read at least one value before its commit was asked for.
    "write-read-cycle": {"precommitted-read"},
}


def plants(anomaly: str) -> Callable[[Planted], Planted]:
    def note(story: Planted) -> Planted:
        STORIES.append((anomaly, story))
        return story

    return note


@plants("lost-write")
def _an_acknowledged_value_that_readers_pass(story: Story) -> None:
    story.send("a", P, "one", 0)
    story.send("a", P, "two", 1)
    story.send("a", P, "three", 2)
    story.poll("reader", p=[(0, "one"), (2, "three")])


@plants("lost-write")
def _an_acknowledged_value_that_the_final_read_passes(story: Story) -> None:
    story.send("a", P, "one", 0)
    story.send("b", P, "two", 1)
    story.final(p=[(1, "two")])


@plants("lost-write")
def _a_value_that_was_read_once_and_is_gone(story: Story) -> None:
    story.send("a", P, "one", 0)
    story.poll("reader", p=[(0, "one")])
    story.final(p=[])


@plants("lost-write")
def _an_unacknowledged_value_that_was_read_once_and_is_gone(story: Story) -> None:
    story.send("a", P, "one", None, outcome="info")
    story.poll("reader", p=[(0, "one")])
    story.final(p=[])


@plants("lost-write")
def _a_whole_transaction_that_was_acknowledged(story: Story) -> None:
    story.transaction("a", (P, "one", 0))
    story.send("b", P, "two", 2)
    story.final(p=[(2, "two")])


@plants("unseen")
def _the_last_value_of_a_partition(story: Story) -> None:
    story.send("a", P, "one", 0)
    story.send("a", P, "two", 1)
    story.final(p=[(0, "one")])


@plants("unseen")
def _a_value_acknowledged_without_an_offset(story: Story) -> None:
    story.send("a", P, "one", None)
    story.final(p=[])


@plants("duplicate")
def _one_value_at_two_offsets(story: Story) -> None:
    story.send("a", P, "one", 0)
    story.final(p=[(0, "one"), (1, "one")])


@plants("duplicate")
def _a_pipeline_that_commits_a_batch_twice(story: Story) -> None:
    story.transaction("a", (P, "one", 0))
    story.transaction("b", (P, "one", 2))
    story.final(p=[(0, "one"), (2, "one")])


@plants("duplicate")
def _more_copies_than_attempts_for_a_reader_of_everything(story: Story) -> None:
    story.transaction("a", (P, "one", 0), outcome="fail", commit=False)
    story.poll("reader", READ_UNCOMMITTED, p=[(0, "one"), (1, "one")])


@plants("inconsistent-offsets")
def _two_readers_who_disagree(story: Story) -> None:
    story.send("a", P, "one", None, outcome="info")
    story.send("b", P, "two", None, outcome="info")
    story.poll("reader-1", p=[(0, "one")])
    story.poll("reader-2", p=[(0, "two")])


@plants("inconsistent-offsets")
def _two_sends_acknowledged_at_one_offset(story: Story) -> None:
    story.send("a", P, "one", 0)
    story.send("b", P, "two", 0)


@plants("inconsistent-offsets")
def _a_value_read_elsewhere_than_acknowledged(story: Story) -> None:
    story.send("a", P, "one", 0)
    story.poll("reader", p=[(1, "one")])


@plants("phantom-read")
def _a_value_that_nobody_sent(story: Story) -> None:
    story.send("a", P, "one", 0)
    story.poll("reader", p=[(0, "one"), (1, "nobody's")])


@plants("phantom-read")
def _a_value_in_the_wrong_partition(story: Story) -> None:
    story.send("a", P, "one", None, outcome="info")
    story.send("a", Q, "two", 0)
    story.poll("reader", q=[(0, "two"), (1, "one")])


@plants("phantom-read")
def _a_value_read_before_it_was_sent(story: Story) -> None:
    story.poll("reader", p=[(0, "one")])
    story.send("a", P, "one", 0)


@plants("aborted-read")
def _a_value_of_an_aborted_transaction(story: Story) -> None:
    story.transaction("a", (P, "one", 0), outcome="fail", commit=False)
    story.poll("reader", p=[(0, "one")])


@plants("aborted-read")
def _a_value_of_a_send_that_failed(story: Story) -> None:
    story.send("a", P, "one", None, outcome="fail")
    story.poll("reader", p=[(0, "one")])


@plants("aborted-read")
def _a_value_of_a_producer_that_died_before_it_asked_to_commit(story: Story) -> None:
    story.recorder.transaction("a").sending(P, "one")
    story.poll("reader", p=[(0, "one")])


@plants("aborted-read")
def _an_aborted_attempt_where_the_second_is_in_order(story: Story) -> None:
    story.transaction("a", (P, "one", 0), outcome="fail", commit=False)
    story.transaction("a", (P, "one", 2), outcome="info")
    story.poll("reader", p=[(0, "one")])


@plants("precommitted-read")
def _a_value_read_before_the_commit_was_asked_for(story: Story) -> None:
    transaction = story.recorder.transaction("a")
    transaction.sent(transaction.sending(P, "one"), 0)
    story.poll("reader", p=[(0, "one")])
    transaction.ending(commit=True)
    transaction.ok()


@plants("precommitted-read")
def _a_transaction_that_reads_its_own_value(story: Story) -> None:
    transaction = story.recorder.transaction("a")
    transaction.sending(P, "one")
    transaction.polled({P: [(0, "one")]})
    transaction.ending(commit=True)
    transaction.info()


@plants("torn-transaction")
def _half_of_an_acknowledged_transaction(story: Story) -> None:
    story.transaction("a", (P, "one", 0), (Q, "two", 0))
    story.final(p=[(0, "one")], q=[])


@plants("torn-transaction")
def _half_of_a_transaction_of_unknown_outcome(story: Story) -> None:
    """Whoever reads one value proves that the other must be there."""
    story.transaction("a", (P, "one", None), (Q, "two", None), outcome="info")
    story.final(p=[(0, "one")], q=[])


@plants("torn-transaction")
def _half_of_a_transaction_whose_client_died(story: Story) -> None:
    transaction = story.recorder.transaction("a")
    transaction.sending(P, "one")
    transaction.sending(Q, "two")
    transaction.ending(commit=True)
    story.poll("reader", p=[(0, "one")])
    story.final(p=[(0, "one")], q=[])


@plants("torn-transaction")
def _half_of_a_transaction_for_readers_who_passed_it(story: Story) -> None:
    story.transaction("a", (P, "one", 0), (Q, "two", 1))
    story.send("b", Q, "before", 0)
    story.send("b", Q, "after", 3)
    story.poll("reader", p=[(0, "one")])
    story.poll("reader", q=[(0, "before"), (3, "after")])


@plants("write-read-cycle")
def _two_transactions_that_read_each_other(story: Story) -> None:
    first, second = story.recorder.transaction("a"), story.recorder.transaction("b")
    first.sending(P, "one")
    second.sending(Q, "two")
    first.polled({Q: [(0, "two")]})
    second.polled({P: [(0, "one")]})
    for transaction in (first, second):
        transaction.ending(commit=True)
        transaction.ok()


@plants("write-read-cycle")
def _a_circle_of_three(story: Story) -> None:
    ring = [story.recorder.transaction(name) for name in "abc"]
    for at, transaction in enumerate(ring):
        transaction.sending(f"ring-{at}", f"value {at}")
    for at, transaction in enumerate(ring):
        before = (at - 1) % 3
        transaction.polled({f"ring-{before}": [(0, f"value {before}")]})
    for transaction in ring:
        transaction.ending(commit=True)
        transaction.ok()


@plants("nonmonotonic-send")
def _a_later_send_that_stands_earlier(story: Story) -> None:
    story.send("a", P, "one", 1)
    story.send("a", P, "two", 0)


@plants("nonmonotonic-send")
def _a_later_send_that_is_read_earlier(story: Story) -> None:
    story.send("a", P, "one", None)
    story.send("a", P, "two", None)
    story.final(p=[(0, "two"), (1, "one")])


@plants("int-nonmonotonic-send")
def _two_sends_of_one_transaction_in_the_wrong_order(story: Story) -> None:
    story.transaction("a", (P, "one", 1), (P, "two", 0))


@plants("nonmonotonic-poll")
def _a_reader_who_is_sent_back(story: Story) -> None:
    story.send("a", P, "one", 0)
    story.send("a", P, "two", 1)
    story.poll("reader", p=[(0, "one"), (1, "two")])
    story.poll("reader", p=[(1, "two")])


@plants("int-nonmonotonic-poll")
def _one_poll_that_goes_backwards(story: Story) -> None:
    story.send("a", P, "one", 0)
    story.send("a", P, "two", 1)
    story.poll("reader", p=[(1, "two"), (0, "one")])


@plants("poll-skip")
def _a_reader_who_is_denied_what_another_gets(story: Story) -> None:
    for offset, value in enumerate(("one", "two", "three")):
        story.send("a", P, value, offset)
    story.poll("reader-1", p=[(0, "one"), (1, "two"), (2, "three")])
    story.poll("reader-2", p=[(0, "one")])
    story.poll("reader-2", p=[(2, "three")])


@plants("int-poll-skip")
def _one_poll_that_leaves_something_out(story: Story) -> None:
    for offset, value in enumerate(("one", "two", "three")):
        story.send("a", P, value, offset)
    story.poll("reader-1", p=[(0, "one"), (1, "two"), (2, "three")])
    story.poll("reader-2", p=[(0, "one"), (2, "three")])


@plants("int-poll-skip")
def _a_reader_of_everything_who_is_denied_an_aborted_value(story: Story) -> None:
    story.send("a", P, "one", 0)
    story.transaction("b", (P, "two", 1), outcome="fail", commit=False)
    story.send("a", P, "three", 3)
    story.poll("reader", READ_UNCOMMITTED, p=[(0, "one"), (3, "three")])


@plants("offsets-without-outputs")
def _offsets_of_an_aborted_transaction(story: Story) -> None:
    story.transaction("a", (P, "one", 0), outcome="fail", commit=False, offset=5)
    story.fetch_offset("reader", 5)


@plants("offsets-without-outputs")
def _offsets_that_count_while_the_outputs_do_not(story: Story) -> None:
    story.transaction("a", (P, "one", 0), outcome="info", offset=5)
    story.fetch_offset("reader", 5)
    story.final(p=[])


@plants("outputs-without-offsets")
def _outputs_that_count_while_the_offsets_do_not(story: Story) -> None:
    story.transaction("a", (P, "one", 0), outcome="info", offset=5)
    story.final(p=[(0, "one")])
    story.fetch_offset("reader", None)


@plants("outputs-without-offsets")
def _offsets_that_stay_behind(story: Story) -> None:
    story.transaction("a", (P, "one", 0), offset=5)
    story.transaction("a", (P, "two", 2), offset=9)
    story.final(p=[(0, "one"), (2, "two")])
    story.fetch_offset("reader", 5)


@plants("outputs-without-offsets")
def _offsets_that_stay_behind_after_a_crash_of_the_same_id(story: Story) -> None:
    story.transaction("a", (P, "one", None), outcome="info", offset=5, transactional_id="copier")
    story.transaction("b", (P, "two", 2), offset=9, transactional_id="copier")
    story.fetch_offset("reader", 5)


@plants("phantom-offset")
def _an_offset_that_nobody_committed(story: Story) -> None:
    story.commit_offset("a", 5)
    story.fetch_offset("reader", 6)


@plants("torn-transaction")
def _a_pair_of_which_a_reader_passed_one_half(story: Story) -> None:
    """Behind both markers, and without waiting for a final read."""
    story.transaction("before", (P, "zero", 0), (Q, "zero", 0))
    story.transaction("a", (P, "one", 2), (Q, "two", 2))
    story.poll("reader", p=[(0, "zero"), (2, "one")], q=[(0, "zero")])
    story.passed("reader", p=4, q=4)


@plants("poll-skip")
def _half_of_a_pair_that_others_were_given(story: Story) -> None:
    story.transaction("before", (P, "zero", 0), (Q, "zero", 0))
    story.transaction("a", (P, "one", 2), (Q, "two", 2))
    story.poll("reader", p=[(0, "zero"), (2, "one")], q=[(0, "zero")])
    story.passed("reader", p=4, q=4)
    story.final(p=[(0, "zero"), (2, "one")], q=[(0, "zero"), (2, "two")])


@plants("poll-skip")
def _a_value_below_where_a_reader_stood_from_the_first(story: Story) -> None:
    story.passed("reader", p=0)
    story.send("a", P, "one", 0)
    story.send("a", P, "two", 1)
    story.poll("reader", p=[(1, "two")])
    story.final(p=[(0, "one"), (1, "two")])


@plants("lost-offset-commit")
def _a_commit_of_offsets_that_is_gone(story: Story) -> None:
    story.commit_offset("a", 5)
    story.commit_offset("a", 9)
    story.fetch_offset("reader", 5)


@plants("zombie-commit")
def _a_commit_by_a_producer_that_was_replaced(story: Story) -> None:
    story.init("old", "copier")
    story.init("new", "copier")
    story.transaction("old", (P, "one", 0), transactional_id="copier")
    story.final(p=[(0, "one")])


@pytest.mark.parametrize(
    ("anomaly", "plant"), [pytest.param(name, story, id=f"{name}{story.__name__}") for name, story in STORIES]
)
def test_a_planted_anomaly_is_found_and_nothing_else(anomaly: str, plant: Planted) -> None:
    story = Story()
    plant(story)
    report = story.report()
    assert report.anomalies == {anomaly} | COMPANIONS.get(anomaly, set()), [each.message for each in report.findings]
    found = next(each for each in report.findings if each.anomaly == anomaly)
    assert 1 <= len(found.operations) <= 6
    assert found.partition in (P, Q, INPUT, None)


def test_there_is_a_story_for_every_anomaly() -> None:
    assert {anomaly for anomaly, _ in STORIES} == set(ANOMALIES)
