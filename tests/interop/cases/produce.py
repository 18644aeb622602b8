"""Produce: batches that are right, wrong, repeated, and out of order."""

import time
from typing import Any

from tests.interop.cases.peer import CLOSED, READY_TIMEOUT_SECONDS, Peer, case, comparable, produce_request
from tests.peers.batches import CONTROL, RECENTLY_MS, TRANSACTIONAL, batch

YEAR_MS = 365 * 24 * 3_600_000


@case
def a_good_batch_with_each_acks(peer: Peer) -> Any:
    topic = peer.topic()
    return [peer.produce(topic, batch([b"1", b"2"]), acks=acks) for acks in (-1, 1)]


@case
def acks_0_is_not_answered_but_written(peer: Peer) -> Any:
    topic = peer.topic()
    client = peer.connect()
    client.send("Produce", 9, produce_request(topic, batch([b"1", b"2"]), acks=0))
    # The next answer on the connection is that of the next request.
    asked = {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]}
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while (offset := client.call("ListOffsets", 5, asked)["Topics"][0]["Partitions"][0]["Offset"]) == 0:
        if time.monotonic() > deadline:
            break
    return offset


@case
def acks_0_with_an_error_closes_the_connection(peer: Peer) -> Any:
    client = peer.connect()
    client.send("Produce", 9, produce_request(peer.name("unknown"), batch(), acks=0))
    return client.is_closed()


@case
def acks_2(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch(), acks=2)


@case
def acks_minus_2(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch(), acks=-2)


@case
def a_wrong_crc(peer: Peer) -> Any:
    topic = peer.topic()
    return peer.produce(topic, batch(crc_error=1)), peer.produce(topic, batch())


@case
def magic_1(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch(magic=1))


@case
def magic_0(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch(magic=0))


@case
def magic_3(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch(magic=3))


@case
def a_control_batch_from_a_client(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch(attributes=CONTROL))


@case
def a_control_batch_of_a_producer(peer: Peer) -> Any:
    producer = peer.producer_id()
    return peer.produce(
        peer.topic(),
        batch(
            [b"\0\0\0\0\0\0"],
            key=b"\0\0\0\1",
            attributes=CONTROL | TRANSACTIONAL,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
        ),
    )


@case
def two_batches_for_one_partition(peer: Peer) -> Any:
    topic = peer.topic()
    return [peer.produce(topic, batch() + batch(base_offset=1), version=version) for version in (3, 7, 9)]


@case
def no_records_at_all(peer: Peer) -> Any:
    topic = peer.topic()
    # Null records are left out: Apache Kafka 4.3 fails on them inside and never answers.
    return [peer.produce(topic, b"", version=version) for version in (3, 9)]


@case
def a_batch_of_zero_records(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch([], last_offset_delta=0))


@case
def more_records_counted_than_there_are(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch([b"1", b"2"], record_count=3))


@case
def fewer_records_counted_than_there_are(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch([b"1", b"2"], record_count=1))


@case
def last_offset_delta_that_does_not_fit_the_count(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch([b"1", b"2"], last_offset_delta=5))


@case
def a_negative_last_offset_delta(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch([b"1"], last_offset_delta=-1))


@case
def a_base_offset_that_is_not_zero(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch(base_offset=17))


@case
def a_batch_length_beyond_the_data(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch(length_error=10))


@case
def a_batch_length_short_of_the_data(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch(length_error=-3))


@case
def a_batch_length_too_small_for_a_header(peer: Peer) -> Any:
    return peer.produce(peer.topic(), batch(length_error=-60))


@case
def a_few_bytes_of_rubbish(peer: Peer) -> Any:
    return peer.produce(peer.topic(), b"rubbish")


@case
def a_record_body_of_rubbish(peer: Peer) -> Any:
    topic = peer.topic(cleanup_policy="compact")
    return peer.produce(topic, batch([b"x"], body=b"\xff" * 20))


@case
def records_without_a_key_on_a_compacted_topic(peer: Peer) -> Any:
    topic = peer.topic(cleanup_policy="compact")
    return peer.produce(topic, batch([b"1", b"2"], key=None)), peer.produce(topic, batch([b"1"]))


@case
def an_unknown_compression(peer: Peer) -> Any:
    return [peer.produce(peer.topic(f"codec-{codec}"), batch(attributes=codec)) for codec in (5, 7)]


@case
def log_append_time_claimed_by_the_client(peer: Peer) -> Any:
    topic = peer.topic()
    answer = peer.produce(topic, batch(attributes=8))
    return answer, [header.attributes for header in peer.connect().fetch_batches(topic, 0)]


@case
def log_append_time_of_the_topic(peer: Peer) -> Any:
    topic = peer.topic(message_timestamp_type="LogAppendTime")
    return peer.produce(topic, batch([b"1", b"2"]))


@case
def timestamps_far_in_the_future_and_in_the_past(peer: Peer) -> Any:
    topic = peer.topic(message_timestamp_before_max_ms="1000")
    future = batch([b"1", b"2"], timestamp=RECENTLY_MS + 50 * YEAR_MS)
    return (
        peer.produce(peer.topic("u"), future),
        peer.produce(topic, batch([b"1", b"2"])),
        peer.produce(peer.topic("n"), batch(timestamp=-1)),
    )


@case
def a_batch_larger_than_the_topic_allows(peer: Peer) -> Any:
    topic = peer.topic(max_message_bytes="1000")
    return peer.produce(topic, batch([b"x" * 2000])), peer.produce(topic, batch([b"x" * 500]))


@case
def an_unknown_topic(peer: Peer) -> Any:
    return peer.produce(peer.name("unknown"), batch())


@case
def an_unknown_partition(peer: Peer) -> Any:
    topic = peer.topic()
    return [peer.produce(topic, batch(), partition=partition) for partition in (7, -1)]


@case
def invalid_topic_names(peer: Peer) -> Any:
    return [peer.produce(name, batch()) for name in ("", ".", "no spaces", "x" * 250)]


@case
def an_unknown_topic_id(peer: Peer) -> Any:
    data = [{"Index": 0, "Records": batch()}]
    request = {
        "Acks": -1,
        "TimeoutMs": 5000,
        "TopicData": [{"TopicId": "00000000-0000-0000-0000-0000000000ff", "PartitionData": data}],
    }
    none = {**request, "TopicData": [{"PartitionData": data}]}
    return comparable(peer.call("Produce", 13, request)), comparable(peer.call("Produce", 13, none))


@case
def a_good_topic_id(peer: Peer) -> Any:
    data = [{"Index": 0, "Records": batch()}]
    request = {
        "Acks": -1,
        "TimeoutMs": 5000,
        "TopicData": [{"TopicId": peer.topic_id(peer.topic()), "PartitionData": data}],
    }
    return comparable(peer.call("Produce", 13, request))


@case
def an_internal_topic(peer: Peer) -> Any:
    peer.settled("FindCoordinator", 2, {"Key": "any", "KeyType": 0})
    return peer.produce("__consumer_offsets", batch())


@case
def one_good_and_one_bad_partition(peer: Peer) -> Any:
    topic = peer.topic(partitions=2)
    data = [
        {"Index": 0, "Records": batch()},
        {"Index": 1, "Records": batch(crc_error=1)},
        {"Index": 2, "Records": batch()},
    ]
    answer = peer.call(
        "Produce", 9, {"Acks": -1, "TimeoutMs": 5000, "TopicData": [{"Name": topic, "PartitionData": data}]}
    )
    return comparable(answer)


@case
def the_same_partition_twice_in_a_request(peer: Peer) -> Any:
    topic = peer.topic()
    data = [{"Index": 0, "Records": batch([b"1"])}, {"Index": 0, "Records": batch([b"2"])}]
    answer = peer.call(
        "Produce", 9, {"Acks": -1, "TimeoutMs": 5000, "TopicData": [{"Name": topic, "PartitionData": data}]}
    )
    return answer if answer == CLOSED else comparable(answer)


@case
def a_transactional_batch_without_a_transactional_id(peer: Peer) -> Any:
    producer = peer.producer_id()
    sent = batch(attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0, base_sequence=0)
    return peer.produce(peer.topic(), sent)


# ---- idempotent producers --------------------------------------------------------------------------------------


@case
def sequences_in_order_repeated_and_with_a_gap(peer: Peer) -> Any:
    topic, producer = peer.topic(), peer.producer_id()

    def send(sequence: int, count: int = 1, epoch: int = 0) -> Any:
        values = [b"%d" % (sequence + n) for n in range(count)]
        return peer.produce(topic, batch(values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))

    return [
        send(0, 3),
        send(3, 2),
        send(5),
        send(3, 2),  # a repeated batch: the offset of the first time
        send(0, 3),
        send(4),  # a part of an earlier batch is no repetition
        send(0, 2),
        send(7),  # a gap
        send(6),
        *[send(n) for n in range(7, 13)],
        send(5),  # no longer remembered
        send(12),
        send(8),
    ]


@case
def epochs_new_old_and_unknown(peer: Peer) -> Any:
    topic, producer = peer.topic(), peer.producer_id()

    def send(epoch: int, sequence: int) -> Any:
        return peer.produce(topic, batch([b"v"], producer_id=producer, producer_epoch=epoch, base_sequence=sequence))

    return [
        send(0, 0),
        send(2, 5),  # a new epoch starts at zero
        send(2, 0),
        send(2, 1),
        send(1, 2),  # an old epoch
        send(0, 0),
        send(2, 2),
    ]


@case
def an_unknown_producer_may_start_anywhere(peer: Peer) -> Any:
    topic = peer.topic()
    return peer.produce(topic, batch([b"v"], producer_id=987_654, producer_epoch=3, base_sequence=41))


@case
def a_producer_without_epoch_or_sequence(peer: Peer) -> Any:
    topic, producer = peer.topic(), peer.producer_id()
    return [
        peer.produce(topic, batch([b"v"], producer_id=producer, producer_epoch=-1, base_sequence=0)),
        peer.produce(topic, batch([b"v"], producer_id=producer, producer_epoch=0, base_sequence=-1)),
        peer.produce(topic, batch([b"v"], producer_id=producer, producer_epoch=-1, base_sequence=-1)),
        peer.produce(topic, batch([b"v"], producer_id=-1, producer_epoch=0, base_sequence=0)),
    ]


@case
def sequences_wrap_to_zero(peer: Peer) -> Any:
    topic, producer, last = peer.topic(), peer.producer_id(), 2**31 - 1

    def send(sequence: int, count: int = 1) -> Any:
        return peer.produce(
            topic, batch([b"v"] * count, producer_id=producer, producer_epoch=0, base_sequence=sequence)
        )

    return [send(last - 1), send(last, 2), send(1), send(last, 2), send(3)]


@case
def a_duplicate_with_log_append_time(peer: Peer) -> Any:
    topic, producer = peer.topic(message_timestamp_type="LogAppendTime"), peer.producer_id()
    sent = batch([b"v", b"w"], producer_id=producer, producer_epoch=0, base_sequence=0)
    return [peer.produce(topic, sent), peer.produce(topic, sent)]


@case
def init_producer_id_without_a_transactional_id(peer: Peer) -> Any:
    answers = [
        peer.settled("InitProducerId", version, {"TransactionalId": None, "TransactionTimeoutMs": 1})
        for version in range(6)
    ]
    return [comparable(answer) for answer in answers], len({answer["ProducerId"] for answer in answers})


@case
def init_producer_id_with_half_an_identity(peer: Peer) -> Any:
    request = {"TransactionalId": None, "TransactionTimeoutMs": 1000}
    return [
        comparable(peer.settled("InitProducerId", 4, {**request, "ProducerId": 5, "ProducerEpoch": -1})),
        comparable(peer.settled("InitProducerId", 4, {**request, "ProducerId": -1, "ProducerEpoch": 2})),
        comparable(peer.settled("InitProducerId", 4, {**request, "ProducerId": 5, "ProducerEpoch": 2})),
    ]
