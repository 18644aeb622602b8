"""Produce inside, outside, before and after transactions."""

from typing import Any

from tests.interop.cases.peer import CLOSED, Peer, produce_request
from tests.interop.cases.transactional import ABORT, COMMIT, STRANGER, Script, transaction_case
from tests.peers.batches import TRANSACTIONAL, batch

OLD_VERSIONS = range(3, 12)


@transaction_case
def produce_without_adding_the_partition(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.init()
    refused = [producer.produce(topic, version=version) for version in OLD_VERSIONS]
    return refused, script.state(producer, topics=[topic])


@transaction_case
def produce_without_adding_is_adding_in_new_versions(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(partitions=2), script.producer()
    producer.init()
    return [
        producer.produce(topic, version=12),
        script.state(producer, topics=[topic]),
        producer.produce(topic, version=12),
        producer.produce(topic, version=12, partition=1),
        script.state(producer, topics=[topic], partitions=(0, 1)),
        producer.end(COMMIT, 5),
        script.state(producer, topics=[topic], partitions=(0, 1)),
    ]


@transaction_case
def produce_after_adding_in_every_old_version(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(partitions=2), script.producer()
    producer.init()
    answers = [producer.add(topic, 0), [producer.produce(topic, version=version) for version in OLD_VERSIONS]]
    answers += [[producer.produce(topic, version=version, partition=1) for version in OLD_VERSIONS]]
    return answers, producer.end(COMMIT), script.state(producer, topics=[topic], partitions=(0, 1))


@transaction_case
def produce_with_a_wrong_identity(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(partitions=2), script.producer()
    producer.init()
    producer.init()
    answers = [producer.add(topic)]
    for version in (3, 9, 10, 11, 12):
        answers += [
            producer.produce(topic, version=version, epoch=0),
            producer.produce(topic, version=version, epoch=2),
            producer.produce(topic, version=version, producer_id=STRANGER),
            producer.produce(topic, version=version, producer_id=STRANGER, partition=1),
            script.producer("unknown").produce(topic, version=version, producer_id=STRANGER, epoch=0, partition=1),
            producer.produce(topic, version=version, epoch=0, partition=1),
        ]
    return answers, script.state(producer, topics=[topic], partitions=(0, 1))


@transaction_case
def produce_with_a_wrong_epoch_into_an_open_transaction(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version in (11, 12):
        topic, producer = peer.topic(f"t{version}"), script.producer(f"id{version}")
        producer.init()
        producer.init()
        answers += [
            producer.open(topic, version),
            producer.produce(topic, version=version, epoch=0, sequence=1),
            producer.produce(topic, version=version, epoch=2, sequence=0),
            producer.produce(topic, version=version),
            script.state(producer, topics=[topic]),
        ]
    return answers


@transaction_case
def produce_after_the_end(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version, end_version in ((3, 0), (10, 1), (11, 4), (12, 5)):
        for result in (COMMIT, ABORT):
            stem = f"{version}{result}"
            topic, producer = peer.topic(stem), script.producer(stem)
            producer.init()
            producer.open(topic, version)
            before = producer.epoch
            answers += [
                producer.end(result, end_version),
                producer.produce(topic, version=version, epoch=before, sequence=1),
                producer.produce(topic, version=version, epoch=before, sequence=0),  # a repetition
                producer.produce(topic, version=version, epoch=before, sequence=5),
                script.state(producer, topics=[topic]),
            ]
    return answers


@transaction_case
def produce_after_the_next_transaction_has_added_the_partition(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    answers = [producer.open(topic), producer.end(ABORT), producer.add(topic)]
    answers += [
        producer.produce(topic, sequence=5),  # a gap
        producer.produce(topic, sequence=0),  # sent before, and aborted
        producer.produce(topic, sequence=1),
        script.state(producer, topics=[topic]),
        producer.end(COMMIT),
        script.state(producer, topics=[topic]),
    ]
    return answers


@transaction_case
def sequences_after_the_epoch_has_grown(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    answers = [producer.open(topic, 12), producer.produce(topic, version=12), producer.end(COMMIT, 5)]
    answers += [
        producer.produce(topic, version=12, sequence=2),
        producer.produce(topic, version=12, sequence=1),
        script.state(producer, topics=[topic]),
        producer.produce(topic, version=12, sequence=0),
        producer.produce(topic, version=12, sequence=2),
        producer.produce(topic, version=12, sequence=1),
        producer.produce(topic, version=12, sequence=0),
        producer.end(COMMIT, 5),
        script.state(producer, topics=[topic]),
    ]
    return answers


@transaction_case
def a_first_batch_that_does_not_begin_at_zero(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version in (3, 11, 12):
        topic, producer = peer.topic(f"t{version}"), script.producer(f"id{version}")
        producer.init()
        producer.add(topic)
        answers += [
            producer.produce(topic, version=version, sequence=3),
            producer.produce(topic, version=version, sequence=0),
            producer.produce(topic, version=version, sequence=1),
            script.state(producer, topics=[topic]),
        ]
    return answers


@transaction_case
def sequences_that_go_on_after_an_old_client_was_initialised_again(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    answers = [producer.open(topic), producer.end(COMMIT), producer.init_again(), producer.add(topic)]
    answers += [producer.produce(topic, sequence=1), producer.produce(topic, sequence=0), producer.end(COMMIT)]
    return answers, script.state(producer, topics=[topic])


@transaction_case
def a_plain_batch_of_a_producer_with_an_open_transaction(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(partitions=2), script.producer()
    producer.open(topic)
    return [
        producer.produce(topic, transactional=False),
        producer.produce(topic, transactional=False, TransactionalId=None),
        producer.produce(topic, transactional=False, partition=1),
        producer.produce(topic),
        script.state(producer, topics=[topic], partitions=(0, 1)),
    ]


@transaction_case
def a_transactional_batch_under_another_or_no_id(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer, other = peer.topic(), script.producer(), script.producer("other")
    producer.init()
    other.init()
    producer.add(topic)
    return [
        [producer.produce(topic, version=version, TransactionalId=None) for version in (3, 9, 11, 12)],
        [producer.produce(topic, version=version, TransactionalId=other.name) for version in (3, 9, 11, 12)],
        [producer.produce(topic, version=version, TransactionalId="") for version in (3, 9, 11, 12)],
        script.state(producer, other, topics=[topic]),
    ]


@transaction_case
def batches_of_two_producers_in_one_request(peer: Peer) -> Any:
    script = Script(peer)
    topic, one, two = peer.topic(partitions=2), script.producer("one"), script.producer("two")
    one.init()
    two.init()
    one.add(topic, 0)
    two.add(topic, 1)

    def sent(producer_id: int, attributes: int = TRANSACTIONAL) -> bytes:
        return batch(attributes=attributes, producer_id=producer_id, producer_epoch=0, base_sequence=0)

    def both(first: bytes, second: bytes, version: int) -> Any:
        data = [{"Index": 0, "Records": first}, {"Index": 1, "Records": second}]
        request = {"TransactionalId": one.name, "Acks": -1, "TimeoutMs": 5000}
        request["TopicData"] = [{"Name": topic, "PartitionData": data}]
        return script.ask("Produce", version, request)

    return [
        [both(sent(one.producer_id), sent(two.producer_id), version) for version in (3, 9, 12)],
        both(sent(one.producer_id), sent(two.producer_id, attributes=0), 11),
        script.state(one, two, topics=[topic], partitions=(0, 1)),
    ]


@transaction_case
def one_partition_added_and_one_not_in_one_request(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version in (9, 11, 12):
        topic, producer = peer.topic(f"t{version}", partitions=2), script.producer(f"id{version}")
        producer.init()
        producer.add(topic, 0)
        content = batch(attributes=TRANSACTIONAL, producer_id=producer.producer_id, producer_epoch=0, base_sequence=0)
        data = [{"Index": index, "Records": content} for index in (0, 1, 7)]
        request = {"TransactionalId": producer.name, "Acks": -1, "TimeoutMs": 5000}
        request["TopicData"] = [{"Name": topic, "PartitionData": data}]
        answers += [script.ask("Produce", version, request)]
        answers += [script.state(producer, topics=[topic], partitions=(0, 1))]
    return answers


@transaction_case
def a_transactional_batch_with_every_acks(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.init()
    producer.add(topic)
    answers = [producer.produce(topic, Acks=acks) for acks in (1, -1)]
    content = batch(attributes=TRANSACTIONAL, producer_id=producer.producer_id, producer_epoch=9, base_sequence=0)
    refused = peer.connect()
    refused.send("Produce", 11, produce_request(topic, content, acks=0, TransactionalId=producer.name))
    return answers, refused.is_closed(), script.state(producer, topics=[topic])


@transaction_case
def a_control_batch_in_a_transaction(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.open(topic)
    forged = batch(
        [b"\0\0\0\0\0\0"],
        key=b"\0\0\0\1",
        attributes=0x30,
        producer_id=producer.producer_id,
        producer_epoch=0,
        base_sequence=1,
    )
    answer = script.ask("Produce", 11, produce_request(topic, forged, TransactionalId=producer.name))
    assert answer != CLOSED
    return answer, script.state(producer, topics=[topic])


@transaction_case
def transactional_batches_to_topics_that_do_not_exist(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.init()
    nowhere = peer.name("nowhere")
    answers = [producer.produce(nowhere, version=version) for version in (9, 11, 12)]
    answers += [producer.produce(topic, partition=7, version=version) for version in (9, 11, 12)]
    return answers, script.state(producer)


@transaction_case
def more_than_five_batches_and_a_repetition(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version, end_version in ((11, 4), (12, 5)):
        topic, producer = peer.topic(f"t{version}"), script.producer(f"id{version}")
        answers += [producer.open(topic, version), [producer.produce(topic, 2, version=version) for _ in range(6)]]
        answers += [producer.produce(topic, 2, version=version, sequence=each) for each in (11, 3, 1, 0, 20)]
        answers += [producer.end(ABORT, end_version), script.state(producer, topics=[topic])]
    return answers


@transaction_case
def reading_with_limits_on_both_sides_of_what_is_undecided(peer: Peer) -> Any:
    script = Script(peer)
    topic, one, two = peer.topic(), script.producer("one"), script.producer("two")
    peer.fill(topic, 2)
    one.open(topic)
    peer.fill(topic, 2)
    answers = [script.state(one, topics=[topic]), [script.fetched(topic, 0, 1, each) for each in range(6)]]
    two.open(topic)
    two.end(ABORT)
    answers += [script.state(one, two, topics=[topic]), [script.fetched(topic, 0, 1, each) for each in range(8)]]
    one.end(ABORT)
    peer.fill(topic, 1)
    return answers, script.state(one, two, topics=[topic]), [script.fetched(topic, 0, 1, each) for each in range(10)]
