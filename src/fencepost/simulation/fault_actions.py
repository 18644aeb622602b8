"""How each kind of fault is carried out: a function of the world that does it, or arms it."""

import errno
from collections.abc import Callable

from fencepost.internal_topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.log.file_names import CLEANED_SUFFIX, SNAPSHOT_SUFFIX, SWAP_SUFFIX, TRANSACTION_INDEX_SUFFIX
from fencepost.log.side_files import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from fencepost.simulation.administered_topics import PLANS
from fencepost.simulation.disk import PowerCut
from fencepost.simulation.faults import HOLD_MAX_MS, POWER_CUTS, Fault
from fencepost.simulation.node import DATA_DIRECTORY
from fencepost.simulation.world import World
from fencepost.wire.batch import ATTRIBUTES_POSITION, verify_crc
from fencepost.wire.catalog import ApiKey

# Where a crash has the most effect: in the two-phase commit, between data and its offsets, in a takeover.
_MOMENTS = (
    ApiKey.END_TXN,
    ApiKey.END_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.PRODUCE,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DELETE_RECORDS,
)
# Files that a start does not need: everything is read again.
_REBUILT = (RECOVERY_POINT_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
_PATHS = ("", ".log", TRANSACTION_STATE, CONSUMER_OFFSETS, "__cluster_metadata")


# Each of these carries out a fault and returns whether it happened; armed faults are counted when they happen.


def _power(world: World, kind: Fault) -> bool:
    if world.machine.process is None:
        return False
    if world.source.random() < 0.7:
        # Most of the time nothing waits to be synced: the cut comes when something does.
        world.arm(world.source.choice(_MOMENTS), kind, POWER_CUTS[kind], steps=world.source.randint(0, 12))
        return False
    world.die(kind.value, POWER_CUTS[kind])
    return True


def _crash(world: World, kind: Fault) -> bool:
    if world.machine.process is None:
        return False
    world.die(kind.value, None)
    return True


def _die_at_disk_call(world: World, kind: Fault) -> bool:
    cut = world.source.choice((None, *PowerCut))
    world.arm(world.source.choice(_MOMENTS), kind, cut, disk_calls=world.source.randint(0, 14))
    return False


def _die_at_step(world: World, kind: Fault) -> bool:
    cut = world.source.choice((None, *PowerCut))
    world.arm(world.source.choice(_MOMENTS), kind, cut, steps=world.source.randint(0, 40))
    return False


def _clean_stop(world: World, kind: Fault) -> bool:
    world.stop_soon()
    return False


def _pause(world: World, kind: Fault) -> bool:
    process = world.machine.process
    if process is None or process.is_paused:
        return False
    process.pause()
    world.later(world.source.choice((100, 700, 3_000, 6_000)), process.resume)
    return True


def _sync_eio(world: World, kind: Fault) -> bool:
    """A disk that fails to sync does not last: the power goes soon after, with all that only the page cache had."""
    world.disk.fail_sync(world.source.choice(_PATHS))
    if world.source.random() < 0.6:
        world.later(world.source.choice((300, 2_000)), lambda: world.lose_power(PowerCut.LOSE_ALL))
    return False


def _write_eio(world: World, kind: Fault) -> bool:
    world.disk.fail_write(world.source.choice(_PATHS), errno.EIO)
    return False


def _enospc(world: World, kind: Fault) -> bool:
    world.disk.leave_room(world.source.choice((0, 100, 600, 4_000)))
    world.later(world.source.choice((300, 1_000, 2_500)), world.disk.make_room)
    return False


def _slow_sync(world: World, kind: Fault) -> bool:
    machine = world.machine
    usual_ms = machine.sync_ms
    if machine.process is None or usual_ms > world.SYNC_MS:
        return False
    machine.set_sync_ms(world.source.choice((40, 300, 1_200)))
    world.later(world.source.choice((500, 2_500)), lambda: machine.set_sync_ms(usual_ms))
    return True


def _bit_flip(world: World, kind: Fault) -> bool:
    """A bit of synced, cold data: its readers must notice."""
    if world.machine.process is None or not world.is_serving:
        return False
    if world.source.random() < 0.5:
        return _flip_in_a_side_file(world)
    source = world.source
    cold = [segment for log in world.good_logs() for segment in log.segments[:-1] if segment.size]
    if not cold:
        return False
    segment = source.choice(cold)
    found = source.choice(list(segment.batches()))
    start = found.position + ATTRIBUTES_POSITION
    position, bit = source.randrange(start, found.position + found.header.size_bytes), source.randrange(8)
    world.disk.flip_bit(segment.log_path, position, bit)
    damaged = segment.file.read(found.position, found.header.size_bytes)
    if verify_crc(damaged, 0, found.header):
        world.journal.findings.append(f"unnoticed-damage: a bit at {position} of {segment.log_path} flips")
    # Repaired, as from a replica: a single broker cannot make the record up again.
    world.disk.flip_bit(segment.log_path, position, bit)
    return True


def _flip_in_a_side_file(world: World) -> bool:
    """What has a checksum and can be made anew stays damaged: the next start has to notice and rebuild it."""
    paths = [
        f"{log.directory}/{name}"
        for log in world.good_logs()
        for name in world.disk.list(str(log.directory))
        if name.endswith(SNAPSHOT_SUFFIX)
        or (name.endswith(TRANSACTION_INDEX_SUFFIX) and world.disk.exists(f"{log.directory}/{name}.crc"))
    ]
    paths = [path for path in paths if world.disk.size(path)]
    if not paths:
        return False
    world.disk.flip_some_bit(world.source.choice(paths), world.source)
    return True


def _clock_jump(world: World, kind: Fault) -> bool:
    """Never by an hour in all: the timestamps of what is under way would be refused, and rightly."""
    clock = world.machine.clock
    clock.jump_wall(world.source.randint(-1_500_000, 1_500_000) - clock.wall_lead_ms)
    return True


def _clock_drift(world: World, kind: Fault) -> bool:
    world.machine.clock.drift(world.source.choice((-200_000, -300, 300, 200_000)))
    return True


def _net_delay(world: World, kind: Fault) -> bool:
    network = world.network
    if network.delay_max_ms > world.DELAY_MAX_MS:
        return False
    network.set_delay(world.source.choice((20, 100, 400)))
    world.later(world.source.choice((500, 2_000)), lambda: network.set_delay(world.DELAY_MAX_MS))
    return True


def _net_cut(world: World, kind: Fault) -> bool:
    link = world.network.pick(world.source)
    if link is None:
        return False
    link.cut()
    return True


def _net_half_open(world: World, kind: Fault) -> bool:
    link = world.network.pick(world.source)
    if link is None:
        return False
    link.half_open(requests=world.source.random() < 0.3)
    return True


def _net_hold(world: World, kind: Fault) -> bool:
    link = world.network.pick(world.source)
    if link is None:
        return False
    link.hold(world.source.choice((1_600, 2_500, 5_000, HOLD_MAX_MS)))
    return True


def _net_duplicate(world: World, kind: Fault) -> bool:
    world.network.duplicate(world.source.randint(1, 5))
    return False


def _client_kill(world: World, kind: Fault) -> bool:
    client = world.some_client()
    if client is None:
        return False
    client.kill()
    return True


def _client_pause(world: World, kind: Fault) -> bool:
    client = world.some_client()
    if client is None or client.is_paused:
        return False
    client.pause()
    world.later(world.source.choice((500, 3_000, 8_000)), client.resume)
    return True


def _twin(world: World, kind: Fault) -> bool:
    world.start_twin()
    return True


def _delete_under_sync(world: World, kind: Fault) -> bool:
    """A topic goes while what was just written to it is on its way to the disk."""
    name = world.source.choice(("fleeting", "brief"))
    world.disk.watch(f"/{name}-", lambda: world.strike(kind, name))
    return False


def _delete_under_cleaning(world: World, kind: Fault) -> bool:
    """A topic goes while a compacted segment of it is."""
    world.disk.watch(CLEANED_SUFFIX, lambda: world.strike(kind, "fleeting"))
    return False


def _die_in_cleaning(world: World, kind: Fault) -> bool:
    cut = world.source.choice((None, *PowerCut))
    parts = world.source.choice(((CLEANED_SUFFIX, SWAP_SUFFIX), (SWAP_SUFFIX,), ("-delete",), ("checkpoint",)))
    world.die_at(kind, cut, parts, world.source.randint(0, 6))
    return False


def _crowded_disk(world: World, kind: Fault) -> bool:
    """Hardly any room left, and somebody creates topics."""
    if world.machine.process is None:
        return False
    world.disk.leave_room(world.source.choice((0, 50, 200, 700, 2_000)))
    world.later(world.source.choice((500, 1_500)), world.disk.make_room)
    world.build()
    return True


def _checkpoint_lost(world: World, kind: Fault) -> bool:
    """A file that can be made anew is gone, or cut short, after a stop or a crash. Nothing else may be.

    It has no checksum: a digit of it that changes cannot be noticed. Nor is it taken while it proves that others are
    missing."""
    if world.machine.process is None or not world.is_serving or world.are_files_away:
        return False
    name = world.source.choice(_REBUILT)
    path = f"{DATA_DIRECTORY}/{name}"

    def lose() -> None:
        if world.disk.exists(path):
            world.hits[kind] += 1
            put_back = world.disk.take_away(path)
            if world.source.random() < 0.3:
                put_back()
                world.disk.cut_short(path, world.source.randrange(world.disk.size(path)))

    if world.source.random() < 0.5:
        world.die(kind.value, None)
        lose()
    else:
        world.stop_soon(lose)
    return False


def _files_lost(world: World, kind: Fault) -> bool:
    """Files of a log are gone after a clean stop, and are back some time later. Meanwhile it is not to be served."""
    process = world.machine.process
    if process is None or process.is_paused or not world.is_serving:
        return False
    if world.machine.flusher.running:
        # The stop waits for this sync, and until then a segment may begin or be removed: what is lost is chosen then.
        def again() -> None:
            _files_lost(world, kind)

        world.later(1, again)
        return False
    choices: list[tuple[tuple[str, int], list[str]]] = []
    for log in world.good_logs():
        plan = PLANS.get(log.topic)
        if (plan is not None and plan.may_go) or log.log_end_offset == 0:
            continue
        key = (log.topic, log.partition)
        paths = [segment.log_path for segment in log.segments]
        choices += [(key, [str(log.directory)]), (key, paths)]
        if log.segments[-1].size:
            choices.append((key, paths[-1:]))
        # Compaction makes gaps: there a segment in the middle may be missing and nobody can tell.
        if len(paths) > 2 and not log.config.is_compacted and (plan is None or not plan.may_be_compacted):
            choices.append((key, [world.source.choice(paths[1:-1])]))
    if choices:
        key, paths = world.source.choice(choices)
        world.stop_soon(lambda: world.lose_files(kind, key, paths))
    return False


ACTIONS: dict[Fault, Callable[[World, Fault], bool]] = {
    **dict.fromkeys(POWER_CUTS, _power),
    Fault.CRASH: _crash,
    Fault.DIE_AT_DISK_CALL: _die_at_disk_call,
    Fault.DIE_AT_STEP: _die_at_step,
    Fault.CLEAN_STOP: _clean_stop,
    Fault.PAUSE: _pause,
    Fault.SYNC_EIO: _sync_eio,
    Fault.WRITE_EIO: _write_eio,
    Fault.ENOSPC: _enospc,
    Fault.SLOW_SYNC: _slow_sync,
    Fault.BIT_FLIP: _bit_flip,
    Fault.CLOCK_JUMP: _clock_jump,
    Fault.CLOCK_DRIFT: _clock_drift,
    Fault.NET_DELAY: _net_delay,
    Fault.NET_CUT: _net_cut,
    Fault.NET_HALF_OPEN: _net_half_open,
    Fault.NET_HOLD: _net_hold,
    Fault.NET_DUPLICATE: _net_duplicate,
    Fault.CLIENT_KILL: _client_kill,
    Fault.CLIENT_PAUSE: _client_pause,
    Fault.TWIN: _twin,
    Fault.DELETE_UNDER_SYNC: _delete_under_sync,
    Fault.DELETE_UNDER_CLEANING: _delete_under_cleaning,
    Fault.DIE_IN_CLEANING: _die_in_cleaning,
    Fault.CROWDED_DISK: _crowded_disk,
    Fault.CHECKPOINT_LOST: _checkpoint_lost,
    Fault.FILES_LOST: _files_lost,
}
assert ACTIONS.keys() == set(Fault), "every kind can be done"


def carry_out(world: World, kind: Fault) -> bool:
    """Whether it has happened already."""
    return ACTIONS[kind](world, kind)
