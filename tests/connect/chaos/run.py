"""One run: writers in the database, a worker under faults, and the verdict."""

import random
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.connect.chaos.audit import Verdict, create_auditor, judge
from tests.connect.chaos.worker import NONE
from tests.peers.broker_process import BrokerProcess
from tests.peers.postgres import Postgres
from tests.peers.process import ChildFailed, JsonLinesProcess
from tests.support.patience import patient

TABLES = {"accounts": 3, "entries": 1}
"""And the number of their topics' partitions."""
FAULTS = ("kill", "die before commit", "die after commit", "zombie", "takeover", "broker", "database")
SOURCE_FILE = """
from fencepost.connect.postgres import PostgresSource

class Shop(PostgresSource):
    def topic_partitions(self, topic):
        return {tables!r}[topic.rpartition(".")[2]]

shop = Shop("shop", {dsn!r}, tables={names!r}, shape="plain", linger_ms=10, heartbeat_seconds=1)
"""


@dataclass
class Result:
    verdict: Verdict | None = None
    faults: dict[str, int] = field(default_factory=dict)
    zombies_fenced: int = 0
    refused: str = ""
    """What a worker has refused, which ends the run."""
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        return self.verdict is not None and self.verdict.is_clean and not self.refused


class Writer(threading.Thread):
    """Source transactions of one to six changes over both tables, some of hundreds, until it is stopped."""

    def __init__(self, database: Postgres, number: int, seed: int, pause_seconds: float) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._number = number
        self._source = random.Random(seed)
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def run(self) -> None:
        import psycopg

        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._database.dsn(), autocommit=True) as connection:
                    while not self._stopping.is_set():
                        with connection.transaction():
                            self._transaction(connection)
                        time.sleep(self._source.random() * self._pause_seconds)
            except psycopg.Error:
                time.sleep(0.05)  # the database restarts; whether the last transaction was committed, the auditor knows

    def _transaction(self, connection: "psycopg.Connection") -> None:  # type: ignore[name-defined] # noqa: F821
        source = self._source
        for _ in range(source.choice((1, 2, 3, 6))):
            n, account = source.randrange(10**9), source.randrange(200) * 2 + self._number
            match source.randrange(6):
                case 0:
                    connection.execute("DELETE FROM accounts WHERE id = %s", (account,))
                case 1 | 2:
                    connection.execute(
                        "INSERT INTO accounts VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET n = excluded.n",
                        (account, n),
                    )
                case _:
                    connection.execute("INSERT INTO entries (n) VALUES (%s)", (n,))
        if source.random() < 0.02:
            connection.execute(
                "INSERT INTO entries (n) SELECT (random() * 1000000000)::int FROM generate_series(1, 300)"
            )


class Run:
    def __init__(self, broker: BrokerProcess, database: Postgres, seed: int, mutant: str = NONE) -> None:
        self._broker = broker
        self._database = database
        self._random = random.Random(seed)
        self._seed = seed
        self._mutant = mutant
        self._file = Path(database.directory) / f"shop_{seed}_{abs(hash(mutant))}.py"
        self._workers: list[JsonLinesProcess] = []
        self.result = Result()

    def run(self, faults: list[str], seconds_between: float, writer_pause: float = 0.02) -> Result:
        began = time.monotonic()
        database = self._database
        database.execute(
            "CREATE TABLE accounts (id int PRIMARY KEY, n int)",
            "CREATE TABLE entries (id serial PRIMARY KEY, n int)",
        )
        create_auditor(database)
        dsn, names = database.dsn(), list(TABLES)
        self._file.write_text(SOURCE_FILE.format(tables=TABLES, dsn=dsn, names=names))
        writers: list[Writer] = []
        try:
            self._start()
            self._wait_for_stream()
            writers = [Writer(database, number, self._seed + number, writer_pause) for number in range(2)]
            for writer in writers:
                writer.start()
            for fault in faults:
                time.sleep(seconds_between * (0.5 + self._random.random()))
                self._inject(fault)
                self.result.faults[fault] = self.result.faults.get(fault, 0) + 1
            time.sleep(seconds_between)
            for writer in writers:
                writer.stop()
            self._catch_up()
            self.result.verdict = judge(
                database, self._broker.bootstrap_servers, self._broker.data_directory, names, "shop"
            )
        except _Refused as refusal:
            self.result.refused = str(refusal)
        finally:
            for writer in writers:
                writer.stop()
            for worker in self._workers:
                worker.kill()
        self.result.seconds = time.monotonic() - began
        return self.result

    # Workers

    def _start(self) -> JsonLinesProcess:
        command = [sys.executable, "-m", "tests.connect.chaos.worker", self._mutant, str(self._file), "--json"]
        command += ["--bootstrap-server", self._broker.bootstrap_servers, "--heartbeat-seconds", "1"]
        worker = JsonLinesProcess("worker", command)
        self._workers.append(worker)
        return worker

    @property
    def _current(self) -> JsonLinesProcess:
        return self._workers[-1]

    def _wait_for_start(self, worker: JsonLinesProcess) -> None:
        def is_started(events: list[dict[str, object]]) -> bool:
            return any(event["event"] in ("started", "failed") for event in events)

        worker.wait_until(is_started, patient(60))
        self._check(worker)

    def _check(self, worker: JsonLinesProcess) -> None:
        for event in worker.events:
            if event["event"] == "failed" and "was fenced" not in event["error"]:
                raise _Refused(event["error"])

    def _wait_for_stream(self) -> None:
        deadline = time.monotonic() + patient(60)
        while not self._database.rows("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"):
            self._check(self._current)
            assert time.monotonic() < deadline, self._current.output
            time.sleep(0.05)

    # Faults

    def _inject(self, fault: str) -> None:
        old = self._current
        match fault:
            case "kill":
                old.kill()
                self._wait_for_start(self._start())
            case "die before commit" | "die after commit":
                number = signal.SIGUSR1 if fault == "die before commit" else signal.SIGUSR2
                old.signal(number)
                self._wait_for_end(old)
                self._wait_for_start(self._start())
            case "zombie":
                old.signal(signal.SIGSTOP)
                self._wait_for_start(self._start())
                time.sleep(0.2)
                old.signal(signal.SIGCONT)
                self._wait_for_fenced(old)
            case "takeover":
                self._wait_for_start(self._start())
                self._wait_for_fenced(old)
            case "broker":
                self._broker.kill()
                self._broker.start()
            case "database":
                self._database.crash()
                time.sleep(self._random.random() * 0.5)
                self._database.start()
            case _:
                raise AssertionError(fault)

    def _wait_for_end(self, worker: JsonLinesProcess) -> None:
        deadline = time.monotonic() + patient(60)
        while worker.returncode is None:
            assert time.monotonic() < deadline, f"does not end: {worker.events[-3:]}"
            time.sleep(0.02)

    def _wait_for_fenced(self, worker: JsonLinesProcess) -> None:
        try:
            failed = worker.wait_for("failed", patient(90))
        except ChildFailed:
            self._check(self._current)
            raise
        if "was fenced" not in failed["error"]:
            raise _Refused(failed["error"])
        self.result.zombies_fenced += 1

    def _catch_up(self) -> None:
        """Until the position is behind everything that was written."""
        (end,) = self._database.rows("SELECT pg_current_wal_lsn()::text")[0]
        query = f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = 'fencepost_shop'"
        deadline = time.monotonic() + patient(60)
        while self._database.rows(query) != [(True,)]:
            self._check(self._current)
            assert time.monotonic() < deadline, f"does not catch up: {self._current.events[-3:]} {self._current.output}"
            time.sleep(0.1)


class _Refused(Exception):
    """A worker has ended, and not because it was fenced."""
