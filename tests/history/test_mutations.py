"""One lie in a true history of random clients: the checker finds it, and nothing that does not follow from it."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fencepost.history import ANOMALIES, check, read_events
from tests.history.model import Model
from tests.history.mutations import OPERATORS, Lie, Operator


@pytest.mark.parametrize(
    ("anomaly", "companions", "operator"), [pytest.param(*each, id=each[2].__name__) for each in OPERATORS]
)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_lie_is_found_out(anomaly: str, companions: frozenset[str], operator: Operator, seed: int) -> None:
    lie = Lie(Model(seed, 400).events, seed)
    assume(operator(lie))
    report = check(read_events(lie.events))
    assert anomaly in report.anomalies
    assert report.anomalies <= companions | {anomaly}, [finding.message for finding in report.findings]


def test_there_is_a_lie_for_every_anomaly() -> None:
    assert {anomaly for anomaly, *_ in OPERATORS} == set(ANOMALIES)
