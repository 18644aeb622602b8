"""`fencepost run --adopt`: what a person sees and is asked at a terminal, and what a script has to say. Without Spark:
it is asked before Spark starts, and a Java that is not there ends what was agreed to."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.extras import require_arrow
from tests.support.patience import patient

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the source needs PySpark 4.2")

from fencepost.client import Admin  # noqa: E402
from fencepost.spark.batch_decisions import Step  # noqa: E402
from fencepost.spark.commit_records import newest  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.spark.driver_without_spark import CheckpointDirectory, Stage  # noqa: E402

pytestmark = pytest.mark.timeout(400)
FENCEPOST = str(Path(sys.executable).with_name("fencepost"))
STARTED_SPARK = "Spark needs Java"
PROGRAM = """
from fencepost.spark import Output, pipeline

@pipeline({name!r}, source={topic!r}, format="bytes", outputs=[Output({output!r}, format="bytes")])
def copy(records):
    return {{{output!r}: records.select("value")}}
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with FencepostProcess() as process:
        yield process


@pytest.fixture
def stage(broker: BrokerProcess, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(broker, tmp_path)
    yield made
    made.close()


@pytest.fixture
def behind(stage: Stage) -> CheckpointDirectory:
    """A copy that is two batches behind its group."""
    driver = stage.driver(stage.checkpoint())
    driver.batch(0, [10, 1])
    copy = driver.checkpoint.copy(stage.directory / "copy")
    driver.batch(1, [30, 2])
    driver.batch(2, [50, 3])
    return copy


def command(stage: Stage, checkpoint: CheckpointDirectory, *more: str) -> list[str]:
    file = stage.directory / "copying.py"
    file.write_text(PROGRAM.format(name=stage.name, topic=stage.topic, output=stage.output))
    servers = stage.broker.bootstrap_servers
    return [FENCEPOST, "run", str(file), "--bootstrap-server", servers, "--checkpoint", str(checkpoint.path), *more]


def environment() -> dict[str, str]:
    return {**os.environ, "JAVA_HOME": "/nowhere", "PATH": str(Path(sys.executable).parent), "TERM": "dumb"}


def at_a_terminal(arguments: list[str], answer: str) -> tuple[int, str]:
    """Exit status, and all that was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(), start_new_session=True
    )
    os.close(theirs)
    shown = b""
    try:
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # Linux: the other side was closed.
                break
            if not chunk:
                break
            shown += chunk
            if b"[y/N]" in shown and answer:
                os.write(ours, answer.encode() + b"\n")
                answer = ""
        status = process.wait(patient(120))
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return status, shown.decode(errors="replace")


def in_a_script(arguments: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment(), timeout=patient(120)
    )


def holds(stage: Stage) -> int:
    with Admin(stage.broker.bootstrap_servers) as admin:
        record = newest(admin.committed_offsets(stage.name, require_stable=True, with_notes=True))
    assert record is not None
    return record.marker.batch_id


def test_a_person_sees_what_would_be_read_again_and_may_say_no(stage: Stage, behind: CheckpointDirectory) -> None:
    status, shown = at_a_terminal(command(stage, behind, "--adopt", "continue"), "n")
    assert status == 1
    assert "rows would be written twice" in shown
    assert "42 offsets would be read and written again, 0 would be skipped" in shown
    for words in ("read again", "skipped", "40", "Continue?", "nothing was adopted and nothing was written"):
        assert words in shown, shown
    assert STARTED_SPARK not in shown
    assert holds(stage) == 2


def test_a_person_may_say_yes(stage: Stage, behind: CheckpointDirectory) -> None:
    status, shown = at_a_terminal(command(stage, behind, "--adopt", "continue"), "y")
    assert status != 0
    assert STARTED_SPARK in shown


def test_a_script_is_refused_without_yes_and_sees_the_difference(stage: Stage, behind: CheckpointDirectory) -> None:
    refused = in_a_script(command(stage, behind, "--adopt", "continue"))
    assert refused.returncode == 1
    assert "there is no terminal to ask on" in refused.stderr
    assert "--yes" in refused.stderr
    assert "42 offsets would be read and written again" in refused.stdout
    agreed = in_a_script(command(stage, behind, "--adopt", "continue", "--yes", "--json"))
    events = [json.loads(line) for line in agreed.stdout.splitlines()]
    (adopting,) = [event for event in events if event["event"] == "adopting"]
    assert (adopting["read_again"], adopting["skipped"]) == (42, 0)
    assert adopting["partitions"][0] == {
        "topic": stage.topic, "partition": 0, "group": 50, "begin": 10, "read_again": 40, "skipped": 0,
    }  # fmt: skip
    assert STARTED_SPARK in str(events[-1]["error"])


def test_rows_that_would_be_skipped_are_counted(stage: Stage) -> None:
    driver = stage.driver(stage.checkpoint())
    driver.batch(0, [10, 1])
    driver.checkpoint.plan(1, [30, 2])
    driver.checkpoint.finish(1)
    driver.checkpoint.plan(2, [40, 2])
    refused = in_a_script(command(stage, driver.checkpoint, "--adopt", "continue"))
    assert "0 offsets would be read and written again, 21 would be skipped" in refused.stdout


def test_what_does_not_need_it_is_not_asked_about(stage: Stage) -> None:
    driver = stage.driver(stage.checkpoint())
    assert driver.batch(0, [10, 1]) is Step.WRITE
    driver.checkpoint.plan(1, [30, 2])
    started = in_a_script(command(stage, driver.checkpoint, "--adopt", "continue"))
    assert "read again" not in started.stdout
    assert STARTED_SPARK in started.stderr


def test_a_new_checkpoint_under_a_name_that_was_used_reads_everything_again(
    stage: Stage, behind: CheckpointDirectory
) -> None:
    asked = in_a_script(command(stage, stage.checkpoint("new", "another query"), "--adopt", "continue"))
    assert "was written by query" in asked.stdout
    assert "53 offsets would be read and written again" in asked.stdout
