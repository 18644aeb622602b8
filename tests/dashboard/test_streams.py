"""Streams of events: shared, limited, and alive through a restart of the broker; and the life of the page's process."""

import asyncio
import http.client
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.cli.main import run
from fencepost.client import AsyncAdmin, AsyncClient, NewTopic
from fencepost.dashboard.page_context import Page
from fencepost.dashboard.subscriptions import STREAMS_MAX, Subscriptions, TooManyStreams
from fencepost.insight.cluster_view import ClusterView
from tests.dashboard.running_page import COMMAND, PAGE_AT, PATIENCE_SECONDS, RunningPage, eventually
from tests.peers.fencepost_process import FencepostProcess

pytestmark = pytest.mark.timeout(300)
TOPIC = "streamed"


@pytest.fixture(scope="module")
def broker() -> Iterator[FencepostProcess]:
    with FencepostProcess() as process:
        asyncio.run(make_topic(process.bootstrap_servers))
        yield process


async def make_topic(bootstrap_servers: str) -> None:
    async with AsyncAdmin(bootstrap_servers) as admin:
        await admin.create_topic(NewTopic(TOPIC, 1))


def commit(broker: FencepostProcess, name: str = "streaming") -> None:
    async def once() -> None:
        async with AsyncClient(broker.bootstrap_servers) as client, client.transaction(name) as transaction:
            await transaction.send(TOPIC, b"one")

    asyncio.run(once())


def test_a_commit_is_seen_in_the_stream(broker: FencepostProcess) -> None:
    with RunningPage(broker.bootstrap_servers) as page, page.events("view=overview") as events:
        first = events.next("overview")
        commit(broker)
        later = events.next(
            "overview", lambda document: document["totals"]["commits"] == first["totals"]["commits"] + 1
        )
        assert later["recent"][0]["transactional_id"] == "streaming"
        assert later["recent"][0]["outcome"] == "commit"
        seconds = events.next("overview", lambda document: sum(document["rates"]["commits"]) > 0)
        assert seconds["latency"]["p50_ms"] != [None] * 300


def test_a_document_that_does_not_change_is_sent_once(broker: FencepostProcess) -> None:
    commit(broker, "quiet")
    with (
        RunningPage(broker.bootstrap_servers) as page,
        page.events("view=transactions&q=quiet") as quiet,
        page.events("view=overview") as overview,
    ):
        eventually(lambda: page.document("/api/transactions?q=quiet&state=CompleteCommit")["matched"] == 1)
        quiet.next("transactions", lambda document: [row["state"] for row in document["rows"]] == ["CompleteCommit"])
        for _ in range(3):
            overview.next("overview")  # seconds pass
        commit(broker, "quiet")
        again = quiet.next("transactions")
        assert again["rows"][0]["changed_ms"] > 0
        documents = [line for line in quiet.lines if line.startswith("data: ")]
        assert len(documents) == len(set(documents))


def test_a_stream_goes_on_after_the_broker_was_killed_and_came_back() -> None:
    with FencepostProcess() as broker:
        asyncio.run(make_topic(broker.bootstrap_servers))
        with RunningPage(broker.bootstrap_servers) as page, page.events("view=overview") as events:
            for _ in range(2):
                commit(broker)
            events.next("overview", lambda document: document["totals"]["commits"] == 2)
            broker.kill()
            trouble = events.next("trouble")
            assert trouble["status"] == 503
            assert trouble["since_ms"] > 0
            assert "cannot reach" in trouble["error"]
            refused = eventually(lambda: (answer := page.get("/api/overview")).status == 503 and answer)
            assert refused.json["since_ms"] > 0
            assert page.get("/").status == 200
            broker.start()
            back = events.next("overview")
            assert back["totals"]["commits"] == 2, "the model has gone on from where it was"
            commit(broker)
            events.next("overview", lambda document: document["totals"]["commits"] == 3)
            assert "Traceback" not in page.output


def test_a_page_whose_broker_is_away_at_the_start_waits_for_it(broker: FencepostProcess) -> None:
    with FencepostProcess() as late:
        late.kill()
        with RunningPage(late.bootstrap_servers) as page, page.events("view=overview") as events:
            trouble = events.next("trouble")
            assert trouble["status"] == 503
            assert page.get("/api/session").status == 503
            eventually(lambda: "trying again" in page.output, "a line that says so")
            late.start()
            events.next("overview")
            eventually(lambda: page.get("/api/session").status == 200)
            assert "answers again" in page.output
            assert "Traceback" not in page.output


def test_so_many_may_look_and_no_more(broker: FencepostProcess) -> None:
    with RunningPage(broker.bootstrap_servers) as page:
        streams = []
        try:
            for _ in range(STREAMS_MAX):
                streams.append(page.events("view=overview"))
                assert streams[-1].status == 200
            refused = page.get("/api/events?view=overview")
            assert refused.status == 503
            assert f"{STREAMS_MAX} streams" in refused.json["error"]
            for stream in streams:
                stream.next("overview")
            streams.pop().close()

            def opens() -> bool:
                with page.events("view=overview") as stream:
                    return stream.status == 200

            eventually(opens, "a place in the room of one who left")
        finally:
            for stream in streams:
                stream.close()


def test_one_document_is_made_for_all_who_look_at_the_same(broker: FencepostProcess) -> None:
    async def look() -> None:
        async with ClusterView(broker.bootstrap_servers) as view:
            page = Page(view)
            await page.watch.look()
            subscriptions = Subscriptions(page)
            opened = [subscriptions.open("transactions", {"q": "x"}) for _ in range(5)]
            opened.append(subscriptions.open("transactions", {"q": "y"}))
            assert (subscriptions.streams, subscriptions.document_makers) == (6, 2)
            while subscriptions.streams < STREAMS_MAX:
                opened.append(subscriptions.open("overview", {}))
            with pytest.raises(TooManyStreams):
                subscriptions.open("overview", {})
            for each in opened:
                each.close()
            assert (subscriptions.streams, subscriptions.document_makers) == (0, 0)

    asyncio.run(look())


def test_ctrl_c_ends_the_page_though_streams_are_open(broker: FencepostProcess) -> None:
    with RunningPage(broker.bootstrap_servers) as page, page.events("view=overview") as events:
        events.next("overview")
        assert page.interrupt() == 130
        assert "Traceback" not in page.output


def test_a_port_that_is_taken_and_other_nonsense_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(["ui", "--listen", f"127.0.0.1:{taken.getsockname()[1]}"]) == 1
    said = capsys.readouterr().err
    assert "another process uses this port" in said
    assert said.count("\n") == 1
    assert run(["ui", "--listen", "nowhere"]) == 1
    assert "is not an address" in capsys.readouterr().err
    assert run(["ui", "--listen", "127.0.0.1:0", "--bootstrap-server", "::::"]) == 1
    assert "is not an address" in capsys.readouterr().err
    assert run(["ui", "--listen", "127.0.0.1:0", "--token", ""]) == 1
    assert "the token is empty" in capsys.readouterr().err


class BrokerWithPage:
    """`fencepost serve --ui`."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [COMMAND, "serve", "--data", str(directory / "data"), "--listen", "127.0.0.1:0",
                 "--ui", "127.0.0.1:0", "--ui-allow-actions"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.port = int(eventually(lambda: PAGE_AT.search(self.log.read_text()), "the page")[2])

    def page_status(self) -> int | None:
        """None if nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", "/api/session")
            return connection.getresponse().status
        except OSError:
            return None
        finally:
            connection.close()

    def page_pid(self) -> int:
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
        (found,) = (pid for pid, parent in pairs if parent == self.process.pid)
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def with_page(tmp_path: Path) -> Iterator[BrokerWithPage]:
    broker = BrokerWithPage(tmp_path)
    try:
        eventually(lambda: broker.page_status() == 200, "an answer of the page")
        yield broker
    finally:
        broker.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_the_page_of_a_broker_ends_with_it(with_page: BrokerWithPage, number: signal.Signals) -> None:
    pid = with_page.page_pid()
    with_page.process.send_signal(number)
    assert with_page.process.wait(PATIENCE_SECONDS) in (0, -number)
    eventually(lambda: with_page.page_status() is None, "the end of the page")
    eventually(lambda: not is_running(pid), "the end of its process")


def test_a_broker_does_not_care_when_its_page_dies(with_page: BrokerWithPage) -> None:
    os.kill(with_page.page_pid(), signal.SIGKILL)
    eventually(lambda: "the broker continues without it" in with_page.log.read_text(), "a line that says so")
    assert with_page.process.poll() is None
    address = eventually(lambda: "listening on" in with_page.log.read_text() and with_page.log.read_text())
    bootstrap = next(line.split()[-1] for line in address.splitlines() if "listening on" in line)
    asyncio.run(make_topic(bootstrap))
    with_page.process.send_signal(signal.SIGTERM)
    assert with_page.process.wait(PATIENCE_SECONDS) == 0


def test_a_page_that_cannot_listen_is_told_before_anything_is_touched(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [COMMAND, "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--ui", address],
            capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
    assert done.returncode == 1
    assert "another process uses this port" in done.stderr
    assert not (tmp_path / "data").exists()


def is_running(pid: int) -> bool:
    """False for one that has ended, though nobody may have asked for its status yet."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(listed) and not listed.startswith("Z")
