"""True histories: whatever clients of a correct log record, no anomaly is found in it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.history import check, read_events
from tests.history.model import Model


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_a_correct_log_gives_no_anomaly(seed: int) -> None:
    report = check(read_events(Model(seed).events))
    assert report.is_clean, [finding.message for finding in report.findings]
    assert not report.unjudged
