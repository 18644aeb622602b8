"""What the page costs a broker: the same steady load on two Fenceposts, one of which is looked at."""

import http.client
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from bench.experiment import Context, Experiment, Metric, Sample
from bench.load import LoadFailed
from bench.subjects import Subject
from bench.transaction_clients import RawCalls, init_producers, raw_transactions

TOPIC = "looked-at"
STREAMS = ("overview", "transactions", "partitions")
PAGE_AT = re.compile(r"page at http://127\.0\.0\.1:(\d+)/")


class OpenPage:
    """`fencepost ui` on a broker, and somebody who looks: the streams of three views."""

    def __init__(self, bootstrap: str) -> None:
        command = [str(Path(sys.executable).with_name("fencepost")), "ui", "--listen", "127.0.0.1:0"]
        self._process = subprocess.Popen(
            [*command, "--bootstrap-server", bootstrap], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
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

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


class PageOpen(Experiment):
    """Transactions at a fixed rate that the broker keeps up with easily: what it does besides is what is seen."""

    IDS = 10_000
    RATE = 300
    SECONDS = 12.0
    KEY = "broker CPU per transaction"
    name = "page open"
    pair = None
    pairs_max = 5
    in_quick = False
    work_unit = "transaction"
    metrics = (Metric(KEY, "us", lower_is_better=True, ratio_target=1.05),)

    def __init__(self) -> None:
        self._calls: dict[int, RawCalls] = {}
        self._page: OpenPage | None = None

    def subjects(self, context: Context) -> tuple[Subject, Subject]:
        subjects = (context.launcher.fencepost("os"), context.launcher.fencepost("os"))
        for subject, name in zip(subjects, ("page open", "no page"), strict=True):
            subject.name = name
        return subjects

    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            with subject.connect() as connection:
                connection.create_topic(TOPIC, 1, {})
            producers = init_producers(subject.address, "id", self.IDS)
            calls = raw_transactions(subject.address, producers, TOPIC, 1, records=1, size=100, connections=1)
            calls.run_once()
            self._calls[id(subject)] = calls
        self._page = OpenPage(subjects[0].bootstrap)
        for subject in subjects:
            self._calls[id(subject)].run(warmup=0, seconds=5, rate=self.RATE)

    def sample(self, context: Context, subject: Subject) -> Sample:
        assert self._page is not None
        is_looked_at = subject.name == "page open"
        seen = dict(self._page.events)
        before = subject.cpu_seconds()
        done = self._calls[id(subject)].run(warmup=0, seconds=self.SECONDS, rate=self.RATE)
        cpu = subject.cpu_seconds() - before
        if is_looked_at and any(self._page.events[view] == seen[view] for view in STREAMS):
            raise LoadFailed(f"nothing new came to the page: {self._page.events}, before {seen}")
        values = {self.KEY: cpu / done.transactions * 1e6}
        return Sample(values, cpu, done.client_cpu_seconds, done.seconds, done.transactions)

    def finish(self, context: Context, subjects: Sequence[Subject]) -> None:
        if self._page is not None:
            self._page.close()
        for calls in self._calls.values():
            calls.close()


def experiments() -> list[Experiment]:
    return [PageOpen()]
