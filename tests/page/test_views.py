"""Every view of the page, driven in Chromium against a broker under load."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.insight.reading import committed_values
from tests.page.apart import Apart
from tests.page.browser import Browser, Visit, visit
from tests.page.load import Load, hold
from tests.page.ui_process import UiProcess
from tests.peers.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(300)
VIEWS = ["overview", "transactions", "partitions", "groups", "producers", "pipelines"]
TO = "\N{EN DASH}"
PLACES = [*VIEWS, "transactions/till", "transactions/billing", "partitions/orders/0", "groups/auditors"]


@pytest.fixture
def here(browser: Browser, ui: UiProcess) -> Iterator[Visit]:
    with visit(browser, ui.url) as visited:
        yield visited


def _rows(here: Visit) -> list[str]:
    return here.find("main tbody tr").all_inner_texts()


def test_the_overview_says_what_is_open_held_and_done(here: Visit) -> None:
    here.go("overview")
    here.wait_for_text("[data-tile='oldest']", "billing")
    here.wait_for_text("[data-tile='Held partitions']", "read_committed consumers wait")
    held = here.wait_for_text("section:has(h2:text-is('Held partitions')) tr", "purchases-0")
    assert "billing" in held
    here.wait_for_text("section:has(h2:text-is('Just ended')) tr", "committed")
    charts = here.find(".chart[role=img]")
    assert charts.count() == 2
    assert "Commits:" in str(charts.first.get_attribute("aria-label"))
    # Both charts are drawn, and the numbers go on.
    assert here.find(".chart canvas").count() == 2
    before = here.find(".head .under").inner_text()
    here.page.wait_for_function("before => document.querySelector('.head .under').innerText !== before", arg=before)


def test_documents_arrive_without_a_flicker(here: Visit) -> None:
    page = here.go("transactions", query="?sort=id&order=asc")
    here.wait_for_text("main tr", "checkout-0")
    page.set_viewport_size({"width": 1280, "height": 320})
    page.evaluate("""() => {
      window.kept = [...document.querySelectorAll("main tbody tr")];
      scrollTo(0, 60);
    }""")
    row = here.find("main tbody tr", has_text="checkout-0")
    before = row.inner_text()
    page.wait_for_function(
        "before => [...document.querySelectorAll('main tbody tr')].some("
        "row => row.innerText.startsWith('checkout-0') && row.innerText !== before)",
        arg=before,
    )
    assert page.evaluate("() => window.kept.every(row => row.isConnected)"), "rows are kept, not made anew"
    assert page.evaluate("() => scrollY") == 60


def test_transactions_are_searched_filtered_and_sorted(here: Visit) -> None:
    page = here.go("transactions")
    here.wait_for_text("main tr", "billing")
    page.get_by_label("Search id or producer id").fill("checkout-")
    here.page.wait_for_selector("[data-matched='4']")
    assert all("checkout-" in row for row in _rows(here))
    page.get_by_label("Search id or producer id").fill("")
    page.get_by_label("Age").select_option("10000")
    page.get_by_label("State").select_option("Ongoing")
    names = "[...document.querySelectorAll('main tbody tr')].map(row => row.innerText.split('\\t')[0])"
    page.wait_for_function(f"() => {names}.join() === 'billing'")
    assert "state=Ongoing" in page.url, "what is shown can be linked to"
    page.get_by_label("State").select_option("")
    page.get_by_label("Age").select_option("")
    page.get_by_role("button", name="Transactional id").click()
    page.wait_for_selector("th[aria-sort=ascending]")
    page.wait_for_function("() => document.querySelector('main tbody tr')?.innerText.startsWith('auditing')")
    names = [row.split()[0] for row in _rows(here)]
    assert names == sorted(names)
    page.get_by_label("Search id or producer id").fill("no such id")
    here.wait_for_text(".empty", "Nothing matches")


def test_the_keyboard_is_enough(here: Visit) -> None:
    page = here.go("transactions", query="?sort=id&order=asc")
    here.wait_for_text("main tr", "till")
    page.keyboard.press("/")
    page.keyboard.type("il")
    page.wait_for_selector("[data-matched='2']")
    page.keyboard.press("Escape")
    focused = "() => document.activeElement.innerText"
    page.keyboard.press("j")
    assert page.evaluate(focused) == "billing"
    page.keyboard.press("j")
    assert page.evaluate(focused) == "till"
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-timeline]")
    assert page.evaluate("() => document.activeElement.tagName") == "H1", "a screen reader says where it is"
    page.keyboard.press("Escape")
    page.wait_for_function("() => location.hash.startsWith('#/transactions') && !location.hash.includes('till')")
    page.keyboard.press("3")
    page.wait_for_function("() => location.hash === '#/partitions'")
    page.keyboard.press("?")
    assert "next and previous row" in here.wait_for_text("dialog[open]", "Keyboard")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


def test_a_timeline_shows_states_lanes_markers_causes_and_epochs(here: Visit, tmp_path: Path) -> None:
    page = here.go("transactions", "till")
    page.wait_for_selector("[data-timeline]")
    assert here.find("[data-verdict=healthy]").count() == 1
    picture = here.find("[data-timeline]")
    words = str(picture.text_content())
    assert all(part in words for part in ("Coordinator", "refunds-0", "Causes*", "epoch 0"))
    labels = [str(item.get_attribute("aria-label")) for item in here.find("[data-timeline] [data-kind]").all()]
    assert any(label.startswith("CompleteAbort: from") for label in labels)
    assert any(label.startswith("ABORT marker in refunds-0") for label in labels)
    assert any(label.startswith("COMMIT marker in refunds-0") for label in labels)
    assert any("1 record in refunds-0" in label and "aborted" in label for label in labels)
    assert any("was fenced by till-b at 127.0.0.1" in label for label in labels)
    assert any("EndTxn by till-a at 127.0.0.1 (epoch 0) was refused" in label for label in labels)

    first = here.find("[data-timeline] [tabindex='0']")
    assert first.count() == 1, "the picture is one stop of the Tab key"
    first.focus()
    start = here.find("[data-facts]").inner_text()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("start => document.querySelector('[data-facts]').innerText !== start", arg=start)
    here.find("[data-kind=marker]").first.hover()
    here.wait_for_text("[data-facts]", "ABORT marker in refunds-0")
    table = here.find("section[aria-label=Timeline] table").inner_text()
    assert "EndTxn by till-a at 127.0.0.1 (epoch 0) was refused with PRODUCER_FENCED" in table
    page.get_by_role("button", name="To scale").click()
    assert here.find("[data-timeline] [data-kind=state]").count() >= 1
    page.get_by_role("button", name="Readable").click()
    here.picture("page-timeline", tmp_path)


def test_a_stuck_transaction_comes_with_the_command_to_paste(here: Visit, broker: BrokerProcess) -> None:
    page = here.go("transactions", "billing")
    where = f"--bootstrap-server {broker.bootstrap_servers}"
    here.wait_for_text("[data-verdict=stuck]", f"fencepost explain --id --history billing {where}")
    assert page.get_by_role("button", name="Abort …").count() == 0, "its client may be at work until its time-out"
    facts = here.find("section[aria-label=Facts]").inner_text()
    assert "spark/app-7/billing/17 at 127.0.0.1" in facts, "the client is named"
    assert "purchases-0 (7 records wait)" in facts
    here.wait_for_text("[data-timeline]", "Group auditors")


def test_the_strip_shows_the_log_and_can_be_zoomed(here: Visit, tmp_path: Path) -> None:
    page = here.go("partitions", "purchases", "0")
    page.wait_for_selector("[data-strip] [data-kind=open]")
    kinds = [piece.get_attribute("data-kind") for piece in here.find("[data-strip] [data-kind]").all()]
    assert kinds == ["plain", "open", "plain"]
    assert "last stable 40" in str(here.find("[data-mark=lso]").text_content())
    assert "59" in str(here.find("[data-mark=high]").text_content())
    assert "held at 40" in here.find(".head").inner_text()
    here.find("[data-kind=open]").click()
    facts = here.find("[data-facts]").inner_text()
    assert f"40{TO}51" in facts
    assert "12" in facts
    here.find("[data-facts] a", has_text="billing").click()
    page.wait_for_function("() => location.hash === '#/transactions/billing'")

    here.go("partitions", "orders", "0")
    for kind in ("committed", "aborted"):
        page.wait_for_selector(f"[data-strip] [data-kind={kind}]")
    page.wait_for_selector("[data-strip] [data-marker=ABORT]", state="attached")
    page.wait_for_function("() => Number(document.querySelector('[data-strip]').dataset.to) > 300")

    def window() -> tuple[int, int]:
        strip = here.find("[data-strip]")
        return int(str(strip.get_attribute("data-from"))), int(str(strip.get_attribute("data-to")))

    smaller = (
        "size => { const shown = document.querySelector('[data-strip]').dataset; return shown.to - shown.from < size }"
    )
    earlier = "first => Number(document.querySelector('[data-strip]').dataset.from) < first"
    page.get_by_role("button", name="Zoom in").click()
    first, last = window()
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_function(smaller, arg=last - first)
    size = window()[1] - window()[0]
    box = here.find("[data-strip]").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.mouse.wheel(0, -300)
    page.wait_for_function(smaller, arg=size)
    here.find("[data-strip]").focus()
    before = window()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(earlier, arg=before[0])
    page.keyboard.press("n")
    here.wait_for_text("[data-facts]", "Offsets")
    page.keyboard.press("-")
    page.mouse.down()
    before = window()
    page.mouse.move(box["x"] + box["width"] / 2 + 120, box["y"] + 60)
    page.mouse.up()
    page.wait_for_function(earlier, arg=before[0])  # dragged to the right, earlier offsets come in
    # What is not read yet is asked for: the window fills.
    page.wait_for_selector("[data-strip] [data-kind=committed]")
    here.picture("page-strip", tmp_path)
    page.get_by_role("button", name="Follow end").click()
    here.wait_for_text("[data-window]", "following the end")


def test_the_holder_is_named_however_far_the_log_has_gone_on(here: Visit, broker: BrokerProcess, apart: Apart) -> None:
    apart.run(hold(broker.bootstrap_servers, "archivist", "archive", "night-shift", timeout_ms=1, behind=3_000))
    page = here.go("partitions", "archive", "0")
    here.wait_for_text(".head", "readers are held at 0 by archivist")
    assert here.find("[data-strip] [data-kind=open]").count() == 0, "the strip is at the end, 3,000 offsets on"
    page.get_by_role("button", name="What holds").click()
    here.find("[data-strip] [data-kind=open]").first.click()
    here.wait_for_text("[data-facts]", "archivist")
    page.get_by_role("button", name="Abort …").click()
    here.wait_for_text("[data-plan]", "archive-0")
    page.get_by_role("button", name="Cancel").click()
    # One that may still be at work is named, too, and not offered for an abort.
    here.go("partitions", "purchases", "0")
    here.wait_for_text(".head", "readers are held at 40 by billing")
    here.find("[data-strip] [data-kind=open]").first.click()
    here.wait_for_text("[data-facts]", "billing")
    assert page.get_by_role("button", name="Abort …").count() == 0


def test_the_partitions_are_those_of_the_users_topics_first(here: Visit) -> None:
    page = here.go("partitions")
    here.wait_for_text("main tr", "orders-0")
    assert not [row for row in _rows(here) if row.startswith("__")]
    here.wait_for_text(".table-end", "of internal topics not shown")
    page.get_by_role("button", name="With internal").click()
    here.wait_for_text("main tr", "__consumer_offsets-0")
    assert _rows(here)[0].startswith("archive-0"), "they come last"
    page.get_by_role("button", name="Held").click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('main tbody tr')].every(row => /held/.test(row.innerText))"
    )
    names = {row.split()[0] for row in _rows(here)}
    assert "purchases-0" in names
    assert not [name for name in names if name.startswith(("orders", "payments"))], "ordinary transactions hold nobody"


def test_groups_show_honest_lag_with_pending_offsets(here: Visit) -> None:
    here.go("groups")
    assert "auditors" in here.wait_for_text("main tr", "auditors")
    here.find("a[data-row]", has_text="auditors").click()
    here.wait_for_text("[data-lag]", f"46{TO}58")
    rows = {row.split()[0]: row for row in _rows(here)}
    assert f"17{TO}29" in rows["purchases-0"]
    assert "7 records wait behind an open transaction" in rows["purchases-0"]
    assert "offset pending" in rows["refunds-0"]
    assert "refunds-0 goes to offset 25" in here.find("main").inner_text()


def test_producers_show_fencings_with_causes(here: Visit) -> None:
    page = here.go("producers")
    here.wait_for_text("main tr", "checkout-0")
    fencings = here.find("section[aria-label=Fencings]").inner_text()
    assert "was fenced by till-b at 127.0.0.1" in fencings
    page.get_by_label("Search producer or transactional id").fill("till")
    page.wait_for_selector("[data-matched='1']")
    assert "refunds-0" in _rows(here)[0]


def test_pipelines_show_batches_and_lag(here: Visit) -> None:
    here.go("pipelines")
    card = here.wait_for_text("section[aria-label='Pipeline ledger']", "app-7")
    assert re.search(r"Batch\s+5\b", card)
    batches = here.find("section[aria-label='Pipeline ledger'] li .sr").all_inner_texts()
    assert [words.split(",")[0] for words in batches] == [
        *(f"Batch {batch}: committed" for batch in range(3)),
        "Batch 3: aborted",
        *(f"Batch {batch}: committed" for batch in range(3, 6)),
    ]


def test_an_abort_shows_its_dry_run_and_wants_a_typed_name(
    here: Visit, broker: BrokerProcess, apart: Apart, tmp_path: Path
) -> None:
    apart.run(hold(broker.bootstrap_servers, "parked", "parking", "valet", timeout_ms=1))
    assert apart.run(committed_values(broker.bootstrap_servers, "parking")) == [], "readers wait"
    page = here.go("transactions", "parked")
    page.get_by_role("button", name="Abort …").click()
    here.wait_for_text("[data-plan]", "parking-0")
    plan = here.find("[data-plan] table").inner_text()
    assert re.search(r"parking-0\s*12\s*7\s*0 → 19", plan)
    abort = page.get_by_role("button", name="Abort it")
    assert abort.is_disabled()
    page.get_by_label("Type parked to confirm").fill("parke")
    assert abort.is_disabled()
    assert apart.run(committed_values(broker.bootstrap_servers, "parking")) == [], "nothing was done yet"
    page.get_by_label("Type parked to confirm").fill("parked")
    here.picture("page-abort", tmp_path)
    abort.click()
    here.wait_for_text("[data-aborted]", "is aborted")
    page.get_by_role("button", name="Close").click()
    page.wait_for_selector("dialog", state="detached")
    page.wait_for_function("() => !document.querySelector('.head .under').innerText.includes('Ongoing')")
    assert len(apart.run(committed_values(broker.bootstrap_servers, "parking"))) == 7


def test_an_address_that_changes_while_the_page_is_being_drawn_is_followed(here: Visit) -> None:
    here.page.add_init_script("""
      new MutationObserver((changes, observer) => {
        if (!document.querySelector("main")) return;
        observer.disconnect();
        location.hash = "#/groups";
      }).observe(document, { childList: true, subtree: true });
    """)
    here.page.reload()
    here.page.wait_for_selector("nav a[href='#/groups'][aria-current=page]")


def test_light_and_dark(browser: Browser, ui: UiProcess, tmp_path: Path) -> None:
    background = "() => getComputedStyle(document.body).backgroundColor"
    with visit(browser, ui.url, scheme="dark") as here:
        page = here.go("transactions", "till")
        page.wait_for_selector("[data-timeline]")
        dark = page.evaluate(background)
        here.picture("page-dark", tmp_path)
        page.get_by_role("button", name="Light theme").click()
        light = page.evaluate(background)
        assert light != dark
        page.reload()
        page.wait_for_selector("[data-timeline]")
        assert page.evaluate(background) == light, "the choice is kept"


def test_every_view_fits_a_phone(browser: Browser, ui: UiProcess, tmp_path: Path) -> None:
    with visit(browser, ui.url, width=390, height=844) as here:
        for place in PLACES:
            page = here.go(*place.split("/"))
            wide = page.evaluate("() => document.documentElement.scrollWidth")
            assert wide <= 390, f"{place} scrolls sideways"
            assert here.page.evaluate("() => document.querySelectorAll('main, nav, header').length") >= 3
            here.check()
        here.go("transactions", "till")
        page.wait_for_selector("[data-timeline]")
        here.picture("page-phone", tmp_path)


def test_what_is_not_there_is_said_plainly(here: Visit) -> None:
    page = here.page
    page.evaluate("() => { location.hash = '#/transactions/nobody' }")
    here.wait_for_text(".empty", "no coordinator knows the transactional id 'nobody'")
    page.evaluate("() => { location.hash = '#/nowhere' }")
    here.wait_for_text(".empty", "Page not found")
    # The browser itself notes the refused question.
    here.problems = [text for text in here.problems if "404" not in text]


def test_a_page_with_a_token_asks_for_it(browser: Browser, broker: BrokerProcess) -> None:
    def is_refusal(text: str) -> bool:
        return "401" in text or "403" in text

    with UiProcess(broker.bootstrap_servers, "--token", "open-sesame") as guarded:
        with visit(browser, guarded.url.split("#")[0]) as here:
            page = here.page
            page.get_by_label("Token").fill("guess")
            page.get_by_role("button", name="Enter").click()
            page.wait_for_function("() => document.querySelector('[role=alert]').innerText")
            page.get_by_label("Token").fill("open-sesame")
            page.get_by_role("button", name="Enter").click()
            page.wait_for_selector("[data-connection=live]")
            here.problems = [text for text in here.problems if not is_refusal(text)]
        with visit(browser, guarded.url) as here:
            here.page.wait_for_selector("[data-connection=live]")
            assert "sesame" not in here.page.url, "the token does not stay in the address"


def test_the_page_comes_back_after_a_restart_of_the_broker(
    here: Visit, broker: BrokerProcess, load: Load, tmp_path: Path
) -> None:
    page = here.go("overview")
    here.wait_for_text(".head .under", "commits")
    here.picture("page-overview", tmp_path)
    broker.stop()
    page.wait_for_selector("[data-connection=trouble]")
    assert "Cluster unreachable since" in here.find("[data-banner]").inner_text()
    assert here.find("[role=status]").inner_text().startswith("Cluster unreachable")
    assert here.find("[data-tile]").count() == 4, "what was known stays"
    broker.start()
    page.wait_for_selector("[data-connection=live]")
    assert here.find("[data-banner]").count() == 0
    ended, text = load.ended, here.find(".head .under").inner_text()
    page.wait_for_function("text => document.querySelector('.head .under').innerText !== text", arg=text)
    assert load.ended >= ended
    here.go("transactions", "billing")
    here.wait_for_text(".head .under", "Ongoing")
