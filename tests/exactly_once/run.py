"""One run: a broker, two copiers in one group, a reader all along, and a hand that kills them in turns."""

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.exactly_once.copiers.plan import Plan
from tests.exactly_once.loops import INPUT_PARTITIONS, OUTPUT_PARTITIONS, Input, Loop, make_inputs, produce_inputs
from tests.exactly_once.reader import Seen, Watcher, end_offsets, new_consumer, output_partitions, read_whole
from tests.exactly_once.verdict import Verdict, judge
from tests.peers import java
from tests.peers.build import REPOSITORY
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.process import ChildFailed, Event, JsonLinesProcess
from tests.peers.raw import RawClient
from tests.support.patience import patient

COPIERS = 2
STALL_SECONDS = patient(45)
ANSWER_SECONDS = patient(5)
POLL_SECONDS = 0.05
# What a copier had sent before it was put to sleep has reached the log by then.
SETTLE_SECONDS = 0.1
# Most kills come so long after some progress; some come so soon after the kill before that they hit its recovery.
KILL_AFTER_SECONDS = (0.0, 0.15)
HASTY_KILL_AFTER_SECONDS = (0.0, 1.2)
HASTY_PROBABILITY = 0.25
BROKER_SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    # Small segments, so that some kills hit a roll.
    "log.segment.bytes": "500000",
    "transaction.state.log.num.partitions": "10",
    "offsets.topic.num.partitions": "10",
}


@dataclass(frozen=True, slots=True)
class Client:
    """A client library, by the command line of its copier."""

    name: str
    command: Callable[[str], list[str]]
    speaks_tv2: bool = False
    # Streams ends its transactions by the clock, not after so many inputs.
    commits_by_time: bool = False
    # Forgets a call to a coordinator whose connection fails at the wrong moment, and its caller waits for ever
    # (test_kafka_python.py). Where the copier itself shows that this happened, it is killed and started again.
    loses_calls: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


def _python(module: str) -> Callable[[str], list[str]]:
    return lambda plan: [sys.executable, "-m", f"tests.exactly_once.copiers.{module}", plan]


CLIENTS = {
    client.name: client
    for client in (
        Client("confluent-kafka", _python("confluent_copier")),
        Client("kafka-python", _python("kafka_python_copier"), loses_calls=True),
        Client("aiokafka", _python("aiokafka_copier")),
        Client("java", lambda plan: java.command("Copier", [plan]), speaks_tv2=True),
        Client("streams", lambda plan: java.command("StreamsCopier", [plan]), speaks_tv2=True, commits_by_time=True),
    )
}


@dataclass(frozen=True, slots=True)
class Size:
    inputs: int
    client_kills: int
    broker_kills: int


@dataclass(slots=True)
class Result:
    client: str
    loop: str
    inputs: int
    client_kills: int
    broker_kills: int
    seed: int
    transactions: int = 0
    aborts: int = 0
    recreated: Counter[str] = field(default_factory=Counter)
    aborted: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    # What a fresh read at the end found, and what the reader that ran all along had found by then.
    final: Verdict = field(default_factory=Verdict)
    watched: Verdict = field(default_factory=Verdict)
    # What the reader that ran all along got, and a reader at the end does not.
    taken_back: int = 0
    aborted_records: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    input_ends: dict[str, int] = field(default_factory=dict)
    # The last epoch of each transactional id.
    epochs: dict[str, int] = field(default_factory=dict)
    # What a copier itself found to be wrong.
    wrong: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return (
            self.final.is_clean
            and self.watched.is_clean
            and self.taken_back == 0
            and not self.wrong
            and self.positions == self.input_ends
        )


class Stalled(AssertionError):
    """Nothing is copied any more."""


class Run:
    def __init__(self, client: Client, loop: Loop, size: Size, directory: Path, seed: int) -> None:
        self._client = client
        self._loop = loop
        self._size = size
        self._random = random.Random(seed)
        self._directory = directory
        self._copiers: list[JsonLinesProcess] = []
        self._ended: list[JsonLinesProcess] = []
        self.result = Result(client.name, loop.source, size.inputs, size.client_kills, size.broker_kills, seed)

    @property
    def group(self) -> str:
        return f"{self._loop.source}-copiers"

    def run(self) -> Result:
        started = time.monotonic()
        with FencepostProcess(BROKER_SETTINGS, self._directory / "broker") as self._broker:
            inputs = self._prepare()
            self._watcher = Watcher(self._broker.bootstrap_servers, self._loop)
            self._watcher.start()
            try:
                self._copiers = [self._start_copier(index) for index in range(COPIERS)]
                self._kill_in_turns()
                self._wait_for(self._everything_is_committed, "the group's positions are not at the end of the input")
                self._stop_copiers()
                self._wait_for(self._no_transaction_is_open, "a transaction is left open")
                self.result.seconds = time.monotonic() - started
                self._examine(inputs)
            finally:
                for copier in self._copiers:
                    copier.kill()
                self._watcher.stop()
            self._broker.stop()
        return self.result

    def _prepare(self) -> list[Input]:
        bootstrap = self._broker.bootstrap_servers
        topics = [NewTopic(self._loop.source, INPUT_PARTITIONS, 1)]
        topics += [NewTopic(output, OUTPUT_PARTITIONS, 1) for output in self._loop.outputs]
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for future in admin.create_topics(topics).values():
            future.result(patient(20))
        inputs = make_inputs(self._loop, self._size.inputs, self._random)
        produce_inputs(bootstrap, self._loop, inputs)
        self.result.input_ends = end_offsets(bootstrap, self._input_partitions(), "read_committed")
        return inputs

    def _input_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self._loop.source, partition) for partition in range(INPUT_PARTITIONS)]

    def _start_copier(self, index: int) -> JsonLinesProcess:
        plan = Plan(
            bootstrap=self._broker.bootstrap_servers,
            group=self.group,
            transactional_id=f"{self.group}-{index}",
            source=self._loop.source,
            outputs=self._loop.outputs,
            seed=self._random.randrange(2**31),
            directory=str(self._directory),
            **self._client.settings,
        )
        command = self._client.command(plan.as_json())
        return JsonLinesProcess(f"copier {index}", command, {"PYTHONPATH": str(REPOSITORY)})

    # Killing

    def _kill_copiers_inside_a_transaction(self) -> None:
        """Ends all copiers when the log holds outputs of one of them that only an abort can follow."""
        self._wait_for(self._sleep_inside_a_transaction, "no transaction is found open")
        for index in range(COPIERS):
            self._kill_copier(index)

    def _sleep_inside_a_transaction(self) -> bool:
        for copier in self._copiers:
            copier.signal(signal.SIGSTOP)
        time.sleep(SETTLE_SECONDS)
        if not self._no_transaction_is_open():
            return True
        for copier in self._copiers:
            copier.signal(signal.SIGCONT)
        return False

    def _kill_copier(self, index: int) -> None:
        self._copiers[index].kill()
        self._ended.append(self._copiers[index])
        self._copiers[index] = self._start_copier(index)

    def _kill_in_turns(self) -> None:
        size, source = self._size, self._random
        self._kill_copiers_inside_a_transaction()
        victims = ["client"] * (size.client_kills - COPIERS) + ["broker"] * size.broker_kills
        source.shuffle(victims)
        marks = sorted(source.uniform(0.02, 0.9) * size.inputs for _ in victims)
        turn = source.randrange(COPIERS)
        for victim, mark in zip(victims, marks, strict=True):
            if source.random() < HASTY_PROBABILITY:
                time.sleep(source.uniform(*HASTY_KILL_AFTER_SECONDS))
            else:
                self._wait_for(lambda mark=mark: self._progress() >= mark, "nothing is copied any more")  # type: ignore[misc]
                time.sleep(source.uniform(*KILL_AFTER_SECONDS))
            if victim == "broker":
                self._broker.kill()
                self._broker.start()
            else:
                self._kill_copier(turn)
                turn = (turn + 1) % COPIERS

    def _progress(self) -> float:
        return len(self._watcher.records) / len(self._loop.outputs)

    def _wait_for(self, holds: Callable[[], bool], otherwise: str) -> None:
        progress, since = -1.0, time.monotonic()
        while not holds():
            for index, copier in enumerate(self._copiers):
                if copier.returncode is not None:
                    raise Stalled(f"copier {index} ended by itself\n{self._story()}")
            if self._progress() != progress:
                progress, since = self._progress(), time.monotonic()
            if time.monotonic() - since > STALL_SECONDS:
                if not self._restart_copiers_that_lost_a_call():
                    raise Stalled(f"{otherwise}: {progress:.0f} of {self._size.inputs}\n{self._story()}")
                since = time.monotonic()
            time.sleep(POLL_SECONDS)

    def _restart_copiers_that_lost_a_call(self) -> bool:
        if not self._client.loses_calls:
            return False
        lost = [index for index, copier in enumerate(self._copiers) if _has_lost_a_call(copier)]
        for index in lost:
            print(f"copier {index} waits for a call that {self._client.name} forgot: killing and starting it again")
            self._kill_copier(index)
        return bool(lost)

    def _story(self) -> str:
        for copier in self._copiers:
            # Python's and Java's ways to say where every thread is.
            copier.signal(signal.SIGQUIT)
        time.sleep(1)
        copiers = "\n".join(f"{copier.name}: {copier.events[-5:]}\n{copier.output[-3000:]}" for copier in self._copiers)
        return f"seed {self.result.seed}\n{copiers}\nbroker:\n{self._broker.log_text()}"

    # The end

    def _stop_copiers(self) -> None:
        for copier in self._copiers:
            copier.close_input()
        for copier in self._copiers:
            copier.wait()
        self._ended += self._copiers
        self._copiers = []

    def _everything_is_committed(self) -> bool:
        self.result.positions = self._committed()
        return self.result.positions == self.result.input_ends

    def _committed(self) -> dict[str, int]:
        consumer = new_consumer(self._broker.bootstrap_servers, "read_committed", self.group)
        try:
            found = consumer.committed(self._input_partitions(), timeout=5)
            return {f"{one.topic}-{one.partition}": max(one.offset, 0) for one in found}
        except KafkaException:
            return {}
        finally:
            consumer.close()

    def _no_transaction_is_open(self) -> bool:
        ends = [
            end_offsets(self._broker.bootstrap_servers, output_partitions(self._loop), isolation_level)
            for isolation_level in ("read_committed", "read_uncommitted")
        ]
        return ends[0] == ends[1]

    def _examine(self, inputs: list[Input]) -> None:
        bootstrap, result = self._broker.bootstrap_servers, self.result
        final = read_whole(bootstrap, self._loop, "read_committed")
        everything = read_whole(bootstrap, self._loop, "read_uncommitted")
        result.final = judge(self._loop, inputs, final)
        result.aborted_records = len(everything) - len(final)
        self._let_the_watcher_finish(final)
        result.watched = judge(self._loop, inputs, self._watcher.records)
        result.taken_back = len(set(self._watcher.records) - set(final))
        assert not self._watcher.failures, self._watcher.failures
        events = [event for copier in self._ended for event in copier.events]
        result.epochs = transaction_epochs(self._broker.address)
        # Streams does not say when it commits; under TV2 every transaction's end makes the epoch one larger.
        committed = sum(event["event"] == "committed" for event in events)
        result.transactions = committed or sum(result.epochs.values())
        result.wrong = [event["cause"] for event in events if event["event"] == "wrong"]
        result.aborts = sum(event["event"] == "aborted" for event in events)
        result.recreated = Counter(event["cause"] for event in events if event["event"] == "recreated")
        result.aborted = Counter(event["cause"] for event in events if event["event"] == "aborted")

    def _let_the_watcher_finish(self, final: list[Seen]) -> None:
        deadline = time.monotonic() + STALL_SECONDS
        while len(self._watcher.records) < len(final) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        # What should not come would come now.
        time.sleep(0.3)
        self._watcher.stop()


def _has_lost_a_call(copier: JsonLinesProcess) -> bool:
    def answers(events: list[Event]) -> list[Event]:
        return [event for event in events if event["event"] == "asked"]

    before = len(answers(copier.events))
    copier.signal(signal.SIGUSR1)
    try:
        copier.wait_until(lambda events: len(answers(events)) > before, ANSWER_SECONDS)
    except ChildFailed:
        return False
    return bool(answers(copier.events)[-1]["lost"])


def transaction_epochs(address: tuple[str, int]) -> dict[str, int]:
    """The producer epoch of every transactional id that the broker knows."""
    with RawClient(address) as raw:
        listed = raw.call("ListTransactions", 0, {"StateFilters": [], "ProducerIdFilters": []})
        names = [one["TransactionalId"] for one in listed["TransactionStates"]]
        described = raw.call("DescribeTransactions", 0, {"TransactionalIds": names})
        return {one["TransactionalId"]: one["ProducerEpoch"] for one in described["TransactionStates"]}
