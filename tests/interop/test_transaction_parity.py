"""The same transactional calls to both brokers, legal and not: the same codes, and the same to be seen afterwards."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.allowed import TRANSACTIONS, unexpected
from tests.interop.cases import Peer
from tests.interop.cases.transactional import TRANSACTION_CASES, Case
from tests.interop.differences import differences
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka

pytestmark = [pytest.mark.timeout(90), pytest.mark.xdist_group("transaction-parity")]

CONFIGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    with ApacheKafka(CONFIGS) as apache, FencepostProcess(CONFIGS) as fencepost:
        for broker in (apache, fencepost):
            with Peer(broker, "first") as peer:
                for kind in (0, 1):
                    peer.settled("FindCoordinator", 2, {"Key": "any", "KeyType": kind})
        yield apache, fencepost


def answer_of(broker: BrokerProcess, case: Case) -> Any:
    with Peer(broker, case.name) as peer:
        return case.run(peer)


@pytest.mark.parametrize("case", TRANSACTION_CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_both_brokers_answer_alike(case: Case, brokers: tuple[BrokerProcess, BrokerProcess]) -> None:
    expected, found = (answer_of(broker, case) for broker in brokers)
    problems = unexpected(differences(expected, found), TRANSACTIONS.get(case.name))
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_every_allowed_difference_belongs_to_a_case() -> None:
    assert set(TRANSACTIONS) <= {case.name for case in TRANSACTION_CASES}
