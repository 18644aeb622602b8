"""What the kernel says about a process, its CPU time and memory (Linux only), and how this Python was built."""

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Memory:
    resident_mb: float
    proportional_mb: float


def process_tree(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except OSError:  # the thread ended meanwhile, or the kernel has no such file
            continue
        for child in children:
            found += process_tree(int(child))
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all its threads, and its living and dead children."""
    ticks = 0
    for each in process_tree(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS_PER_SECOND


def memory(pid: int) -> Memory:
    totals = {"Rss:": 0, "Pss:": 0}
    for each in process_tree(pid):
        for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
            words = line.split()
            if words[0] in totals:
                totals[words[0]] += int(words[1])
    return Memory(totals["Rss:"] / 1024, totals["Pss:"] / 1024)


def busy_seconds() -> float:
    """CPU time that the whole machine has spent on anything, all cores together."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, interrupts, soft_interrupts = (int(field) for field in fields[:7])
    return (user + nice + system + interrupts + soft_interrupts) / TICKS_PER_SECOND


def has_slow_python() -> bool:
    """Whether this Python was compiled without profile-guided optimisation, as pyenv does unless told otherwise.

    Debian's says nothing of it in its configuration, and has it all the same.
    """
    is_optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return not is_optimised and sys.base_prefix != "/usr"
