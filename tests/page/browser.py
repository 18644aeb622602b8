"""Chromium, and a page in it that remembers what should not have happened."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, sync_playwright

from tests.peers.build import REPOSITORY, missing
from tests.support.patience import patient

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = patient(60_000)
"""Nothing here decides by time; a machine under load may take as long as this."""
IMAGES = REPOSITORY / "docs" / "images"
IS_UPDATE = os.environ.get("UPDATE_IMAGES") == "1"

UNNAMED = """() => {
  const name = (element) => (element.getAttribute("aria-label") || element.innerText || element.title
    || [...(element.labels ?? [])].map((label) => label.innerText).join(" ") || element.textContent || "").trim();
  return [...document.querySelectorAll("a, button, input, select, summary, [tabindex], [role=img], table, dialog")]
    .filter((element) => element.id !== "main" && element.tagName !== "H1")
    .filter((element) => !(element.tagName === "TABLE" ? element.caption?.textContent.trim()
      : element.getAttribute("aria-labelledby") || name(element)))
    .map((element) => element.outerHTML.slice(0, 160));
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        missing("chromium is not installed")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One reader's look at the page. `check` says whether anything went wrong on the way."""

    def __init__(
        self, browser: Browser, url: str, *, width: int = 1280, height: int = 860, scheme: str = "light"
    ) -> None:
        self._context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,  # type: ignore[arg-type]
            timezone_id="UTC",
            reduced_motion="reduce",
        )
        self._context.set_default_timeout(PATIENCE_MS)
        self._context.set_default_navigation_timeout(PATIENCE_MS)
        self.url = url.split("#")[0]
        self.page: Page = self._context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def go(self, *parts: str, query: str = "") -> Page:
        """To a view, once it has its first document."""
        self.page.evaluate("where => { location.hash = where }", "#/" + "/".join(parts) + query)
        self.page.wait_for_selector("[data-connection=live]")
        self.page.wait_for_function("() => !document.querySelector('main [aria-busy=true]')")
        return self.page

    def find(self, selector: str, has_text: str | None = None) -> Locator:
        return self.page.locator(selector, has_text=has_text)

    def wait_for_text(self, selector: str, text: str) -> str:
        """The text of an element, once it holds this."""
        wanted = self.page.locator(selector, has_text=text).first
        wanted.wait_for()
        return str(wanted.text_content())

    def check(self) -> None:
        assert self.problems == [], self.problems
        here = urlsplit(self.url).netloc
        elsewhere = [url for url in self.requests if urlsplit(url).netloc != here and not url.startswith("data:")]
        assert elsewhere == [], "nothing may be asked of another host"
        assert self.page.evaluate(UNNAMED) == [], "every control has a name"

    def picture(self, name: str, tmp_path: Path) -> Path:
        """A screenshot; kept as documentation when UPDATE_IMAGES=1."""
        self.page.mouse.move(2, 2)
        self.page.evaluate("() => document.fonts.ready")
        target = (IMAGES if IS_UPDATE else tmp_path) / f"{name}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=target)
        assert target.stat().st_size < 180_000, "a picture of the documentation stays small"
        return target

    def close(self) -> None:
        self._context.close()


@contextmanager
def visit(browser: Browser, url: str, **options: object) -> Iterator[Visit]:
    """A visit that is checked at its end."""
    here = Visit(browser, url, **options)  # type: ignore[arg-type]
    try:
        yield here
        here.check()
    finally:
        here.close()
