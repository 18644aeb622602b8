"""From bytes to requests of any API and version, some damaged, into a whole broker; and what must hold afterwards.

The bytes are frames, each with its length in front. Whatever they are: no request gets as far as an exception, each is
answered or ends its connection, and a client that minds its own business notices nothing.
"""

import copy
import functools
import random
import struct
from collections.abc import Callable

from fencepost.broker.events import HandlerFailed
from fencepost.broker.node import Node
from fencepost.simulation.disk import SimulatedDisk
from fencepost.simulation.node import SimulatedNode
from tests.durability.scene import SMALL, Client
from tests.hostile.frames import CASES, RequestMaker, damaged_frames, valid_frame
from tests.hostile.test_fuzz_requests import Client as RudeClient

_LENGTH = struct.Struct(">H")
FRAMES_MAX = 12
SETTINGS = {**SMALL, "transaction.state.log.num.partitions": "1"}
Mutate = Callable[[bytes, int], bytes]


@functools.cache
def _disk() -> SimulatedDisk:
    machine = SimulatedNode(SETTINGS, seed=8).start()
    client = Client(machine)
    for topic in ("orders", "payments", "canary"):
        assert client.create_topic(topic, 2) == 0
    assert client.produce("canary", b"tweet").error_code == 0
    assert client.find_coordinator("group") == 0
    machine.stop()
    return machine.disk


def split(data: bytes) -> list[bytes]:
    frames = []
    position = 0
    while position + _LENGTH.size <= len(data) and len(frames) < FRAMES_MAX:
        (size,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        frames.append(data[position : position + size])
        position += size
    return frames


def join(frames: list[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames if len(frame) < 1 << 16)


def run(data: bytes) -> None:
    machine = SimulatedNode(SETTINGS, seed=9, disk=copy.deepcopy(_disk()))
    failures: list[HandlerFailed] = []

    def watch(node: Node) -> None:
        node.events.subscribe(lambda event: failures.append(event) if isinstance(event, HandlerFailed) else None)

    machine.watch = watch  # type: ignore[method-assign]
    machine.start()
    clients = [RudeClient(machine), RudeClient(machine)]
    for at, frame in enumerate(split(data)):
        client = clients[at % len(clients)]
        if client.close_reason is not None or not client.connection.is_ready:
            client = clients[at % len(clients)] = RudeClient(machine)
        client.send(frame)
        assert not failures, failures[0].traceback
    machine.scheduler.run_for(2_000)
    assert not failures, failures[0].traceback
    for client in clients:
        client.hang_up()
    canary = Client(machine)
    assert canary.read_all("canary") == [(0, b"tweet")] or "canary" not in machine.node.metadata.topics
    machine.scheduler.run_for(600_000)  # what they left behind comes due
    assert not failures, failures[0].traceback
    assert machine.node.parked_requests == 0


def mutate(data: bytes, seed: int, change: Mutate) -> bytes:
    """Mostly whole requests of any kind, in any order, one of them damaged."""
    source = random.Random(seed)
    frames = split(data)
    maker = RequestMaker(source)
    place = source.randrange(len(frames) + 1)
    match source.randrange(7) if frames else 0:
        case 0 | 1 | 2:
            frames.insert(place, valid_frame(*source.choice(CASES), maker))
        case 3 | 4:
            place %= len(frames)
            frames[place] = change(frames[place], 4096)
        case 5:
            place %= len(frames)
            if len(frames[place]) > 8:
                frames[place] = source.choice(list(damaged_frames(frames[place], source)))
        case _:
            frames.insert(place, frames.pop(source.randrange(len(frames))))
            if source.random() < 0.5:
                del frames[source.randrange(len(frames))]
    return join(frames[:FRAMES_MAX])


def first_inputs() -> list[bytes]:
    """One whole request of every API and version."""
    made = []
    for key, version in CASES:
        maker = RequestMaker(random.Random(f"{key} {version}"))
        made.append(join([valid_frame(key, version, maker)]))
    return made
