"""The sink's part of a driver, with real groups and transactions but without Spark: a checkpoint directory as Spark
writes it, and batches that only record how far they have read."""

import itertools
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fencepost.client import Admin, NewTopic, TopicPartition
from fencepost.spark.batch_attempts import Attempts, Batch
from fencepost.spark.batch_decisions import REFUSE, Step
from fencepost.spark.checkpoint import Checkpoint
from fencepost.spark.input_clusters import InputClusters, Source
from fencepost.spark.outputs import Output
from fencepost.spark.planned_batches import plans_of
from fencepost.spark.query_run import QueryRun
from fencepost.spark.run_producer import RunProducer
from fencepost.spark.sink_settings import sink_settings
from tests.peers.broker_process import BrokerProcess

_serial = itertools.count()
Ends = Sequence[int]
"""Where a batch ends in each partition of the input."""


class CheckpointDirectory:
    """Spark's own files: `metadata`, `offsets/N` before a batch runs, `commits/N` after it."""

    def __init__(self, path: Path, topic: str, query: str = "query") -> None:
        self.path, self.topic = path, topic
        for name in ("offsets", "commits"):
            (path / name).mkdir(parents=True, exist_ok=True)
        (path / "metadata").write_text(json.dumps({"id": query}))

    def plan(self, batch_id: int, ends: Ends | str, at_ms: int | None = None) -> None:
        """`ends` as a text: the line of a source that is not Kafka."""
        offsets = {self.topic: {str(number): end for number, end in enumerate(ends)}}
        line = ends if isinstance(ends, str) else json.dumps(offsets)
        planned_ms = int(time.time() * 1000) if at_ms is None else at_ms
        head = {"batchWatermarkMs": 0, "batchTimestampMs": planned_ms, "conf": {}}
        (self.path / "offsets" / str(batch_id)).write_text(f"v1\n{json.dumps(head)}\n{line}")

    def finish(self, batch_id: int) -> None:
        (self.path / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def forget(self, batch_id: int) -> None:
        for name in ("offsets", "commits"):
            (self.path / name / str(batch_id)).unlink(missing_ok=True)

    def copy(self, path: Path) -> "CheckpointDirectory":
        shutil.copytree(self.path, path)
        return CheckpointDirectory(path, self.topic, self.query)

    @property
    def query(self) -> str:
        return Checkpoint(str(self.path)).query_id()


class _Attempts(Attempts):
    """Their batches have no rows; where the record's copy goes is said."""

    copy_at: TopicPartition | None = None

    def _copy_place(self, outputs: Sequence[Output], records: Mapping[TopicPartition, int]) -> TopicPartition | None:
        return self.copy_at


class Driver:
    """One run of a query."""

    def __init__(
        self,
        broker: BrokerProcess,
        name: str,
        checkpoint: CheckpointDirectory,
        *,
        adopt: str = REFUSE,
        output: str | None = None,
        fails_on_data_loss: bool = True,
        client: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        servers = broker.bootstrap_servers
        self.name, self.checkpoint, self._output = name, checkpoint, output
        self._settings = sink_settings(name, servers, adopt=adopt)
        producer = RunProducer(servers, name, client or {}, **options)
        source = Source(servers, topics=frozenset({checkpoint.topic}), fails_on_data_loss=fails_on_data_loss)
        self.run = QueryRun(producer, inputs=InputClusters([source], producer, name))

    def attempts(self, batch_id: int) -> Attempts:
        plans = plans_of(Checkpoint(str(self.checkpoint.path)))
        batch = Batch(self.checkpoint.query, batch_id, self.name, "spark/test/batch", f"driver of {self.name}", plans)
        made = _Attempts(None, self.run, self._settings, batch)
        made.copy_at = None if self._output is None else TopicPartition(self._output, 0)
        return made

    def batch(self, batch_id: int, ends: Ends | str | None = None) -> Step:
        """`ends`: Spark plans the batch first; without them it is in the checkpoint already."""
        if ends is not None:
            self.checkpoint.plan(batch_id, ends)
        attempts = self.attempts(batch_id)
        step = attempts.enter()
        if step is Step.SKIP:
            attempts.skip()
        else:
            attempts.write([])
        self.run.finish(batch_id)
        self.checkpoint.finish(batch_id)
        return step

    def close(self) -> None:
        self.run.has_ended.set()
        with self.run.turn:
            if self.run.inputs is not None:
                self.run.inputs.close()
            self.run.producer.close()


class Stage:
    """Topics and a group of their own on a broker that others use too, and the drivers that were started."""

    def __init__(self, broker: BrokerProcess, directory: Path) -> None:
        self.broker, self.directory = broker, directory
        self.name = f"stage-{os.getpid()}-{next(_serial)}"
        self.topic, self.output = f"{self.name}-in", f"{self.name}-out"
        self.drivers: list[Driver] = []
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(NewTopic(self.topic, 2))
            admin.create_topic(NewTopic(self.output, 1))

    def checkpoint(self, stem: str = "checkpoint", query: str = "query") -> CheckpointDirectory:
        return CheckpointDirectory(self.directory / stem, self.topic, query)

    def driver(self, checkpoint: CheckpointDirectory, name: str | None = None, **options: Any) -> Driver:
        self.drivers.append(Driver(self.broker, name or self.name, checkpoint, **options))
        return self.drivers[-1]

    def close(self) -> None:
        for driver in self.drivers:
            driver.close()
