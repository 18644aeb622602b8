"""The commands against both brokers, each started once for all tests here that run in one process."""

import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout

import pytest

from fencepost.cli.main import run
from tests.interop.cases import Peer
from tests.interop_cli.conftest import Command, Done
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka

# Without the coordinator's word an old client can open a transaction that no coordinator knows of: one that hangs.
CONFIGS = {"transaction.partition.verification.enable": "false", "log.cleaner.backoff.ms": "200"}


@pytest.fixture(scope="session", params=[FencepostProcess, ApacheKafka], ids=["fencepost", "apache"])
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    kind: type[BrokerProcess] = request.param
    with kind(CONFIGS) as process:
        with Peer(process, "settle") as peer:
            for coordinator in (0, 1):
                peer.settled("FindCoordinator", 2, {"Key": "any", "KeyType": coordinator})
        yield process


class CommandHere(Command):
    """The command in this process, which starts in no time. That commands work as processes of their own is tested
    with `dump`, and with the other commands."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self.bootstrap_servers = bootstrap_servers

    def run(self, arguments: Sequence[str], standard_input: str = "") -> Done:
        assert not standard_input
        where = () if "--bootstrap-server" in arguments else ("--bootstrap-server", self.bootstrap_servers)
        with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
            status = run([*arguments, *where])
        return Done(status, output.getvalue(), errors.getvalue())


@pytest.fixture
def command(broker: BrokerProcess) -> Command:
    return CommandHere(broker.bootstrap_servers)


_serial = itertools.count()


@pytest.fixture
def unique() -> Callable[[str], str]:
    return lambda stem: f"inspect-{stem}-{next(_serial)}"
