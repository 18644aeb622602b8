"""The processes of a Spark application, found by their parents: what can be killed."""

import os
import signal
from pathlib import Path


def _processes() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "stat").read_text()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        parent = int(status.rpartition(")")[2].split()[1])
        found[int(entry.name)] = (parent, command)
    return found


def descendants(root: int) -> dict[int, str]:
    """Every process below one, with its command line."""
    processes = _processes()
    found: dict[int, str] = {}
    grown = True
    while grown:
        grown = False
        for pid, (parent, command) in processes.items():
            if pid not in found and (parent == root or parent in found):
                found[pid] = command
                grown = True
    return found


def executors(driver: int) -> list[int]:
    return [pid for pid, command in descendants(driver).items() if "CoarseGrainedExecutorBackend" in command]


def python_workers(driver: int) -> list[int]:
    """Workers are forked by a daemon of the same name, which is left alive."""
    below = descendants(driver)
    daemons = {pid for pid, command in below.items() if "pyspark.daemon" in command}
    parents = {pid: parent for pid, (parent, _) in _processes().items()}
    return [pid for pid in daemons if parents.get(pid) in daemons]


def signal_all(root: int, number: signal.Signals) -> None:
    """A process and everything below it."""
    for pid in [root, *descendants(root)]:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
