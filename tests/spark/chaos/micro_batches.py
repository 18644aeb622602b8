"""Restarts under faults without Spark, so that there can be many: the files of a checkpoint are written and read in
Spark's order, and each batch is the sink's own part of a driver, with real groups and transactions.

Spark plans a batch (`offsets/N`), calls the function, and notes that it is done (`commits/N`); when it starts, it
repeats the last batch that was planned and is not done, with the offsets that were planned.
"""

import json
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fencepost.client.blocking import Admin
from fencepost.spark.batch_attempts import Attempts, Batch
from fencepost.spark.batch_decisions import Step
from fencepost.spark.checkpoint import Checkpoint, parse_offsets
from fencepost.spark.commit_records import nested
from fencepost.spark.errors import FencepostSparkError
from fencepost.spark.heartbeat import keep_alive
from fencepost.spark.input_clusters import InputClusters, Source
from fencepost.spark.planned_batches import plans_of
from fencepost.spark.query_run import QueryRun
from fencepost.spark.run_producer import RunProducer
from fencepost.spark.sink_settings import sink_settings
from fencepost.spark.source_offsets import limited, offsets_of
from fencepost.topic_partition import TopicPartition
from tests.spark.chaos.restarts import RestartsRun

LATEST = -1
Offsets = dict[TopicPartition, int]


class DamagedLog(Exception):
    """What Spark says of a file that it cannot read."""


class AttemptsWithNumbers(Attempts):
    """The rows are numbers, written to every output by the driver itself."""

    numbers: Sequence[int] = ()
    outputs: Sequence[str] = ()

    def _copy_place(self, outputs: Any, records: Any) -> TopicPartition | None:
        return TopicPartition(self.outputs[0], 0)

    def _write_once(self, outputs: Any) -> dict[TopicPartition, int]:
        producer: Any = self._run.producer
        for topic in self.outputs:
            for number in self.numbers:
                producer._loop.run(producer._producer.send(topic, b"%d" % number, partition=number % 2))
        producer._loop.run(producer._producer.flush())
        return super()._write_once([])


class Query:
    """One run of the pipeline over a checkpoint."""

    def __init__(self, scene: RestartsRun, path: Path, adopt: str, options: dict[str, str]) -> None:
        self._scene, self._path, self._options = scene, path, options
        servers = scene.target.bootstrap_servers
        self._settings = sink_settings(scene.group, servers, adopt=adopt)
        producer = RunProducer(servers, scene.group, {}, protocol=scene.protocol())
        inputs = [Source(scene.source.bootstrap_servers, topics=frozenset({scene.purchases}))]
        self.run = QueryRun(producer, inputs=InputClusters(inputs, producer, scene.group))

    def close(self) -> None:
        self.run.has_ended.set()
        with self.run.turn:
            if self.run.inputs is not None:
                self.run.inputs.close()
            self.run.producer.close()

    def catch_up(self) -> None:
        """Repeats what was planned and not done, then all that is there."""
        planned, done = self._last("offsets"), self._last("commits")
        if planned > done:
            self.do(planned)
        while (batch_id := self.plan()) is not None:
            self.do(batch_id)

    def keep_alive(self) -> None:
        keep_alive(self.run, self._scene.group, lambda: True)

    def plan(self) -> int | None:
        """The next batch, if there is anything for it."""
        last = self._last("offsets")
        start = self._ends(last) if last >= 0 else self._first()
        with Admin(self._scene.source.bootstrap_servers) as admin:
            count = len(admin.describe_topic(self._scene.purchases).partitions)
            places = [TopicPartition(self._scene.purchases, number) for number in range(count)]
            there = {at: found.offset for at, found in admin.list_offsets(dict.fromkeys(places, LATEST)).items()}
        begin = {**dict.fromkeys(places, 0), **start}
        most = int(self._options.get("maxOffsetsPerTrigger", 10**9))
        end = limited(begin, there, most)
        if end == start:
            return None
        text = json.dumps(nested(end))
        head = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": {}}
        self._write(f"offsets/{last + 1}", f"v1\n{json.dumps(head)}\n{text}")
        return last + 1

    def do(self, batch_id: int) -> None:
        attempts = self.attempts(batch_id)
        with self.run.turn:
            if attempts.enter() is Step.SKIP:
                attempts.skip()
            else:
                attempts.write([])
            self.run.finish(batch_id)
        self._write(f"commits/{batch_id}", 'v1\n{"nextBatchWatermarkMs":0}')

    def attempts(self, batch_id: int) -> AttemptsWithNumbers:
        checkpoint = Checkpoint(str(self._path))
        group = self._scene.group
        batch = Batch(
            checkpoint.query_id(), batch_id, group, f"spark/chaos/{group}/{batch_id}", "chaos", plans_of(checkpoint)
        )
        made = AttemptsWithNumbers(None, self.run, self._settings, batch)
        end = self._ends(batch_id)
        start = self._ends(batch_id - 1) if batch_id > 0 else self._first()
        made.numbers = [
            number for at, until in end.items() for number in self._scene.numbers_between(at, start.get(at, 0), until)
        ]
        made.outputs = self._scene.outputs
        return made

    # Files

    def _first(self) -> Offsets:
        return offsets_of(json.loads(self._options.get("startingOffsets", "{}")))

    def _ends(self, batch_id: int) -> Offsets:
        text = (self._path / "offsets" / str(batch_id)).read_text()
        try:
            return parse_offsets(text, reads_kafka=True)
        except FencepostSparkError:
            raise DamagedLog(f"Incomplete log file offsets/{batch_id}") from None

    def _last(self, log: str) -> int:
        if not (self._path / "metadata").exists():
            self._write("metadata", json.dumps({"id": str(uuid.uuid4())}))
        names = [each.name for each in (self._path / log).iterdir()] if (self._path / log).exists() else []
        last = max((int(name) for name in names if name.isdecimal()), default=-1)
        if log == "offsets" and last >= 0:
            self._ends(last)
        return last

    def _write(self, name: str, text: str) -> None:
        (self._path / name).parent.mkdir(parents=True, exist_ok=True)
        (self._path / name).write_text(text)


class RestartsWithoutSpark(RestartsRun):
    """The same faults, the same judge."""

    def _go_on(self, adopt: str = "refuse", **options: str) -> str | None:
        query = Query(self, self._path, adopt, options)
        try:
            query.catch_up()
        except (FencepostSparkError, DamagedLog) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            query.close()
        return None

    def _plan_and_fall_asleep(self) -> None:
        query = Query(self, self._path, "refuse", {})
        try:
            query.plan()
        finally:
            query.close()

    def _idle(self) -> set[Any]:
        """The query runs, and nothing comes for longer than the cluster keeps offsets."""
        query = Query(self, self._path, "refuse", {})
        try:
            self._feed()
            query.catch_up()
            query.keep_alive()
            time.sleep(100)
            self._feed()
            query.catch_up()
        finally:
            query.close()
        return set()


def around(call: Callable[..., Any], before: Callable[[], None], after: Callable[[], None]) -> Callable[..., Any]:
    def wrapped(*arguments: Any) -> Any:
        before()
        answer = call(*arguments)
        after()
        return answer

    return wrapped


def do_batch_asleep_at(query: Query, batch_id: int, step: str, meanwhile: Callable[[], None]) -> None:
    """The batch of a driver that falls asleep at a step of it; `meanwhile` is what happens until it wakes up."""
    producer: Any = query.run.producer

    def at(name: str) -> Callable[[], None]:
        return meanwhile if step == name else lambda: None

    producer.begin = around(producer.begin, at("checked"), at("begun"))
    producer.send_offsets = around(producer.send_offsets, at("written"), at("offsets"))
    producer.commit = around(producer.commit, at("ending"), at("committed"))
    attempts = query.attempts(batch_id)
    if attempts.enter() is Step.SKIP:
        attempts.skip()
    else:
        attempts.write([])
