"""One broker, one load, one page server and one browser for a file of tests."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.page.apart import Apart
from tests.page.browser import Browser, chromium
from tests.page.load import Load, lay_scenes
from tests.page.ui_process import UiProcess
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    # What is past its time-out stays as it is, so that the page can be asked to abort it.
    with FencepostProcess({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000"}) as process:
        yield process


@pytest.fixture(scope="module")
def load(broker: BrokerProcess) -> Iterator[Load]:
    asyncio.run(lay_scenes(broker.bootstrap_servers))
    with Load(broker.bootstrap_servers) as load:
        yield load


@pytest.fixture(scope="module")
def ui(broker: BrokerProcess, load: Load) -> Iterator[UiProcess]:
    with UiProcess(broker.bootstrap_servers, "--allow-actions") as process:
        yield process


@pytest.fixture(scope="module")
def browser(ui: UiProcess) -> Iterator[Browser]:
    """Comes after the page: as long as the browser's driver runs, no other loop can in this thread."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    with Apart() as apart:
        yield apart
