"""`fencepost dump` prints what Apache Kafka's own dump tool prints, on the files of both brokers."""

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from fencepost.cli.main import run
from tests.insight.scenes import varied_load
from tests.interop.load import CONFIGS
from tests.interop_cli.conftest import Done
from tests.peers.broker_process import BrokerProcess
from tests.peers.dump import Dump, dump, files_of
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka
from tests.support.patience import patient

pytestmark = pytest.mark.timeout(300)
SCRIPT = str(Path(sys.executable).with_name("fencepost"))
COMPLAINTS = (
    "Non-consecutive",
    "Found timestamp mismatch",
    "Mismatches in",
    "Found out of order",
    "The following",
    "  ",
)


@pytest.fixture(scope="module", params=[FencepostProcess, ApacheKafka], ids=["fencepost", "apache"])
def directory(request: pytest.FixtureRequest) -> Iterator[Path]:
    """After a varied load and a clean stop."""
    kind: type[BrokerProcess] = request.param
    with kind(CONFIGS) as broker:
        varied_load(broker)
        broker.stop()
        yield broker.data_directory


def ours(*arguments: str | Path) -> Done:
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        status = run(["dump", *map(str, arguments)])
    return Done(status, output.getvalue(), errors.getvalue())


def assert_equal(files: list[Path], theirs: Dump, *options: str) -> None:
    done = ours(*files, *options)
    printed: dict[str, list[str]] = {}
    for line in done.output.splitlines():
        if line.startswith("Dumping "):
            lines = printed.setdefault(line.removeprefix("Dumping "), [])
        else:
            lines.append(line)
    assert set(printed) == set(map(str, files))
    for file in map(str, files):
        # What the tool has to say in the end of all files stands, in its output, under the last one.
        expected = [line for line in theirs.by_file[file] if not line.startswith(COMPLAINTS)]
        assert printed[file] == expected, file


def test_every_data_file_is_dumped_alike(directory: Path) -> None:
    files = [
        file
        for file in files_of(directory, ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        if not file.parent.name.startswith("__") or file.suffix != ".log"
    ]
    # Fifty empty partitions of an internal topic say nothing that a few do not.
    files = [file for file in files if not file.parent.name.startswith("__") or file.parent.name.endswith("3")]
    assert {file.suffix for file in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    assert_equal(files, dump(files, "--print-data-log"), "--print-data-log")


@pytest.mark.parametrize(
    ("topic", "decoder"),
    [("__transaction_state", "--transaction-log-decoder"), ("__consumer_offsets", "--offsets-decoder")],
)
def test_internal_topics_are_decoded_alike(directory: Path, topic: str, decoder: str) -> None:
    files = [
        file for file in files_of(directory, ".log") if file.parent.name.startswith(f"{topic}-") and file.stat().st_size
    ]
    theirs = dump(files, decoder)
    assert theirs.text.count("payload: {") > 10
    assert_equal(files, theirs, "--print-data-log")


def test_batches_alone_and_checkpoints(directory: Path) -> None:
    (log, *_) = sorted((directory / "mixed-0").glob("*.log"))
    theirs = dump([log])
    assert_equal([log], theirs)
    rows = [json.loads(line) for line in ours(directory, "--json").output.splitlines()]
    recovery = [row for row in rows if row["file"].endswith("recovery-point-offset-checkpoint")]
    (mixed,) = (row for row in recovery if (row["topic"], row["partition"]) == ("mixed", 0))
    last = [row for row in rows if row["file"].endswith(str(log.relative_to(directory))) and "baseOffset" in row][-1]
    assert mixed["offset"] == last["lastOffset"] + 1
    epochs = [row for row in rows if row["file"].endswith("mixed-0/leader-epoch-checkpoint")]
    assert [(row["epoch"], row["startOffset"]) for row in epochs] == [(0, 0)]
    (metadata,) = (row for row in rows if row["file"].endswith("mixed-0/partition.metadata"))
    assert len(metadata["topicId"]) == 22
    assert any(row.get("node.id") == "1" for row in rows)


def test_broken_files_are_told_and_the_rest_is_read(directory: Path, tmp_path: Path) -> None:
    partition = tmp_path / "mixed-0"
    shutil.copytree(directory / "mixed-0", partition)
    (log,) = partition.glob("*.log")
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content[:-10])
    (partition / "00000000000000000000.txnindex").write_bytes(bytes(33))
    for snapshot in partition.glob("*.snapshot"):
        snapshot.write_bytes(b"short")
    done = ours(partition, "--deep-iteration")
    assert done.status == 3
    assert "Traceback" not in done.errors
    assert "the CRC of the batch at position 0 is wrong" in done.errors
    assert "invalid bytes at the end of 00000000000000000000.log" in done.errors
    assert "which is not a multiple of the entry size 34" in done.errors
    assert "a producer snapshot of 5 bytes is cut off" in done.errors
    assert "isvalid: false" in done.output
    assert done.output.count("isvalid: true") > 10


def test_what_is_no_log_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for path, reason in (
        (tmp_path / "absent", "does not exist"),
        (tmp_path, "is not a log directory"),
        (tmp_path / "notes.txt", "is not a known type of log file"),
    ):
        done = ours(path)
        assert (done.status, done.output) == (1, "")
        assert done.errors.startswith("error: ")
        assert done.errors.count("\n") == 1
        assert reason in done.errors
    assert ours(tmp_path, "--transaction", "x").errors.startswith("error: ")
    assert ours().status == 2
    as_process = subprocess.run([SCRIPT, "dump", str(tmp_path)], capture_output=True, text=True, timeout=patient(60))
    assert (as_process.returncode, as_process.stdout) == (1, "")
    assert "is not a log directory" in as_process.stderr


def test_a_transaction_is_followed_through_all_partitions(directory: Path) -> None:
    followed = ours(directory, "--transaction", "mixed-TV2", "--json")
    assert followed.status == 0, followed.errors
    trail = json.loads(followed.output)
    parts = trail["partition_transactions"]
    assert {(part["topic"], part["end"]) for part in parts} == {
        ("mixed", "COMMIT"),
        ("mixed", "ABORT"),
        ("__consumer_offsets", "COMMIT"),
        ("__consumer_offsets", "ABORT"),
    }
    assert sum(part["records"] for part in parts if part["topic"] == "mixed") == 6 * 10
    assert trail["state_changes"][-1]["state"] == "CompleteCommit"
    everybody = ours(directory, "--transaction", "*")
    assert everybody.status == 0
    assert "no transaction is torn, hanging or ended twice" in everybody.output
    assert "open" in everybody.output
    assert "no transaction of 'absent'" in ours(directory, "--transaction", "absent").errors
