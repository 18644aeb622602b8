"""The Java AdminClient gets the same answers from Fencepost as from Apache Kafka.

One scripted sequence of calls (peers/java/AdminScript.java) runs against both. Every step must give the
same answer, or the same exception, but for the differences that tests/interop/allowed.py
lists and explains.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.allowed import ABSENT_FEATURES, ABSENT_TOPIC_CONFIGS, ADMIN, BROKER_SETTINGS, unexpected
from tests.interop.differences import differences
from tests.peers import java
from tests.peers.batches import RECENTLY_MS
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import DEFAULTS, ApacheKafka

pytestmark = pytest.mark.timeout(120)
Steps = dict[str, dict[str, Any]]

# Steps whose whole answer differs by design.
NOT_COMPARED = {
    "describeConfigs: broker": "compared name by name below",
    "describeConfigs: group": "settings of the new group protocols, which Fencepost does not have yet",
    "describeDelegationToken": "Fencepost does not advertise the delegation token calls",
    "describeUserScramCredentials": "Fencepost does not advertise the SCRAM calls",
    "listTransactions": "comes with transactions",
    "describeProducers": "comes with transactions",
}

# Broker settings whose values belong to the one process, or that Apache Kafka was told in its file.
OWN_VALUES = set(DEFAULTS) | {"listeners", "advertised.listeners", "log.dirs", "log.dir", "node.id", "broker.id"}


def run_script(broker: BrokerProcess) -> Steps:
    lines = java.run_json_lines("AdminScript", broker.bootstrap_servers, str(RECENTLY_MS))
    return {line["step"]: line for line in lines}


@pytest.fixture(scope="module")
def answers() -> Iterator[tuple[Steps, Steps]]:
    """What both brokers answered; brokers of their own, because the script starts from an empty cluster."""
    with ApacheKafka() as apache, FencepostProcess() as fencepost:
        yield run_script(apache), run_script(fencepost)


def visible(step: dict[str, Any]) -> Any:
    """What is compared of a step: the exception's class, or the answer less what is known to differ."""
    if "error" in step:
        return step["error"]
    return normalised(step["step"], step["answer"])


def normalised(step: str, answer: Any) -> Any:
    if not isinstance(answer, dict):
        return answer
    if step == "describeFeatures":
        return {name: value for name, value in answer.items() if name.split()[-1] not in ABSENT_FEATURES}
    without = {
        name: normalised(step, value)
        for name, value in answer.items()
        if name not in ABSENT_TOPIC_CONFIGS and not is_elr_setting(name, value)
    }
    return without


def is_elr_setting(name: str, value: Any) -> bool:
    """With eligible leader replicas Kafka pins min.insync.replicas for the whole cluster."""
    return name == "min.insync.replicas" and "1" in str(value)


def test_every_step_of_the_script_gives_the_same_answer(answers: tuple[Steps, Steps]) -> None:
    apache, fencepost = answers
    assert list(apache) == list(fencepost), "both ran the whole script"
    found = []
    for name, step in apache.items():
        if name not in NOT_COMPARED:
            for line in unexpected(differences(visible(step), visible(fencepost[name])), ADMIN.get(name)):
                found.append(f"{name}: {line}   {step.get('message', '')} / {fencepost[name].get('message', '')}")
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_broker_settings_have_the_same_meaning(answers: tuple[Steps, Steps]) -> None:
    """A setting under Kafka's name has Kafka's type, default and kind; Fencepost has fewer, and a few of its own."""
    apache, fencepost = (steps["describeConfigs: broker"]["answer"] for steps in answers)
    shared = sorted(set(apache) & set(fencepost) - OWN_VALUES)
    different = {name for name in shared if apache[name] != fencepost[name]}
    told = [
        f"{name}: apache {apache[name]}, fencepost {fencepost[name]}"
        for name in sorted(different - set(BROKER_SETTINGS))
    ]
    assert told == []
    assert set(BROKER_SETTINGS) - different == set(), "no longer different, strike them from the list"
    assert len(shared) > 40
