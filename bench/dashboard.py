"""What the page costs a broker: the same steady load on one Fencepost, with and without somebody who looks."""

import http.client
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.peers.broker_process import BrokerProcess

from bench.experiment import Context, Experiment, Metric, Sample
from bench.load import LoadFailed
from bench.subjects import Subject
from bench.transaction_clients import RawCalls, init_producers, raw_transactions

TOPIC = "looked-at"
STREAMS = ("overview", "transactions", "partitions")
FIRST_DOCUMENTS_SECONDS_MAX = 60.0
PAGE_AT = re.compile(r"page at http://127\.0\.0\.1:(\d+)/")


class OpenPage:
    """`fencepost ui` on a broker, and somebody who looks: the streams of three views."""

    def __init__(self, bootstrap: str) -> None:
        # It ends when this process does, however that happens: its end of the pipe closes.
        theirs, self._ours = os.pipe()
        command = [str(Path(sys.executable).with_name("fencepost")), "ui", "--listen", "127.0.0.1:0"]
        self._process = subprocess.Popen(
            [*command, "--bootstrap-server", bootstrap, "--parent-fd", str(theirs)],
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, pass_fds=(theirs,),
        )  # fmt: skip
        os.close(theirs)
        assert self._process.stderr is not None
        found = PAGE_AT.search(self._process.stderr.readline())
        if found is None:
            raise LoadFailed("fencepost ui did not start")
        self.events = dict.fromkeys(STREAMS, 0)
        for view in STREAMS:
            threading.Thread(target=self._look, args=(int(found[1]), view), daemon=True).start()

    def _look(self, port: int, view: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        try:
            connection.request("GET", f"/api/events?view={view}")
            for line in connection.getresponse():
                if line.startswith(b"event: " + view.encode()):
                    self.events[view] += 1
        except (OSError, http.client.HTTPException):
            pass  # the page was ended

    def await_documents(self) -> None:
        """What the page asks once, at its start, is not part of what it costs while it is open."""
        deadline = time.monotonic() + FIRST_DOCUMENTS_SECONDS_MAX
        while not all(self.events.values()):
            if time.monotonic() > deadline:
                raise LoadFailed(f"the page stays empty: {self.events}")
            time.sleep(0.05)

    def close(self) -> None:
        os.close(self._ours)
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


class SameBroker(BrokerProcess):
    """Another name for a broker that runs already: two processes differ by more than is measured here."""

    name = "fencepost"

    def __init__(self, process: BrokerProcess) -> None:
        super().__init__(directory=process.directory)
        self._same = process

    def start(self) -> Self:
        self.bootstrap_servers = self._same.bootstrap_servers
        return self

    def kill(self) -> None:
        pass

    @property
    def pid(self) -> int:
        return self._same.pid


class PageOpen(Experiment):
    """Transactions at a fixed rate that the broker keeps up with easily: what it does besides is what is seen."""

    IDS = 10_000
    RATE = 300
    SECONDS = 15.0
    KEY = "broker CPU per transaction"
    name = "page open"
    pair = None
    in_quick = False
    work_unit = "transaction"
    metrics = (Metric(KEY, "us", lower_is_better=True, ratio_target=1.05),)

    def __init__(self) -> None:
        self._calls: RawCalls | None = None

    def subjects(self, context: Context) -> tuple[Subject, Subject]:
        looked_at = context.launcher.fencepost("os")
        looked_at.name = "page open"
        return looked_at, Subject("no page", SameBroker(looked_at.process))

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        subject = subjects[0]
        with subject.connect() as connection:
            connection.create_topic(TOPIC, 1, {})
        producers = init_producers(subject.address, "id", self.IDS)
        self._calls = raw_transactions(subject.address, producers, TOPIC, 1, records=1, size=100, connections=1)
        self._calls.run_once()
        self._calls.run(warmup=0, seconds=5, rate=self.RATE)

    def sample(self, context: Context, subject: Subject) -> Sample:
        if subject.name == "no page":
            return self._load(subject)
        page = OpenPage(subject.bootstrap)
        try:
            page.await_documents()
            seen = dict(page.events)
            sample = self._load(subject)
            if any(page.events[view] == seen[view] for view in STREAMS):
                raise LoadFailed(f"nothing new came to the page: {page.events}, before {seen}")
            return sample
        finally:
            page.close()

    def _load(self, subject: Subject) -> Sample:
        assert self._calls is not None
        before = subject.cpu_seconds()
        done = self._calls.run(warmup=0, seconds=self.SECONDS, rate=self.RATE)
        cpu = subject.cpu_seconds() - before
        values = {self.KEY: cpu / done.transactions * 1e6}
        return Sample(values, cpu, done.client_cpu_seconds, done.seconds, done.transactions)

    def finish(self, context: Context, subjects: Sequence[Subject]) -> None:
        if self._calls is not None:
            self._calls.close()


def experiments() -> list[Experiment]:
    return [PageOpen()]
