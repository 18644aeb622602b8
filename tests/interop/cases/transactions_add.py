"""AddPartitionsToTxn and AddOffsetsToTxn: from clients and from brokers."""

from typing import Any

from tests.interop.cases.peer import Peer
from tests.interop.cases.transactional import ABORT, COMMIT, STRANGER, Producer, Script, transaction_case


def from_broker(script: Script, version: int, *transactions: dict[str, Any]) -> Any:
    return script.ask("AddPartitionsToTxn", version, {"Transactions": list(transactions)})


@transaction_case
def add_in_every_client_version(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(partitions=4), script.producer()
    producer.init()
    answers = [(producer.add(topic, version, version=version), script.state(producer)) for version in range(4)]
    return answers, producer.add(topic, 0, 1, 2, 3), producer.end(ABORT), script.state(producer, topics=[topic])


@transaction_case
def add_with_a_wrong_identity_in_every_version(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.init()
    producer.init()
    answers = [
        [
            producer.add(topic, version=version, epoch=0),
            producer.add(topic, version=version, epoch=2),
            producer.add(topic, version=version, epoch=-1),
            producer.add(topic, version=version, producer_id=STRANGER),
            producer.add(topic, version=version, producer_id=-1, epoch=-1),
            script.producer("unknown").add(topic, version=version, producer_id=STRANGER, epoch=0),
        ]
        for version in range(4)
    ]
    return answers, script.state(producer)


@transaction_case
def add_with_an_empty_id(peer: Peer) -> Any:
    script = Script(peer)
    topic, nameless = peer.topic(), Producer(script, "")
    return [nameless.add(topic, version=version, producer_id=1, epoch=0) for version in range(4)] + [
        nameless.add_offsets("g", version, producer_id=1, epoch=0) for version in range(5)
    ]


@transaction_case
def add_of_unknown_topics_and_partitions(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(partitions=2), script.producer()
    producer.init()
    unknown = peer.name("unknown")
    return [
        [producer.add(unknown, version=version) for version in range(4)],
        producer.add(topic, 0, 1, **{unknown: [0, 1]}),
        producer.add(topic, 0, 2),
        producer.add(topic, 7),
        producer.add(topic, -1),
        producer.add(unknown, producer_id=STRANGER),
        script.producer("nobody").add(unknown, producer_id=1, epoch=0),
        script.state(producer),
    ]


@transaction_case
def add_nothing(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.init()
    request = {
        "V3AndBelowTransactionalId": producer.name,
        "V3AndBelowProducerId": producer.producer_id,
        "V3AndBelowProducerEpoch": 0,
    }
    return [
        script.ask("AddPartitionsToTxn", 3, {**request, "V3AndBelowTopics": []}),
        script.state(producer),
        script.ask("AddPartitionsToTxn", 3, {**request, "V3AndBelowTopics": [{"Name": topic, "Partitions": []}]}),
        script.state(producer),
    ]


@transaction_case
def add_the_same_again(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(partitions=2), script.producer()
    producer.init()
    return [producer.add(topic, 0), producer.add(topic, 0), producer.add(topic, 0, 1), script.state(producer)]


@transaction_case
def add_after_a_commit_and_after_an_abort(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(partitions=2), script.producer()
    producer.init()
    answers = []
    for result in (COMMIT, ABORT, COMMIT):
        answers += [producer.add(topic, 1), script.state(producer), producer.end(result), script.state(producer)]
    return answers, script.state(producer, topics=[topic], partitions=(0, 1))


@transaction_case
def add_while_a_decision_is_being_carried_out(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for result in (COMMIT, ABORT):
        topic, producer = peer.topic(f"t{result}"), script.producer(f"id{result}")
        producer.open(topic)
        producer.lock_coordinator_out(topic)
        answers += [
            producer.end(result, wait=False),
            [producer.add(topic, version=version) for version in (0, 3)],
            producer.add(topic, epoch=9),
            producer.add(topic, producer_id=STRANGER),
            producer.add_offsets("g"),
            from_broker(script, 5, producer.batched(topic)),
            from_broker(script, 5, producer.batched(topic, verify=True)),
            from_broker(script, 5, producer.batched(topic, verify=True, epoch=9)),
            producer.produce(topic),
            producer.produce(topic, version=12),
            script.state(producer),
        ]
    return answers


@transaction_case
def add_of_internal_topics(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    producer.init()
    producer.add_offsets("any")
    producer.end(ABORT)
    return [
        [producer.add("__consumer_offsets", version=version) for version in (0, 3)],
        [producer.add("__transaction_state", version=version) for version in (0, 3)],
        script.state(producer),
    ]


@transaction_case
def add_offsets_in_every_version(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    producer.init()
    answers = [producer.add_offsets(f"group-{version}", version) for version in range(5)]
    return answers, script.state(producer), producer.end(COMMIT), script.state(producer)


@transaction_case
def add_offsets_with_a_wrong_identity(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    producer.init()
    producer.init()
    answers = [
        [
            producer.add_offsets("g", version, epoch=0),
            producer.add_offsets("g", version, epoch=2),
            producer.add_offsets("g", version, producer_id=STRANGER),
            script.producer("unknown").add_offsets("g", version, producer_id=1, epoch=0),
            producer.add_offsets("", version),
        ]
        for version in range(5)
    ]
    return answers, script.state(producer)


@transaction_case
def brokers_add_in_both_versions(peer: Peer) -> Any:
    script = Script(peer)
    topic, first, second = peer.topic(partitions=3), script.producer("one"), script.producer("two")
    first.init()
    second.init()
    answers = [
        from_broker(script, version, first.batched(topic, version - 4), second.batched(topic, 2)) for version in (4, 5)
    ]
    return answers, script.state(first, second)


@transaction_case
def brokers_add_nothing(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    producer.init()
    nothing = {**producer.batched("any"), "Topics": []}
    # A request without any transaction is left out: Apache Kafka 4.3 never answers it.
    return [from_broker(script, version, nothing) for version in (4, 5)], script.state(producer)


@transaction_case
def brokers_add_what_is_wrong(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer, other = peer.topic(partitions=2), script.producer(), script.producer("other")
    producer.init()
    other.init()
    unknown = script.producer("unknown")
    nowhere = peer.name("nowhere")
    answers = [
        [
            from_broker(script, version, producer.batched(topic, epoch=1)),
            from_broker(script, version, producer.batched(topic, producer_id=STRANGER)),
            from_broker(script, version, unknown.batched(topic, producer_id=1, epoch=0)),
            from_broker(script, version, producer.batched(nowhere)),
            from_broker(script, version, producer.batched(topic, 0, 9)),
            from_broker(script, version, Producer(script, "").batched(topic, producer_id=1, epoch=0)),
            from_broker(
                script,
                version,
                producer.batched(topic, epoch=3),
                unknown.batched(topic, producer_id=1, epoch=0),
                other.batched(topic, 1),
            ),
        ]
        for version in (4, 5)
    ]
    return answers, script.state(producer, other)


@transaction_case
def brokers_verify(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer, other = peer.topic(partitions=2), script.producer(), script.producer("other")
    producer.init()
    other.init()
    unknown = script.producer("unknown")

    def verified(version: int) -> Any:
        return [
            from_broker(script, version, producer.batched(topic, 0, 1, verify=True)),
            from_broker(script, version, producer.batched(topic, 0, verify=True, epoch=4)),
            from_broker(script, version, producer.batched(topic, 0, verify=True, producer_id=STRANGER)),
            from_broker(script, version, unknown.batched(topic, 0, verify=True, producer_id=1, epoch=0)),
            from_broker(script, version, Producer(script, "").batched(topic, verify=True, producer_id=1, epoch=0)),
            from_broker(script, version, producer.batched(peer.name("nowhere"), 0, verify=True)),
            from_broker(script, version, {**producer.batched(topic, verify=True), "Topics": []}),
            from_broker(script, version, producer.batched(topic, 0, verify=True), other.batched(topic, 1)),
        ]

    answers = [verified(4), verified(5), producer.add(topic, 0), verified(4), verified(5)]
    return answers, producer.end(COMMIT), verified(5), script.state(producer, other)
