"""The real disk: few open files however many there are, nothing torn, names that last."""

import errno
import os
import resource
import threading
from pathlib import Path

import pytest

from fencepost.shell.disk import RealDisk
from tests.support.patience import patient


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else -1


def test_many_files_share_few_descriptors(tmp_path: Path) -> None:
    disk = RealDisk(open_files_max=10)
    before = open_descriptors()
    files = [disk.open(str(tmp_path / f"{number}"), create=True) for number in range(100)]
    for turn in range(3):
        for number, file in enumerate(files):
            file.write(turn * 4, b"%04d" % number)
    assert disk.open_files <= 10
    assert open_descriptors() <= before + 10
    for number, file in enumerate(files):
        assert file.read(0, 100) == b"%04d" % number * 3
        assert file.size() == 12
        file.sync()
    disk.close_all()
    assert open_descriptors() == before


def test_a_file_in_a_sync_keeps_its_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing it meanwhile could sync another file that got the same number."""
    disk = RealDisk(open_files_max=8)
    begun, go_on = threading.Event(), threading.Event()
    synced: list[int] = []

    def slow_sync(descriptor: int) -> None:
        begun.set()
        go_on.wait(patient(10))
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr("fencepost.shell.disk._sync_data", slow_sync)
    file = disk.open(str(tmp_path / "synced"), create=True)
    thread = threading.Thread(target=file.sync)
    thread.start()
    begun.wait(patient(10))
    for number in range(50):
        disk.open(str(tmp_path / f"{number}"), create=True).write(0, b"x")
    file.close()
    go_on.set()
    thread.join()
    assert synced == [os.stat(tmp_path / "synced").st_ino]


def test_syncing_a_file_that_somebody_else_removed_is_an_error(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "file"), create=True)
    file.close()
    disk.remove(str(tmp_path / "file"))
    with pytest.raises(FileNotFoundError):
        file.sync()


def test_a_write_that_runs_out_of_room_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """A limit on the file size makes the kernel write a part and then refuse, as a full disk does."""
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    file.write(0, b"a" * 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
    try:
        for write in (lambda: file.write(1000, b"b" * 1000), lambda: file.write_all(1000, [b"b" * 400, b"c" * 600])):
            with pytest.raises(OSError, match="large") as refusal:
                write()
            assert refusal.value.errno == errno.EFBIG
            assert file.read(0, 5000) == b"a" * 1000
        file.write(1000, b"d" * 500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    file.write_all(1500, [b"e", bytearray(b"f"), memoryview(b"g")])
    assert file.read(1499, 10) == b"defg"


def test_an_atomic_write_replaces_or_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path = RealDisk(), str(tmp_path / "checkpoint")
    disk.write_atomically(path, b"one")
    disk.write_atomically(path, b"two")
    assert disk.read_bytes(path) == b"two"

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="lost"):
        disk.write_atomically(path, b"three")
    assert disk.read_bytes(path) == b"two"
    assert disk.list(str(tmp_path)) == ["checkpoint"]


def test_reading_to_the_end_of_a_large_file(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "large")
    content = os.urandom(3_000_000)
    disk.write_bytes(path, content)
    assert disk.read_bytes(path) == content
    assert disk.open(path).read(2_999_990, 100) == content[-10:]
    assert disk.size(path) == 3_000_000


def test_a_large_file_is_gone_at_once(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "large")
    file = disk.open(path, create=True)
    file.truncate(1 << 30)
    file.close()
    disk.remove(path)
    assert disk.list(str(tmp_path)) == []
    with pytest.raises(FileNotFoundError):
        disk.remove(path)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="only Linux says what is in memory")
def test_a_file_knows_what_of_it_is_in_memory(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "file"), create=True)
    size = 4 << 20
    file.write(0, os.urandom(size))
    file.sync()
    assert file.is_in_memory(0, size)
    with open(file.path, "rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(opened.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
            is_cold = False
        except BlockingIOError:
            is_cold = True
        except OSError:
            is_cold = False  # this file system does not tell, and then everything counts as being in memory
    assert file.is_in_memory(0, size) is not is_cold
    file.load(size // 2, size // 2)
    assert file.is_in_memory(size // 2, size // 2)
    file.load(0, size)
    assert file.is_in_memory(0, size)
    file.retire()
    file.load(0, size)
    disk.close_all()


def test_where_the_file_system_does_not_tell_everything_counts_as_being_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    file = disk.open(str(tmp_path / "file"), create=True)
    file.write(0, bytes(1000))
    asked: list[int] = []

    def unsupported(*_: object) -> int:
        asked.append(1)
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "preadv", unsupported)
    assert file.is_in_memory(0, 1000)
    assert file.is_in_memory(0, 1000)
    assert len(asked) <= 1, "it is not asked again"
    disk.close_all()
