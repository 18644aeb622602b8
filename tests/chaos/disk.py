"""A file system that is soon full: ext4 in a file, or where that cannot be mounted a tmpfs of limited size."""

import contextlib
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

SIZE_BYTES = 128 << 20
"""More than a run writes by itself."""


@contextlib.contextmanager
def small_file_system(directory: Path) -> Iterator[Path]:
    """Mounted at the directory while the block lasts."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    directory.mkdir()
    problem = _mount_loop(directory)
    if problem:
        name = f"fencepost-{uuid.uuid4().hex[:8]}"
        problem = _run("mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", name, str(directory)) and problem
    if problem:
        pytest.skip(f"cannot mount a small file system: {problem}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def _mount_loop(directory: Path) -> str:
    image = directory.with_suffix(".image")
    with open(image, "wb") as file:
        file.truncate(SIZE_BYTES)
    return _run("mkfs.ext4", "-q", "-F", str(image)) or _run("mount", "-o", "loop", str(image), str(directory))


def _run(*command: str) -> str:
    """What went wrong, or nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"{command[0]} ended with {done.returncode}"
