"""The incident of docs/incident.md, played: what the commands print and what the page shows, stage by stage.

With UPDATE_IMAGES=1 the pictures and the printed texts of the document are written anew; without it the document must
say what is printed now, times and ages aside.
"""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.client import AsyncClient, AsyncProducer, ProducerFenced
from fencepost.insight.explanation_text import FOOTNOTE
from tests.insight.conftest import CommandHere
from tests.insight.scenes import LONG_MS
from tests.page.apart import Apart
from tests.page.browser import IS_UPDATE, Browser, Visit, visit
from tests.page.load import Load, make_topics
from tests.page.ui_process import UiProcess
from tests.peers.broker_process import BrokerProcess
from tests.peers.build import REPOSITORY

pytestmark = pytest.mark.timeout(300)
DOCUMENT = REPOSITORY / "docs" / "incident.md"
FIRST, SECOND = "spark/app-7/billing/17", "spark/app-8/billing/17"
TOPIC, NAME, GROUP = "purchases", "billing", "reports"
BLOCK = re.compile(r"```\n\$ fencepost ([^\n]*)\n(.*?)```", re.DOTALL)
STUCK = 3


@pytest.fixture(scope="module")
def load(broker: BrokerProcess) -> Iterator[Load]:
    asyncio.run(make_topics(broker.bootstrap_servers))
    with Load(broker.bootstrap_servers) as load:
        yield load


@pytest.fixture(scope="module")
def ui(broker: BrokerProcess, load: Load) -> Iterator[UiProcess]:
    """It calls stuck what the commands call stuck."""
    with UiProcess(broker.bootstrap_servers, "--allow-actions", "--stuck-after", "10") as process:
        yield process


class Shift:
    """The commands that whoever is on call types, and what they answered."""

    def __init__(self, bootstrap_servers: str, apart: Apart) -> None:
        self._command = CommandHere(bootstrap_servers)
        self._apart = apart
        self.told: list[tuple[str, str]] = []

    def types(self, line: str, status: int = 0) -> str:
        done = self._apart.call(lambda: self._command.run(tuple(line.split())))
        assert done.status == status
        self.told.append((line, done.output + done.errors))
        return done.output + done.errors


def _timeless(text: str) -> list[str]:
    """Without what differs from run to run: times, ages, numbers of producers, where lines break, and in a history what
    came first within a millisecond."""
    text = text.replace(FOOTNOTE, "")
    text = re.sub(r"--bootstrap-server \S+", "--bootstrap-server ADDRESS", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"\b\d+(\.\d+)? (ms|s|min)\b( \d+ s\b)?", "AGE", text)
    text = re.sub(r"\bproducer( id)? \d+|\bid \d+,", "producer N", text)
    text = " ".join(re.sub(r"(?m)^(purchases-0 +)\d+", r"\1N", text).split())
    head, *moments = text.split("TIME")
    return [head, *sorted({moment.strip() for moment in moments})]


def _compare_or_update(told: list[tuple[str, str]]) -> None:
    document = DOCUMENT.read_text()
    found = BLOCK.findall(document)
    assert [line for line, _ in found] == [line for line, _ in told], "the document shows every command, in this order"
    if IS_UPDATE:
        texts = iter(told)

        def renew(_: re.Match[str]) -> str:
            line, text = next(texts)
            text = re.sub(r"--bootstrap-server \S+", "--bootstrap-server kafka:9092", text)
            return f"```\n$ fencepost {line}\n{text}```"

        DOCUMENT.write_text(BLOCK.sub(renew, document))
        return
    for (line, written), (_, printed) in zip(found, told, strict=True):
        assert _timeless(written) == _timeless(printed), f"docs/incident.md: {line}"


def test_an_incident_from_the_first_alarm_to_its_cause(
    broker: BrokerProcess,
    browser: Browser,
    ui: UiProcess,
    apart: Apart,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("COLUMNS", "104")
    bootstrap = broker.bootstrap_servers
    shift = Shift(bootstrap, apart)
    first, second = AsyncClient(bootstrap, client_id=FIRST), AsyncClient(bootstrap, client_id=SECOND)
    readers = AsyncClient(bootstrap, client_id="reports")

    async def produce_plainly(*values: bytes) -> None:
        async with AsyncProducer(bootstrap) as plain:
            for value in values:
                await plain.send(TOPIC, value)

    async def begin_and_stop() -> None:
        await first.start()
        stopped = first.producer(NAME, transaction_timeout_ms=LONG_MS)
        await stopped.init()
        await stopped.begin()
        for at in range(3):
            await stopped.send(TOPIC, b"of the first %d" % at)
        await stopped.flush()

    async def start_reading() -> None:
        await readers.start()
        await read(4)

    async def read(count: int) -> None:
        """So many records, and the group's offset behind them."""
        reader = readers.consumer(GROUP, [TOPIC]) if not consumers else consumers[0]
        consumers[:] = [reader]
        got = 0
        while got < count:
            got += len(await reader.poll(1000))
        await reader.commit()

    async def take_over() -> None:
        await second.start()
        await second.producer(NAME).init()

    async def wake_up() -> None:
        with pytest.raises(ProducerFenced):
            await first.producer(NAME).commit()

    async def leave() -> None:
        for client in (first, second, readers):
            await client.close()

    consumers: list = []
    try:
        apart.run(produce_plainly(b"one", b"two", b"three", b"four"))
        apart.run(start_reading())
        apart.run(begin_and_stop())
        apart.run(produce_plainly(b"behind it", b"and this"))
        with visit(browser, ui.url, height=720) as here:
            _stalled(here, shift, tmp_path)
            assert apart.run(consumers[0].poll(200)) == [], "the readers stall"
            apart.run(take_over())
            apart.run(read(2))
            shift.types(f"explain {TOPIC}")
            apart.run(wake_up())
            _fenced(here, shift, tmp_path)
    finally:
        apart.run(leave())
    _compare_or_update(shift.told)


def _stalled(here: Visit, shift: Shift, tmp_path: Path) -> None:
    here.go("transactions", NAME)
    here.wait_for_text("[data-verdict=stuck]", f"2 records wait behind {NAME}")
    here.wait_for_text("[data-verdict=stuck]", f"fencepost explain --id --history {NAME}")
    here.picture("incident-stuck", tmp_path)
    page = here.go("partitions", TOPIC, "0")
    page.wait_for_selector("[data-strip] [data-kind=open]")
    assert "held at 4 by billing" in " ".join(here.find(".head").inner_text().split())
    here.find("[data-kind=open]").click()
    here.wait_for_text("[data-facts]", NAME)
    here.picture("incident-held", tmp_path)
    here.go("groups", GROUP)
    here.wait_for_text("[data-lag]", "2\N{EN DASH}5")
    stalled = shift.types(f"explain {TOPIC}", status=STUCK)
    assert f"{TOPIC}-0  STUCK: 2 records wait behind {NAME}" in stalled
    assert f"client*   {FIRST} at 127.0.0.1" in stalled
    assert f"{GROUP} has 2..5 records to read" in shift.types(f"lag {GROUP}")
    assert "nothing was changed" in shift.types(f"txn abort {NAME}")


def _fenced(here: Visit, shift: Shift, tmp_path: Path) -> None:
    told = " ".join(shift.types(f"explain {NAME} --history").split())
    refused = f"EndTxn by {FIRST} at 127.0.0.1 (epoch 0) was refused with PRODUCER_FENCED"
    assert refused in told
    assert f"was fenced by {SECOND}" in told
    page = here.go("transactions", NAME)
    page.wait_for_selector("[data-verdict=healthy]")
    flag = here.find("[data-timeline] [data-kind=flag]", has_text="EndTxn refused")
    flag.wait_for()
    flag.focus()
    here.wait_for_text("[data-facts]", refused)
    here.picture("incident-fenced", tmp_path)
