"""True histories: whatever clients of a correct log record, no anomaly is found in it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.history import check, read_events
from fencepost.history.operations import READ_UNCOMMITTED
from tests.history.model import Model
from tests.history.story import P, Q, Story


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**32))
def test_a_correct_log_gives_no_anomaly(seed: int) -> None:
    report = check(read_events(Model(seed).events))
    assert report.is_clean, [finding.message for finding in report.findings]
    assert not report.unjudged


def assert_clean(story: Story) -> None:
    report = story.report()
    assert report.is_clean, [finding.message for finding in report.findings]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**32))
def test_readers_that_say_where_they_stand_are_believed(seed: int) -> None:
    report = check(read_events(Model(seed, tells_positions=True).events))
    assert report.is_clean, [finding.message for finding in report.findings]


def test_a_pair_whose_other_half_is_undecided_is_not_torn() -> None:
    """One marker is there, the other not yet: the reader of that partition stands before it."""
    story = Story()
    story.transaction("before", (P, "zero", 0), (Q, "zero", 0))
    story.transaction("a", (P, "one", 2), (Q, "two", 2))
    story.poll("reader", p=[(0, "zero"), (2, "one")], q=[(0, "zero")])
    story.passed("reader", p=4, q=2)
    assert_clean(story)


def test_what_is_unknown_stays_unknown() -> None:
    """Sends and commits without an answer may have happened or not, and a reader may or may not see them."""
    story = Story()
    story.send("a", P, "seen", None, outcome="info")
    story.send("a", P, "never seen", None, outcome="info")
    story.transaction("b", (P, "also never seen", 5), (Q, "nor this", 5), outcome="info", offset=3)
    story.fetch_offset("reader", None)
    story.final(p=[(0, "seen")], q=[])
    assert_clean(story)


def test_a_send_given_up_may_arrive_after_later_ones() -> None:
    story = Story()
    story.send("a", P, "slow", None, outcome="info")
    story.send("a", P, "quick", 0)
    story.final(p=[(0, "quick"), (1, "slow")])
    assert_clean(story)


def test_markers_and_aborted_values_leave_gaps_that_are_no_skips() -> None:
    story = Story()
    story.send("a", P, "one", 0)
    story.transaction("b", (P, "aborted", 1), outcome="fail", commit=False)
    story.send("a", P, "two", 3)
    story.poll("reader", p=[(0, "one"), (3, "two")])
    story.poll("everything", READ_UNCOMMITTED, p=[(0, "one"), (1, "aborted"), (3, "two")])
    assert_clean(story)


def test_a_reader_of_uncommitted_values_sees_them_early_and_aborted() -> None:
    story = Story()
    transaction = story.recorder.transaction("a")
    transaction.sent(transaction.sending(P, "early"), 0)
    story.poll("reader", READ_UNCOMMITTED, p=[(0, "early")])
    transaction.ending(commit=False)
    transaction.fail()
    assert_clean(story)


def test_a_pipeline_may_write_a_value_again_after_an_abort() -> None:
    story = Story()
    story.transaction("a", (P, "copy", 0), outcome="fail", commit=False, offset=1)
    story.transaction("a", (P, "copy", 2), offset=1)
    story.fetch_offset("reader", 1)
    story.final(p=[(2, "copy")])
    story.final(READ_UNCOMMITTED, p=[(0, "copy"), (2, "copy")])
    assert_clean(story)


def test_a_reader_that_is_assigned_anew_may_begin_anywhere() -> None:
    story = Story()
    for offset, value in enumerate(("one", "two", "three")):
        story.send("a", P, value, offset)
    story.poll("reader", p=[(0, "one"), (1, "two"), (2, "three")])
    story.recorder.assign("reader")
    story.poll("reader", p=[(0, "one")])
    story.recorder.assign("reader")
    story.poll("reader", p=[(2, "three")])
    assert_clean(story)


def test_a_rebalance_excuses_what_was_polled_around_it() -> None:
    story = Story()
    for offset, value in enumerate(("one", "two", "three")):
        story.send("a", P, value, offset)
    story.poll("other", p=[(0, "one"), (1, "two"), (2, "three")])
    story.poll("reader", p=[(1, "two")])
    operation = story.recorder.poll("reader")
    operation.rebalanced([P])
    operation.polled({P: [(0, "one")]})
    operation.ok()
    story.poll("reader", p=[(2, "three")])
    assert_clean(story)


def test_after_a_failed_transaction_a_consumer_goes_back() -> None:
    story = Story()
    story.send("a", P, "one", 0)
    story.transaction("b", outcome="fail", commit=False, polls=[{"p": [(0, "one")]}])
    story.transaction("b", polls=[{"p": [(0, "one")]}])
    assert_clean(story)


def test_writes_that_come_after_the_final_read_began_need_not_be_in_it() -> None:
    story = Story()
    reading = story.recorder.final_read("final", [P])
    story.send("a", P, "late", 0)
    reading.polled({P: []})
    reading.ok()
    assert_clean(story)


def test_a_final_read_may_begin_where_retention_has_left_something() -> None:
    story = Story()
    story.send("a", P, "expired", 0)
    story.send("a", P, "kept", 1)
    reading = story.recorder.final_read("final", {P: 1})
    reading.polled({P: [(1, "kept")]})
    reading.ok()
    assert_clean(story)


def test_what_deletion_or_compaction_may_have_taken_is_not_missed() -> None:
    story = Story()
    story.send("a", P, "superseded", 0)
    story.send("a", P, "unknown", None, "info")
    story.send("a", P, "kept", 2)
    story.poll("reader", p=[(0, "superseded"), (2, "kept")])
    reading = story.recorder.final_read("final", [P])
    reading.thinned({P: 2})
    reading.polled({P: [(2, "kept")]})
    reading.ok()
    assert_clean(story)


def test_what_lies_behind_all_that_was_thinned_is_missed() -> None:
    story = Story()
    for offset, value in enumerate(("deleted", "lost", "kept")):
        story.send("a", P, value, offset)
    reading = story.recorder.final_read("final", [P])
    reading.thinned({P: 1})
    reading.polled({P: [(2, "kept")]})
    reading.ok()
    (finding,) = story.report().findings
    assert (finding.anomaly, finding.values) == ("lost-write", ("lost",))


def test_the_input_of_a_pipeline_may_come_from_elsewhere() -> None:
    story = Story()
    story.transaction("a", (P, "value", 0), polls=[{"i": [(7, "value")]}])
    story.final(p=[(0, "value")])
    assert_clean(story)


def test_whoever_took_over_an_id_may_commit() -> None:
    story = Story()
    story.init("old", "copier")
    story.transaction("old", (P, "one", 0), transactional_id="copier")
    story.init("new", "copier")
    story.transaction("new", (P, "two", 2), transactional_id="copier")
    story.init("old", "copier")
    story.transaction("old", (P, "three", 4), transactional_id="copier")
    assert_clean(story)
