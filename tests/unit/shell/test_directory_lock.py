"""Who may have a data directory, and who notices."""

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fencepost.broker.events import StorageFailed
from fencepost.embedded import Broker
from fencepost.shell.directory_lock import DirectoryInUse, DirectoryLock
from fencepost.wire.errors import KafkaError

# Takes a lock in a process of its own, as another broker would, and says whether it got it.
TRIES = "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.{lock}(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"


@contextlib.contextmanager
def locked(directory: Path):
    lock = DirectoryLock(directory)
    try:
        yield lock
    finally:
        lock.release()


def another_process_gets(lock: str, file: Path) -> bool:
    done = subprocess.run([sys.executable, "-c", TRIES.format(lock=lock), str(file)], capture_output=True)
    assert done.returncode == 0 or b"BlockingIOError" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.mark.parametrize("kind", ["flock", "lockf"])
def test_both_kinds_of_lock_are_taken_and_given_back(tmp_path: Path, kind: str) -> None:
    with locked(tmp_path):
        assert not another_process_gets(kind, tmp_path / ".lock")
    assert another_process_gets(kind, tmp_path / ".lock")


@pytest.mark.parametrize("kind", ["flock", "lockf"])
def test_either_kind_of_lock_keeps_us_out(tmp_path: Path, kind: str) -> None:
    (tmp_path / ".lock").touch()
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{TRIES.format(lock=kind)}; print(1, flush=True); input()", str(tmp_path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    with holder:
        if not holder.stdout.readline():
            pytest.fail("the other process did not get the lock")
        with pytest.raises(DirectoryInUse):
            DirectoryLock(tmp_path)
        holder.communicate(b"\n")
    DirectoryLock(tmp_path).release()


def test_a_second_try_in_the_same_process_takes_nothing_away(tmp_path: Path) -> None:
    """A plain record lock would be gone as soon as the process closes the file that it has opened again."""
    with locked(tmp_path):
        with pytest.raises(DirectoryInUse):
            DirectoryLock(tmp_path)
        (tmp_path / ".lock").read_bytes()
        assert not another_process_gets("lockf", tmp_path / ".lock")


def test_the_directory_stays_locked_without_its_file(tmp_path: Path) -> None:
    with locked(tmp_path):
        (tmp_path / ".lock").unlink()
        with pytest.raises(DirectoryInUse):
            DirectoryLock(tmp_path)


@pytest.mark.parametrize("is_replaced", [False, True], ids=["deleted", "replaced"])
def test_a_file_that_was_deleted_is_locked_again(tmp_path: Path, is_replaced: bool) -> None:
    with locked(tmp_path) as lock:
        (tmp_path / ".lock").unlink()
        if is_replaced:
            (tmp_path / ".lock").touch()
        lock.renew()
        for kind in ("flock", "lockf"):
            assert not another_process_gets(kind, tmp_path / ".lock")
        lock.renew()
    assert another_process_gets("lockf", tmp_path / ".lock")


def test_a_broker_that_was_quicker_is_noticed(tmp_path: Path) -> None:
    with locked(tmp_path) as lock:
        (tmp_path / ".lock").unlink()
        with open(tmp_path / ".lock", "w") as intruder:
            fcntl.flock(intruder, fcntl.LOCK_EX)
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(3):
                with pytest.raises(DirectoryInUse):
                    lock.renew()
            assert len(os.listdir("/proc/self/fd")) == before


def test_a_running_broker_stops_serving_a_directory_that_another_one_has_taken(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        replacement = tmp_path / "replacement"
        with open(replacement, "w") as intruder:
            fcntl.flock(intruder, fcntl.LOCK_EX)
            replacement.replace(tmp_path / ".lock")
            deadline = time.monotonic() + 60
            while not (told := [event for event in broker.events() if isinstance(event, StorageFailed)]):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert "another broker uses the data directory" in told[0].reason
            with pytest.raises(KafkaError, match="another broker"):
                broker.create_topic("refused")
