"""What may go wrong in a simulated world, and a seeded schedule of it.

A kind counts as hit when it has really happened. The schedule leaves out some kinds in each seed, since a world in
which everything fails all the time is a quiet one. `fault_actions` carries the kinds out.
"""

import enum
import random
from collections.abc import Iterable

from fencepost.simulation.disk import PowerCut

FAULT_EVERY_MS = 1_500
KIND_CHOSEN = 0.6
HOLD_MAX_MS = 9_000


class Fault(enum.Enum):
    """The value is the name on the command line."""

    POWER_LOSE_ALL = "power-lose-all"
    POWER_LOSE_NOTHING = "power-lose-nothing"
    POWER_PREFIX = "power-prefix"
    POWER_TORN = "power-torn"
    CRASH = "crash"
    DIE_AT_DISK_CALL = "die-at-disk-call"
    DIE_AT_STEP = "die-at-step"
    CLEAN_STOP = "clean-stop"
    PAUSE = "pause"
    SYNC_EIO = "sync-eio"
    WRITE_EIO = "write-eio"
    ENOSPC = "enospc"
    SLOW_SYNC = "slow-sync"
    BIT_FLIP = "bit-flip"
    CLOCK_JUMP = "clock-jump"
    CLOCK_DRIFT = "clock-drift"
    NET_DELAY = "net-delay"
    NET_CUT = "net-cut"
    NET_HALF_OPEN = "net-half-open"
    NET_HOLD = "net-hold"
    NET_DUPLICATE = "net-duplicate"
    CLIENT_KILL = "client-kill"
    CLIENT_PAUSE = "client-pause"
    TWIN = "twin"
    DELETE_UNDER_SYNC = "delete-under-sync"
    DELETE_UNDER_CLEANING = "delete-under-cleaning"
    DIE_IN_CLEANING = "die-in-cleaning"
    CROWDED_DISK = "crowded-disk"
    CHECKPOINT_LOST = "checkpoint-lost"
    FILES_LOST = "files-lost"


POWER_CUTS = {
    Fault.POWER_LOSE_ALL: PowerCut.LOSE_ALL,
    Fault.POWER_LOSE_NOTHING: PowerCut.LOSE_NOTHING,
    Fault.POWER_PREFIX: PowerCut.PREFIX,
    Fault.POWER_TORN: PowerCut.TORN,
}


def parse_kinds(names: Iterable[str]) -> frozenset[Fault]:
    """ValueError names what is not one."""
    return frozenset(Fault(name) for name in names)


def schedule(source: random.Random, duration_ms: int, kinds: frozenset[Fault]) -> list[tuple[int, Fault]]:
    """When what goes wrong: some of the kinds, at random moments."""
    ordered = [kind for kind in Fault if kind in kinds]
    chosen = [kind for kind in ordered if source.random() < KIND_CHOSEN] or ordered
    plan: list[tuple[int, Fault]] = []
    at_ms = 0
    while chosen:
        at_ms += int(source.expovariate(1 / FAULT_EVERY_MS)) + 1
        if at_ms >= duration_ms:
            break
        plan.append((at_ms, source.choice(chosen)))
    return plan
