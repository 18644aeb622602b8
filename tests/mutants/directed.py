"""Checks by name for what no simulated client can notice, because a second line of defence hides it from them."""

import contextlib

from fencepost.coordinators.transactions.effects import MarkerOrder
from fencepost.log.producers import Origin
from fencepost.simulation.disk import PowerCut
from fencepost.simulation.node import SimulatedNode
from fencepost.wire.batch import build_batch
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import EndTxnRequest
from tests.durability.scene import Client
from tests.durability.test_power_cut import test_nothing_promised_is_lost_by_power_cuts_at_random_moments
from tests.durability.test_two_phase_commit import (
    ID,
    INPUT,
    OUTPUTS,
    SETTINGS,
    Reader,
    Shop,
    test_a_full_disk_delays_the_end_of_a_decided_transaction_and_does_not_prevent_it,
    test_a_transaction_counts_as_a_whole_or_not_at_all_whenever_the_power_fails,
    test_whose_an_open_transaction_is_is_asked_again_after_a_restart,
)
from tests.unit.coordinators.transactions.test_ending import (
    test_a_zombie_of_protocol_2_never_gets_the_epoch_of_a_live_producer_of_protocol_1,
)
from tests.unit.log import test_life_and_death

TOPIC = OUTPUTS[0]


def promises_outlast_torn_writes() -> None:
    """Whatever was acknowledged, read or committed, by a longer run with power cuts that tear what was not synced."""
    for seed in range(12):
        test_nothing_promised_is_lost_by_power_cuts_at_random_moments(PowerCut.TORN, seed)


def transactions_count_as_a_whole_at_every_cut() -> None:
    """The power is cut before every single disk operation of a commit and of an abort."""
    for is_commit in (True, False):
        for mode in (PowerCut.PREFIX, PowerCut.LOSE_ALL):
            test_a_transaction_counts_as_a_whole_or_not_at_all_whenever_the_power_fails(2, is_commit, mode)


def _shop(protocol: int) -> tuple[SimulatedNode, Shop]:
    machine = SimulatedNode(SETTINGS, seed=1).start()
    shop = Shop(machine, protocol)
    shop.open()
    return machine, shop


def _end(shop: Shop, client: Client, *, is_commit: bool) -> int:
    request = EndTxnRequest(
        transactional_id=ID, producer_id=shop.producer_id, producer_epoch=shop.producer_epoch, committed=is_commit
    )
    return client.socket.send(ApiKey.END_TXN, 3, request)


def old_epochs_are_refused() -> None:
    machine = SimulatedNode(SETTINGS).start()
    client = Client(machine)
    client.create_topic(TOPIC)
    producer_id = client.producer_id()
    assert client.produce(TOPIC, b"new", producer_id=producer_id, producer_epoch=1, base_sequence=0).error_code == 0
    old = client.produce(TOPIC, b"old", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH, old


def gaps_in_sequences_are_refused() -> None:
    machine = SimulatedNode(SETTINGS).start()
    client = Client(machine)
    client.create_topic(TOPIC)
    producer = {"producer_id": client.producer_id(), "producer_epoch": 0}
    assert client.produce(TOPIC, b"first", base_sequence=0, **producer).error_code == 0
    gap = client.produce(TOPIC, b"third", base_sequence=2, **producer)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, gap


def full_disks_only_delay_the_end() -> None:
    """The Complete record meets a disk without room."""
    test_a_full_disk_delays_the_end_of_a_decided_transaction_and_does_not_prevent_it(2, 3)


def overtaken_verifications_open_nothing() -> None:
    """KAFKA-14884: a marker comes between the coordinator's answer and the append."""
    machine, shop = _shop(1)
    shop._add_partitions()
    partition = machine.node.partition(TOPIC, 0)
    now_ms = machine.clock.wall_ms()
    guard = partition.log.producers.maybe_start_verification(
        "shop", shop.producer_id, 0, shop.producer_epoch, False, now_ms
    )
    marker = MarkerOrder("", shop.producer_id, shop.producer_epoch, 0, False, 0, ())
    assert partition.append_markers([marker], now_ms) == [None]
    batch = build_batch(
        [(now_ms, None, b"late", ())],
        producer_id=shop.producer_id,
        producer_epoch=shop.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    with contextlib.suppress(KafkaError):
        partition.append(memoryview(batch), Origin.CLIENT, now_ms, guard)
        raise AssertionError("the late batch has opened a transaction that nobody will end")


def open_transactions_belong_to_their_id() -> None:
    for protocol in (1, 2):
        test_whose_an_open_transaction_is_is_asked_again_after_a_restart(protocol)


def epochs_before_belong_to_zombies() -> None:
    test_a_zombie_of_protocol_2_never_gets_the_epoch_of_a_live_producer_of_protocol_1()


def open_transactions_outlive_a_restart() -> None:
    machine, shop = _shop(1)
    shop._add_partitions()
    for topic in OUTPUTS:
        shop._produce(topic, b"first")
    machine.crash()
    machine.start()
    machine.scheduler.run_for(1_000)
    client = Client(machine)
    number = _end(shop, client, is_commit=True)
    client.socket.wait(number)
    assert client.socket.answers[number].error_code == 0, client.socket.answers[number]
    machine.scheduler.run_for(1_000)
    assert Reader(machine).visible(TOPIC) == [b"first"]


def late_ends_do_nothing() -> None:
    """KAFKA-17754: EndTxn is held up, sent again on a new connection, and arrives in the next transaction."""
    machine, shop = _shop(1)
    shop._add_partitions()
    old_connection = shop.client
    shop.client = Client(machine)
    shop.transact(b"first", 1, is_commit=True)
    machine.scheduler.run_for(1_000)
    shop._add_partitions()
    for topic in OUTPUTS:
        shop._produce(topic, b"second")
    _end(shop, old_connection, is_commit=True)
    machine.scheduler.run_for(1_000)
    assert Reader(machine).visible(TOPIC) == [b"first"], "the late call has committed the next transaction"


def pending_offsets_are_unstable() -> None:
    machine, shop = _shop(2)
    shop.transact(b"first", 1, is_commit=True)
    machine.scheduler.run_for(1_000)
    shop._produce(TOPIC, b"second")
    shop._send_offsets(2)
    assert Reader(machine).committed() is None, f"the offset of {INPUT} is shown although it is not decided"


def overlapping_syncs_count_what_they_cover() -> None:
    test_life_and_death.test_what_is_synced_twice_at_a_time_never_counts_more_than_the_first_has_covered()


def a_deleted_log_leaves_the_next_topics_files_alone() -> None:
    for name in test_life_and_death.CALLS:
        test_life_and_death.test_every_call_on_a_retired_log_raises_and_touches_nothing(name)


def producer_ids_are_handed_out_once() -> None:
    """Those in the logs are skipped anyway: this one never wrote anything."""
    machine = SimulatedNode(SETTINGS).start()
    first = Client(machine).producer_id()
    machine.crash()
    machine.start()
    assert Client(machine).producer_id() > first
    machine.stop()
