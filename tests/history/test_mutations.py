"""One lie in a true history of random clients: the checker finds it, and nothing that does not follow from it."""

import functools

import pytest

from fencepost.history import ANOMALIES, check, read_events
from tests.history.model import Model
from tests.history.mutations import OPERATORS, Event, Lie, Operator

LIES = 12
SEEDS_MAX = 200


@functools.cache
def truth(seed: int) -> list[Event]:
    return Model(seed, 400).events


@pytest.mark.parametrize(
    ("anomaly", "companions", "operator"), [pytest.param(*each, id=each[2].__name__) for each in OPERATORS]
)
def test_a_lie_is_found_out(anomaly: str, companions: frozenset[str], operator: Operator) -> None:
    told = 0
    for seed in range(SEEDS_MAX):
        lie = Lie(truth(seed), seed)
        if not operator(lie):
            continue
        report = check(read_events(lie.events))
        assert anomaly in report.anomalies, f"seed {seed}"
        assert report.anomalies <= companions | {anomaly}, (seed, [finding.message for finding in report.findings])
        told += 1
        if told == LIES:
            return
    pytest.fail(f"only {told} of {SEEDS_MAX} histories have a place for this lie")


def test_there_is_a_lie_for_every_anomaly() -> None:
    assert {anomaly for anomaly, *_ in OPERATORS} == set(ANOMALIES)
