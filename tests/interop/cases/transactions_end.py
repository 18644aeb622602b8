"""EndTxn: the whole table, under both protocols."""

from typing import Any

from tests.interop.cases.peer import Peer
from tests.interop.cases.transactional import ABORT, COMMIT, STRANGER, Producer, Script, transaction_case

RESULTS = (COMMIT, ABORT)
_NAMES = {COMMIT: "Commit", ABORT: "Abort"}


@transaction_case
def end_in_every_version(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.init()
    answers = []
    for version in range(5):
        for result in RESULTS:
            answers += [producer.open(topic), producer.end(result, version), script.describe(producer.name)]
    for result in RESULTS:
        answers += [producer.open(topic, 12), producer.end(result, 5), script.describe(producer.name)]
    return answers, script.state(producer, topics=[topic])


@transaction_case
def end_with_a_wrong_identity(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.init()
    producer.init()
    producer.open(topic)
    answers = [
        [
            producer.end(result, version, epoch=0),
            producer.end(result, version, epoch=2),
            producer.end(result, version, epoch=-1),
            producer.end(result, version, producer_id=STRANGER),
            producer.end(result, version, producer_id=-1, epoch=-1),
            script.producer("unknown").end(result, version, producer_id=1, epoch=0),
            Producer(script, "").end(result, version, producer_id=1, epoch=0, wait=False),
        ]
        for result in RESULTS
        for version in range(6)
    ]
    return answers, script.state(producer, topics=[topic])


@transaction_case
def end_of_nothing_under_the_old_protocol(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    producer.init()
    return [producer.end(result, version) for result in RESULTS for version in range(5)], script.state(producer)


@transaction_case
def end_of_nothing_under_the_new_protocol(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    answers = [producer.init(), producer.end(COMMIT, 5), script.state(producer)]
    # From Empty, then from CompleteAbort: each abort is a transaction of its own.
    for _ in range(3):
        answers += [producer.end(ABORT, 5), script.state(producer), producer.end(COMMIT, 5)]
    return answers


@transaction_case
def end_again_under_the_old_protocol(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for result in RESULTS:
        topic, producer = peer.topic(f"t{result}"), script.producer(f"id{result}")
        producer.open(topic)
        answers.append(producer.end(result))
        answers += [producer.end(again, version) for again in (result, not result) for version in range(5)]
        answers.append(script.state(producer, topics=[topic]))
    return answers


@transaction_case
def end_again_under_the_new_protocol(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for result in RESULTS:
        for again in RESULTS:
            topic, producer = peer.topic(f"t{result}{again}"), script.producer(f"id{result}{again}")
            producer.open(topic, 12)
            before = producer.epoch
            answers += [
                producer.end(result, 5),
                producer.end(again, 5, epoch=before),  # a retry
                producer.end(again, 5, epoch=before),
                producer.end(again, 5, epoch=before + 2),
                producer.end(again, 5, epoch=before - 1),
                producer.end(again, 5, epoch=before, producer_id=STRANGER),
                script.state(producer, topics=[topic]),
                producer.end(again, 5),  # the next transaction, which is empty
                script.state(producer, topics=[topic]),
                producer.end(result, 5, epoch=before),
                producer.end(again, 5, epoch=before),
            ]
    return answers


@transaction_case
def end_by_the_epoch_before_while_the_next_transaction_is_open(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for result in RESULTS:
        topic, producer = peer.topic(f"t{result}"), script.producer(f"id{result}")
        producer.open(topic, 12)
        before = producer.epoch
        answers += [
            producer.end(result, 5),
            producer.open(topic, 12),
            [producer.end(again, 5, epoch=before) for again in RESULTS],
            script.state(producer, topics=[topic]),
            producer.end(COMMIT, 5),
            script.state(producer, topics=[topic]),
        ]
    return answers


@transaction_case
def end_by_the_epoch_before_although_the_last_end_did_not_raise_it(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for result in RESULTS:
        topic, producer = peer.topic(f"t{result}"), script.producer(f"id{result}")
        producer.init()
        producer.init()
        answers += [producer.open(topic), producer.end(result), producer.settle(f"Complete{_NAMES[result]}")]
        answers += [producer.end(again, 5, epoch=producer.epoch - 1) for again in RESULTS]
        answers.append(script.state(producer, topics=[topic]))
    return answers


@transaction_case
def end_while_a_decision_is_being_carried_out(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version, end_version in ((11, 4), (12, 5)):
        for result in RESULTS:
            topic, producer = peer.topic(f"t{version}{result}"), script.producer(f"id{version}{result}")
            producer.open(topic, version)
            before = producer.epoch
            producer.lock_coordinator_out(topic)
            answers += [
                producer.end(result, end_version, wait=False),
                [
                    producer.end(again, each, epoch=epoch, wait=False)
                    for again in RESULTS
                    for each in (0, 4, 5)
                    for epoch in (before, before + 1, before + 2)
                ],
                producer.end(result, end_version, producer_id=STRANGER, wait=False),
                script.state(producer, topics=[topic]),
            ]
    return answers


@transaction_case
def end_of_partitions_that_were_added_and_never_written(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for end_version in (4, 5):
        for result in RESULTS:
            stem = f"{end_version}{result}"
            topic, producer = peer.topic(stem, partitions=2), script.producer(stem)
            answers += [
                producer.init(),
                producer.add(topic, 0, 1),
                producer.produce(topic),
                producer.end(result, end_version),
                script.state(producer, topics=[topic], partitions=(0, 1)),
            ]
    return answers


@transaction_case
def end_under_the_other_protocol_than_the_transaction_began(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    answers = [producer.init()]
    for version, end_version in ((11, 5), (12, 4), (12, 5), (11, 4)):
        for result in RESULTS:
            answers += [
                producer.open(topic, version),
                script.describe(producer.name),
                producer.end(result, end_version),
                script.state(producer, topics=[topic]),
            ]
    return answers


@transaction_case
def end_after_a_topic_of_the_transaction_was_deleted(peer: Peer) -> Any:
    script = Script(peer)
    gone, stays, producer = peer.topic("gone"), peer.topic("stays"), script.producer()
    producer.init()
    answers = [producer.add(gone), producer.add(stays), producer.produce(gone), producer.produce(stays)]
    peer.call("DeleteTopics", 5, {"TopicNames": [gone], "TimeoutMs": 10_000})
    return answers, producer.end(COMMIT), producer.settle("CompleteCommit"), script.state(producer, topics=[stays])


@transaction_case
def two_transactional_ids_interleaved_in_one_partition(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version, end_version in ((11, 4), (12, 5)):
        topic = peer.topic(f"t{version}")
        one, two = script.producer(f"one{version}"), script.producer(f"two{version}")
        answers += [one.open(topic, version), two.open(topic, version), one.produce(topic, 2, version=version)]
        answers += [script.state(one, two, topics=[topic]), one.end(ABORT, end_version)]
        answers += [script.state(one, two, topics=[topic]), two.produce(topic, 3, version=version)]
        answers += [two.end(COMMIT, end_version), script.state(one, two, topics=[topic])]
        answers += [[script.fetched(topic, 0, 1, offset) for offset in range(8)]]
    return answers


@transaction_case
def a_whole_transaction_over_many_partitions_and_a_group(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version, end_version in ((11, 4), (12, 5)):
        for result in RESULTS:
            stem = f"{version}{result}"
            topic, producer, group = peer.topic(stem, partitions=3), script.producer(stem), peer.name(f"g{stem}")
            answers.append(producer.init())
            if version < 12:
                answers += [producer.add(topic, 0, 1, 2), producer.add_offsets(group)]
            answers += [producer.produce(topic, 2, version=version, partition=each) for each in range(3)]
            answers.append(producer.commit_offset(group, topic, 41, version=4 if version < 12 else 5))
            answers.append(script.state(producer, topics=[topic], partitions=range(3), group=group))
            answers.append(producer.end(result, end_version))
            answers.append(script.state(producer, topics=[topic], partitions=range(3), group=group))
    return answers
