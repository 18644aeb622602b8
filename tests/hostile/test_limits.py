"""Every bound on what one client may take, each broker with that bound made small; good clients go on beside it."""

import contextlib
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost import Broker
from fencepost.broker.events import ConnectionClosed, ConnectionRefused
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DescribeGroupsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    MetadataRequest,
    ProduceRequest,
)
from tests.hostile.sockets import (
    MIB,
    Canary,
    HungUp,
    RudeClient,
    eventually,
    fetch_request,
    produce_request,
    record_batch,
    resident_bytes,
)
from tests.peers.fencepost_process import FencepostProcess
from tests.support.patience import patient

WAIT_MS = 600_000
"""Longer than any test: what waits so long waits for something else."""


@contextlib.contextmanager
def broker_with(**settings: object) -> Iterator[Broker]:
    texts = {name.replace("_", "."): str(value) for name, value in settings.items()}
    with Broker(topics={"t": 1}, settings=texts) as broker:
        yield broker


class Clients:
    """Connections to one broker, closed in the end."""

    def __init__(self, broker: Broker) -> None:
        self._address = broker.host, broker.port
        self._clients: list[RudeClient] = []

    def __call__(self) -> RudeClient:
        self._clients.append(RudeClient(self._address))
        return self._clients[-1]

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()


def closings(broker: Broker) -> list[str]:
    return [event.reason for event in broker.events() if isinstance(event, ConnectionClosed | ConnectionRefused)]


def is_served(client: RudeClient) -> bool:
    try:
        return bool(client.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).error_code == 0)
    except HungUp:
        return False


def fill(client: RudeClient, topic: str, mebibytes: int) -> None:
    for _ in range(mebibytes):
        answer = client.call(ApiKey.PRODUCE, 9, produce_request(topic, record_batch(bytes(MIB - 1000))))
        assert answer.responses[0].partition_responses[0].error_code == 0


def parked(broker: Broker) -> int:
    count: int = broker._call(lambda running: running.node.parked_requests)
    return count


# Connections


@pytest.mark.parametrize("name", ["max_connections", "max_connections_per_ip"])
def test_connections_beyond_the_limit_are_refused_until_one_ends(name: str) -> None:
    with broker_with(**{name: 3}) as broker, Clients(broker) as connect:
        inside = [connect() for _ in range(3)]
        assert all(is_served(client) for client in inside)
        assert connect().is_hung_up()
        assert any(name.replace("_", ".") in reason for reason in closings(broker))
        inside[0].close()
        eventually(lambda: is_served(connect()), "a place becomes free")
        assert is_served(inside[1])


def test_a_request_larger_than_the_limit_ends_its_connection() -> None:
    with broker_with(socket_request_max_bytes=2_000) as broker, Clients(broker) as connect:
        client = connect()
        client.send_bytes(struct.pack(">i", 2_001))
        assert client.is_hung_up()
        good = connect()
        answer = good.call(ApiKey.PRODUCE, 9, produce_request("t", record_batch(bytes(1_500))))
        assert answer.responses[0].partition_responses[0].error_code == 0


def test_idle_connections_end_and_busy_ones_do_not() -> None:
    with broker_with(connections_max_idle_ms=500) as broker, Clients(broker) as connect:
        idle, waiting = connect(), connect()
        assert is_served(idle)
        waiting.send(ApiKey.FETCH, 12, fetch_request("t", 0, max_wait_ms=WAIT_MS, min_bytes=1))
        assert idle.is_hung_up()
        assert "idle for connections.max.idle.ms" in closings(broker)
        assert waiting.is_open(), "a client that waits for an answer is not idle"


def test_half_a_request_ends_its_connection_after_a_while() -> None:
    with broker_with(request_frame_timeout_ms=300) as broker, Clients(broker) as connect:
        for part in (b"\0\0", b"\0\0\0\x40abc", b"\0\x10\0\0" + bytes(100_000)):
            assert connect_and_send(connect, part).is_hung_up()
        assert any("request.frame.timeout.ms" in reason for reason in closings(broker))


def connect_and_send(connect: Callable[[], RudeClient], content: bytes) -> RudeClient:
    client = connect()
    client.send_bytes(content)
    return client


def test_a_busy_client_whose_reads_end_inside_a_request_is_not_taken_for_a_slow_one() -> None:
    timeout_ms = int(patient(200))  # the client sends often enough on a busy machine, too
    with broker_with(request_frame_timeout_ms=timeout_ms) as broker, Clients(broker) as connect:
        client = connect()
        frame = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 1, -1)
        request = struct.pack(">i", len(frame)) + frame
        client.send_bytes(request[:7])
        # Much longer than a request may take; there is half of one at any time.
        deadline = time.monotonic() + 8 * timeout_ms / 1000
        while time.monotonic() < deadline:
            client.send_bytes(request[7:] + request[:7])
            client.receive_frame()
            time.sleep(0.01)
        assert not any("request.frame.timeout.ms" in reason for reason in closings(broker))


def test_three_hundred_half_requests_do_not_slow_a_good_client_down() -> None:
    with broker_with() as broker, Clients(broker) as connect:
        canary = Canary((broker.host, broker.port))
        alone = min(canary.sings() for _ in range(30))
        slow = [connect_and_send(connect, struct.pack(">i", 1_000) + b"\0") for _ in range(300)]
        for _ in range(30):
            for client in slow[::10]:
                client.send_bytes(b"\0")
            canary.sings()
        beside = min(canary.sings() for _ in range(30))
        assert beside < alone * 5 + 0.05
        assert all(client.is_open() for client in slow)
        canary.close()


def test_a_client_that_goes_away_while_its_fetch_waits_is_noticed() -> None:
    with broker_with() as broker, Clients(broker) as connect:
        for _ in range(20):
            connect().send(ApiKey.FETCH, 12, fetch_request("t", 0, max_wait_ms=WAIT_MS, min_bytes=1))
        eventually(lambda: parked(broker) == 20, "all of them wait")
        connect.__exit__()
        eventually(lambda: parked(broker) == 0, "nobody waits any more")
        eventually(lambda: not broker._call(lambda running: running.connections.open), "nobody is there any more")


# Requests


def test_requests_beyond_the_pipeline_wait_their_turn_and_all_are_answered_in_order() -> None:
    with broker_with(pipelined_requests_max=5) as broker, Clients(broker) as connect:
        client = connect()
        for number in range(200):
            client.send(ApiKey.PRODUCE, 9, produce_request("t", record_batch(b"%d" % number)))
        offsets = [
            client.receive(ApiKey.PRODUCE, 9).responses[0].partition_responses[0].base_offset for _ in range(200)
        ]
        assert offsets == list(range(200))


def test_a_flood_behind_a_request_that_waits_is_left_in_the_senders_hands() -> None:
    with broker_with() as broker, Clients(broker) as connect:
        client = connect()
        client.send(ApiKey.FETCH, 12, fetch_request("t", 0, max_wait_ms=WAIT_MS, min_bytes=1))
        frame = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 1, -1)
        flood = (struct.pack(">i", len(frame)) + frame) * 10_000
        client.socket.setblocking(False)
        sent = 0
        idle_rounds = 0
        while idle_rounds < 20:
            try:
                sent += client.socket.send(flood[sent % 14 :])
                idle_rounds = 0
            except BlockingIOError:
                idle_rounds += 1
                time.sleep(0.01)
            assert sent < 100 * MIB, "somebody keeps reading"
        (buffered,) = broker._call(lambda running: [each.buffer_bytes for each in running.connections.open])
        assert buffered <= 65_536
        Canary((broker.host, broker.port)).close()


def test_fetches_beyond_those_that_may_wait_are_answered_at_once() -> None:
    with broker_with(parked_requests_max=2) as broker, Clients(broker) as connect:
        waiting = [connect(), connect()]
        for client in waiting:
            client.send(ApiKey.FETCH, 12, fetch_request("t", 0, max_wait_ms=WAIT_MS, min_bytes=1))
        eventually(lambda: parked(broker) == 2, "two wait")
        answer = connect().call(ApiKey.FETCH, 12, fetch_request("t", 0, max_wait_ms=WAIT_MS, min_bytes=1))
        assert answer.responses[0].partitions[0].error_code == 0
        connect().call(ApiKey.PRODUCE, 9, produce_request("t", record_batch(b"wake up")))
        for client in waiting:
            assert b"wake up" in bytes(client.receive(ApiKey.FETCH, 12).responses[0].partitions[0].records)


def test_when_memory_for_requests_runs_out_the_largest_goes_and_the_small_ones_stay() -> None:
    settings = {"receive_buffers_max_bytes": 4 * MIB, "request_frame_timeout_ms": WAIT_MS}
    with broker_with(**settings) as broker, Clients(broker) as connect:
        canary = Canary((broker.host, broker.port))
        greedy = [connect() for _ in range(8)]
        for number, client in enumerate(greedy):
            with contextlib.suppress(HungUp):
                client.send_bytes(struct.pack(">i", 50 * MIB) + bytes(MIB + number * 100_000))
            canary.sings(value_bytes=700_000)
        assert any("receive.buffers.max.bytes" in reason for reason in closings(broker))
        assert 0 < sum(client.is_open() for client in greedy) < 8
        held: int = broker._call(lambda running: running.connections.receiving_bytes)
        assert held <= 4 * MIB
        canary.close()


# Answers


def test_large_requests_are_served_where_they_were_received_and_what_follows_them_too() -> None:
    groups = [f"{number:01000}" for number in range(20_000)]
    topic = ProduceRequest.TopicProduceData
    batches = [record_batch(bytes([number]) * (MIB - 1000)) for number in range(8)]
    parts = [topic.PartitionProduceData(index=number, records=batch) for number, batch in enumerate(batches)]
    produced = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic(name="wide", partition_data=parts)])
    with Broker(topics={"wide": 8}) as broker, Clients(broker) as connect:
        client = connect()
        for _ in range(2):
            for api, version, request in (
                (ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=groups)),
                (ApiKey.PRODUCE, 9, produced),
            ):
                client.send(api, version, request)
                client.send(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
                answer = client.receive(api, version)
                if api is ApiKey.DESCRIBE_GROUPS:
                    assert [group.group_id for group in answer.groups] == groups
                else:
                    assert [part.error_code for part in answer.responses[0].partition_responses] == [0] * 8
                assert client.receive(ApiKey.API_VERSIONS, 0).error_code == 0
        for number in (0, 7):
            partition = FetchRequest.FetchTopic.FetchPartition(partition=number, partition_max_bytes=3 * MIB)
            wanted = [FetchRequest.FetchTopic(topic="wide", partitions=[partition])]
            fetch = FetchRequest(max_wait_ms=0, max_bytes=3 * MIB, session_epoch=-1, topics=wanted)
            records = bytes(client.call(ApiKey.FETCH, 12, fetch).responses[0].partitions[0].records)
            assert records.count(bytes([number]) * (MIB - 1000)) == 2
        held: int = broker._call(lambda running: running.connections.receiving_bytes)
        assert held <= 2 * MIB


def test_an_administrator_who_creates_many_partitions_waits_and_nobody_else_does() -> None:
    with (
        broker_with(expensive_request_burst_ms=1, expensive_request_percentage=20) as broker,
        Clients(broker) as connect,
    ):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        made = admin.create_topics([NewTopic("wide", 500, 1)])["wide"]
        canary = Canary((broker.host, broker.port))
        while not made.done():
            canary.sings()
        assert made.exception() is None
        pauses: int = broker._call(lambda running: running.node.slices.pauses)
        assert pauses > 0
        client = connect()
        topic = CreateTopicsRequest.CreatableTopic(name="wider", num_partitions=500, replication_factor=1)
        answer = client.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        assert answer.topics[0].error_code == 0
        more: int = broker._call(lambda running: running.node.slices.pauses)
        assert more > pauses
        assert len(admin.list_topics("wide").topics["wide"].partitions) == 500
        canary.close()


def test_one_fetch_returns_no_more_than_the_broker_allows() -> None:
    with broker_with(fetch_max_bytes=3 * MIB) as broker, Clients(broker) as connect:
        client = connect()
        fill(client, "t", 8)
        answer = client.call(
            ApiKey.FETCH, 12, fetch_request("t", 0, max_bytes=2**31 - 1, partition_max_bytes=2**31 - 1)
        )
        assert MIB < len(answer.responses[0].partitions[0].records) <= 3 * MIB
        # A batch larger than what is asked for comes whole, or the reader would never get past it.
        first = client.call(ApiKey.FETCH, 12, fetch_request("t", 0, max_bytes=1, partition_max_bytes=1))
        assert MIB - 1000 < len(first.responses[0].partitions[0].records) < 2 * MIB


def test_a_reader_that_does_not_read_is_cut_off_and_costs_bounded_memory() -> None:
    settings = {
        "response.buffer.max.bytes": str(MIB),
        "response.stall.timeout.ms": "300",
        "fetch.max.bytes": str(4 * MIB),
    }
    with FencepostProcess(settings) as process:
        canary = Canary(process.address)
        for _ in range(8):
            canary.sings(value_bytes=MIB - 2000)
        before = resident_bytes(process.pid)
        client = RudeClient(process.address)
        try:
            for _ in range(500):
                client.send(ApiKey.FETCH, 12, fetch_request("canary", 0))
        except HungUp:
            pass
        canary.sings()
        assert resident_bytes(process.pid) - before < 40 * MIB, "500 answers of 4 MiB were asked for"
        eventually(lambda: is_cut_off(client), "whoever does not read is cut off")
        assert "response.stall.timeout.ms" in process.log_text()
        canary.sings()
        canary.close()
        client.close()


def is_cut_off(client: RudeClient) -> bool:
    """Whether the broker has ended it, seen without reading what it wrote."""
    try:
        client.socket.send(b"\0")
    except ConnectionError:
        return True
    return False


class SlowTransport:
    """A socket whose reader takes its time; how much, the test says."""

    def __init__(self, unread_bytes: int) -> None:
        self.unread_bytes = unread_bytes
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


def test_a_slow_reader_is_left_alone_as_long_as_it_reads_at_all() -> None:
    with broker_with(response_stall_timeout_ms=1_000) as broker, Clients(broker) as connect:
        assert is_served(connect())

        def ends_after(running: Any) -> list[bool]:
            (protocol,) = running.connections.open
            real, protocol._transport = protocol._transport, SlowTransport(10 * MIB)
            slow = protocol._transport
            protocol.pause_writing()
            now = running.connections.loop.time()
            ended = []
            for read_bytes in (1, 1, 1, 1, 1, 0, 0):
                now += 0.9
                slow.unread_bytes -= read_bytes
                protocol.check_deadlines(now)
                ended.append(slow.is_aborted)
            real.abort()
            return ended

        assert broker._call(ends_after) == [False] * 6 + [True]


def test_unread_answers_of_all_connections_together_are_bounded() -> None:
    settings = {
        "response.buffer.max.bytes": str(MIB),
        "response.buffers.max.bytes": str(20 * MIB),
        "response.stall.timeout.ms": str(WAIT_MS),
        "fetch.max.bytes": str(8 * MIB),
    }
    with FencepostProcess(settings) as process:
        canary = Canary(process.address)
        for _ in range(9):
            canary.sings(value_bytes=MIB - 2000)
        before = resident_bytes(process.pid)
        clients = [RudeClient(process.address) for _ in range(200)]
        try:
            for number, client in enumerate(clients):
                for _ in range(10):
                    client.send(ApiKey.FETCH, 12, fetch_request("canary", 0))
                if number % 10 == 0:
                    canary.sings()
            grown = resident_bytes(process.pid) - before
            assert grown < 80 * MIB, f"{grown} bytes for 200 consumers that read nothing"
            eventually(lambda: "response.buffers.max.bytes" in process.log_text(), "the slowest are cut off")
        finally:
            canary.close()
            for client in clients:
                client.close()


# Groups and sessions


def test_a_group_takes_no_more_members_than_its_limit() -> None:
    with broker_with(group_max_size=2) as broker, Clients(broker) as connect:
        clients = [connect() for _ in range(4)]
        coordinator = FindCoordinatorRequest(key="g", key_type=0)
        assert clients[0].call(ApiKey.FIND_COORDINATOR, 3, coordinator).error_code == 0
        first = clients[0].call(ApiKey.JOIN_GROUP, 2, join_request("g"))
        assert first.error_code == 0
        for client in clients[1:3]:
            client.send(ApiKey.JOIN_GROUP, 2, join_request("g"))
            assert is_served(connect())
        # Two wait for the rebalance: that is the group. Whoever comes now is too late, the first member too.
        full = ErrorCode.GROUP_MAX_SIZE_REACHED
        assert clients[3].call(ApiKey.JOIN_GROUP, 2, join_request("g")).error_code == full
        assert clients[0].call(ApiKey.JOIN_GROUP, 2, join_request("g", first.member_id)).error_code == full
        assert [client.receive(ApiKey.JOIN_GROUP, 2).error_code for client in clients[1:3]] == [0, 0]


def join_request(group: str, member_id: str = "") -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=1_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def test_fetch_sessions_beyond_the_slots_push_out_the_oldest() -> None:
    with broker_with(max_incremental_fetch_session_cache_slots=3) as broker, Clients(broker) as connect:
        client = connect()
        sessions = [client.call(ApiKey.FETCH, 12, fetch_request("t", 0, session_epoch=0)).session_id for _ in range(5)]
        assert len(set(sessions)) == 5
        codes = [
            client.call(ApiKey.FETCH, 12, FetchRequest(session_id=session, session_epoch=1)).error_code
            for session in sessions
        ]
        gone = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert codes == [gone, gone, 0, 0, 0]
        assert broker._call(lambda running: len(running.node.fetch_sessions)) == 3


def test_topics_are_created_up_to_the_limit_of_partitions() -> None:
    with broker_with(max_partitions_per_broker=4, num_partitions=2) as broker, Clients(broker) as connect:
        client = connect()
        codes = []
        for name in ("a", "b"):
            wanted = [MetadataRequest.MetadataRequestTopic(name=name)]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
            codes.append(client.call(ApiKey.METADATA, 12, request).topics[0].error_code)
        assert codes == [0, ErrorCode.POLICY_VIOLATION]
