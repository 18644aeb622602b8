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
from tests.peers.build import PEERS, require_node
from tests.peers.clients import KAFKAJS
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka
from tests.peers.process import Event, JsonLinesProcess
from tests.support.patience import patient

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


@pytest.fixture(scope="module")
def kafkajs(brokers: Brokers) -> list[list[Event]]:
    """What the program in peers/node printed for each broker."""

    def run(broker: BrokerProcess) -> list[Event]:
        command = [require_node(), str(PEERS / "node" / "whole_api.js"), broker.bootstrap_servers]
        with JsonLinesProcess(f"KafkaJS on {broker.name}", command, dict(KAFKAJS.environment)) as process:
            return process.wait(timeout=patient(50))

    return on_both(brokers, run)


def test_every_method_of_kafkajs_has_the_same_outcome_on_both_brokers(kafkajs: list[list[Event]]) -> None:
    expected, found = (
        {event["method"]: event["outcome"] for event in events if event["event"] == "outcome"} for events in kafkajs
    )
    problems = [
        f"{method}: {line}"
        for method in sorted(expected | found)
        for line in unexpected(differences(expected.get(method), found.get(method)), WHOLE_API.get(f"kafkajs {method}"))
    ]
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_every_public_method_of_kafkajs_has_a_scenario(kafkajs: list[list[Event]]) -> None:
    for events in kafkajs:
        covered = {event["method"] for event in events if event["event"] == "outcome"} | set(events[-1]["local"])
        public = set(events[-1]["methods"])
        assert sorted(public - covered) == [], "these methods have no scenario yet"
        assert sorted(covered - public) == [], "these methods are gone"


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_every_public_method_has_a_scenario(library: Library) -> None:
    assert library.public_classes() == set(library.classes) | set(library.other_classes)
    public, covered = library.public_methods(), set(library.scenarios) | set(library.local)
    assert sorted(public - covered) == [], "these methods have no scenario yet"
    assert sorted(covered - public) == [], "these methods are gone"


def test_every_allowed_difference_belongs_to_a_scenario() -> None:
    known = {f"{library.name} {scenario.method}" for library, scenario in SCENARIOS}
    assert {name for name in WHOLE_API if not name.startswith("kafkajs ")} <= known
