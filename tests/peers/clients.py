"""The client libraries under test, all driven alike: produce, consume, be a member of a group."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.peers import java
from tests.peers.build import BUILD, PEERS, REPOSITORY, require_node, require_program
from tests.peers.process import JsonLinesProcess

COMPRESSIONS = ("gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Record:
    """A record as an application sees it; text keys and values, because every peer can print them."""

    partition: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...] = ()
    timestamp: int | None = None
    offset: int | None = field(default=None, compare=False)

    def as_json(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "key": self.key,
            "value": self.value,
            "headers": [list(header) for header in self.headers],
            "timestamp": self.timestamp,
        }


@dataclass(frozen=True, slots=True)
class Client:
    """One library. `command` gives the command line of its program; the rest says what it cannot do."""

    name: str
    command: Callable[[str, str], list[str]]
    compressions: tuple[str, ...] = COMPRESSIONS
    knows_produced_offsets: bool = True
    sets_timestamps: bool = True
    commits_at_once: bool = True
    environment: tuple[tuple[str, str], ...] = ()

    def _start(self, verb: str, **options: Any) -> JsonLinesProcess:
        return JsonLinesProcess(f"{self.name} {verb}", self.command(verb, json.dumps(options)), dict(self.environment))

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], compression: str = "none"
    ) -> list[tuple[int, int | None]]:
        """Sends the records with an idempotent producer; returns (partition, offset) of each."""
        with self._start(
            "produce",
            bootstrap=bootstrap,
            topic=topic,
            compression=compression,
            records=[record.as_json() for record in records],
        ) as process:
            return [(event["partition"], event["offset"]) for event in process.wait()]

    def consume(self, bootstrap: str, topic: str, partitions: Iterable[int], count: int) -> list[Record]:
        """Reads so many records from the beginning of the partitions."""
        with self._start(
            "consume", bootstrap=bootstrap, topic=topic, partitions=list(partitions), count=count
        ) as process:
            return [_record(event) for event in process.wait() if event["event"] == "record"]

    def member(self, bootstrap: str, group: str, topic: str, **options: Any) -> "Member":
        return Member(self._start("member", bootstrap=bootstrap, group=group, topic=topic, **options))


class Member:
    """A running member of a consumer group, seen through its events."""

    def __init__(self, process: JsonLinesProcess) -> None:
        self.process = process

    @property
    def assignment(self) -> set[int]:
        """What it owns now: the last assignment, less what was revoked since."""
        owned: set[int] = set()
        for event in list(self.process.events):
            match event["event"]:
                case "assigned":
                    owned = set(event["partitions"])
                case "revoked" | "lost":
                    owned -= set(event["partitions"])
        return owned

    @property
    def records(self) -> list[Record]:
        return [_record(event) for event in list(self.process.events) if event["event"] == "record"]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in list(self.process.events) if event["event"] == kind]

    def wait_for_assignment(self, holds: Callable[[set[int]], bool]) -> set[int]:
        self.process.wait_until(lambda _: holds(self.assignment))
        return self.assignment

    def wait_for_records(self, holds: Callable[[list[Record]], bool]) -> list[Record]:
        self.process.wait_until(lambda _: holds(self.records))
        return self.records

    def leave(self) -> None:
        """Ends politely; the group is told."""
        self.process.stop()

    def kill(self) -> None:
        """Ends without a word; the group has to notice."""
        self.process.kill()

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()


def _record(event: dict[str, Any]) -> Record:
    return Record(
        event["partition"],
        event["key"],
        event["value"],
        tuple((name, value) for name, value in event["headers"]),
        event["timestamp"],
        event["offset"],
    )


def _python(module: str) -> Callable[[str, str], list[str]]:
    return lambda verb, options: [sys.executable, "-m", f"tests.peers.programs.{module}", verb, options]


def _kcat(verb: str, options: str) -> list[str]:
    require_program("kcat")
    return _python("kcat_client")(verb, options)


def _java(verb: str, options: str) -> list[str]:
    return java.command("ClientProgram", [verb, options])


def _kafkajs(verb: str, options: str) -> list[str]:
    return [require_node(), str(PEERS / "node" / "client.js"), verb, options]


_PYTHON_ENVIRONMENT = (("PYTHONPATH", str(REPOSITORY)),)

CONFLUENT = Client("confluent-kafka", _python("confluent_client"), environment=_PYTHON_ENVIRONMENT)
AIOKAFKA = Client("aiokafka", _python("aiokafka_client"), environment=_PYTHON_ENVIRONMENT)
KAFKA_PYTHON = Client("kafka-python", _python("kafka_python_client"), environment=_PYTHON_ENVIRONMENT)
JAVA = Client("java", _java)
# KafkaJS brings gzip only; the other codecs are packages of third parties.
KAFKAJS = Client(
    "kafkajs",
    _kafkajs,
    compressions=("gzip",),
    environment=(
        ("NODE_PATH", str(BUILD / "node" / "node_modules")),
        ("KAFKAJS_NO_PARTITIONER_WARNING", "1"),
    ),
)
# kcat commits every five seconds and when it loses its partitions, and cannot be told otherwise.
KCAT = Client(
    "kcat",
    _kcat,
    knows_produced_offsets=False,
    sets_timestamps=False,
    commits_at_once=False,
    environment=_PYTHON_ENVIRONMENT,
)

CLIENTS = (CONFLUENT, AIOKAFKA, KAFKA_PYTHON, JAVA, KAFKAJS, KCAT)
