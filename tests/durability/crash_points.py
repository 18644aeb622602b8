"""The power fails before every single write and sync of a recorded trace, in every way in which data can be lost.

The trace runs once. Before each operation of its disk, copies of the disk lose their power, each in another way; a
broker starts on what is left of each, and is held to everything that was promised up to that moment.
`python -m tests.durability.crash_points` tries every point and prints what it tried.
"""

import collections
import copy
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fencepost.simulation.disk import PowerCut, SimulatedDisk
from fencepost.simulation.fragile_disk import FragileDisk
from tests.durability.trace import Trace, recorded

Stratum = tuple[str, str]
_WRITES_AND_SYNCS = {
    "write_to": "write",
    "sync_inode": "sync",
    "sync_directory": "sync of a directory",
    "sync_file_system": "sync of everything",
    "rename": "rename",
    "remove": "removal",
    "make_directory": "new directory",
}


@dataclass(frozen=True, slots=True)
class CrashPoint:
    moment: int
    """How many disk operations came before."""
    stratum: Stratum
    """What the client was doing, and what the disk was asked for."""


class WatchedDisk(FragileDisk):
    """Calls back before every write, sync and change of a name. A copy of it is a plain disk."""

    def __init__(self, before: Callable[[str], None]) -> None:
        super().__init__()
        self._before = before

    def _count(self, path: str) -> None:
        super()._count(path)
        caller = sys._getframe(1).f_code.co_name
        self._before(_WRITES_AND_SYNCS[caller])

    def __deepcopy__(self, memo: Any) -> SimulatedDisk:
        plain = SimulatedDisk()
        plain._root = copy.deepcopy(self._root, memo)
        plain.generation = self.generation
        return plain


def walk(visit: Callable[[CrashPoint, Trace, WatchedDisk], None]) -> int:
    """Run the trace, stopping before each disk operation; how many there were."""
    moments = itertools.count()

    def before(operation: str) -> None:
        visit(CrashPoint(next(moments), (trace.kind, operation)), trace, disk)

    disk = WatchedDisk(before)
    trace = Trace(disk)
    trace.run(recorded())
    trace.machine.crash()
    return next(moments)


def crash(point: CrashPoint, mode: PowerCut, trace: Trace, disk: WatchedDisk) -> None:
    left = copy.deepcopy(disk)
    left.power_cut(mode, random.Random(f"{point.moment}-{mode.name}"))
    try:
        trace.check(left, trace.machine.clock.wall_ms())
    except BaseException as error:
        error.add_note(f"power was lost before disk operation {point.moment} ({point.stratum}), {mode.name}")
        raise


def sample(per_stratum: int) -> set[tuple[int, PowerCut]]:
    """So many cases of every stratum, spread over its moments and the ways to lose data."""
    strata: dict[Stratum, list[int]] = collections.defaultdict(list)
    walk(lambda point, trace, disk: strata[point.stratum].append(point.moment))
    chosen: set[tuple[int, PowerCut]] = set()
    modes = itertools.cycle(PowerCut)
    for moments in strata.values():
        for at in range(per_stratum):
            chosen.add((moments[at * len(moments) // per_stratum], next(modes)))
    return chosen


def sweep(chosen: set[tuple[int, PowerCut]] | None = None) -> Iterator[tuple[Stratum, PowerCut]]:
    """Try the chosen cases, or all; what was tried."""
    tried: list[tuple[Stratum, PowerCut]] = []

    def visit(point: CrashPoint, trace: Trace, disk: WatchedDisk) -> None:
        for mode in PowerCut:
            if chosen is None or (point.moment, mode) in chosen:
                crash(point, mode, trace, disk)
                tried.append((point.stratum, mode))
        if chosen is None and point.moment % 50 == 0:
            print(f"  {point.moment} moments, {len(tried)} power cuts", file=sys.stderr, flush=True)

    walk(visit)
    return iter(tried)


def main() -> None:
    started = time.monotonic()
    tried = list(sweep())
    by_operation = collections.Counter(operation for (_, operation), _ in tried)
    by_kind = collections.Counter(kind for (kind, _), _ in tried)
    by_mode = collections.Counter(mode.name for _, mode in tried)
    print(
        f"{len(recorded())} client operations, {len(tried) // len(PowerCut)} disk operations, {len(tried)} power cuts"
    )
    for title, counts in (("before a", by_operation), ("during", by_kind), ("losing", by_mode)):
        for name, count in sorted(counts.items()):
            print(f"  {title} {name:24} {count:6}")
    print(f"nothing acknowledged was lost; {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
