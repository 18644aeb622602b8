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

from fencepost.cli.demo_audit import read_all  # noqa: E402
from fencepost.client.blocking import Admin, Producer  # noqa: E402
from fencepost.client.values import CommittedOffset, NewTopic, TopicPartition  # noqa: E402
from fencepost.examples.shop import purchase  # noqa: E402
from tests.peers.build import require_java  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
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
    with Admin(broker.bootstrap_servers) as admin:
        for topic in ("purchases", "invoices", "shipments", "purchases.dlq"):
            admin.create_topic(NewTopic(topic, 2))
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(120):
            producer.send("purchases", json.dumps(purchase(number)).encode(), partition=number % 2)
        producer.send("purchases", b"not a purchase", key=b"k", headers=[("trace", b"7")], partition=0)
        producer.flush()
    options = [SHOP, "--json", "--bootstrap-server", broker.bootstrap_servers, "--checkpoint", str(tmp_path / "place")]

    with Started(tmp_path, *options, "--rows-per-batch", "20") as running:
        events = running.events()
        first = next(event for event in events if event["event"] == "batch")
        running.process.send_signal(signal.SIGINT)
        rest = list(events)
        assert running.process.wait() == 0, running.errors.read_text()
    assert first["transaction"] == "committed"
    assert first["rows_in"] > 0
    assert rest[-1]["event"] == "ended"
    assert rest[-1]["interrupted"] is True
    # It ended between two batches: what is planned is also done.
    assert _last(tmp_path / "place" / "offsets") - _last(tmp_path / "place" / "commits") in (0, 1)
    seen = _counts(broker, "invoices")
    assert sum(seen.values()) >= 1

    with Started(tmp_path, *options, "--until-caught-up") as running:
        events_of_second = list(running.events())
        assert running.process.wait() == 0, running.errors.read_text()
    assert events_of_second[-1]["event"] == "ended"
    assert events_of_second[-1]["interrupted"] is False
    assert [event["lag"] for event in events_of_second if event["event"] == "batch"][-1] == 0
    expected = {f"purchase-{number:06}": 1 for number in range(120)}
    assert _counts(broker, "invoices") == expected
    assert _counts(broker, "shipments") == expected
    assert read_all(broker.bootstrap_servers, "purchases.dlq") == [b"not a purchase"]


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
        assert "name the cluster with --bootstrap-server, or unset FENCEPOST_BOOTSTRAP_SERVER" in done.stderr
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
