"""`fencepost run` as its users start it: interrupted in the midst, started again, judged by librdkafka."""

import collections
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.extras import require_arrow

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="pipelines need PySpark 4.2")

from fencepost.cli.demo.audit import read_all  # noqa: E402
from fencepost.client.blocking import Admin, Producer  # noqa: E402
from fencepost.client.kafka_types import CommittedOffset, NewTopic  # noqa: E402
from fencepost.examples.shop import purchase  # noqa: E402
from fencepost.topic_partition import TopicPartition  # noqa: E402
from tests.peers.build import require_java  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
STARTUP = Path(__file__).with_name("startup") / "sitecustomize.py"
SHOP = str(ROOT / "examples" / "shop.py")
SHOP_TOPICS = ("purchases", "invoices", "shipments", "purchases.dlq")


@pytest.fixture
def broker() -> Iterator[FencepostProcess]:
    require_java()
    with FencepostProcess() as process:
        yield process


class Started:
    """A running command, its JSON lines as they come."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
        self.errors = directory / "errors.log"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [str(Path(sys.executable).with_name("fencepost")), "run", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                cwd=directory,
                text=True,
            )

    def events(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def test_a_pipeline_ends_between_batches_and_goes_on_where_it_was(broker: FencepostProcess, tmp_path: Path) -> None:
    """It reads one cluster and writes another."""
    with FencepostProcess() as source:
        with Admin(source.bootstrap_servers) as admin:
            admin.create_topic(NewTopic("purchases", 2))
        with Admin(broker.bootstrap_servers) as admin:
            for topic in SHOP_TOPICS[1:]:
                admin.create_topic(NewTopic(topic, 2))
        _feed(source, range(120))
        with Producer(source.bootstrap_servers) as producer:
            producer.send("purchases", b"not a purchase", key=b"k", headers=[("trace", b"7")], partition=0)
        servers = [
            "--source-bootstrap-server",
            source.bootstrap_servers,
            "--bootstrap-server",
            broker.bootstrap_servers,
        ]
        options = [SHOP, "--json", *servers, "--checkpoint", str(tmp_path / "place")]

        with Started(tmp_path, *options, "--rows-per-batch", "20") as running:
            events = running.events()
            begun = next(event for event in events if event["event"] == "running")
            first = next(event for event in events if event["event"] == "batch")
            running.process.send_signal(signal.SIGINT)
            rest = list(events)
            assert running.process.wait() == 0, running.errors.read_text()
        # Spark's defaults; what is said is what the coordinator knows.
        assert begun["transaction_timeout_ms"] == 180_000
        assert begun["transaction_timeout_rule"] == "spark.network.timeout + spark.network.timeoutInterval"
        with Admin(broker.bootstrap_servers) as admin:
            assert admin.describe_transaction("shop").timeout_ms == 180_000
        assert first["transaction"] == "committed"
        assert first["rows_in"] > 0
        assert first["rows_out"] == sum(first["rows_by_topic"].values()) > 0
        assert rest[-1]["event"] == "ended"
        assert (rest[-1]["reason"], rest[-1]["interrupted"]) == ("interrupted", True)
        # It ended between two batches: what is planned is also done.
        assert _last(tmp_path / "place" / "offsets") - _last(tmp_path / "place" / "commits") in (0, 1)
        seen = _counts(broker, "invoices")
        assert sum(seen.values()) >= 1

        with Started(tmp_path, *options, "--until-caught-up") as running:
            events_of_second = list(running.events())
            assert running.process.wait() == 0, running.errors.read_text()
        assert events_of_second[-1]["event"] == "ended"
        assert (events_of_second[-1]["reason"], events_of_second[-1]["interrupted"]) == ("caught up", False)
        batches = [event for event in events_of_second if event["event"] == "batch"]
        assert batches[-1]["lag"] == 0
        for rows in ("rows_in", "rows_out"):
            assert events_of_second[-1][rows] == sum(event[rows] for event in batches)
        expected = {f"purchase-{number:06}": 1 for number in range(120)}
        assert _counts(broker, "invoices") == expected
        assert _counts(broker, "shipments") == expected
        assert read_all(broker.bootstrap_servers, "purchases.dlq") == [b"not a purchase"]
        # The lag is seen where the input is.
        with Admin(source.bootstrap_servers) as admin:
            assert sum(each.offset for each in admin.committed_offsets("shop").values()) == 121


def test_what_cannot_start_says_why_in_one_line(broker: FencepostProcess, tmp_path: Path) -> None:
    def refusal(*arguments: str) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("fencepost")), "run", *arguments], capture_output=True, text=True
        )
        assert done.returncode != 0
        return done.stderr

    assert "there is no file" in refusal("nowhere.py")
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    assert "declares no pipeline" in refusal(str(empty))
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name\n")
    assert "cannot be loaded: ModuleNotFoundError" in refusal(str(broken))
    assert "--checkpoint" in refusal(SHOP, "--bootstrap-server", broker.bootstrap_servers)


def test_a_java_process_that_dies_is_started_again_and_told_in_one_line(
    broker: FencepostProcess, tmp_path: Path
) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        for topic in SHOP_TOPICS:
            admin.create_topic(NewTopic(topic, 2))
    options = [SHOP, "--json", "--bootstrap-server", broker.bootstrap_servers, "--checkpoint", str(tmp_path / "place")]

    with Started(tmp_path, *options, "--trigger-interval", "100 milliseconds") as running:
        events, seen = running.events(), 0
        for count in (20, 40):
            _feed(broker, range(seen, count))
            told = []
            while seen < count:
                told.append(next(events))
                seen += told[-1].get("rows_in", 0)
            if count == 20:
                assert "restarting" not in [event["event"] for event in told]
                os.kill(_java(running.process.pid), signal.SIGKILL)
        assert [event["event"] for event in told[:2]] == ["restarting", "starting"]
        assert told[0]["reason"] == "Spark's Java process has died (SIGKILL)"
        assert told[0]["failures"] == 1
        running.process.send_signal(signal.SIGINT)
        last = list(events)[-1]
        assert running.process.wait() == 0, running.errors.read_text()
    assert (last["event"], last["reason"]) == ("ended", "interrupted")
    assert (last["rows_in"], last["rows_out"]) == (40, 80)
    assert "Traceback" not in running.errors.read_text()
    assert _counts(broker, "invoices") == {f"purchase-{number:06}": 1 for number in range(40)}

    running.errors.write_text("")
    with Started(tmp_path, *options, "--restarts", "0") as running:
        events = running.events()
        _feed(broker, range(40, 41))
        assert next(event for event in events if event["event"] == "batch")["rows_out"] == 2
        os.kill(_java(running.process.pid), signal.SIGKILL)
        last = list(events)[-1]
        assert running.process.wait() == 1
    assert (last["event"], last["reason"]) == ("ended", "failed")
    assert last["error"] == "Spark's Java process has died (SIGKILL)"
    assert "start it again with the same checkpoint" in last["advice"]
    assert [line for line in running.errors.read_text().splitlines() if not line.startswith("WARNING: Using inc")] == [
        f"error: {last['error']}; {last['advice']}"
    ]


FAILING = """
from fencepost.spark import pipeline

@pipeline("failing", source="numbers", schema="n int", outputs="doubled")
def failing(numbers):
    raise ValueError("the rate of today is not known")

@failing.sample
def number(n):
    return {"n": n}
"""


def test_what_the_users_own_code_raises_ends_the_run_at_once(tmp_path: Path) -> None:
    require_java()
    file = tmp_path / "failing.py"
    file.write_text(FAILING)
    done = _run(str(file), "--json", "--sample", "3", "--until-caught-up", "--source-option", "minPartitions=2")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in _last_start(events)] == ["starting", "running", "ended"]
    assert (events[-1]["reason"], events[-1]["error"]) == ("failed", "ValueError: the rate of today is not known")
    assert done.stderr.splitlines()[-1] == "error: ValueError: the rate of today is not known"
    assert done.returncode == 1


SLOW_ONCE = """
import os, runpy, sys, time

runpy.run_path({startup!r})
if any("streaming_source_runner" in argument for argument in sys.orig_argv):
    try:
        os.mkdir({flag!r})
    except FileExistsError:
        pass
    else:
        time.sleep(60)
"""


def test_a_python_worker_that_does_not_start_in_time_gets_another_chance(tmp_path: Path) -> None:
    require_java()
    flag = tmp_path / "was-slow"
    (tmp_path / "sitecustomize.py").write_text(SLOW_ONCE.format(flag=str(flag), startup=str(STARTUP)))
    done = _run(SHOP, "--json", "--sample", "5", "--until-caught-up", PYTHONPATH=str(tmp_path))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert flag.exists()
    assert [event["event"] for event in events][:4] == ["starting", "running", "restarting", "starting"], done.stderr
    assert [event["event"] for event in _last_start(events)] == ["starting", "running", "batch", "ended"], done.stderr
    assert (events[-1]["reason"], events[-1]["rows_out"]) == ("caught up", 10), done.stderr
    assert done.returncode == 0


def _last_start(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What came after Spark was started for the last time. On a busy machine it may be started again at any time: Spark
    gives its Python workers ten seconds, whatever is configured."""
    restarts = [at for at, event in enumerate(events) if event["event"] == "restarting"]
    for at in restarts:
        assert events[at]["reason"] == "Spark could not start a Python worker in time"
    return events[restarts[-1] + 1 :] if restarts else events


def test_a_run_that_never_starts_ends_with_an_event_too(tmp_path: Path) -> None:
    for arguments, told, status in (
        (("nowhere.py",), "there is no file nowhere.py", 1),
        ((SHOP, "--until-caught-up", "--trigger-interval", "1 second"), "give only one of the two", 2),
        ((SHOP, "--source-option", "subscribe=x"), "the pipeline declares its topics", 2),
        ((SHOP, "--source-bootstrap-server", "old:9092"), "also name the cluster to write to", 2),
    ):
        done = _run(*arguments, "--json")
        (event,) = [json.loads(line) for line in done.stdout.splitlines()]
        assert (event["event"], event["reason"]) == ("ended", "failed")
        assert told in event["error"]
        assert told in done.stderr
        assert done.returncode == status


def _feed(broker: FencepostProcess, numbers: range) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for number in numbers:
            producer.send("purchases", json.dumps(purchase(number)).encode(), partition=number % 2)


def _java(driver: int) -> int:
    """The JVM of a driver: its one child that is Java."""
    children = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
    (found,) = [int(child) for child in children if Path(f"/proc/{child}/comm").read_text().strip() == "java"]
    return found


def _run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(Path(sys.executable).with_name("fencepost")), "run", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_a_sample_is_not_written_to_a_cluster_that_was_only_found_in_the_environment(
    broker: FencepostProcess, tmp_path: Path
) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        for topic in SHOP_TOPICS:
            admin.create_topic(NewTopic(topic, 1))
    found = {"FENCEPOST_BOOTSTRAP_SERVER": broker.bootstrap_servers}
    for more in ((), ("--checkpoint", str(tmp_path / "place"))):
        done = _run(SHOP, "--sample", "1000", "--until-caught-up", *more, **found)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "name it with --bootstrap-server, or unset FENCEPOST_BOOTSTRAP_SERVER" in done.stderr
        assert broker.bootstrap_servers in done.stderr
    assert read_all(broker.bootstrap_servers, "purchases") == []


def test_a_run_that_is_refused_has_written_no_sample_and_made_no_topic(
    broker: FencepostProcess, tmp_path: Path
) -> None:
    named = ("--bootstrap-server", broker.bootstrap_servers, "--checkpoint", str(tmp_path / "place"))
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(NewTopic("purchases", 1))
        missing = _run(SHOP, "--sample", "10", "--until-caught-up", *named)
        assert "needs topics that" in missing.stderr, missing.stderr
        assert missing.returncode == 1
        # Another query has written under the name of this pipeline.
        marker = json.dumps({"term": 1, "query": "of-another", "batch": 4})
        reached = {TopicPartition("purchases", 0): CommittedOffset(0, metadata=marker)}
        admin.commit_offsets("shop", reached)
        foreign = _run(SHOP, "--sample", "10", "--create-topics", "1", "--until-caught-up", *named)
        assert "was written by query of-another up to batch 4" in foreign.stderr, foreign.stderr
        assert foreign.returncode == 1
        assert [topic.name for topic in admin.list_topics() if not topic.is_internal] == ["purchases"]
    assert read_all(broker.bootstrap_servers, "purchases") == []


def _last(directory: Path) -> int:
    return max(int(file.name) for file in directory.iterdir() if file.name.isdigit())


def _counts(broker: FencepostProcess, topic: str) -> dict[str, int]:
    rows = [json.loads(value) for value in read_all(broker.bootstrap_servers, topic)]
    return dict(collections.Counter(row["purchase_id"] for row in rows))
