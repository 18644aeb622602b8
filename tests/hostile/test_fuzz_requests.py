"""Damaged requests of every API and version, to a node without sockets and to a whole broker.

Every request is answered or ends its connection; none gets as far as an exception, and none harms anybody else.
"""

import contextlib
import os
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.broker.events import HandlerFailed
from fencepost.ports import Buffer
from fencepost.simulation.node import LISTENER, SimulatedNode
from fencepost.wire.batch import build_batch
from fencepost.wire.catalog import ApiKey, response_class
from fencepost.wire.framing import read_response, request_frame
from fencepost.wire.messages import FetchRequest, ProduceRequest
from tests.hostile import sockets
from tests.hostile.frames import CASES, CORRELATION_ID, RequestMaker, damaged_frames, valid_frame
from tests.peers.fencepost_process import FencepostProcess

SEED = int(os.environ.get("FUZZ_SEED", "20240229"))
ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "12"))
ANSWER_TIMEOUT_MS = 10_000
HOUR_MS = 3_600_000
TOPICS_MAX = 2_000


class Client:
    """One connection to a node without sockets."""

    def __init__(self, machine: SimulatedNode) -> None:
        self._machine = machine
        self.written = b""
        self.close_reason: str | None = None
        self.connection = machine.node.connect("fuzz", LISTENER, self._write, self._close)

    def send(self, frame: bytes) -> None:
        self._machine.node.handle(self.connection, memoryview(bytearray(frame)))
        if self.close_reason is None:
            self.connection.flush()
            self._machine.scheduler.run_ready()

    def hang_up(self) -> None:
        if self.close_reason is None:
            self._close("the client is gone")

    def _write(self, parts: list[Buffer]) -> None:
        self.written += b"".join(parts)

    def _close(self, reason: str) -> None:
        self.connection.flush()
        self.close_reason = reason
        self.connection.closed()


class Canary:
    """A client that minds its own business all along."""

    def __init__(self, machine: SimulatedNode) -> None:
        machine.node.create_topic("canary", 1, {})
        self._machine = machine
        self.count = 0

    def call(self, key: ApiKey, version: int, message: Any) -> Any:
        client = Client(self._machine)
        client.send(b"".join(request_frame(key, version, self.count, "canary", message))[4:])
        assert self._machine.scheduler.run_until(lambda: bool(client.written), ANSWER_TIMEOUT_MS)
        correlation_id, answer = read_response(response_class(key), key, version, client.written[4:])
        assert correlation_id == self.count
        client.hang_up()
        return answer

    def sings(self) -> None:
        value = b"tweet %d" % self.count
        batch = build_batch([(1_700_000_000_000, None, value, ())])
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[data(name="canary", partition_data=[data.PartitionProduceData(index=0, records=batch)])],
        )
        answer = self.call(ApiKey.PRODUCE, 9, request)
        (partition,) = answer.responses[0].partition_responses
        assert (partition.error_code, partition.base_offset) == (0, self.count)
        wanted = FetchRequest.FetchTopic
        fetch = FetchRequest(
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[
                wanted(
                    topic="canary",
                    partitions=[wanted.FetchPartition(fetch_offset=self.count, partition_max_bytes=1 << 20)],
                )
            ],
        )
        fetched = self.call(ApiKey.FETCH, 12, fetch)
        assert value in bytes(fetched.responses[0].partitions[0].records)
        self.count += 1


@pytest.fixture(scope="module")
def machine() -> Iterator[SimulatedNode]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}
    made = SimulatedNode(settings, seed=SEED).start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def failures(machine: SimulatedNode) -> list[HandlerFailed]:
    found: list[HandlerFailed] = []
    machine.node.events.subscribe(lambda event: found.append(event) if isinstance(event, HandlerFailed) else None)
    return found


@pytest.fixture(scope="module")
def canary(machine: SimulatedNode) -> Canary:
    return Canary(machine)


@pytest.fixture(scope="module")
def maker() -> RequestMaker:
    """One for all requests: members and sessions that one of them begins are met again by others."""
    return RequestMaker(random.Random(SEED))


def read_answer(client: Client, key: ApiKey, version: int, sent: bytes) -> Any:
    """What was written is whole, and a message of the right kind where the request's header was untouched."""
    (size,) = struct.unpack_from(">i", client.written)
    assert size == len(client.written) - 4, "one request, one answer"
    if sent[:8] != struct.pack(">hhi", key, version, CORRELATION_ID):
        return None
    correlation_id, answer = read_response(response_class(key), key, version, client.written[4:])
    assert correlation_id == CORRELATION_ID
    return answer


@pytest.mark.parametrize(("key", "version"), CASES, ids=[f"{key.camel_name}-v{version}" for key, version in CASES])
def test_a_damaged_request_is_answered_or_ends_its_connection(
    machine: SimulatedNode,
    canary: Canary,
    maker: RequestMaker,
    failures: list[HandlerFailed],
    key: ApiKey,
    version: int,
) -> None:
    failures.clear()
    maker.source = random.Random(f"{SEED}-{key}-{version}")
    for _ in range(ROUNDS):
        for name in ("orders", "payments"):
            if name not in machine.node.metadata.topics:
                machine.node.create_topic(name, 2, {})
        maker.topic_ids = (bytes(16), machine.node.metadata.topics["orders"].topic_id)
        frame = valid_frame(key, version, maker)
        for sent in (frame, *damaged_frames(frame, maker.source)):
            client = Client(machine)
            client.send(sent)
            assert not failures, f"seed {SEED}, frame {sent.hex()}\n{failures[0].traceback}"
            if client.written:
                maker.listen(read_answer(client, key, version, sent))
            if sent is frame and key is not ApiKey.PRODUCE:
                assert client.close_reason is None, f"seed {SEED}: {client.close_reason} for {sent.hex()}"
            client.hang_up()
    machine.scheduler.run_for(100)
    canary.sings()
    assert not failures, failures[0].traceback


def test_what_damaged_requests_leave_behind_comes_due_and_harms_nobody(
    machine: SimulatedNode, canary: Canary, maker: RequestMaker, failures: list[HandlerFailed]
) -> None:
    failures.clear()
    clients = []
    for _ in range(ROUNDS):
        for key, version in CASES:
            client = Client(machine)
            client.send(valid_frame(key, version, maker))
            clients.append(client)
    machine.scheduler.run_for(HOUR_MS)
    for client in clients:
        client.hang_up()
    machine.scheduler.run_for(HOUR_MS)
    canary.sings()
    assert not failures, failures[0].traceback
    assert machine.node.parked_requests == 0
    assert len(machine.node.metadata.topics) < TOPICS_MAX


def test_a_whole_broker_survives_damaged_requests_on_real_sockets(process: FencepostProcess) -> None:
    source = random.Random(SEED)
    maker = RequestMaker(source)
    singer = sockets.Canary(process.address)
    singer.sings()
    before = sockets.resident_bytes(process.pid)
    sent_bytes = 0
    for key, version in CASES:
        frame = valid_frame(key, version, maker)
        for sent in (frame, *damaged_frames(frame, source)):
            with sockets.RudeClient(process.address) as client:
                client.send_frame(sent)
                # Two whole requests behind it, to be answered, left unread, or never looked at.
                with contextlib.suppress(sockets.HungUp):
                    client.send_frame(frame)
                    client.send_frame(frame)
            sent_bytes += 3 * len(sent)
        singer.sings()
    singer.close()
    growth = sockets.resident_bytes(process.pid) - before
    # The rest is what every API and version costs once: its reader and writer, and whatever topics came to be.
    assert growth < 2 * sent_bytes + 64 * sockets.MIB, f"seed {SEED}"
    process.stop()
    log = process.log_file.read_text()
    for trouble in ("HandlerFailed", "Traceback", "exception", "never retrieved"):
        assert trouble not in log, f"seed {SEED}: {log[log.index(trouble) - 500 :][:3000]}"
    process.start()
    again = sockets.RudeClient(process.address)
    fetched = again.call(ApiKey.FETCH, 12, sockets.fetch_request("canary", singer.count - 1))
    assert b"tweet" in bytes(fetched.responses[0].partitions[0].records)
    again.close()
