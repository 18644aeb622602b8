"""What an exactly-once sink on Spark's own interface for Python sinks would do. To be run:

    python -m tests.spark.prototypes.stream_writer

Two designs on `DataSourceStreamWriter`, each under faults on a local cluster of two executors, judged by a foreign
reader of committed records. It is the evidence for "Why not writeStream.format" in docs/pipelines.md, and no part of
the product.

- `shared`: the transaction is opened when the writer is pickled for the tasks, which write in it; their messages carry
  its producer id and epoch to `commit()`, which commits.
- `messages`: tasks write nothing; their messages carry the rows, and `commit()` writes all of them in a transaction.

In both `commit()` looks first whether the group says that the batch is committed.
"""

import argparse
import dataclasses
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

from fencepost.client import Admin, Client, CommittedOffset, NewTopic, Producer, TopicPartition
from tests.peers.fencepost_process import FencepostProcess
from tests.spark.sessions import spark_session
from tests.spark.sink_scene import read

FORMAT = "prototype"
ROWS, TASKS = 600, 2
FAULTS = ("none", "task fails", "task fails, other order", "executor dies", "commit raises", "driver dies in commit")
DESIGNS = ("shared", "messages")


@dataclasses.dataclass
class Message(WriterCommitMessage):
    rows: list[bytes]
    handle: Any


class PrototypeSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> "PrototypeWriter":
        return PrototypeWriter(dict(self.options))


class PrototypeWriter(DataSourceStreamWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.handle: Any = None
        self._note("made")

    def __getstate__(self) -> dict[str, Any]:
        """The one moment before the tasks that the interface gives, in the first of two processes."""
        if self.options["design"] == "shared" and self.handle is None:
            with Client(self.options["servers"]) as client:
                producer = client.producer(self.options["id"])
                producer.init()
                producer.begin()
                self.handle = producer.handle()
            self._note("opened", epoch=self.handle.producer_epoch)
        return self.__dict__

    # In a task

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        rows = [bytes(row["value"]) for row in iterator]
        context = TaskContext.get()
        assert context is not None
        self._note("task", partition=context.partitionId(), attempt=context.attemptNumber(), rows=len(rows))
        if self.options["design"] == "messages":
            self._fail(rows)
            return Message(rows, None)
        if self.options["fault"] == "task fails, other order" and context.attemptNumber():
            rows.reverse()  # as after a shuffle, which brings blocks in the order they arrive
        with self.handle.writer() as writer:
            # Batches of the same length in every attempt.
            for first in range(0, len(rows), 50):
                for value in rows[first : first + 50]:
                    writer.send(self.options["topic"], value, partition=context.partitionId())
                writer.flush()
                if first == 100:
                    self._fail(rows)
        return Message([], self.handle)

    def _fail(self, rows: list[bytes]) -> None:
        """Once, in one task, when some of its rows are sent."""
        fault = self.options["fault"]
        if (
            TaskContext.get().partitionId() != 0
            or not fault.startswith(("task", "executor"))
            or not self._is_first(fault)
        ):
            return
        self._note("fault", sent=150 if self.options["design"] == "shared" else 0)
        if fault == "executor dies":
            daemon = os.getppid()
            os.kill(int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
            time.sleep(60)
        raise RuntimeError("a task that fails")

    # In the second process

    def commit(self, messages: list[Any], batchId: int) -> None:
        given = [message for message in messages if message is not None]
        self._note("commit", batch=batchId, messages=len(given))
        marker = TopicPartition(self.options["topic"], 0)
        with Client(self.options["servers"]) as client, Admin(self.options["servers"]) as admin:
            if self.options["design"] == "shared":
                producer = client.step_into(given[0].handle)
            else:
                producer = client.producer(self.options["id"])
                producer.init()
                producer.begin()
            stored = admin.committed_offsets(self.options["id"]).get(marker)
            if stored is not None and int(stored.metadata) >= batchId:
                self._note("committed before", batch=batchId)
                producer.abort()
                return
            for number, message in enumerate(given):
                for value in message.rows:
                    producer.send(self.options["topic"], value, partition=number)
            producer.send_offsets({marker: CommittedOffset(0, metadata=str(batchId))}, self.options["id"])
            producer.commit()
        if self.options["fault"] == "commit raises" and self._is_first("commit"):
            self._note("fault")
            raise RuntimeError("commit raises after the transaction is committed")
        if self.options["fault"] == "driver dies in commit" and self._is_first("commit"):
            self._note("fault")
            os._exit(9)

    def abort(self, messages: list[Any], batchId: int) -> None:
        self._note("abort", batch=batchId, messages=len([message for message in messages if message is not None]))

    # What is seen

    def _is_first(self, what: str) -> bool:
        try:
            os.close(
                os.open(Path(self.options["notes"]).with_suffix(f".{what.replace(' ', '-')}"), os.O_CREAT | os.O_EXCL)
            )
        except FileExistsError:
            return False
        return True

    def _note(self, event: str, **facts: Any) -> None:
        with Path(self.options["notes"]).open("a") as file:
            print(json.dumps({"event": event, "process": os.getpid(), **facts}), file=file)


@dataclasses.dataclass(frozen=True)
class Outcome:
    design: str
    fault: str
    ended_by: list[str]
    lost: int
    doubled: int
    notes: list[dict[str, Any]]

    @property
    def is_exact(self) -> bool:
        return not self.lost and not self.doubled

    def processes(self, event: str) -> set[int]:
        return {note["process"] for note in self.notes if note["event"] == event}

    def line(self) -> str:
        happened = Counter(note["event"] for note in self.notes)
        shown = ", ".join(f"{count} {event}" for event, count in happened.items())
        return (
            f"{self.design:9}{self.fault:26}lost {self.lost:4}  doubled {self.doubled:4}  "
            f"ended by {self.ended_by or 'nothing'}; {shown}"
        )


_serial = itertools.count()


def run(spark: Any, servers: str, design: str, fault: str, directory: Path, starts: int = 2) -> Outcome:
    """600 rows through the sink; a query that ends is started again, once."""
    source, target = (f"{stem}-{next(_serial)}" for stem in ("in", "out"))
    with Admin(servers) as admin:
        admin.create_topic(NewTopic(source, 4))
        admin.create_topic(NewTopic(target, TASKS))
    with Producer(servers) as producer:
        for number in range(ROWS):
            producer.send(source, b"%d" % number, partition=number % 4)
    notes = directory / f"{target}.notes"
    options = {"design": design, "fault": fault, "topic": target, "id": target, "servers": servers, "notes": str(notes)}
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    rows = reader.option("subscribe", source).option("startingOffsets", "earliest").load().select("value")
    ended_by = []
    for _ in range(starts):
        writer = rows.repartition(TASKS).writeStream.format(FORMAT).options(**options).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(directory / f"{target}.checkpoint")).start()
        try:
            query.awaitTermination()
            break
        except Exception as error:
            ended_by.append(_cause(str(error)))
        finally:
            query.stop()
    found = Counter(int(record.value or b"-1") for record in read(servers, [target], "read_committed"))
    return Outcome(
        design, fault, ended_by,
        lost=sum(1 for number in range(ROWS) if not found[number]),
        doubled=sum(count - 1 for count in found.values()),
        notes=[json.loads(line) for line in notes.read_text().splitlines()],
    )  # fmt: skip


def _cause(text: str) -> str:
    known = (
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "a task that fails",
        "commit raises",
        "INVALID_TXN_STATE",
        "exited unexpectedly",
    )
    return next((word for word in known if word in text), text.strip().splitlines()[0][:120])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--designs", default=",".join(DESIGNS))
    parser.add_argument("--faults", default="/".join(FAULTS))
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    settings = {"spark.ui.showConsoleProgress": "false", "spark.executor.memory": "512m"}
    with (
        tempfile.TemporaryDirectory(prefix="prototype-") as directory,
        FencepostProcess() as broker,
        spark_session("local-cluster[2,1,512]", with_connector=True, **settings) as spark,
    ):
        from tests.spark.prototypes.stream_writer import PrototypeSink as importable

        spark.dataSource.register(importable)
        for design in given.designs.split(","):
            for fault in given.faults.split("/"):
                outcome = run(spark, broker.bootstrap_servers, design, fault, Path(directory))
                print(outcome.line(), flush=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
