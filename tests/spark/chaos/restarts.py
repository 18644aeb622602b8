"""Restarts under faults: checkpoints set back, torn, emptied and copied, groups forgotten, drivers taken over at every
step, on one cluster and across two.

A fault that has to be refused is right if it is refused in the words of the table and if, after the advice was
followed, every input is in the outputs exactly once. One session of Spark serves all of it, so that a restart is a new
query and not a new JVM; kills of processes are in `run`.
"""

import contextlib
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.client.blocking import Admin
from fencepost.client.blocking import Producer as InputProducer
from fencepost.client.errors import BrokerError
from fencepost.client.kafka_types import IsolationLevel, NewTopic, Reset
from fencepost.client.transaction_calls import TransactionProtocol
from fencepost.spark import transaction
from fencepost.spark.batch_decisions import RULES, Situation
from fencepost.spark.errors import FencepostSparkError
from fencepost.spark.query_run import close_runs
from fencepost.topic_partition import TopicPartition
from tests.peers.broker_process import BrokerProcess
from tests.spark.sessions import run_again_if_spark_was_too_slow
from tests.spark.sink_scene import read
from tests.support.patience import patient

STEPS = ("checked", "begun", "written", "offsets", "ending", "committed")
"""Where the driver that is taken over was asleep: it has looked whose turn it is, has an epoch, has sent its rows, has
sent its offsets, is about to commit, has committed."""
FAULTS = (
    "back by one", "back by two", "torn", "emptied", "copied", "commit forgotten", "group deleted", "offsets reset",
    "partition added", "broker killed", *(f"taken over: {step}" for step in STEPS),
)  # fmt: skip
IDLE_FAULTS = ("idle", "expired")
MOUNT = "viewfs://chaos/checkpoints"
_STARTING_OFFSETS = re.compile(r"startingOffsets='(\{.*?\}\})'")
RECOVERIES_MAX = 4
STARTS_MAX = 30


def mount_settings(directory: Path) -> dict[str, str]:
    """Settings of a session in which Hadoop's file system layer is between Spark and the directory."""
    return {"spark.hadoop.fs.viewfs.mounttable.chaos.link./checkpoints": f"file://{directory}"}


class Asleep(Exception):
    """Ends a batch of a driver that has planned it and falls asleep."""


@dataclass(slots=True)
class RestartsResult:
    name: str
    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """By the situation that was told, and what Spark itself refused."""
    inputs: int = 0
    lost: int = 0
    duplicated: int = 0
    torn: int = 0
    wrong_words: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.torn or self.wrong_words)

    def row(self) -> list[str | int]:
        told = ", ".join(f"{count} {what}" for what, count in sorted(self.refused.items()))
        return [
            self.name, self.faults.total(), told, self.inputs, self.lost, self.duplicated, self.torn,
            len(self.wrong_words), f"{self.seconds:.0f} s",
        ]  # fmt: skip


HEADS = ("cell", "faults", "refused", "inputs", "lost", "duplicated", "torn", "wrong words", "took")


class RestartsRun:
    def __init__(
        self,
        name: str,
        spark: Any,
        source: BrokerProcess,
        target: BrokerProcess,
        directory: Path,
        seed: int,
        source_format: str = "fencepost",
    ) -> None:
        """`directory` is the one that the session has mounted."""
        self.result = RestartsResult(name, seed)
        self._spark, self.source, self.target = spark, source, target
        self._format = source_format
        self._random = random.Random(f"{seed} {name}")
        self._directory = directory / re.sub(r"\W+", "-", name)
        self.group = f"restarts-{self._random.randrange(10**6)}"
        self.purchases, *self.outputs = (f"{self.group}-{stem}" for stem in ("purchases", "invoices", "shipments"))
        self._log: dict[TopicPartition, list[int]] = {}
        """What was fed, by partition and offset."""
        self._checkpoints = 0
        self._fed: list[int] = []
        for broker, topics in ((source, [self.purchases]), (target, self.outputs)):
            with Admin(broker.bootstrap_servers) as admin:
                for topic in topics:
                    admin.create_topic(NewTopic(topic, 2))
        self._new_checkpoint()

    def run(self, faults: list[str]) -> RestartsResult:
        began = time.monotonic()
        try:
            for fault in faults:
                self._settle()
                self.result.faults[fault] += 1
                kind, _, step = fault.partition(": ")
                expected = getattr(self, f"_{kind.replace(' ', '_')}")(*([step] if step else []))
                self._recover(fault, expected)
                print(f"{self.result.name}: {fault}; {len(self._fed)} inputs so far", flush=True)
            self._settle()
        finally:
            close_runs()
            self.result.seconds = time.monotonic() - began
        return self.result

    # The pipeline

    def _new_checkpoint(self) -> None:
        self._checkpoints += 1
        self._path = self._directory / f"checkpoint-{self._checkpoints}"
        self._path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def _location(self) -> str:
        """As a local path, as Hadoop's local file system, and through Hadoop's file system layer, in turn."""
        below = f"{self._path.parent.name}/{self._path.name}"
        return (str(self._path), f"file://{self._path}", f"{MOUNT}/{below}")[self._checkpoints % 3]

    def _feed(self, count: int | None = None) -> list[int]:
        count = self._random.randrange(5, 40) if count is None else count
        numbers = list(range(len(self._fed), len(self._fed) + count))
        with Admin(self.source.bootstrap_servers) as admin:
            partitions = len(admin.describe_topic(self.purchases).partitions)
        with InputProducer(self.source.bootstrap_servers) as producer:
            for number in numbers:
                place = TopicPartition(self.purchases, self._random.randrange(partitions))
                producer.send(place.topic, b"%d" % number, partition=place.partition)
                self._log.setdefault(place, []).append(number)
        self._fed += numbers
        self.result.inputs = len(self._fed)
        return numbers

    def numbers_between(self, place: TopicPartition, start: int, end: int) -> list[int]:
        return self._log.get(place, [])[start:end]

    def _rows(self, **options: str) -> Any:
        reader = self._spark.readStream.format(self._format)
        reader = reader.option("kafka.bootstrap.servers", self.source.bootstrap_servers)
        reader = reader.option("subscribe", self.purchases).option("startingOffsets", "earliest")
        return reader.options(**options).load().select("key", "value")

    def _query(self, function: Callable[[Any, int], None], options: dict[str, str], **trigger: Any) -> Any:
        writer = self._rows(**options).writeStream.foreachBatch(function).trigger(**trigger)
        return writer.option("checkpointLocation", self._location).start()

    def protocol(self) -> TransactionProtocol:
        """Of the next driver: a successor may speak another than its predecessor."""
        return self._random.choice(list(TransactionProtocol))

    def _both(self, adopt: str) -> Callable[[Any, int], None]:
        protocol = self.protocol()

        def both(batch: Any, number: int) -> None:
            servers = self.target.bootstrap_servers
            with transaction(batch, number, self.group, servers, adopt=adopt, protocol=protocol) as opened:
                for topic in self.outputs:
                    opened.write(batch, topic=topic)

        return both

    def _go_on(self, adopt: str = "refuse", **options: str) -> str | None:
        """To the end of what is there. None, or what the query was refused with."""

        def run() -> None:
            query = self._query(self._both(adopt), options, availableNow=True)
            try:
                query.awaitTermination()
            finally:
                query.stop()

        try:
            run_again_if_spark_was_too_slow(run, STARTS_MAX)
        except Exception as error:
            return str(error)
        return None

    def _settle(self) -> None:
        """Everything that was fed is there, once; a few batches more, so that there is something to set back."""
        self._feed(self._random.randrange(20, 40))
        refused = self._go_on(maxOffsetsPerTrigger="10")
        assert refused is None, refused
        self._judge()

    def _judge(self) -> None:
        self._await(self._is_all_decided)
        self._count()
        if not self.result.is_clean:
            said = str(self.result)
            time.sleep(10)
            self._count()
            raise AssertionError(f"{said}; ten seconds later: {self.result}; {self._ends()}")

    def _is_all_decided(self) -> bool:
        """A commit is answered before its markers are in every partition. The coordinator says when they are, and the
        partitions say so by themselves: no reader of committed records is held back anywhere."""
        with Admin(self.target.bootstrap_servers) as admin:
            if admin.describe_transaction(self.group).state.startswith("Prepare"):
                return False
        return all(stable == end for stable, end in self._ends().values())

    def _ends(self) -> dict[TopicPartition, tuple[int, int]]:
        """Of the outputs: the last stable offset, and the end."""
        latest = {TopicPartition(topic, number): int(Reset.LATEST) for topic in self.outputs for number in range(2)}
        with Admin(self.target.bootstrap_servers) as admin:
            stable = admin.list_offsets(latest, IsolationLevel.READ_COMMITTED)
            return {at: (stable[at].offset, end.offset) for at, end in admin.list_offsets(latest).items()}

    def _count(self) -> None:
        found = [
            Counter(int(seen.value or b"-1") for seen in read(self.target.bootstrap_servers, [topic], "read_committed"))
            for topic in self.outputs
        ]
        wanted = Counter(self._fed)
        self.result.lost = sum(sum((wanted - each).values()) for each in found)
        self.result.duplicated = sum(sum((each - wanted).values()) for each in found)
        self.result.torn = sum(((found[0] - found[1]) + (found[1] - found[0])).values())

    # The operator

    def _recover(self, fault: str, expected: set[Situation | str]) -> None:
        """Starts the pipeline, and does what it says until it runs. `expected`: what it may be refused with; empty:
        it has to go on."""
        adopt, options, is_told = "refuse", {"maxOffsetsPerTrigger": str(self._random.randrange(10, 60))}, False
        for _ in range(RECOVERIES_MAX):
            said = self._go_on(adopt, **options)
            if said is None:
                break
            told = _situation(said)
            self.result.refused[told.name if isinstance(told, Situation) else told] += 1
            if told not in expected:
                self.result.wrong_words.append(f"{fault}: {said[:600]}")
                raise AssertionError(self.result.wrong_words[-1])
            is_told = True
            starting = _STARTING_OFFSETS.search(said)
            if starting is not None:
                adopt, options = "continue", {"startingOffsets": starting[1]}
                self._new_checkpoint()
                self._feed()  # with a batch to write, adopt has its effect
            elif told is Situation.FORGOTTEN:
                adopt = "continue"
            else:
                self._forget(self._last())  # Spark: delete the damaged file
        else:
            raise AssertionError(f"{fault}: the advice does not help: {said}")
        self.result.refused["(none)"] += not is_told
        self._judge()

    # What happens to a checkpoint

    def _last(self) -> int:
        return max(int(each.name) for each in (self._path / "offsets").iterdir() if each.name.isdecimal())

    def _forget(self, batch_id: int, logs: tuple[str, ...] = ("offsets", "commits")) -> None:
        for log in logs:
            for name in (str(batch_id), f".{batch_id}.crc"):
                (self._path / log / name).unlink(missing_ok=True)

    def _back_by_one(self) -> set[Any]:
        self._forget(self._last())
        if self._random.random() < 0.7:
            self._feed()
        return {Situation.REPLANNED}

    def _back_by_two(self) -> set[Any]:
        for _ in range(2):
            self._forget(self._last())
        return {Situation.BEHIND}

    def _torn(self) -> set[Any]:
        file = self._path / "offsets" / str(self._last())
        file.write_text(file.read_text()[: self._random.randrange(1, 40)])
        self._forget(self._last(), ("commits",))
        self._feed()
        return {"Spark", Situation.REPLANNED}

    def _emptied(self) -> set[Any]:
        """By a power cut: the file system knew the names, and not yet the bytes."""
        last = self._last()
        for log in ("offsets", "commits"):
            (self._path / log / str(last)).write_bytes(b"")
            (self._path / log / f".{last}.crc").unlink(missing_ok=True)
        self._feed()
        return {"Spark", Situation.REPLANNED}

    def _copied(self) -> set[Any]:
        """The copy goes on, as on another host; then somebody starts the old one."""
        old, count = self._path, self._checkpoints
        self._new_checkpoint()
        shutil.copytree(old, self._path)
        for _ in range(self._random.randrange(1, 4)):
            self._feed()
            refused = self._go_on()
            assert refused is None, refused
        copy, copies = self._path, self._checkpoints
        self._path, self._checkpoints = old, count
        self._feed()
        said = self._go_on()
        self._path, self._checkpoints = copy, copies
        assert said is not None, "the old checkpoint goes on"
        told = _situation(said)
        self.result.refused[getattr(told, "name", str(told))] += 1
        if told not in (Situation.REPLANNED, Situation.BEHIND):
            self.result.wrong_words.append(said[:600])
        return set()

    def _commit_forgotten(self) -> set[Any]:
        """The driver died after its transaction, before Spark's own note."""
        self._forget(self._last(), ("commits",))
        return set()

    # What happens to the cluster

    def _group_deleted(self) -> set[Any]:
        with Admin(self.target.bootstrap_servers) as admin:
            admin.delete_group(self.group)
        self._feed()
        return {Situation.FORGOTTEN}

    def _offsets_reset(self) -> set[Any]:
        """By hand: `kafka-consumer-groups --reset-offsets`. The checkpoint says where the pipeline reads."""
        from fencepost.client.kafka_types import CommittedOffset

        with Admin(self.source.bootstrap_servers) as admin:
            places = [TopicPartition(self.purchases, number) for number in range(2)]
            admin.commit_offsets(self.group, dict.fromkeys(places, CommittedOffset(0)))
        self._feed()
        return set()

    def _partition_added(self) -> set[Any]:
        with Admin(self.source.bootstrap_servers) as admin:
            count = len(admin.describe_topic(self.purchases).partitions)
            admin.add_partitions(self.purchases, count + 1)
        self._feed()
        return set()

    def _broker_killed(self) -> set[Any]:
        broker = self._random.choice((self.source, self.target))
        broker.kill()
        broker.start()
        self._feed()
        return set()

    def _idle(self) -> set[Any]:
        """The query runs, and nothing comes for longer than the cluster keeps offsets."""
        query = self._query(self._both("refuse"), {}, processingTime="0 seconds")
        try:
            self._feed()
            self._await(lambda: self._is_done(query))
            time.sleep(100)
            self._feed()
            self._await(lambda: self._is_done(query))
        finally:
            query.stop()
        return set()

    def _is_done(self, query: Any) -> bool:
        assert query.isActive, query.exception()
        seen = read(self.target.bootstrap_servers, self.outputs[:1], "read_committed")
        return len(seen) >= len(self._fed)

    def _expired(self) -> set[Any]:
        close_runs()

        def is_gone() -> bool:
            with Admin(self.target.bootstrap_servers) as admin:
                try:
                    return not admin.committed_offsets(self.group, with_notes=True)
                except BrokerError:
                    return True

        self._await(is_gone)
        self._feed()
        return {Situation.FORGOTTEN}

    def _await(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + patient(300)
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    # Two drivers

    def _taken_over(self, step: str) -> set[Any]:
        """A driver has planned a batch and sleeps at a step of it; its successor does the batch; it wakes up. Up to its
        rows the old one is the real thing."""
        from tests.spark.chaos.micro_batches import Query, do_batch_asleep_at

        self._feed()
        self._plan_and_fall_asleep()
        old = Query(self, self._path, "refuse", {})
        try:
            do_batch_asleep_at(old, self._last(), step, self._succeed)
        except FencepostSparkError as error:
            self.result.refused[type(error).__name__] += 1
        finally:
            old.close()
        return set()

    def _plan_and_fall_asleep(self) -> None:
        def sleep(batch: Any, number: int) -> None:
            raise Asleep

        query = self._query(sleep, {}, availableNow=True)
        with contextlib.suppress(Exception):
            query.awaitTermination()
        query.stop()
        assert not (self._path / "commits" / str(self._last())).exists(), "the batch went on without its driver"
        close_runs()

    def _succeed(self) -> None:
        refused = self._go_on()
        assert refused is None, refused
        self._feed()


def _situation(said: str) -> Situation | str:
    """Which row of the table a refusal tells of; `Spark` if it is not the sink's."""
    if "BatchRefused" not in said:
        is_sparks = "fencepost.spark." not in said and said.startswith(("[STREAM_FAILED]", "DamagedLog"))
        return "Spark" if is_sparks else said[:200]
    for situation, rule in RULES.items():
        if rule.fact:
            pattern = re.sub(r"\\\{.*?\\\}", ".*", re.escape(rule.fact).replace("\\!r", ""))
            if re.search(pattern, said, re.DOTALL):
                return situation
    return said[:200]


def plan(source: random.Random, count: int) -> list[str]:
    """Every kind of fault, in any order, then all of them again."""
    faults: list[str] = []
    while len(faults) < count:
        faults += source.sample(FAULTS, len(FAULTS))
    return faults[:count]
