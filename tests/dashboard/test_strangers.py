"""What strangers may send to the page, and how much of it: it answers them, and goes on answering others."""

import asyncio
import http.client
import json
import os
import resource
import socket
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from fencepost.client import AsyncAdmin, AsyncClient, CommittedOffset, NewTopic, TopicPartition
from fencepost.dashboard.connections import CONNECTIONS_MAX
from fencepost.dashboard.shortened_names import TEXT_MAX, full_name, is_shortened, readable, shortened
from fencepost.dashboard.subscriptions import STREAMS_MAX
from tests.dashboard.running_page import ACTING, PATIENCE_SECONDS, Events, RunningPage, eventually
from tests.peers.fencepost_process import FencepostProcess

pytestmark = pytest.mark.timeout(300)
TOPIC = "strangers"
LONG_MS = 600_000
NAME_MAX = 32_000
"""A string of Kafka has at most 32,767 bytes."""
NAMES = [
    "line\nfeed",
    "ends with one\n",
    "a/b//c/",
    "esc \x1b[31m",
    "tail \u202e gpj",
    "per%cent?and#hash",
    "x" * NAME_MAX,
]
IDLE = 2_000


@pytest.fixture(scope="module")
def broker() -> Iterator[FencepostProcess]:
    with FencepostProcess() as process:
        asyncio.run(lay(process.bootstrap_servers))
        yield process


async def lay(bootstrap_servers: str) -> None:
    async with AsyncAdmin(bootstrap_servers) as admin, AsyncClient(bootstrap_servers) as client:
        await admin.create_topic(NewTopic(TOPIC, 1))
        for name in NAMES:
            producer = client.producer(name, transaction_timeout_ms=LONG_MS)
            await producer.init()
            await producer.begin()
            await producer.send(TOPIC, b"x")
            await producer.flush()
            await admin.commit_offsets(name, {TopicPartition(TOPIC, 0): CommittedOffset(0)})


@pytest.fixture(scope="module")
def page(broker: FencepostProcess) -> Iterator[RunningPage]:
    with RunningPage(broker.bootstrap_servers, "--allow-actions") as page:
        eventually(lambda: page.get("/api/overview").status == 200)
        yield page
        assert "Traceback" not in page.output


def post_text(page: RunningPage, path: str, text: str) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("POST", path, text, ACTING)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/api/session", "/api/abort", "/api/abort/plan"])
@pytest.mark.parametrize("nested", ["[" * 60_000, '{"a":' * 10_000, '{"transactional_id":' + "[" * 30_000])
def test_json_that_is_nested_without_end_is_refused_like_any_other_nonsense(
    page: RunningPage, path: str, nested: str
) -> None:
    status, document = post_text(page, path, nested)
    assert status == 400
    assert document["error"] in ("the body is nested too deeply", "the body is not JSON")


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:20]))
def test_a_name_of_any_kind_is_listed_opened_and_planned(page: RunningPage, name: str) -> None:
    listed = page.document("/api/transactions?limit=500")["rows"]
    told = next(row["transactional_id"] for row in listed if row["transactional_id"] in (name, shortened(name)))
    assert len(told) <= TEXT_MAX
    found = page.document(f"/api/transactions/{quote(told, safe='')}")
    assert found["facts"]["transactional_id"] == told
    assert found["facts"]["state"] == "Ongoing"
    with page.events(f"view=transaction&id={quote(told, safe='')}") as events:
        assert events.next("transaction")["facts"]["transactional_id"] == told
    plan = page.post("/api/abort/plan", {"transactional_id": told})
    assert plan.status == 200, plan.body
    assert plan.json["effects"][0]["vanishing_records"] == 1
    assert len(plan.body) < 10_000
    groups = [row["group_id"] for row in page.document("/api/groups?limit=500")["rows"]]
    group = shortened(name)
    assert group in groups
    assert page.document(f"/api/groups/{quote(group, safe='')}")["group_id"] == group


def test_the_documents_stay_small_whatever_the_names_are(page: RunningPage) -> None:
    for path in (
        "/api/overview",
        "/api/transactions",
        "/api/groups",
        "/api/producers",
        f"/api/partitions/{TOPIC}/0/strip",
    ):
        assert len(page.get(path).body) < 40_000, path


def test_a_name_that_is_not_there_is_said_so_in_a_document(page: RunningPage) -> None:
    for path in ("/api/transactions/no%0Asuch%0A", "/api/groups/no%0Asuch", "/api/no%0Asuch"):
        answer = page.get(path)
        assert (answer.status, answer.json["status"]) == (404, 404)


def test_a_name_that_cannot_be_is_refused_by_the_page_and_not_asked_of_the_broker(page: RunningPage) -> None:
    """The broker would close the connection, which all of the page's questions share."""
    with page.events("view=overview") as events:
        events.next("overview")
        for path in ("/api/transactions/", "/api/groups/"):
            refused = page.get(path + "x" * 60_000)
            assert (refused.status, "longer than any name" in refused.json["error"]) == (400, True)
            assert page.get(path + "x" * 100_000).status == 400, "and here by the server: such an address is too long"
        assert page.get("/api/transactions?q=" + "x" * 60_000).json["matched"] == 0
        assert page.get("/api/partitions/" + "x" * 60_000 + "/0/strip").status == 400
        for wrong in (
            {"transactional_id": "x" * 60_000},
            {"topic": "x" * 60_000, "partition": 0, "start_offset": 0},
            {"topic": TOPIC, "partition": 2**40, "start_offset": 0},
            {"topic": TOPIC, "partition": 0, "start_offset": -(2**70)},
        ):
            assert page.post("/api/abort/plan", wrong).status == 400, wrong
        assert events.lines.count("event: trouble") == 0


def test_two_thousand_idle_connections_keep_nobody_out(page: RunningPage) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, IDLE + 500)), hard))
    idle: list[socket.socket] = []
    try:
        with page.events("view=overview") as before:
            before.next("overview")
            for number in range(IDLE):
                stranger = socket.create_connection(("127.0.0.1", page.port))
                idle.append(stranger)
                if number % 2:
                    stranger.sendall(b"GET / HTTP/1.1\r\nHost: ")  # half a request is idle, too
                if number % 500 == 499:
                    assert page.get("/api/overview").status == 200
            for _ in range(20):
                assert page.get("/api/session").status == 200
            descriptors = len(os.listdir(f"/proc/{page.process.pid}/fd"))
            assert descriptors < CONNECTIONS_MAX + 100
            before.next("overview")  # whoever was there and busy stays
    finally:
        for each in idle:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_client_that_takes_all_streams_makes_room_for_another(page: RunningPage) -> None:
    greedy: list[Events] = []
    try:
        for _ in range(STREAMS_MAX):
            greedy.append(page.events("view=overview"))
            assert greedy[-1].status == 200
        assert page.get("/api/events?view=overview").status == 503, "it gets no more than there is"
        for number in range(2, 6):
            with page.events("view=overview", client=f"127.0.0.{number}") as other:
                assert other.status == 200
                other.next("overview")
        greedy[-1].next("overview")  # what it has kept goes on
    finally:
        for each in greedy:
            each.close()


def test_a_shortened_name_stands_for_one_name_only() -> None:
    first, second = "x" * 60_000, "x" * 60_001
    assert shortened(first) != shortened(second)
    assert is_shortened(shortened(first))
    assert full_name(shortened(second), ["x", first, second]) == second
    assert full_name("plain", []) == "plain"
    assert shortened("y" * TEXT_MAX) == "y" * TEXT_MAX
    document = readable({"rows": [{"id": first, "n": 1}], "next_command": first})
    assert document == {"rows": [{"id": shortened(first), "n": 1}], "next_command": first}
