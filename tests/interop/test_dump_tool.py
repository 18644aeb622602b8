"""Apache Kafka's own dump tool reads every file that a broker wrote, without a complaint."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.load import CODECS, CONFIGS, KEYS, ROUND, load
from tests.peers.broker_process import BrokerProcess
from tests.peers.dump import dump, files_of

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def loaded(broker_kind: type[BrokerProcess]) -> Iterator[tuple[Path, Counter[str]]]:
    """A data directory after a varied load and a clean stop, and how many records each topic got."""
    with broker_kind(CONFIGS) as broker:
        sent = load(broker)
        broker.stop()
        yield broker.data_directory, sent


@pytest.fixture(scope="module")
def recovered(broker_kind: type[BrokerProcess]) -> Iterator[Path]:
    """A data directory after a load, a kill, a start that had to recover, and a clean stop."""
    if broker_kind.name == "apache":
        pytest.skip("Apache Kafka needs long to return after a kill; its recovery is not what is tested")
    with broker_kind(CONFIGS) as broker:
        load(broker)
        broker.kill()
        broker.start()
        broker.stop()
        yield broker.data_directory


def test_the_logs_are_read_record_by_record(loaded: tuple[Path, Counter[str]]) -> None:
    directory, sent = loaded
    logs = files_of(directory, ".log")
    found = dump(logs, "--deep-iteration")
    assert found.complaints() == []
    assert set(found.by_file) == {str(log) for log in logs}
    segmented = [log for log in logs if log.parent.name.startswith("segmented-")]
    assert len(segmented) >= 4, "the load fills several segments"
    assert sum(found.record_count(log) for log in segmented) == sent["segmented"]


def test_the_compacted_log_holds_the_last_value_of_each_key(loaded: tuple[Path, Counter[str]]) -> None:
    directory, _ = loaded
    logs = [log for log in files_of(directory, ".log") if log.parent.name == "compacted-0"]
    found = dump(logs, "--print-data-log")
    assert found.complaints() == []
    kept = sum(found.record_count(log) for log in logs)
    assert KEYS <= kept < 3 * ROUND, "something was compacted, nothing lost"


def test_the_indexes_agree_with_the_logs(loaded: tuple[Path, Counter[str]]) -> None:
    directory, _ = loaded
    indexes = files_of(directory, ".index", ".timeindex")
    # The tool prints the entries of an index and, last, those that the log does not bear out.
    assert dump(indexes).complaints() == []
    assert dump(indexes, "--verify-index-only").complaints() == []
    filled = [file for file in files_of(directory, ".index") if file.stat().st_size]
    sane = dump(filled, "--index-sanity-check")
    assert sane.complaints() == []
    assert sane.text.count("passed sanity check") == len(filled)


def test_a_rolled_segment_has_index_entries(loaded: tuple[Path, Counter[str]]) -> None:
    directory, _ = loaded
    rolled = [file for file in files_of(directory, ".index") if file.parent.name == "segmented-0"][:-1]
    found = dump(rolled)
    for file in rolled:
        assert sum(line.startswith("offset:") for line in found.by_file[str(file)]) > 10


def test_the_producer_snapshots_are_read(loaded: tuple[Path, Counter[str]]) -> None:
    directory, _ = loaded
    snapshots = files_of(directory, ".snapshot")
    assert snapshots
    found = dump(snapshots)
    assert found.complaints() == []
    last = [file for file in snapshots if file.parent.name == "segmented-0"][-1]
    producers = [line for line in found.by_file[str(last)] if line.startswith("producerId:")]
    assert len(producers) == len(CODECS), "each codec was written by a producer of its own"


def test_the_group_records_are_decoded(loaded: tuple[Path, Counter[str]]) -> None:
    directory, _ = loaded
    logs = [
        log
        for log in files_of(directory, ".log")
        if log.parent.name.startswith("__consumer_offsets-") and log.stat().st_size
    ]
    found = dump(logs, "--offsets-decoder")
    assert found.complaints() == []
    for wanted in ('"group":"outside"', '"metadata":"a note', '"protocolType":"consumer"', '"group":"group-2"'):
        assert wanted in found.text


def test_after_a_kill_the_recovered_files_are_read_too(recovered: Path) -> None:
    assert dump(files_of(recovered, ".log"), "--deep-iteration").complaints() == []
    assert dump(files_of(recovered, ".index", ".timeindex", ".snapshot")).complaints() == []


def test_the_tool_would_complain_of_a_flipped_bit_and_of_a_wrong_index(
    loaded: tuple[Path, Counter[str]], tmp_path: Path
) -> None:
    """That the tests above can fail."""
    directory, _ = loaded
    copied = tmp_path / "segmented-0"
    shutil.copytree(directory / "segmented-0", copied)
    log = sorted(copied.glob("*.log"))[0]
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    assert dump([log], "--deep-iteration").complaints() != []

    index = sorted(copied.glob("*.index"))[1]
    entries = bytearray(index.read_bytes())
    entries[15] ^= 1  # the position of the second entry
    index.write_bytes(entries)
    assert dump([index]).complaints() != []
