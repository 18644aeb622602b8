"""At every width of the window, and with names of every kind: nothing shrinks to nothing, and no name loses its end."""

from collections.abc import Iterator

import pytest

from fencepost.client import AsyncAdmin, NewTopic
from tests.page.apart import Apart
from tests.page.browser import Browser, Visit, visit
from tests.page.load import Load, hold
from tests.page.ui_process import UiProcess
from tests.peers.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(300)
VIEWS = ["overview", "transactions", "partitions", "groups", "producers", "pipelines"]
LONG_ID = "spark-invoicing-pipeline-eu-west-1-production-checkout-7f3a9c"
LONG_TOPIC = "com.example.invoicing.purchases.eu-west-1.v2"
CUT = """() => [...document.querySelectorAll("main th, main td, main h1, main .about, main .facts dd")]
  .filter((cell) => cell.getClientRects().length && cell.scrollWidth > cell.clientWidth + 1)
  .map((cell) => cell.innerText)"""
FIRST_COLUMNS = """() => [...document.querySelectorAll("main table th:first-child")]
  .filter((cell) => cell.getClientRects().length).map((cell) => cell.getBoundingClientRect().width)"""


@pytest.fixture(scope="module")
def long_names(broker: BrokerProcess, apart: Apart, load: Load) -> None:
    async def lay() -> None:
        async with AsyncAdmin(broker.bootstrap_servers) as admin:
            await admin.create_topic(NewTopic(LONG_TOPIC, 1))
        await hold(broker.bootstrap_servers, LONG_ID, LONG_TOPIC, f"spark/application_1/{LONG_ID}/17", LONG_ID)

    apart.run(lay())


@pytest.mark.parametrize("width", [1280, 1100, 1000, 900, 861, 820, 400])
def test_at_every_width_names_keep_their_column_and_their_ends(
    browser: Browser, ui: UiProcess, width: int, long_names: None
) -> None:
    places = [*VIEWS, f"transactions/{LONG_ID}", f"groups/{LONG_ID}", "groups/shipping", f"partitions/{LONG_TOPIC}/0"]
    with visit(browser, ui.url, width=width, height=800) as here:
        for place in places:
            page = here.go(*place.split("/"))
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width, f"{place} scrolls sideways"
            assert min(page.evaluate(FIRST_COLUMNS), default=width) >= 80, place
            assert page.evaluate(CUT) == [], place
        here.go("transactions")
        here.wait_for_text("main tr", LONG_ID)
        here.go("partitions")
        here.wait_for_text("main tr", f"{LONG_TOPIC}-0")


@pytest.fixture
def here(browser: Browser, ui: UiProcess) -> Iterator[Visit]:
    with visit(browser, ui.url) as visited:
        yield visited


def test_a_name_that_cannot_be_seen_is_written_out(here: Visit, broker: BrokerProcess, apart: Apart) -> None:
    name = "line\nfeed \u202e gpj.exe \x1b[0m"
    apart.run(hold(broker.bootstrap_servers, name, "parking", "valet"))
    here.go("transactions", query="?q=gpj")
    shown = "line\\nfeed \\u{202e} gpj.exe \\x1b[0m"
    here.wait_for_text("main tr", shown)
    here.find("a[data-row]", has_text="gpj").click()
    here.wait_for_text("h1", shown)
    here.wait_for_text("[data-timeline]", "Coordinator")
