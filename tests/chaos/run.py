"""One run: a broker behind a proxy, four clients, a hand that disturbs them by turns, and a verdict on what was told.

Nothing here waits for a time: a fault comes when enough has been done since the last, and the run ends when everybody
has done something after the last of them.
"""

import errno
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from fencepost.history import HistoryRecorder, JsonLines, Report, check, read_files
from tests.chaos.recorded import HUNG, RecordedReader, name_of
from tests.chaos.worker import GROUP, INPUT, OUTPUT, OUTPUT_PARTITIONS, Plan
from tests.faults.proxy import Direction, FaultProxy
from tests.faults.scene import script
from tests.interop.cases.peer import produce_request
from tests.interop.cases.transactional import Script
from tests.peers.batches import batch
from tests.peers.broker_process import BrokerProcess
from tests.peers.build import REPOSITORY
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.process import JsonLinesProcess
from tests.support.patience import patient

ROLES = ("sender", "transactor", "copier", "reader")
PARTITIONS = [(INPUT, 0)] + [(OUTPUT, each) for each in range(OUTPUT_PARTITIONS)]
PROGRESS_SECONDS = patient(90.0)
PAUSE_SECONDS = 0.02
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "log.segment.bytes": "200000",
}
STORAGE_ERROR = 56
FULL_SECONDS = 1.0
DONE = b'"type":"ok"'


class Stalled(AssertionError):
    """A client does nothing any more."""


@dataclass(slots=True)
class Chaos:
    directory: Path
    seed: int
    broker_directory: Path | None = None
    settings: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    """Faults given, by kind."""
    hung: int = 0
    """Clients that their library held for longer than it was told to, and that were started again."""
    _random: random.Random = field(init=False)
    _broker: BrokerProcess = field(init=False)
    _proxy: FaultProxy = field(init=False)
    _workers: dict[str, JsonLinesProcess] = field(default_factory=dict)
    _lives: Counter[str] = field(default_factory=Counter)
    _ended: list[JsonLinesProcess] = field(default_factory=list)

    def run(self, faults: Sequence[str], work_between: int) -> Report:
        """`work_between`: operations that succeed before the next fault comes."""
        self._random = random.Random(self.seed)
        with FencepostProcess(
            {**SETTINGS, **self.settings}, self.broker_directory or self.directory / "broker"
        ) as self._broker:
            self._make_topics()
            with FaultProxy(self._broker.address) as self._proxy:
                try:
                    for role in ROLES:
                        self._start(role)
                    self._wait_for_everybody()
                    for fault in faults:
                        self._wait_for_work(work_between)
                        getattr(self, f"_{fault}")()
                        self.counts[fault] += 1
                    self._wait_for_everybody()
                    self._stop_everybody()
                finally:
                    for worker in [*self._workers.values(), *self._ended]:
                        worker.kill()
            self._read_everything()
            self._broker.stop()
        return check(read_files(sorted(self.directory.glob("*.jsonl"))))

    def _make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers, "log_level": 0})
        topics = [NewTopic(INPUT, 1, 1), NewTopic(OUTPUT, OUTPUT_PARTITIONS, 1)]
        for future in admin.create_topics(topics).values():
            future.result(patient(20))

    def _start(self, role: str) -> None:
        self._lives[role] += 1
        process = f"{role}-{self._lives[role]}"
        plan = Plan(
            role=role,
            process=process,
            bootstrap=self._proxy.bootstrap_servers,
            history=str(self._history(process)),
            seed=self._random.randrange(2**31),
        )
        command = [sys.executable, "-m", "tests.chaos.worker", plan.as_json()]
        self._workers[role] = JsonLinesProcess(process, command, {"PYTHONPATH": str(REPOSITORY)})

    def _history(self, process: str) -> Path:
        return self.directory / f"{process}.jsonl"

    # Progress

    def _done(self, role: str) -> int:
        """Operations of a role's present life that succeeded."""
        path = self._history(f"{role}-{self._lives[role]}")
        return path.read_bytes().count(DONE) if path.exists() else 0

    def _wait_for(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PROGRESS_SECONDS
        while not holds():
            self._replace_the_ended()
            if time.monotonic() > deadline:
                raise Stalled(f"{what}; faults so far: {dict(self.counts)}; broker: {self._broker.log_text()[-1500:]}")
            time.sleep(PAUSE_SECONDS)

    def _replace_the_ended(self) -> None:
        """A client that gave up is started again, as its users would; one that broke is a failure."""
        for role, worker in list(self._workers.items()):
            if worker.returncode is not None:
                self.hung += worker.returncode == HUNG
                self._check_end(worker)
                self._ended.append(worker)
                self._start(role)

    @staticmethod
    def _check_end(worker: JsonLinesProcess) -> None:
        code = worker.returncode
        assert code in (0, HUNG), f"{worker.name} ended with {code}: {worker.output[-3000:]}"

    def _stop_everybody(self) -> None:
        stopping = list(self._workers.values())
        self._ended += stopping
        self._workers.clear()
        for worker in stopping:
            worker.close_input()
        self._wait_for(lambda: all(each.returncode is not None for each in stopping), "clients do not end")
        for worker in stopping:
            self._check_end(worker)

    def _wait_for_work(self, count: int) -> None:
        goal = {role: (self._lives[role], self._done(role)) for role in ROLES if role != "reader"}

        def is_done() -> bool:
            fresh = 0
            for role, (life, before) in goal.items():
                fresh += self._done(role) - (before if self._lives[role] == life else 0)
            return fresh >= count

        self._wait_for(is_done, f"fewer than {count} operations succeed")

    def _wait_for_everybody(self) -> None:
        """Everybody has done something since; a transaction, not only the beginning of one."""
        before = {role: (self._lives[role], self._done(role)) for role in ROLES}

        def moved(role: str) -> bool:
            life, count = before[role]
            return self._done(role) > (count if self._lives[role] == life else 0) + 3

        self._wait_for(lambda: all(map(moved, ROLES)), f"not all of {', '.join(ROLES)} go on")

    # Faults

    def _kill_broker(self) -> None:
        self._broker.kill()
        self._broker.start()

    def _kill_client(self) -> None:
        role = self._random.choice(("transactor", "copier", "reader"))
        worker = self._workers.pop(role)
        worker.kill()
        self._start(role)

    def _pause_broker(self) -> None:
        """Stopped for longer than clients wait for an answer."""
        os.kill(self._broker.pid, signal.SIGSTOP)
        time.sleep(self._random.choice((0.3, 4.0)))
        os.kill(self._broker.pid, signal.SIGCONT)

    def _pause_client(self) -> None:
        worker = self._workers[self._random.choice(("transactor", "copier"))]
        worker.signal(signal.SIGSTOP)
        time.sleep(1.0)
        worker.signal(signal.SIGCONT)

    def _cut_connections(self) -> None:
        self._proxy.cut_all()

    def _lose_answers(self) -> None:
        """The next answers of some kinds are lost, and their connections with them."""
        rules = [self._proxy.drop(api, Direction.RESPONSE) for api in ("EndTxn", "Produce", "TxnOffsetCommit")]
        self._wait_for(lambda: rules[0].caught.is_set() and rules[1].caught.is_set(), "no call came to be lost")
        self._proxy.clear()

    def _hold_end(self) -> None:
        """An EndTxn comes when its client has asked again elsewhere and is in its next transaction (KAFKA-17754)."""
        held = self._proxy.hold("EndTxn", hang_up=True)
        self._wait_for(held.caught.is_set, "no EndTxn came to be held")
        assert held.frame is not None
        transactional_id = held.frame.message["TransactionalId"]
        asked_again = self._proxy.on("EndTxn", lambda: None, transactional_id=transactional_id)
        self._wait_for(asked_again.caught.is_set, "nobody asked again for the end of a transaction")

        def let_go() -> None:
            held.release().done.wait(PROGRESS_SECONDS)

        goes_on = self._proxy.on("Produce", let_go, transactional_id=transactional_id, nth=self._random.choice((1, 2)))
        self._wait_for(goes_on.caught.is_set, "the client does not go on")
        self._proxy.clear()

    def _fill_disk(self) -> None:
        """A file takes all the room, until the broker has refused some batches for it and a little longer."""
        assert self.broker_directory is not None, "only a small file system can be filled"
        ballast = self.broker_directory.parent / "ballast"
        filler = script(self._broker, "filler")
        topic = filler.peer.topic(f"filler-{self.counts['fill_disk']}")
        with open(ballast, "wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
        self._wait_for(lambda: produce_code(filler, topic) == STORAGE_ERROR, "the disk is full, but nothing is refused")
        time.sleep(FULL_SECONDS)
        ballast.unlink()
        self._wait_for(lambda: produce_code(filler, topic) == 0, "there is room again, but nothing is taken")
        filler.peer.close()

    # The end

    def _read_everything(self) -> None:
        with JsonLines(self.directory / "final.jsonl") as sink:
            recorder = HistoryRecorder(sink, time.monotonic)
            watcher = script(self._broker, "watcher")

            def is_settled() -> bool:
                ends = [[watcher.end_offset(topic, each, level) for level in (0, 1)] for topic, each in PARTITIONS]
                return all(high == stable for high, stable in ends)

            self._wait_for(is_settled, "a transaction is left open")
            for isolation in ("read_committed", "read_uncommitted"):
                process = f"final-{isolation}"
                reader = RecordedReader(recorder, process, self._broker.bootstrap_servers, PARTITIONS, isolation)
                reader.read_everything()
                reader.close()
            operation = recorder.fetch_offsets("final-offsets")
            code, offset, _ = watcher.offset(GROUP, INPUT)
            assert code == 0
            operation.fetched(GROUP, {name_of(INPUT, 0): offset if offset >= 0 else None})
            operation.ok()
            watcher.peer.close()


def produce_code(filler: Script, topic: str) -> int:
    answer = filler.peer.call("Produce", 9, produce_request(topic, batch([bytes(10_000)]), 0))
    code: int = answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"]
    return code
