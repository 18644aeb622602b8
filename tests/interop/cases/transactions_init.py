"""InitProducerId with a transactional id: every branch."""

from typing import Any

from tests.interop.cases.peer import Peer
from tests.interop.cases.transactional import ABORT, COMMIT, STRANGER, Script, transaction_case


@transaction_case
def init_in_every_version(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    return [producer.init(version) for version in range(6)], script.state(producer)


@transaction_case
def init_version_6_is_not_offered(peer: Peer) -> Any:
    return Script(peer).producer().init(6)


@transaction_case
def init_with_an_empty_id(peer: Peer) -> Any:
    script = Script(peer)
    request = {"TransactionalId": "", "TransactionTimeoutMs": 60_000}
    return [script.ask("InitProducerId", version, request) for version in range(6)]


@transaction_case
def init_with_time_outs_on_and_beyond_the_edge(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    refused = [producer.init(timeout_ms=timeout) for timeout in (0, -1, 900_001, 2**31 - 1, -(2**31))]
    nothing = script.state(producer)
    accepted = [(producer.init(timeout_ms=timeout), script.describe(producer.name)) for timeout in (1, 900_000)]
    return refused, nothing, accepted, producer.init(timeout_ms=0), script.state(producer)


@transaction_case
def init_with_half_an_identity(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    return [
        *[producer.init(version, ProducerId=5, ProducerEpoch=-1) for version in (3, 4, 5)],
        *[producer.init(version, ProducerId=-1, ProducerEpoch=5) for version in (3, 4, 5)],
        producer.init(4, ProducerId=-2, ProducerEpoch=-2),
        producer.init(4, timeout_ms=0, ProducerId=5, ProducerEpoch=-1),
        script.state(producer),
    ]


@transaction_case
def init_an_unknown_id_with_an_identity(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    return producer.init(ProducerId=STRANGER, ProducerEpoch=7), script.state(producer), producer.init_again()


@transaction_case
def init_with_the_identity_it_holds_and_with_others(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    answers = [producer.init(), producer.init_again(), producer.init_again(3), producer.init_again(5)]
    for version in (3, 4):
        answers += [
            producer.init_again(version, epoch=0),
            producer.init_again(version, epoch=producer.epoch + 1),
            producer.init_again(version, epoch=32_766),
            producer.init_again(version, epoch=32_767),
            producer.init_again(version, producer_id=STRANGER),
            producer.init_again(version, producer_id=STRANGER, epoch=32_766),
        ]
    return answers, script.state(producer)


@transaction_case
def init_again_and_once_more_because_the_answer_was_lost(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    producer.init()
    first = producer.epoch
    answers = [producer.init_again(epoch=first) for _ in range(3)]
    answers.append(producer.init())  # by somebody who knows of no epoch: the last one is forgotten
    return answers, producer.init_again(epoch=first), producer.init_again(epoch=first + 1), script.state(producer)


@transaction_case
def init_again_after_a_commit_and_after_an_abort(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for result in (COMMIT, ABORT):
        for version, end_version in ((11, 4), (12, 5)):
            topic = peer.topic(f"t-{result}-{version}")
            producer = script.producer(f"id-{result}-{version}")
            producer.open(topic, version)
            held = producer.epoch
            answers.append(producer.end(result, end_version))
            answers += [producer.init_again(epoch=held), producer.init_again(), script.state(producer, topics=[topic])]
    return answers


@transaction_case
def init_while_a_transaction_is_open(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version in (2, 3, 4, 5):
        topic, producer = peer.topic(f"t{version}"), script.producer(f"id{version}")
        producer.open(topic)
        answers.append((producer.takeover(version), script.state(producer, topics=[topic])))
    return answers


@transaction_case
def init_while_a_transaction_of_the_new_protocol_is_open(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.open(topic, 12)
    return producer.takeover(), script.state(producer, topics=[topic])


@transaction_case
def init_with_the_identity_it_holds_while_its_transaction_is_open(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version in (11, 12):
        topic, producer = peer.topic(f"t{version}"), script.producer(f"id{version}")
        producer.open(topic, version)
        held = producer.epoch
        answers += [
            producer.init_again(producer_id=STRANGER),
            script.describe(producer.name),
            producer.init_again(),
            producer.settle(),
            producer.init_again(epoch=held),
            producer.init_again(epoch=held + 1),
            producer.init_again(epoch=held),
            script.state(producer, topics=[topic]),
        ]
    return answers


@transaction_case
def init_with_a_wrong_epoch_while_a_transaction_is_open(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.init()
    producer.open(topic)
    answers = [producer.init_again(epoch=producer.epoch + 5), producer.settle(), script.state(producer, topics=[topic])]
    return answers


@transaction_case
def init_while_a_decision_is_being_carried_out(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version, end_version in ((11, 4), (12, 5)):
        for result in (COMMIT, ABORT):
            topic, producer = peer.topic(f"t{version}-{result}"), script.producer(f"id{version}-{result}")
            producer.open(topic, version)
            held = producer.epoch
            producer.lock_coordinator_out(topic)
            answers += [
                producer.end(result, end_version, wait=False),
                producer.init(),
                producer.init_again(),
                producer.init_again(epoch=held),
                producer.init_again(producer_id=STRANGER),
                script.state(producer, topics=[topic]),
            ]
    return answers


@transaction_case
def a_taken_over_producer_is_fenced_everywhere(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version, end_version in ((11, 4), (12, 5)):
        topic, old = peer.topic(f"t{version}"), script.producer(f"id{version}")
        old.open(topic, version)
        new = script.producer(f"id{version}")
        group = peer.name(f"g{version}")
        answers += [
            new.takeover(),
            [old.add(topic, version=each) for each in range(4)],
            [old.add_offsets(group, each) for each in range(5)],
            old.produce(topic, version=version),
            [old.produce(topic, version=each) for each in (3, 8, 10)],
            [old.commit_offset(group, topic, 1, version=each) for each in range(6)],
            [old.end(result, each) for result in (COMMIT, ABORT) for each in range(6)],
            old.init_again(),
            script.state(new, topics=[topic]),
            new.open(topic, version),
            new.end(COMMIT, end_version),
            script.state(new, topics=[topic]),
        ]
    return answers


@transaction_case
def ids_of_every_shape(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for stem in ("ä-ö", "with space", "\U0001f600", "x" * 120, "a/b\\c", "new\nline"):
        producer = script.producer(stem)
        answers.append((producer.init(), script.describe(producer.name)))
    return answers
