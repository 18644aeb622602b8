"""One broker with every kind of listener for all tests that do not change it."""

from collections.abc import Iterator

import pytest

from tests.security.secured import SecuredFencepost


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredFencepost]:
    with SecuredFencepost(tmp_path_factory.mktemp("secured")) as running:
        yield running
