"""A transaction over two topics and a group's offsets, with the power cut before every single disk operation.

Whatever the moment, and whatever the disk loses of what was not synced: after the restart either everything of the
transaction counts or nothing does, and what EndTxn acknowledged is what happened. Under both protocols.
"""

import errno
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.simulation.disk import PowerCut
from fencepost.simulation.fragile_disk import FragileDisk, MachineDied
from fencepost.simulation.node import SimulatedNode
from fencepost.wire.batch import build_batch, iterate_headers
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from tests.durability.scene import SMALL, Client, values_in

SETTINGS = {**SMALL, "transaction.state.log.num.partitions": "1"}
OUTPUTS = ("invoices", "shipments")
INPUT, GROUP, ID = "purchases", "shop", "shop-1"
TIMEOUT_MS = 30_000
FINISHED_MS = 5_000
UNSTABLE_OFFSET_COMMIT = 88
INVALID_PRODUCER_ID_MAPPING = 49


class Shop:
    """One transactional client of one protocol."""

    def __init__(self, machine: SimulatedNode, protocol: int) -> None:
        self.client = Client(machine)
        self.machine = machine
        self.is_new = protocol == 2
        self.producer_id = self.producer_epoch = -1
        self.sequences = dict.fromkeys(OUTPUTS, 0)
        self.acknowledged: bool | None = None

    def open(self) -> None:
        for topic in (*OUTPUTS, INPUT):
            assert self.client.create_topic(topic) == 0
        for key_type, key in ((0, GROUP), (1, ID)):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            assert self._call(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code == 0
        answer = self._call(
            ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS)
        )
        assert answer.error_code == 0
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

    def transact(self, value: bytes, input_offset: int, *, is_commit: bool) -> None:
        self.acknowledged = None
        if not self.is_new:
            self._add_partitions()
        for topic in OUTPUTS:
            self._produce(topic, value)
        self._send_offsets(input_offset)
        identity = {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        request = EndTxnRequest(transactional_id=ID, committed=is_commit, **identity)
        answer = self._call(ApiKey.END_TXN, 5 if self.is_new else 3, request)
        assert answer.error_code == 0, answer
        self.acknowledged = is_commit
        if self.is_new:
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
            self.sequences = dict.fromkeys(OUTPUTS, 0)

    def _add_partitions(self) -> None:
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in OUTPUTS]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=topics,
        )
        answer = self._call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
        for topic in answer.results_by_topic_v3_and_below:
            assert topic.results_by_partition[0].partition_error_code == 0, answer

    def _produce(self, topic: str, value: bytes) -> None:
        assert self.try_to_produce(topic, value) == 0
        self.sequences[topic] += 1

    def try_to_produce(self, topic: str, value: bytes, transactional_id: str = ID) -> int:
        """One batch of the present producer, under this transactional id or another; the error code."""
        batch = build_batch(
            [(self.machine.clock.wall_ms(), None, value, ())],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequences[topic],
            transactional=True,
        )
        data = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=batch)
        topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=topics)
        answer = self._call(ApiKey.PRODUCE, 12 if self.is_new else 9, request)
        return int(answer.responses[0].partition_responses[0].error_code)

    def _send_offsets(self, input_offset: int) -> None:
        identity = {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        if not self.is_new:
            request = AddOffsetsToTxnRequest(transactional_id=ID, group_id=GROUP, **identity)
            assert self._call(ApiKey.ADD_OFFSETS_TO_TXN, 3, request).error_code == 0
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        one = topic.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=input_offset)
        request = TxnOffsetCommitRequest(
            transactional_id=ID, group_id=GROUP, topics=[topic(name=INPUT, partitions=[one])], **identity
        )
        answer = self._call(ApiKey.TXN_OFFSET_COMMIT, 5 if self.is_new else 3, request)
        assert answer.topics[0].partitions[0].error_code == 0, answer

    def _call(self, api: ApiKey, version: int, request: Any) -> Any:
        return self.client.socket.call(api, version, request)


class Reader:
    """What a reader of committed records and stable offsets sees."""

    def __init__(self, machine: SimulatedNode) -> None:
        self.client = Client(machine)

    def visible(self, topic: str) -> list[bytes | None]:
        answer = self.client.fetch(topic, {0: 0}, isolation_level=1, max_wait_ms=0)
        data = answer.responses[0].partitions[0]
        assert data.error_code == 0
        aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
        values: list[bytes | None] = []
        view = memoryview(data.records or b"")
        active: set[int] = set()
        for position, header in iterate_headers(view):
            while aborted and aborted[0][0] <= header.last_offset:
                active.add(aborted.pop(0)[1])
            batch = view[position : position + header.size_bytes]
            if header.is_control:
                active.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in active):
                values += [value for _, value in values_in(batch)]
        return values

    def is_decided(self, topic: str) -> bool:
        data = self.client.fetch(topic, {0: 0}, isolation_level=1, max_wait_ms=0).responses[0].partitions[0]
        return bool(data.last_stable_offset == data.high_watermark)

    def committed(self) -> int | None:
        """The group's position; None while a transaction over it is undecided."""
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = [wanted.OffsetFetchRequestTopics(name=INPUT, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[wanted(group_id=GROUP, topics=topics)], require_stable=True)
        (group,) = self.client.socket.call(ApiKey.OFFSET_FETCH, 8, request).groups
        assert group.error_code == 0, group
        one = group.topics[0].partitions[0]
        return None if one.error_code == UNSTABLE_OFFSET_COMMIT else one.committed_offset


def every_cut(protocol: int, *, is_commit: bool) -> Iterator[tuple[int, SimulatedNode, Shop]]:
    """One committed transaction, then a second one that loses power one disk operation later each time."""
    for moment in itertools.count():
        disk = FragileDisk()
        machine = SimulatedNode(SETTINGS, seed=moment, disk=disk).start()
        shop = Shop(machine, protocol)
        shop.open()
        shop.transact(b"first", 1, is_commit=True)
        machine.scheduler.run_for(FINISHED_MS)
        disk.left = moment
        try:
            shop.transact(b"second", 2, is_commit=is_commit)
            machine.scheduler.run_for(FINISHED_MS)
        except MachineDied:
            disk.left = None
            yield moment, machine, shop
        else:
            assert moment > 15, "the transaction hardly touches the disk"
            return


@pytest.mark.parametrize("mode", list(PowerCut))
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("protocol", [1, 2])
def test_a_transaction_counts_as_a_whole_or_not_at_all_whenever_the_power_fails(
    protocol: int, is_commit: bool, mode: PowerCut
) -> None:
    outcomes = set()
    for moment, machine, shop in every_cut(protocol, is_commit=is_commit):
        machine.cut_power(mode)
        machine.start()
        machine.scheduler.run_for(FINISHED_MS)
        reader = Reader(machine)
        if shop.acknowledged is None and not all(reader.is_decided(topic) for topic in OUTPUTS):
            # Nobody was told that it is decided: it is left to its time-out, and not a record of it is visible.
            assert all(reader.visible(topic) == [b"first"] for topic in OUTPUTS), moment
            machine.scheduler.run_for(TIMEOUT_MS + 30_000)
            reader = Reader(machine)
        seen = {topic: reader.visible(topic) for topic in OUTPUTS}
        offset = reader.committed()
        has_happened = seen[OUTPUTS[0]] == [b"first", b"second"]
        expected = [b"first", b"second"] if has_happened else [b"first"]
        note = f"power was lost before operation {moment}; acknowledged: {shop.acknowledged}; {seen}, offset {offset}"
        assert seen == dict.fromkeys(OUTPUTS, expected), note
        assert offset == (2 if has_happened else 1), note
        assert all(reader.is_decided(topic) for topic in OUTPUTS), note
        if shop.acknowledged is not None:
            assert has_happened == shop.acknowledged, note
        if not is_commit:
            assert not has_happened, note
        outcomes.add((shop.acknowledged, has_happened))
    if is_commit:
        # The sweep has seen transactions that never were and ones that outlived the cut.
        assert (None, False) in outcomes
        assert (True, True) in outcomes


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("skipped_writes", [0, 1, 2, 3])
def test_a_full_disk_delays_the_end_of_a_decided_transaction_and_does_not_prevent_it(
    protocol: int, skipped_writes: int
) -> None:
    machine = SimulatedNode(SETTINGS, seed=skipped_writes).start()
    shop = Shop(machine, protocol)
    shop.open()
    shop.transact(b"first", 1, is_commit=True)
    # Markers, the offsets' marker and the Complete record: each in turn meets a disk without room.
    paths = ("invoices-0", "shipments-0", "__consumer_offsets-0", "__transaction_state-0")
    machine.disk.fail_write(paths[skipped_writes], errno.ENOSPC)
    machine.scheduler.run_for(FINISHED_MS)
    shop.transact(b"second", 2, is_commit=True)
    machine.scheduler.run_for(FINISHED_MS)
    reader = Reader(machine)
    assert all(reader.visible(topic) == [b"first", b"second"] for topic in OUTPUTS)
    assert reader.committed() == 2


@pytest.mark.parametrize("protocol", [1, 2])
def test_whose_an_open_transaction_is_is_asked_again_after_a_restart(protocol: int) -> None:
    """The intruder's id exists and is in good order: it only is not the one that the producer id belongs to."""
    machine = SimulatedNode(SETTINGS, seed=1).start()
    shop = Shop(machine, protocol)
    shop.open()
    intruder = InitProducerIdRequest(transactional_id="intruder", transaction_timeout_ms=TIMEOUT_MS)
    assert shop._call(ApiKey.INIT_PRODUCER_ID, 4, intruder).error_code == 0
    if not shop.is_new:
        shop._add_partitions()
    topic = OUTPUTS[0]
    shop._produce(topic, b"first")
    machine.crash()
    machine.start()
    machine.scheduler.run_for(FINISHED_MS)
    shop.client = Client(machine)
    assert shop.try_to_produce(topic, b"forged", "intruder") == INVALID_PRODUCER_ID_MAPPING
    assert shop.try_to_produce(topic, b"forged", "nobody") == INVALID_PRODUCER_ID_MAPPING
    shop._produce(topic, b"second")
    # Known again, and still not open to everybody.
    assert shop.try_to_produce(topic, b"forged", "intruder") == INVALID_PRODUCER_ID_MAPPING
    shop._produce(topic, b"third")
    assert [batch.base_sequence for batch in _batches(machine, topic)] == [0, 1, 2]


def _batches(machine: SimulatedNode, topic: str) -> list[Any]:
    records = Client(machine).fetch(topic, {0: 0}).responses[0].partitions[0].records
    return [header for _, header in iterate_headers(memoryview(records))]
