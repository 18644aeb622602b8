"""Long work is done in slices: others are served in between, and each connection still gets its answers in order."""

from collections.abc import Generator

import pytest

from fencepost.broker.dispatch import LARGE_REQUEST_BYTES, STRANGERS_ELEMENTS_MAX
from fencepost.broker.slices import ACTIVE_MAX, SLICE_NS, Slices
from fencepost.simulation.clock import LOOK_NS, VirtualClock
from fencepost.simulation.node import SimulatedNode
from fencepost.simulation.scheduler import SimulatedScheduler
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import ApiVersionsRequest, DescribeGroupsRequest, DescribeTransactionsRequest

STEPS_OF_A_SLICE = SLICE_NS // LOOK_NS


class Stage:
    def __init__(self) -> None:
        self.scheduler = SimulatedScheduler(VirtualClock())
        self.slices = Slices(self.scheduler, self.scheduler.clock)
        self.done: list[str] = []
        self.errors: list[Exception] = []

    def work(self, name: str, steps: int, error: Exception | None = None) -> Generator[None, None, str]:
        for _ in range(steps):
            self.done.append(name)
            yield
        if error is not None:
            raise error
        return f"{name} is done"


def test_short_work_is_done_at_once() -> None:
    stage = Stage()
    result = stage.slices.run(stage.work("a", 3), stage.errors.append)
    assert result.done
    assert result.value == "a is done"
    assert stage.slices.slices == 0


def test_long_work_of_several_takes_turns() -> None:
    stage = Stage()
    results = [stage.slices.run(stage.work(name, 3 * STEPS_OF_A_SLICE), stage.errors.append) for name in "ab"]
    assert not any(result.done for result in results)
    stage.scheduler.run_ready()
    assert [result.value for result in results] == ["a is done", "b is done"]
    turns = [name for number, name in enumerate(stage.done) if not number or stage.done[number - 1] != name]
    assert turns[:5] == ["a", "b", "a", "b", "a"]
    assert max(stage.done.count(name) for name in "ab") == 3 * STEPS_OF_A_SLICE


def test_of_much_long_work_only_some_is_begun() -> None:
    stage = Stage()
    begun = []

    def work(number: int) -> Generator[None, None, None]:
        begun.append(number)
        for _ in range(2 * STEPS_OF_A_SLICE):
            yield

    results = [
        stage.slices.run(work(number), stage.errors.append, starts_at_once=False) for number in range(ACTIVE_MAX + 5)
    ]
    for _ in range(ACTIVE_MAX):
        stage.scheduler.step(0)
    assert begun == list(range(ACTIVE_MAX))
    stage.scheduler.run_ready()
    assert all(result.done for result in results)


def test_what_long_work_raises_is_told_and_ends_nothing_else() -> None:
    stage = Stage()
    stage.slices.run(stage.work("a", STEPS_OF_A_SLICE, ValueError("a")), stage.errors.append)
    other = stage.slices.run(stage.work("b", 2 * STEPS_OF_A_SLICE), stage.errors.append)
    stage.scheduler.run_ready()
    assert [str(error) for error in stage.errors] == ["a"]
    assert other.done


def test_work_that_nobody_wants_any_more_is_dropped() -> None:
    stage = Stage()
    is_wanted = True
    result = stage.slices.run(stage.work("a", 5 * STEPS_OF_A_SLICE), stage.errors.append, lambda: is_wanted)
    is_wanted = False
    stage.scheduler.run_ready()
    assert not result.done
    assert stage.done.count("a") <= STEPS_OF_A_SLICE + 1


@pytest.fixture
def machine() -> Generator[SimulatedNode, None, None]:
    made = SimulatedNode({"offsets.topic.num.partitions": "1"}, seed=1).start()
    yield made
    made.stop()


def test_a_large_request_is_answered_in_order_and_others_meanwhile(machine: SimulatedNode) -> None:
    names = [f"transaction-{number}" for number in range(20_000)]
    large, other = machine.connect(), machine.connect()
    told: list[str] = []
    large.on_answer = lambda number, _: told.append(f"large {number}")
    other.on_answer = lambda number, _: told.append("other")
    first = large.send(ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(transactional_ids=names))
    second = large.send(ApiKey.API_VERSIONS, 3, ApiVersionsRequest())
    assert large.is_muted
    other.send(ApiKey.API_VERSIONS, 3, ApiVersionsRequest())
    large.wait(second)
    assert told == ["other", f"large {first}", f"large {second}"]
    states = large.answers[first].transaction_states
    assert [state.transactional_id for state in states] == names
    assert machine.node.slices.slices > 20


def test_a_large_request_that_is_malformed_ends_its_connection_alone(machine: SimulatedNode) -> None:
    bad, other = machine.connect(), machine.connect()
    frame = bytes.fromhex("000f 0005 00000001 ffff 00") + b"\xff\xff\x7f" + b"\x02a" * LARGE_REQUEST_BYTES
    bad.send_frame(frame)
    machine.scheduler.run_ready()
    assert bad.close_reason is not None
    assert other.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).error_code == ErrorCode.NONE


def test_a_large_request_of_a_client_that_is_gone_is_dropped(machine: SimulatedNode) -> None:
    gone = machine.connect()
    gone.send(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[f"g{number}" for number in range(50_000)]))
    before = machine.node.slices.slices
    gone.hang_up("bye")
    machine.scheduler.run_ready()
    assert machine.node.slices.slices - before <= 1


@pytest.mark.parametrize("is_stranger", [False, True])
def test_tagged_fields_are_counted_like_entries(machine: SimulatedNode, is_stranger: bool) -> None:
    limit = STRANGERS_ELEMENTS_MAX if is_stranger else machine.node.config.request_elements_max

    class Stranger:
        is_stranger = True

        def takes(self, frame: memoryview) -> bool:
            return False

    def with_tags(count: int) -> bytes:
        tags = b"".join(
            bytes([0x80 | number & 0x7F, number >> 7 & 0x7F | 0x80, number >> 14]) + b"\0" for number in range(count)
        )
        length = bytes([0x80 | count & 0x7F, 0x80 | count >> 7 & 0x7F, count >> 14])
        return bytes.fromhex("0012 0003 00000001 ffff 00 02 61 02 62") + length + tags

    for count, is_taken in ((limit, True), (limit + 1, False)):
        socket = machine.connect()
        if is_stranger:
            socket._connection.admission = Stranger()
        socket.expect(1, ApiKey.API_VERSIONS, 3)
        socket.send_frame(with_tags(count))
        machine.scheduler.run_ready()
        assert (1 in socket.answers) is is_taken
        assert (socket.close_reason is None) is is_taken


def test_tagged_fields_of_a_header_are_few(machine: SimulatedNode) -> None:
    socket = machine.connect()
    header = bytes.fromhex("0012 0003 00000001 ffff") + bytes([0xE5, 0]) + b"\x01\x00" * 101
    socket.send_frame(header + b"\x02a\x02b\x00")
    assert socket.close_reason is not None


def test_large_requests_under_way_take_a_bounded_amount_of_memory() -> None:
    machine = SimulatedNode({"receive.buffers.max.bytes": "1048576"}, seed=1).start()
    request = DescribeTransactionsRequest(transactional_ids=["t" * 100 + str(number) for number in range(4_000)])
    sockets = [machine.connect() for _ in range(4)]
    for socket in sockets:
        socket.send(ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
    assert [socket.close_reason is None for socket in sockets] == [True, True, False, False]
    machine.scheduler.run_ready()
    assert [len(socket.answers) for socket in sockets] == [1, 1, 0, 0]
    last = machine.connect()
    assert len(last.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states) == 4_000
    machine.stop()
