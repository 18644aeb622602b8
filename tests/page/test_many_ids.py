"""Ten thousand transactional ids and a steady load: the page shows a hundred at a time and answers at once."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.page.browser import Browser, Visit, visit
from tests.page.load import SHOPS, Load, hold, make_ids, make_topics
from tests.page.ui_process import UiProcess
from tests.peers.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(300)
IDS = 10_000
ALL = IDS + len(SHOPS) + 1
PAGE_ROWS = 100


@pytest.fixture(scope="module")
def load(broker: BrokerProcess) -> Iterator[Load]:
    async def lay() -> None:
        await make_topics(broker.bootstrap_servers)
        await make_ids(broker.bootstrap_servers, IDS)
        await hold(broker.bootstrap_servers, "parked", "parking", "valet", timeout_ms=1)

    asyncio.run(lay())
    with Load(broker.bootstrap_servers) as load:
        yield load


@pytest.fixture(scope="module")
def ui(broker: BrokerProcess, load: Load) -> Iterator[UiProcess]:
    with UiProcess(broker.bootstrap_servers) as process:
        yield process


@pytest.fixture
def here(browser: Browser, ui: UiProcess) -> Iterator[Visit]:
    with visit(browser, ui.url) as visited:
        yield visited


def test_ten_thousand_ids_are_paged_searched_and_sorted(here: Visit) -> None:
    page = here.go("transactions", query="?sort=id&order=asc")
    page.wait_for_selector(f"[data-matched='{ALL}']")
    rows = here.find("main tbody tr")
    assert rows.count() == PAGE_ROWS
    assert rows.first.inner_text().startswith("checkout-0")
    page.get_by_role("button", name="Next").click()
    here.wait_for_text("main tbody tr:first-child", "many-00096")
    assert rows.count() == PAGE_ROWS
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("() => document.activeElement.innerText") == "many-00097"
    page.get_by_label("Search id or producer id").fill("many-0999")
    page.wait_for_selector("[data-matched='10']")
    assert rows.count() == 10
    page.get_by_label("Search id or producer id").fill("")
    page.get_by_role("button", name="Transactional id").click()
    here.wait_for_text("main tbody tr:first-child", "parked")
    page.get_by_role("button", name="Open for").click()
    page.wait_for_selector(f"[data-matched='{ALL}']")
    assert here.find("main tr").count() <= PAGE_ROWS + 1
    # The load goes on under it: other rows are shown as it changes them.
    page.get_by_label("State").select_option("Empty")
    page.wait_for_selector(f"[data-matched='{IDS}']")
    here.go("overview")
    here.wait_for_text(".head .under", f"{ALL:,} transactional ids")


def test_without_allow_actions_nothing_can_be_done(here: Visit) -> None:
    page = here.go("transactions", "parked")
    here.wait_for_text("[data-verdict]", "fencepost txn abort parked --bootstrap-server 127.0.0.1:")
    assert page.get_by_role("button", name="Abort …").count() == 0
    status = page.evaluate("""async () => (await fetch("api/abort/plan", {
      method: "POST", headers: {"X-Fencepost": "1", "Content-Type": "application/json"},
      body: JSON.stringify({transactional_id: "parked"}),
    })).status""")
    assert status == 403
    here.problems = [text for text in here.problems if "403" not in text]
