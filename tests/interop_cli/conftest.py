"""The command as a process, against a real broker: Fencepost, or with `--against apache` (or both) Apache Kafka."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka
from tests.support.patience import patient

KINDS: dict[str, type[BrokerProcess]] = {"fencepost": FencepostProcess, "apache": ApacheKafka}
COMMAND_TIMEOUT_SECONDS = patient(60)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "broker" in metafunc.fixturenames:
        against = metafunc.config.getoption("--against")
        kinds = list(KINDS) if against == "both" else [against]
        metafunc.parametrize("broker", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with KINDS[request.param]() as process:
        yield process


class Done(NamedTuple):
    status: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        return json.loads(self.output)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.output.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a plain table, its head left out."""
        return [line.split() for line in self.output.splitlines()[1:]]


class Command:
    """`command("topics", "list")` runs it to its end, which must be a success; `refused` wants a failure."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.environment = {**os.environ, "FENCEPOST_BOOTSTRAP_SERVER": bootstrap_servers, "COLUMNS": "200"}
        self.script = str(Path(sys.executable).with_name("fencepost"))

    def run(self, arguments: Sequence[str], standard_input: str = "") -> Done:
        done = subprocess.run(
            [self.script, *arguments],
            input=standard_input,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=COMMAND_TIMEOUT_SECONDS,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def __call__(self, *arguments: str, standard_input: str = "") -> Done:
        done = self.run(arguments, standard_input)
        assert done.status == 0, f"fencepost {' '.join(arguments)} ended with {done.status}\n{done.errors}"
        return done

    def refused(self, *arguments: str, standard_input: str = "", status: int = 1) -> str:
        done = self.run(arguments, standard_input)
        assert done.status == status, f"{done.status}\n{done.output}\n{done.errors}"
        assert done.errors.startswith("error: "), done.errors
        assert done.errors.count("\n") == 1, done.errors
        return done.errors

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [self.script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )


@pytest.fixture
def command(broker: BrokerProcess) -> Command:
    return Command(broker.bootstrap_servers)


_serial = itertools.count()


@pytest.fixture
def unique() -> Callable[[str], str]:
    return lambda stem: f"cli-{stem}-{next(_serial)}"


@pytest.fixture
def topic(command: Command, unique: Callable[[str], str]) -> str:
    """A fresh topic of three partitions."""
    name = unique("topic")
    command("topics", "create", name, "--partitions", "3")
    return name
