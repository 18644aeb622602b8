"""One broker that looks at ACLs, for tests that need no second one to compare with."""

from collections.abc import Iterator

import pytest

from tests.peers.raw import RawClient
from tests.security_acls.scene import AskingFencepost, connect, settled

USERS = [f"user{n}" for n in range(20)]


@pytest.fixture(scope="session")
def broker() -> Iterator[AskingFencepost]:
    with AskingFencepost(USERS) as process:
        with connect(process) as client:
            # Asking for a coordinator makes its topic.
            for kind in (0, 1):
                settled(client, "FindCoordinator", 2, {"Key": "any", "KeyType": kind})
        yield process


@pytest.fixture
def root(broker: AskingFencepost) -> Iterator[RawClient]:
    with connect(broker) as client:
        yield client


_users = iter(USERS)


@pytest.fixture
def user() -> str:
    """Somebody that no other test gives rights to."""
    return next(_users)
