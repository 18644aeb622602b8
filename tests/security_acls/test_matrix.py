"""Every API with no right, with the right to something else, and with each right it takes: as in Apache Kafka."""

from collections.abc import Iterator

import pytest

from fencepost.wire.catalog import API_VERSIONS
from tests.interop.differences import differences
from tests.security_acls import cases  # noqa: F401 - fills CASES
from tests.security_acls.matrix import CASES, Case
from tests.security_acls.scene import AskingApache, AskingFencepost
from tests.security_acls.transcript import CANARY, Transcript, transcript

pytestmark = pytest.mark.timeout(180)

CONFIGS = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
STAGES = ("no right", "rights to something else")
# Asked before there is anybody to have rights.
BEFORE_ALL_RIGHTS = {"SaslHandshake", "SaslAuthenticate"}


@pytest.fixture(scope="module")
def transcripts() -> Iterator[tuple[Transcript, Transcript]]:
    users = [CANARY, *(case.user for case in CASES)]
    with AskingApache(users, CONFIGS) as apache, AskingFencepost(users, CONFIGS) as fencepost:
        yield transcript(apache), transcript(fencepost)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.user)
def test_rights_are_asked_for_as_kafka_does(case: Case, transcripts: tuple[Transcript, Transcript]) -> None:
    expected, found = (each[case.name] for each in transcripts)
    stages = [*STAGES, *(f"with {', '.join(map(str, step))}" for step in case.steps)]
    compared = slice(0, None if case.until < 0 else case.until + 1)
    problems = [
        f"{stage}, version {line}"
        for stage, theirs, ours in list(zip(stages, expected, found, strict=True))[compared]
        for line in differences(theirs, ours)
    ]
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_a_right_makes_a_difference_in_every_case(transcripts: tuple[Transcript, Transcript]) -> None:
    """Otherwise a case would show nothing: the matrix itself is tested here."""
    for case in CASES:
        first, *others = transcripts[1][case.name]
        if case.steps and case.name not in SAME_WITH_RIGHTS:
            assert any(other != first for other in others), case.name


SAME_WITH_RIGHTS = {
    # Nobody owns a transaction without an id, and nothing else is looked at.
    "produce in a transaction of nobody",
    "fetch where describing is allowed",
}


def test_every_api_is_in_the_matrix() -> None:
    asked = {case.api for case in CASES} | BEFORE_ALL_RIGHTS
    assert {key.camel_name for key in API_VERSIONS} == asked
    for key, (low, high) in API_VERSIONS.items():
        covered = {version for case in CASES if case.api == key.camel_name for version in case.versions}
        if key.camel_name not in BEFORE_ALL_RIGHTS:
            assert covered >= set(range(low, high + 1)), key.camel_name
