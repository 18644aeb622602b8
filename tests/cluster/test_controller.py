"""Our controller answers and records what Apache Kafka's does: a slice of the random administration.

`make controller` asks for ten thousand steps.
"""

import pytest

from tests.cluster.differential import Administration

pytestmark = pytest.mark.timeout(300)
STEPS = 250
SEED = 11


def test_random_administration_gives_equal_answers_and_equal_records() -> None:
    with Administration(SEED) as both:
        both.run(STEPS)
    assert sum(both.counts.values()) >= STEPS
    assert both.counts["AlterPartition"] > 10
    assert both.records["PartitionChangeRecord"] > 10
    assert both.ours.placements.checked > 5
