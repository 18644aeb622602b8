"""A client whose requests take more of the processor than their bytes pay for gets its share of it, and no more."""

from collections.abc import Generator, Iterator

import pytest

from fencepost.broker import processor_shares
from fencepost.broker.processor_shares import FREE_NS, NS_PER_BYTE, Bill, ProcessorShares
from fencepost.broker.security.principal import ANONYMOUS, Principal
from fencepost.broker.slices import HelperWork, Slices
from fencepost.ports import Workers
from fencepost.promise import Promise
from fencepost.simulation.clock import LOOK_NS, VirtualClock
from fencepost.simulation.node import SimulatedNode
from fencepost.simulation.scheduler import SimulatedScheduler
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest, MetadataRequest

MS = 1_000_000
ALICE = Principal("User", "alice")


def spend(shares: ProcessorShares, used_ns: int, now_ms: int, host: str = "here") -> Bill:
    bill = shares.bill(ANONYMOUS, host, 0)
    bill.add(used_ns, now_ms)
    return bill


def test_the_first_millisecond_is_free() -> None:
    shares = ProcessorShares(20, burst_ms=0)
    assert spend(shares, FREE_NS, 0).pause_ms(0) == 0
    assert len(shares) == 0


def test_bytes_received_pay_for_processor_time() -> None:
    shares = ProcessorShares(20, burst_ms=0)
    bill = shares.bill(ANONYMOUS, "here", 10_000)
    bill.add(FREE_NS + 10_000 * NS_PER_BYTE, 0)
    assert bill.pause_ms(0) == 0
    bill.add(MS, 0)
    assert bill.pause_ms(0) == 5


def test_what_is_beyond_that_is_waited_for_by_the_clients_share() -> None:
    shares = ProcessorShares(20, burst_ms=0)
    bill = spend(shares, FREE_NS + 10 * MS, 0)
    assert bill.pause_ms(0) == 50
    assert bill.pause_ms(30) == 20
    assert bill.pause_ms(50) == 0


def test_a_burst_passes_and_comes_back_with_time_but_grows_no_further() -> None:
    shares = ProcessorShares(20, burst_ms=100)
    assert spend(shares, FREE_NS + 100 * MS, 0).pause_ms(0) == 0
    assert spend(shares, FREE_NS + MS, 0).pause_ms(0) == 5
    assert spend(shares, FREE_NS + 100 * MS, 3_600_000).pause_ms(3_600_000) == 0
    assert spend(shares, FREE_NS + MS, 3_600_000).pause_ms(3_600_000) == 5


def test_a_request_that_is_not_expensive_does_not_wait_for_one_that_is() -> None:
    shares = ProcessorShares(20, burst_ms=0)
    spend(shares, FREE_NS + 100 * MS, 0)
    assert spend(shares, FREE_NS, 0).pause_ms(0) == 0


def test_clients_are_told_apart_by_principal_and_address() -> None:
    shares = ProcessorShares(20, burst_ms=10)
    spend(shares, FREE_NS + 100 * MS, 0)
    for principal, host in ((ALICE, "here"), (ANONYMOUS, "there")):
        other = shares.bill(principal, host, 0)
        other.add(FREE_NS + 5 * MS, 0)
        assert other.pause_ms(0) == 0
    assert spend(shares, FREE_NS + 1, 0).pause_ms(0) > 0


def test_a_large_answer_pays_for_work_and_its_writing_costs_nothing() -> None:
    shares = ProcessorShares(20, burst_ms=0)
    bill = spend(shares, FREE_NS + 6 * MS, 0)
    assert bill.answering(0, 0) == 30
    bill.add(500 * MS, 0)
    bill.sent(5_000)
    assert spend(shares, FREE_NS + 1, 0).pause_ms(0) == 16
    bill.sent(1 << 20)
    assert spend(shares, FREE_NS + 1, 0).pause_ms(0) == 1


def test_an_answer_asks_for_no_wait_that_is_over() -> None:
    """Java's clients send nothing for as long as an answer says; what its request has waited for, they have, too."""
    shares = ProcessorShares(20, burst_ms=0)
    bill = spend(shares, FREE_NS + 10 * MS, 0)
    assert bill.pause_ms(0) == 50
    bill.add(2 * MS, 50)
    assert bill.answering(0, 50) == 10


def test_accounts_take_a_bounded_amount_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_shares, "ACCOUNTS_MAX", 3)
    shares = ProcessorShares(20, burst_ms=10)
    for number in range(10):
        spend(shares, FREE_NS + (100 if number else 5) * MS, 0, f"host-{number}")
    assert len(shares) == 3
    # Those whose share has come back are forgotten first: nothing is lost.
    spend(shares, FREE_NS + MS, 1_000, "late")
    assert len(shares) == 1


class AtOnce:
    def run(self, function: object, done: object) -> None:
        done(function())  # type: ignore[operator]


class Stage:
    def __init__(self, burst_ms: int = 1) -> None:
        self.scheduler = SimulatedScheduler(VirtualClock())
        self.clock = self.scheduler.clock
        self.slices = Slices(self.scheduler, self.clock)
        self.shares = ProcessorShares(20, burst_ms)
        self.errors: list[Exception] = []

    def run(self, work_ns: int, received_bytes: int = 0) -> Promise[None]:
        bill = self.shares.bill(ANONYMOUS, "here", received_bytes)
        return self.slices.run(self._steps(work_ns), self.errors.append, bill=bill)

    def _steps(self, work_ns: int) -> Generator[None, None, None]:
        for _ in range(work_ns // LOOK_NS):
            yield

    def taken_ms(self, result: Promise[None]) -> int:
        started = self.clock.monotonic_ms()
        assert self.scheduler.run_until(lambda: result.done, 100_000)
        return self.clock.monotonic_ms() - started


def test_expensive_work_gets_the_clients_share_of_the_time() -> None:
    stage = Stage()
    taken_ms = stage.taken_ms(stage.run(101 * MS))
    assert 450 <= taken_ms <= 550
    assert stage.slices.pauses > 100


def test_expensive_work_of_one_client_shares_its_share() -> None:
    stage = Stage()
    results = [stage.run(21 * MS) for _ in range(5)]
    assert stage.taken_ms(results[-1]) >= 450
    assert stage.taken_ms(results[0]) == 0, "they took turns"


def test_work_that_its_bytes_pay_for_never_waits() -> None:
    stage = Stage()
    assert stage.taken_ms(stage.run(100 * MS, received_bytes=200_000)) == 0
    stage.run(50 * MS)
    assert stage.taken_ms(stage.run(100 * MS, received_bytes=200_000)) == 0


def test_work_in_helper_threads_counts() -> None:
    stage = Stage()
    workers: Workers = AtOnce()

    def long() -> str:
        for _ in range(11 * MS // LOOK_NS):
            stage.clock.work_ns()
        return "unpacked"

    def steps() -> Generator[HelperWork, None, None]:
        done: list[HelperWork] = []
        # Told later, as helper threads do.
        helper = stage.slices.in_a_helper(workers, long)
        later = HelperWork()
        later.taken_ns = helper.taken_ns
        stage.scheduler.call_later(1, lambda: later.resolve(helper.value))
        done.append(later)
        yield later
        assert later.value == "unpacked"
        for _ in range(100):
            yield None  # type: ignore[misc]

    bill = stage.shares.bill(ANONYMOUS, "here", 0)
    assert stage.taken_ms(stage.slices.run(steps(), stage.errors.append, bill=bill)) >= 45


def test_a_stop_ends_what_is_paused() -> None:
    stage = Stage()
    result = stage.run(101 * MS)
    stage.scheduler.run_ready()
    stage.slices.stop()
    assert not stage.scheduler.run_until(lambda: result.done, 10_000)
    assert stage.errors == []


@pytest.fixture
def machine() -> Iterator[SimulatedNode]:
    made = SimulatedNode({"expensive.request.burst.ms": "10"}, seed=1).start()
    yield made
    made.stop()


def create(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


def test_a_client_that_creates_thousands_of_partitions_waits_once(machine: SimulatedNode) -> None:
    noisy, other = machine.connect(), machine.connect()
    first = noisy.call(ApiKey.CREATE_TOPICS, 7, create("first", 1_000))
    assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 0)
    started_ms = machine.clock.monotonic_ms()
    asked = noisy.send(ApiKey.CREATE_TOPICS, 7, create("second", 5_000))
    machine.scheduler.run_ready()
    assert asked not in noisy.answers
    # Small requests, of the same client on another connection, are served as ever.
    assert other.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).error_code == 0
    assert len(other.call(ApiKey.METADATA, 12, MetadataRequest(topics=None)).topics) == 1
    assert machine.clock.monotonic_ms() == started_ms
    noisy.wait(asked)
    answer = noisy.answers[asked]
    assert answer.topics[0].error_code == 0
    # 5,000 partitions are 25 ms of simulated work, of which the client gets a fifth of the time.
    waited_ms = machine.clock.monotonic_ms() - started_ms
    assert 50 <= waited_ms <= 250
    # A last slice of the work may be left to wait for.
    assert answer.throttle_time_ms < waited_ms / 5


def test_a_new_connection_does_not_get_a_new_share(machine: SimulatedNode) -> None:
    machine.connect().call(ApiKey.CREATE_TOPICS, 7, create("first", 5_000))
    started_ms = machine.clock.monotonic_ms()
    machine.connect().call(ApiKey.CREATE_TOPICS, 7, create("second", 5_000))
    assert machine.clock.monotonic_ms() - started_ms >= 80


def test_without_a_limit_nobody_waits() -> None:
    machine = SimulatedNode({"expensive.request.percentage": "100", "expensive.request.burst.ms": "1"}, seed=1).start()
    socket = machine.connect()
    for _ in range(3):
        assert socket.call(ApiKey.CREATE_TOPICS, 7, create("t", 2_000)).throttle_time_ms == 0
        gone = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=1_000)
        assert socket.call(ApiKey.DELETE_TOPICS, 6, gone).throttle_time_ms == 0
    assert machine.node.slices.pauses == 0
    assert machine.clock.monotonic_ms() == 0
    machine.stop()
