"""The whole public API of the client libraries, method by method, on Fencepost and on Apache Kafka.

What works on Apache Kafka has to work here: every scenario gives the same outcome on both, result or error, but for
what tests/interop/allowed.py lists and explains.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.interop.allowed import WHOLE_API, unexpected
from tests.interop.cases import Peer
from tests.interop.differences import differences
from tests.interop.whole_api import LIBRARIES
from tests.interop.whole_api.scenario import Library, Scenario, Scene, plain
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka

# Old methods are part of the API, too.
pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::DeprecationWarning")]
Brokers = tuple[BrokerProcess, BrokerProcess]
# So that the calls about ACLs have something to say; everybody may do everything.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SCENARIOS = [(library, scenario) for library in LIBRARIES for scenario in library.scenarios.values()]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with ApacheKafka(AUTHORIZER) as apache, FencepostProcess(AUTHORIZER) as fencepost:
        for broker in (apache, fencepost):
            with Peer(broker, "warm up") as peer:
                # Asking for a coordinator makes its topic, and the first answer is that it is not there yet.
                for kind in (0, 1):
                    peer.settled("FindCoordinator", 2, {"Key": "any", "KeyType": kind})
        yield apache, fencepost
        for library in LIBRARIES:
            library.close()


def on_both(brokers: Brokers, run: Any) -> list[Any]:
    """The outcomes of one thing done on both brokers at the same time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, brokers))


@pytest.mark.parametrize(
    ("library", "scenario"), SCENARIOS, ids=[f"{library.name}-{scenario.method}" for library, scenario in SCENARIOS]
)
def test_a_method_has_the_same_outcome_on_both_brokers(library: Library, scenario: Scenario, brokers: Brokers) -> None:
    name = f"{library.name}-{scenario.method}"

    def run(broker: BrokerProcess) -> Any:
        with Scene(broker, name) as scene:
            return plain(scenario.run(scene))

    problems = unexpected(differences(*on_both(brokers, run)), WHOLE_API.get(f"{library.name} {scenario.method}"))
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_every_public_method_has_a_scenario(library: Library) -> None:
    public, covered = library.public_methods(), set(library.scenarios) | set(library.local)
    assert sorted(public - covered) == [], "these methods have no scenario yet"
    assert sorted(covered - public) == [], "these methods are gone"


def test_every_allowed_difference_belongs_to_a_scenario() -> None:
    known = {f"{library.name} {scenario.method}" for library, scenario in SCENARIOS}
    assert {name for name in WHOLE_API if not name.startswith("kafkajs ")} <= known
