"""The broker is killed with SIGKILL at points of the two-phase commit; afterwards a transaction is whole or not at all.

A commit that was acknowledged stays; one whose answer was lost may have gone either way, but the same way in all of its
partitions and in the group's offsets, and the client's own retry tells which.
"""

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.faults.clients import FORGIVEN
from tests.faults.conftest import CONFIGS, settled
from tests.faults.proxy import Direction, FaultProxy
from tests.faults.scene import ends, same_producer, script
from tests.interop.cases.peer import CLOSED
from tests.interop.cases.transactional import ABORT, COMMIT, Script
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.support.patience import patient

pytestmark = [pytest.mark.timeout(60), pytest.mark.xdist_group("crash-points"), *FORGIVEN]
PARTITIONS = 3
COMMIT_KEY = b"\0\0\0\1"


@pytest.fixture(scope="module")
def victim() -> Iterator[BrokerProcess]:
    with FencepostProcess(CONFIGS) as process:
        yield settled(process)


def decisions(watcher: Script, topic: str, partition: int) -> set[bool]:
    """What the markers of a partition say: commit or abort."""
    contents = [content for *_, content in watcher.fetched(topic, partition, 0)["batches"] if content]
    return {bytes.fromhex(content)[5:9] == COMMIT_KEY for content in contents}


class Kill:
    """SIGKILL for a broker, to be given once, by whoever comes to it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._is_done = threading.Event()

    def __call__(self) -> None:
        self._broker.kill()
        self._is_done.set()

    def wait(self) -> None:
        assert self._is_done.wait(patient(10))


Plan = Callable[[FaultProxy, Kill], object]


def as_the_request_comes(proxy: FaultProxy, kill: Kill) -> None:
    proxy.on("EndTxn", kill)


def as_the_answer_goes(proxy: FaultProxy, kill: Kill) -> None:
    proxy.on("EndTxn", kill, Direction.RESPONSE)


def soon_after_the_request(microseconds: int) -> Plan:
    """Somewhere between the first write of the decision and the last of its markers."""
    return lambda proxy, kill: proxy.on("EndTxn", threading.Timer(microseconds / 1e6, kill).start)


PLANS: dict[str, Plan] = {
    "request": as_the_request_comes,
    "answer": as_the_answer_goes,
    **{f"after-{delay}-us": soon_after_the_request(delay) for delay in (100, 700, 1_300, 2_000, 3_000)},
}


@pytest.mark.parametrize("protocol", [(11, 4), (12, 5)], ids=["tv1", "tv2"])
@pytest.mark.parametrize("point", PLANS)
def test_a_crash_in_the_two_phase_commit_leaves_all_or_nothing(
    point: str, protocol: tuple[int, int], victim: BrokerProcess, unique: Callable[[str], str]
) -> None:
    version, end_version = protocol
    name = unique("crash")
    with FaultProxy(victim.address) as proxy:
        producer = script(proxy, name).producer()
        topic = producer.script.peer.topic(partitions=PARTITIONS)
        group = f"group-{name}"
        producer.init()
        if version < 12:
            producer.add(topic, *range(PARTITIONS))
            producer.add_offsets(group)
        for partition in range(PARTITIONS):
            assert producer.produce(topic, 2, version=version, partition=partition)[0] == 0
        assert producer.commit_offset(group, topic, 17, version=5 if version == 12 else 4) == 0
        before = producer.epoch
        kill = Kill(victim)
        PLANS[point](proxy, kill)
        answer = producer.end(COMMIT, end_version, wait=False)
        kill.wait()
    victim.start()
    after = same_producer(producer, script(victim, name))
    after.settle("Ongoing", "CompleteCommit")
    if answer != CLOSED and answer["ErrorCode"] == 0:
        assert after.script.describe(after.name)[0]["TransactionState"] == "CompleteCommit"
    if after.script.describe(after.name)[0]["TransactionState"] == "Ongoing":
        # The decision did not survive: nothing is visible, and the client may still decide.
        assert [ends(after.script, topic, each)[1] for each in range(PARTITIONS)] == [0] * PARTITIONS
        assert after.script.offset(group, topic)[0] == 88
        assert after.end(ABORT, end_version, epoch=before)["ErrorCode"] == 0
        expected, aborted = -1, True
    else:
        assert after.end(COMMIT, end_version, epoch=before)["ErrorCode"] == 0, "the retry of the lost answer"
        expected, aborted = 17, False
    for partition in range(PARTITIONS):
        end, last_stable_offset = ends(after.script, topic, partition)
        assert end == last_stable_offset
        # A marker whose writing nobody remembers is written again, as in Kafka, and then decides nothing.
        assert decisions(after.script, topic, partition) == {not aborted}
        assert bool(after.script.fetched(topic, partition, 1)["aborted"]) == aborted
    assert after.script.offset(group, topic)[:2] == (0, expected)


def test_the_crash_of_the_broker_with_an_open_transaction_leaves_it_to_the_client(
    victim: BrokerProcess, unique: Callable[[str], str]
) -> None:
    name = unique("open")
    producer = script(victim, name).producer()
    topic = producer.script.peer.topic()
    producer.open(topic, 12)
    victim.kill()
    victim.start()
    after = same_producer(producer, script(victim, name))
    assert after.produce(topic, version=12) == (0, 1, 0)
    assert after.end(COMMIT, 5)["ErrorCode"] == 0
    assert ends(after.script, topic) == (3, 3)
