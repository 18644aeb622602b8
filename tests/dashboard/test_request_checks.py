"""Who may ask the page: names, tokens, and the header that no form of another site can send."""

import asyncio
import os
import socket
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from fencepost.dashboard.request_checks import AllowedHosts, Token, host_of, is_loopback
from fencepost.dashboard.server import page_url
from tests.dashboard.running_page import ACTING, RunningPage, eventually
from tests.dashboard.scene import play
from tests.peers.fencepost_process import FencepostProcess

pytestmark = pytest.mark.timeout(300)
TOKEN = "open sesame & more"


@pytest.fixture(scope="module")
def broker() -> Iterator[FencepostProcess]:
    with FencepostProcess() as process:
        asyncio.run(play(process.bootstrap_servers))
        yield process


@pytest.fixture(scope="module")
def open_page(broker: FencepostProcess) -> Iterator[RunningPage]:
    with RunningPage(broker.bootstrap_servers) as page:
        yield page


@pytest.fixture(scope="module")
def locked_page(broker: FencepostProcess) -> Iterator[RunningPage]:
    """As on an address that others can reach."""
    environment = {**os.environ, "FENCEPOST_UI_TOKEN": TOKEN}
    with RunningPage(broker.bootstrap_servers, "--listen", "0.0.0.0:0", environment=environment) as page:
        yield page


@pytest.mark.parametrize(
    ("listening", "header", "is_allowed"),
    [
        ("127.0.0.1", "127.0.0.1:8090", True),
        ("127.0.0.1", "localhost:8090", True),
        ("127.0.0.1", "localhost:9999", True),  # through a forwarded port
        ("127.0.0.1", "[::1]:8090", True),
        ("127.0.0.1", "10.0.0.5:8090", False),
        ("127.0.0.1", "attacker.example:8090", False),
        ("127.0.0.1", "localhost.attacker.example", False),
        ("127.0.0.1", "", False),
        ("10.0.0.5", "10.0.0.5:8090", True),
        ("10.0.0.5", "10.0.0.6", False),
        ("0.0.0.0", "10.0.0.5:8090", True),
        ("0.0.0.0", socket.gethostname(), True),
        ("0.0.0.0", "attacker.example", False),
        ("::", "[fe80::1]:8090", True),
        ("page.example", "PAGE.example:8090", True),
    ],
)
def test_which_names_the_page_answers_to(listening: str, header: str, is_allowed: bool) -> None:
    assert AllowedHosts(listening).allows(header) == is_allowed


def test_more_names_may_be_allowed() -> None:
    assert AllowedHosts("127.0.0.1", ["page.example"]).allows("page.example:443")
    assert host_of("[::1]:80") == "::1"
    assert is_loopback("127.8.8.8")
    assert not is_loopback("0.0.0.0")


def test_a_token_is_compared_whole() -> None:
    token = Token("secret")
    assert token.matches("secret")
    for wrong in ("", "secre", "secret ", "Secret", "sécret"):
        assert not token.matches(wrong)
    assert token.matches_cookie(token.cookie_value)
    assert not token.matches_cookie("secret"), "the cookie is not the token"
    assert page_url("0.0.0.0", 80, TOKEN).endswith(f":80/#token={quote(TOKEN, safe='')}")


def test_a_page_under_another_name_is_not_served(open_page: RunningPage) -> None:
    for path in ("/", "/api/session", "/api/overview", "/app.js"):
        answer = open_page.get(path, {"Host": "attacker.example"})
        assert answer.status == 421, path
        assert "attacker.example" in answer.json["error"]


def test_every_answer_carries_the_headers_that_keep_others_out(open_page: RunningPage) -> None:
    for path in ("/", "/api/session", "/api/nothing", "/nothing"):
        headers = open_page.get(path).headers
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers
    assert open_page.get("/api/session").headers["Cache-Control"] == "no-store"


def test_static_files_stay_in_their_directory(open_page: RunningPage) -> None:
    assert open_page.get("/").body.startswith(b"<!doctype html>")
    for path in ("/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "//etc/passwd"):
        assert open_page.get(path).status == 404, path


def test_a_call_that_changes_something_needs_the_header(open_page: RunningPage) -> None:
    for path in ("/api/abort", "/api/abort/plan", "/api/session"):
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = open_page.call("POST", path, {"transactional_id": "shop-open"}, form)
        assert (answer.status, "X-Fencepost" in answer.json["error"]) == (403, True)


def test_without_leave_nothing_is_aborted_and_the_answer_says_how_to_get_it(open_page: RunningPage) -> None:
    for path in ("/api/abort", "/api/abort/plan"):
        answer = open_page.post(path, {"transactional_id": "shop-open"})
        assert answer.status == 403
        assert "--allow-actions" in answer.json["next"]


def test_off_loopback_everything_but_the_door_asks_for_the_token(locked_page: RunningPage) -> None:
    session = locked_page.document("/api/session")
    assert (session["needs_token"], session["brokers"], session["cluster_id"]) == (True, [], "")
    assert locked_page.get("/").status == 200, "the page itself asks for the token"
    for path in ("/api/overview", "/api/transactions/shop-open", "/api/events?view=overview", "/api/nothing"):
        assert locked_page.get(path).status == 401, path
    assert locked_page.post("/api/abort", {"transactional_id": "shop-open"}).status == 401
    for wrong in ("Bearer nothing", f"Basic {TOKEN}", "Bearer", TOKEN):
        assert locked_page.get("/api/overview", {"Authorization": wrong}).status == 401


def test_the_token_opens_as_a_header_and_as_a_cookie(locked_page: RunningPage) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert eventually(lambda: locked_page.get("/api/overview", bearer).status == 200)
    assert locked_page.get("/api/session", bearer).json["needs_token"] is False
    refused = locked_page.post("/api/session", {"token": "guess"})
    assert (refused.status, refused.headers["Set-Cookie"]) == (401, None)
    given = locked_page.post("/api/session", {"token": TOKEN})
    assert given.status == 200
    cookie = given.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    kept = {"Cookie": cookie.partition(";")[0]}
    assert locked_page.get("/api/overview", kept).status == 200
    with locked_page.events("view=overview", kept) as events:
        assert events.next("overview")["totals"]["ids"] > 0
    name = kept["Cookie"].partition("=")[0]
    assert locked_page.get("/api/overview", {"Cookie": f"{name}={'0' * 64}"}).status == 401


def test_the_address_that_is_printed_holds_the_token(locked_page: RunningPage) -> None:
    assert locked_page.url.endswith(f"#token={quote(TOKEN, safe='')}")


def test_a_body_that_is_no_object_or_too_large_is_refused(open_page: RunningPage) -> None:
    assert open_page.post("/api/session", ["token"]).status == 400
    assert open_page.call("POST", "/api/session", {"token": "x" * 100_000}, ACTING).status == 400
