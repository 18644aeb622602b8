"""The demo's second act: purchases stream through the shop pipeline while workers, broker and driver are killed.

Purchases are sent in waves. Each wave has one kill, in the middle of a batch; if the wave is processed before the kill,
another wave follows. At the end another client counts the results.
"""

import dataclasses
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fencepost.cli.demo.audit import Audit, CommittedCounter, audit
from fencepost.cli.demo.crash_view import CrashView, crash_view, show_comparison, show_outcome
from fencepost.cli.demo.processes import COMMAND, BrokerProcess, DriverProcess, require_process_list
from fencepost.cli.demo.strike_moment import Watch
from fencepost.cli.output import CommandFailed

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

KILLS = ("worker", "broker", "driver", "worker")
PARTITIONS = 3
POLL_SECONDS = 0.005
SEARCH_SECONDS = 0.1  # looking for processes costs more than looking at files
STALL_SECONDS = 600.0
RESTARTS_MAX = 10
SHOP = Path(__file__).resolve().parents[2] / "examples" / "shop.py"


@dataclasses.dataclass
class Outcome:
    audit: Audit
    kills: list[dict[str, Any]]
    driver_starts: int
    seconds: float

    @property
    def crashes(self) -> int:
        return len(self.kills)

    def document(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self.audit),
            "crashes_survived": self.crashes,
            "kills": self.kills,
            "driver_starts": self.driver_starts,
            "seconds": round(self.seconds, 1),
            "exactly_once": self.audit.is_exactly_once,
        }


def second_act(purchases: int, *, compare: bool, connector_jars: Path | None, as_json: bool) -> dict[str, Any]:
    require_process_list()
    # However the demo ends, its broker and driver must be stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    ours = _perform(Play("exactly once, with Fencepost", _pipeline_command), purchases, as_json=as_json)
    document: dict[str, Any] = {"act_two": ours.document()}
    if not as_json:
        show_outcome(ours.document())
    if compare:
        jars = connector_jars or _found_jars()
        sink = "Spark's own Kafka connector" if jars is not None else "a plain producer in foreachBatch"
        # Spark's connector writes from the JVM: it has no Python workers to kill.
        kills = KILLS if jars is None else tuple(kill for kill in KILLS if kill != "worker")
        play = Play(f"at least once, with {sink}", _rival_command(jars), kills)
        theirs = _perform(play, purchases, as_json=as_json)
        document["compare"] = {"sink": sink, **theirs.document()}
        if not as_json:
            show_comparison(ours.document(), sink, theirs.document())
    return document


Command = Callable[[str, Path, int], list[str]]


@dataclasses.dataclass(frozen=True)
class Play:
    title: str
    command: Command
    """Takes the broker, the checkpoint and the rows per batch."""
    kills: tuple[str, ...] = KILLS


def _pipeline_command(address: str, checkpoint: Path, rows_per_batch: int) -> list[str]:
    place = ["--bootstrap-server", address, "--checkpoint", str(checkpoint)]
    return [*COMMAND, "run", str(SHOP), "--json", *place, "--rows-per-batch", str(rows_per_batch)]


def _rival_command(jars: Path | None) -> Command:
    def command(address: str, checkpoint: Path, rows_per_batch: int) -> list[str]:
        place = ["--bootstrap-server", address, "--checkpoint", str(checkpoint)]
        chosen = [] if jars is None else ["--connector-jars", str(jars)]
        program = [COMMAND[0], "-m", "fencepost.cli.demo.at_least_once"]
        return [*program, *place, "--rows-per-batch", str(rows_per_batch), *chosen]

    return command


def _found_jars() -> Path | None:
    """The directory into which `make peers` puts them in a checkout."""
    jars = SHOP.parents[3] / "peers" / ".build" / "spark-jars"
    return jars if list(jars.glob("spark-sql-kafka-*.jar")) else None


def _perform(play: Play, purchases: int, *, as_json: bool) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="fencepost-demo-", ignore_cleanup_errors=True) as directory:
        stage = Stage(Path(directory), play, purchases, crash_view(play.title, purchases, as_json=as_json))
        try:
            return stage.play()
        except BaseException:
            stage.view.keep_log(stage.driver.log)
            raise
        finally:
            stage.close()


class Stage:
    def __init__(self, directory: Path, play: "Play", purchases: int, view: CrashView) -> None:
        self._targets = play.kills
        self._broker = BrokerProcess(directory)
        self._broker.start()
        self._wave = max(1, purchases // (len(play.kills) + 1))
        self._purchases = purchases
        checkpoint = directory / "checkpoint"
        self.view = view
        self.driver = DriverProcess(play.command(self._broker.address, checkpoint, self._wave), directory)
        topics = _create_topics(self._broker.address)
        self._watch = Watch(self._broker.address, checkpoint, "purchases", topics)
        self._counter = CommittedCounter(self._broker.address, list(topics))
        self._fed = 0
        self._searched_at = 0.0
        self._kills: list[dict[str, Any]] = []

    def play(self) -> Outcome:
        begun = time.monotonic()
        self._counter.start()
        with self._watch, self.view:
            self.driver.start()
            self.view.event("Spark starts")
            for target in self._targets:
                struck = False
                while not struck:
                    self._feed(self._wave)
                    struck = self._wait_to_strike(target)
            self._feed(max(self._wave, self._purchases - self._fed))
            self._until(lambda: self._watch.has_done(self._fed))
            self.driver.stop()
            self.view.event("all purchases are processed; confluent-kafka reads the results")
            found = audit(self._broker.address)
        return Outcome(found, self._kills, self.driver.starts, time.monotonic() - begun)

    def close(self) -> None:
        self.driver.kill()
        if self._counter.is_alive():
            self._counter.end()
        self._broker.kill()

    def _feed(self, count: int) -> None:
        import json

        from fencepost.client.blocking import Producer
        from fencepost.examples.shop import purchase

        with Producer(self._broker.address) as producer:
            for number in range(self._fed, self._fed + count):
                row = purchase(number)
                producer.send("purchases", json.dumps(row).encode(), key=row["purchase_id"].encode())
            producer.flush()
        self._fed += count
        self.view.note_fed(self._fed)

    def _wait_to_strike(self, target: str) -> bool:
        """Returns False if the wave was processed before the moment came."""
        struck = False

        def struck_or_through() -> bool:
            nonlocal struck
            struck = self._has_struck(target)
            return struck or self._watch.has_done(self._fed)

        self._until(struck_or_through)
        return struck

    def _has_struck(self, target: str) -> bool:
        batch = self._watch.planned
        if self._kills and batch <= self._kills[-1]["batch"]:
            return False  # it is still recovering from the previous kill
        if target == "worker":
            if not self._watch.is_in_batch or time.monotonic() - self._searched_at < SEARCH_SECONDS:
                return False
            self._searched_at = time.monotonic()
            processes = self.driver.kill_workers()
            return processes > 0 and self._note(target, batch, processes)
        if not self._watch.is_written_in_part:
            return False
        if target == "driver":
            self.driver.kill()
            self._note(target, batch, 1)
            self.driver.start()
        else:
            self._broker.kill()
            self._note(target, batch, 1)
            self._broker.start()
        return True

    def _note(self, target: str, batch: int, processes: int) -> bool:
        self._kills.append({"target": target, "batch": batch, "processes": processes})
        names = {"worker": f"{processes} Python workers", "broker": "the broker", "driver": "the driver and its JVM"}
        self.view.event(f"kill -9 of {names[target]}, in the middle of batch {batch}")
        return True

    def _until(self, holds: Callable[[], bool]) -> None:
        last, moved_at = (-1, -1), time.monotonic()
        while True:
            self._watch.look()
            self.view.show(self._watch.committed + 1, self._counter.counts)
            if holds():
                return
            if not self.driver.is_running:
                self._restart_driver()
            now = (self._watch.planned, self._watch.committed)
            if now != last:
                last, moved_at = now, time.monotonic()
            elif time.monotonic() - moved_at > STALL_SECONDS:
                raise CommandFailed(f"the pipeline has not moved for {STALL_SECONDS:.0f} s", self.driver.log_end())
            time.sleep(POLL_SECONDS)

    def _restart_driver(self) -> None:
        if self.driver.starts > RESTARTS_MAX:
            raise CommandFailed("the driver keeps ending", self.driver.log_end())
        self.view.event("the driver has ended by itself; starting it again")
        self.driver.start()


def _create_topics(address: str) -> dict[str, int]:
    """The output topics, with their partition counts."""
    from fencepost.client.blocking import Admin
    from fencepost.client.kafka_types import NewTopic

    outputs = {"invoices": PARTITIONS, "shipments": PARTITIONS}
    with Admin(address) as admin:
        for topic, partitions in {"purchases": PARTITIONS, "purchases.dlq": 1, **outputs}.items():
            admin.create_topic(NewTopic(topic, partitions))
    return outputs
