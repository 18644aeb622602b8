"""WriteTxnMarkers by hand: unknown partitions, stale epochs, foreign coordinators, nothing to end."""

from typing import Any

from tests.interop.cases.groups import commit
from tests.interop.cases.peer import Peer
from tests.interop.cases.transactional import ABORT, COMMIT, STRANGER, Script, transaction_case


@transaction_case
def markers_for_nothing(peer: Peer) -> Any:
    script = Script(peer)
    return [script.ask("WriteTxnMarkers", version, {"Markers": []}) for version in (1, 2)]


@transaction_case
def markers_for_unknown_partitions(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.init()
    return [
        producer.markers(peer.name("nowhere")),
        producer.markers(topic, 0, 7),
        producer.markers(topic, -1),
        script.state(topics=[topic]),
    ]


@transaction_case
def markers_without_an_open_transaction(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.init()
    answers = []
    for result in (COMMIT, ABORT):
        for version, level in ((1, None), (2, 0), (2, 1), (2, 2)):
            answers.append(producer.markers(topic, result=result, version=version, transaction_version=level))
    return answers, script.state(producer, topics=[topic])


@transaction_case
def markers_of_a_stranger(peer: Peer) -> Any:
    script = Script(peer)
    topic = peer.topic()
    answers = [
        script.markers(topic, producer_id=STRANGER, producer_epoch=epoch, result=result, coordinator_epoch=coordinator)
        for epoch in (5, 5, 4, 6)
        for result in (COMMIT, ABORT)
        for coordinator in (3, 2, 4)
    ]
    return answers, script.state(topics=[topic])


@transaction_case
def markers_with_odd_numbers(peer: Peer) -> Any:
    script = Script(peer)
    topic = peer.topic()
    return [
        script.markers(topic, producer_id=-1, producer_epoch=0),
        script.markers(topic, producer_id=STRANGER, producer_epoch=-1),
        script.markers(topic, producer_id=STRANGER, producer_epoch=0, coordinator_epoch=-1),
        script.state(topics=[topic]),
    ]


@transaction_case
def markers_end_an_open_transaction(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version, level in ((1, None), (2, 0), (2, 1)):
        for result in (COMMIT, ABORT):
            stem = f"{version}{level}{result}"
            topic, producer = peer.topic(stem), script.producer(stem)
            answers += [
                producer.open(topic),
                producer.markers(topic, result=result, version=version, transaction_version=level),
                script.state(producer, topics=[topic]),
                producer.produce(topic),  # the coordinator knows nothing of it
                producer.end(COMMIT),
                script.state(producer, topics=[topic]),
            ]
    return answers


@transaction_case
def markers_with_epochs_around_the_one_of_an_open_transaction(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version, level in ((1, None), (2, 0), (2, 1), (2, 2), (2, 3)):
        for step in (-1, 0, 1, 2):
            stem = f"{version}{level}{step}"
            topic, producer = peer.topic(stem), script.producer(stem)
            producer.init()
            producer.init()
            producer.open(topic)
            epoch = producer.epoch + step
            answers += [
                producer.markers(topic, producer_epoch=epoch, version=version, transaction_version=level),
                script.partition(topic),
                producer.markers(topic, producer_epoch=epoch, version=version, transaction_version=level),
                producer.markers(topic, producer_epoch=epoch, version=2, transaction_version=2),
                script.partition(topic)["producers"],
            ]
    return answers


@transaction_case
def markers_with_coordinator_epochs(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    answers = [producer.open(topic)]
    for coordinator_epoch in (3, 2, 3, 0, -1, 4):
        answers += [producer.markers(topic, coordinator_epoch=coordinator_epoch), script.partition(topic)["producers"]]
    return answers, script.state(producer, topics=[topic])


@transaction_case
def several_markers_in_one_request(peer: Peer) -> Any:
    script = Script(peer)
    topic, other = peer.topic(partitions=2), peer.topic("other")
    one, two = script.producer("one"), script.producer("two")
    one.open(topic)
    two.open(topic)
    wanted = [
        {
            "ProducerId": producer.producer_id,
            "ProducerEpoch": 0,
            "TransactionResult": result,
            "Topics": [
                {"Name": topic, "PartitionIndexes": [0, 1, 5]},
                {"Name": other, "PartitionIndexes": [0]},
                {"Name": peer.name("nowhere"), "PartitionIndexes": [0]},
            ],
            "CoordinatorEpoch": 0,
        }
        for producer, result in ((one, COMMIT), (two, ABORT))
    ]
    answer = script.ask("WriteTxnMarkers", 1, {"Markers": wanted})
    return answer, script.state(one, two, topics=[topic, other])


@transaction_case
def a_hanging_transaction_is_ended_by_hand(peer: Peer) -> Any:
    """A transactional batch that no coordinator knows of any more blocks readers until a marker comes."""
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.open(topic)
    producer.end(ABORT)
    producer.add(topic)
    answers = [producer.produce(topic), producer.markers(topic), producer.end(COMMIT)]
    peer.fill(topic, 2)
    return answers, script.state(producer, topics=[topic])


@transaction_case
def markers_for_the_offsets_of_a_group(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for result in (COMMIT, ABORT):
        topic, group, producer = peer.topic(f"t{result}"), peer.name(f"g{result}"), script.producer(f"id{result}")
        commit(peer, group, topic, 4)
        producer.init()
        producer.add_offsets(group)
        producer.commit_offset(group, topic, 9)
        (where,) = script.describe(producer.name)[0]["Topics"]
        answers += [
            script.offset(group, topic),
            producer.markers(where["Topic"], where["Partitions"][0], result=result, producer_epoch=-1),
            producer.markers(where["Topic"], where["Partitions"][0], result=result),
            script.offset(group, topic),
            producer.markers(where["Topic"], 77),
            producer.end(ABORT),
            script.offset(group, topic),
        ]
    return answers
