"""A page on each kind of broker with the scene played; started once for all tests here that run in one process."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.dashboard.running_page import RunningPage, eventually
from tests.dashboard.scene import play
from tests.interop.cases import Peer
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka

# Without the coordinator's word an old client can open a transaction that no coordinator knows of: one that hangs.
CONFIGS = {"transaction.partition.verification.enable": "false"}


@dataclass(frozen=True)
class Shown:
    broker: BrokerProcess
    page: RunningPage
    overview: dict[str, Any]
    """Soon after the scene."""

    @property
    def is_fencepost(self) -> bool:
        return self.broker.name == "fencepost"


def settle(broker: BrokerProcess) -> None:
    with Peer(broker, "settle") as peer:
        for coordinator in (0, 1):
            peer.settled("FindCoordinator", 2, {"Key": "any", "KeyType": coordinator})


@contextmanager
def showing(kind: type[BrokerProcess]) -> Iterator[Shown]:
    with kind(CONFIGS) as broker:
        settle(broker)
        asyncio.run(play(broker.bootstrap_servers))
        with RunningPage(broker.bootstrap_servers) as page:
            yield Shown(broker, page, eventually(lambda: _complete(page.document("/api/overview")), "the whole scene"))


@pytest.fixture(scope="session")
def shown_on_fencepost() -> Iterator[Shown]:
    with showing(FencepostProcess) as shown:
        yield shown


@pytest.fixture(scope="session")
def shown_on_apache() -> Iterator[Shown]:
    with showing(ApacheKafka) as shown:
        yield shown


@pytest.fixture(scope="module", params=["fencepost", "apache"])
def shown(request: pytest.FixtureRequest) -> Shown:
    """One of the two, which outlive the module."""
    found: Shown = request.getfixturevalue(f"shown_on_{request.param}")
    return found


HELD_PARTITIONS = 2  # of the topic, and of __consumer_offsets


def _complete(overview: dict[str, Any]) -> dict[str, Any] | None:
    """An overview in which every decided transaction has its end, and in which the second of the last one is over.

    What the open transactions hold up comes from a survey of its own, which may be a little later.
    """
    if {"PrepareCommit", "PrepareAbort"} & overview["states"].keys() or len(overview["held"]) < HELD_PARTITIONS:
        return None
    newest = overview["recent"][0]["completed_ms"] // 1000
    return overview if newest < overview["rates"]["from_s"] + len(overview["rates"]["commits"]) else None
