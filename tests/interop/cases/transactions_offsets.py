"""TxnOffsetCommit: group offsets inside a transaction, and who may write them."""

import time
from typing import Any

from tests.interop.cases.groups import commit, join, stable, sync
from tests.interop.cases.peer import Peer
from tests.interop.cases.transactional import (
    ABORT,
    COMMIT,
    PAUSE_SECONDS,
    SHORT_TIMEOUT_MS,
    STRANGER,
    Producer,
    Script,
    transaction_case,
)
from tests.support.patience import patient

VERSIONS = range(6)


def prepared(script: Script, group: str, stem: str = "id") -> Producer:
    producer = script.producer(stem)
    producer.init()
    producer.add_offsets(group)
    return producer


@transaction_case
def offsets_in_every_version(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version in VERSIONS:
        for result in (COMMIT, ABORT):
            stem = f"{version}{result}"
            topic, group = peer.topic(stem), peer.name(f"g{stem}")
            commit(peer, group, topic, 7)
            producer = prepared(script, group, stem)
            answers += [
                producer.commit_offset(group, topic, 11, version=version, metadata="a note"),
                [script.offset(group, topic, stable=each) for each in (True, False)],
                producer.end(result, 5 if version == 5 else 4),
                [script.offset(group, topic, stable=each) for each in (True, False)],
                script.state(producer),
            ]
    return answers


@transaction_case
def offsets_of_a_group_that_was_not_added(peer: Peer) -> Any:
    script = Script(peer)
    topic, group, producer = peer.topic(), peer.name("g"), script.producer()
    producer.init()
    refused = [producer.commit_offset(group, topic, 1, version=version) for version in range(5)]
    before = script.state(producer, topics=[topic], group=group)
    # Version 5 adds it.
    answers = [producer.commit_offset(group, topic, 1, version=5), script.state(producer, topics=[topic], group=group)]
    return refused, before, answers, producer.end(COMMIT, 5), script.state(producer, topics=[topic], group=group)


@transaction_case
def offsets_with_a_wrong_identity(peer: Peer) -> Any:
    script = Script(peer)
    topic, group = peer.topic(), peer.name("g")
    producer = script.producer()
    producer.init()
    producer.init()
    answers: list[Any] = []
    for version in VERSIONS:
        answers += [
            producer.commit_offset(group, topic, 1, version=version, epoch=0),
            producer.commit_offset(group, topic, 1, version=version, epoch=2),
            producer.commit_offset(group, topic, 1, version=version, producer_id=STRANGER),
            script.producer("unknown").commit_offset(group, topic, 1, version=version, producer_id=STRANGER, epoch=0),
            Producer(script, "").commit_offset(group, topic, 1, version=version, producer_id=STRANGER, epoch=0),
        ]
    answers.append(script.state(producer, topics=[topic], group=group))
    producer.add_offsets(group)
    answers.append([producer.commit_offset(group, topic, 1, version=each, epoch=0) for each in VERSIONS])
    answers.append([producer.commit_offset(group, topic, 1, version=each, epoch=2) for each in VERSIONS])
    answers.append(producer.commit_offset(group, topic, 3))
    answers.append([producer.commit_offset(group, topic, 1, version=each, epoch=0) for each in VERSIONS])
    answers.append([producer.commit_offset(group, topic, 1, version=each, epoch=2) for each in VERSIONS])
    return answers, producer.end(COMMIT), script.state(producer, topics=[topic], group=group)


@transaction_case
def offsets_from_members_and_from_strangers(peer: Peer) -> Any:
    script = Script(peer)
    topic, group = peer.topic(), peer.name("g")
    joined = stable(peer, group)
    member, generation = joined["MemberId"], joined["GenerationId"]
    producer = prepared(script, group)
    answers = []
    for version in (3, 4, 5):
        answers += [
            producer.commit_offset(group, topic, 1, version=version, MemberId=member, GenerationId=generation),
            producer.commit_offset(group, topic, 2, version=version, MemberId=member, GenerationId=generation - 1),
            producer.commit_offset(group, topic, 2, version=version, MemberId=member, GenerationId=generation + 1),
            producer.commit_offset(group, topic, 2, version=version, MemberId=member, GenerationId=-1),
            producer.commit_offset(group, topic, 2, version=version, MemberId="nobody", GenerationId=generation),
            producer.commit_offset(group, topic, 2, version=version, MemberId="nobody", GenerationId=-1),
            producer.commit_offset(group, topic, 2, version=version, MemberId="", GenerationId=generation),
            producer.commit_offset(
                group, topic, 2, version=version, MemberId=member, GenerationId=generation, GroupInstanceId="other"
            ),
        ]
    # Without a word on membership nobody is fenced.
    answers += [producer.commit_offset(group, topic, 5, version=version) for version in VERSIONS]
    return answers, producer.end(COMMIT), script.state(producer, topics=[topic], group=group)


@transaction_case
def offsets_of_a_static_member(peer: Peer) -> Any:
    script = Script(peer)
    topic, group = peer.topic(), peer.name("g")
    joined = stable(peer, group, GroupInstanceId="static")
    member, generation = joined["MemberId"], joined["GenerationId"]
    producer = prepared(script, group)
    fields = {"GenerationId": generation, "GroupInstanceId": "static"}
    answers = [
        producer.commit_offset(group, topic, 1, MemberId=member, **fields),
        producer.commit_offset(group, topic, 2, MemberId="other", **fields),
        producer.commit_offset(group, topic, 2, MemberId="", **fields),
        producer.commit_offset(group, topic, 2, MemberId="", GenerationId=-1, GroupInstanceId="static"),
        producer.commit_offset(group, topic, 2, MemberId="", GenerationId=-1, GroupInstanceId="unknown"),
    ]
    again = join(peer, group, GroupInstanceId="static")
    answers += [
        producer.commit_offset(group, topic, 3, MemberId=member, **fields),
        producer.commit_offset(
            group, topic, 4, MemberId=again["MemberId"], GenerationId=again["GenerationId"], GroupInstanceId="static"
        ),
    ]
    return answers, producer.end(COMMIT), script.state(producer, topics=[topic], group=group)


@transaction_case
def offsets_while_the_group_rebalances(peer: Peer) -> Any:
    script = Script(peer)
    topic, group = peer.topic(), peer.name("g")
    joined = join(peer, group)
    producer = prepared(script, group)
    fields = {"MemberId": joined["MemberId"], "GenerationId": joined["GenerationId"]}
    before_sync = producer.commit_offset(group, topic, 1, **fields)
    sync(peer, group, joined, {joined["MemberId"]: b""})
    after_sync = producer.commit_offset(group, topic, 2, **fields)
    return before_sync, after_sync, producer.end(COMMIT), script.offset(group, topic)


@transaction_case
def offsets_of_a_group_that_nobody_knows(peer: Peer) -> Any:
    script = Script(peer)
    topic, group = peer.topic(), peer.name("g")
    producer = prepared(script, group)
    answers = [
        producer.commit_offset(group, topic, 1, MemberId="m", GenerationId=3),
        producer.commit_offset(group, topic, 1, MemberId="", GenerationId=0),
        producer.commit_offset(group, topic, 1, MemberId="m", GenerationId=-1),
        producer.commit_offset(group, topic, 1, MemberId="", GenerationId=-1, GroupInstanceId="i"),
        producer.commit_offset(group, topic, 1),
    ]
    return answers, producer.end(COMMIT), script.state(producer, topics=[topic], group=group)


@transaction_case
def offsets_with_an_empty_group(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.init()
    answers: list[Any] = [producer.commit_offset("", topic, 1, version=version) for version in VERSIONS]
    producer.add_offsets("")
    answers += [producer.commit_offset("", topic, 1, version=version) for version in VERSIONS]
    return answers, script.state(producer)


@transaction_case
def offsets_with_too_much_metadata_and_of_unknown_topics(peer: Peer) -> Any:
    script = Script(peer)
    topic, group = peer.topic(), peer.name("g")
    producer = prepared(script, group)
    nowhere = peer.name("nowhere")
    answers: list[Any] = []
    for version in (0, 3, 5):
        answers += [
            producer.commit_offset(group, topic, 1, version=version, metadata="x" * 4097),
            producer.commit_offset(group, topic, 2, version=version, metadata="x" * 4096),
            producer.commit_offset(group, topic, 3, version=version, metadata=None),
            producer.commit_offset(group, nowhere, 3, version=version),
            producer.commit_offset(group, topic, 3, version=version, partition=9),
            producer.commit_offset(group, topic, -1, version=version),
        ]
    parts = [
        {"PartitionIndex": 0, "CommittedOffset": 21, "CommittedMetadata": "x" * 5000},
        {"PartitionIndex": 1, "CommittedOffset": 22, "CommittedMetadata": "fine"},
    ]
    request = {
        "TransactionalId": producer.name,
        "GroupId": group,
        "ProducerId": producer.producer_id,
        "ProducerEpoch": producer.epoch,
        "Topics": [{"Name": topic, "Partitions": parts}, {"Name": nowhere, "Partitions": parts[1:]}],
    }
    answers += [script.ask("TxnOffsetCommit", 3, request), script.ask("TxnOffsetCommit", 3, {**request, "Topics": []})]
    answers.append([script.offset(group, topic, each) for each in (0, 1)])
    return answers, producer.end(COMMIT), [script.offset(group, topic, each) for each in (0, 1)]


@transaction_case
def offsets_after_the_end(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version, end_version in ((0, 0), (3, 4), (4, 4), (5, 5)):
        for result in (COMMIT, ABORT):
            stem = f"{version}{result}"
            topic, group = peer.topic(stem), peer.name(f"g{stem}")
            producer = prepared(script, group, stem)
            before = producer.epoch
            answers += [
                producer.commit_offset(group, topic, 1, version=version),
                producer.end(result, end_version),
                producer.commit_offset(group, topic, 2, version=version, epoch=before),
                script.state(producer, topics=[topic], group=group),
            ]
    return answers


@transaction_case
def plain_commits_beside_offsets_in_a_transaction(peer: Peer) -> Any:
    script = Script(peer)
    topic, group = peer.topic(partitions=2), peer.name("g")
    producer = prepared(script, group)
    answers = [
        commit(peer, group, topic, 1),
        producer.commit_offset(group, topic, 10),
        script.offset(group, topic),
        commit(peer, group, topic, 5),  # written later than the transaction's
        producer.commit_offset(group, topic, 20, partition=1),
        [script.offset(group, topic, each, stable=False) for each in (0, 1)],
        [script.offset(group, topic, each) for each in (0, 1)],
        producer.end(COMMIT),
        [script.offset(group, topic, each) for each in (0, 1)],
    ]
    producer.add_offsets(group)
    answers += [
        producer.commit_offset(group, topic, 30),
        producer.commit_offset(group, topic, 31),
        producer.end(COMMIT),
        script.offset(group, topic),
    ]
    return answers


@transaction_case
def offsets_of_two_transactions_on_one_group(peer: Peer) -> Any:
    script = Script(peer)
    topic, group = peer.topic(), peer.name("g")
    one, two = prepared(script, group, "one"), prepared(script, group, "two")
    return [
        one.commit_offset(group, topic, 1),
        two.commit_offset(group, topic, 2),
        script.offset(group, topic),
        one.end(COMMIT),
        [script.offset(group, topic, stable=each) for each in (True, False)],
        two.end(ABORT),
        [script.offset(group, topic, stable=each) for each in (True, False)],
    ]


@transaction_case
def offset_fetch_of_unstable_offsets_in_every_version(peer: Peer) -> Any:
    script = Script(peer)
    topic, group = peer.topic(partitions=2), peer.name("g")
    commit(peer, group, topic, 4, partition=1)
    producer = prepared(script, group)
    producer.commit_offset(group, topic, 1)
    wanted = [{"Name": topic, "PartitionIndexes": [0, 1]}]
    answers = [script.ask("OffsetFetch", version, {"GroupId": group, "Topics": wanted}) for version in range(1, 8)]
    for topics in (wanted, None):
        for is_stable in (True, False):
            one = {"GroupId": group, "Topics": topics, "RequireStable": is_stable}
            many = {"Groups": [{"GroupId": group, "Topics": topics}], "RequireStable": is_stable}
            answers += [script.ask("OffsetFetch", 7, one)]
            answers += [script.ask("OffsetFetch", version, many) for version in (8, 9)]
    return answers


@transaction_case
def deleting_a_group_with_offsets_in_an_open_transaction(peer: Peer) -> Any:
    script = Script(peer)
    topic, group = peer.topic(), peer.name("g")
    commit(peer, group, topic, 4)
    producer = prepared(script, group)
    producer.commit_offset(group, topic, 9)
    removal = {"GroupId": group, "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0}]}]}
    return [
        script.ask("OffsetDelete", 0, removal),
        script.offset(group, topic, stable=False),
        script.offset(group, topic),
        producer.commit_offset(group, topic, 10),
        script.ask("DeleteGroups", 2, {"GroupsNames": [group]}),
        producer.end(COMMIT),
        script.offset(group, topic),
    ]


@transaction_case
def offsets_of_a_transaction_that_times_out(peer: Peer) -> Any:
    script = Script(peer)
    topic, group, producer = peer.topic(), peer.name("g"), script.producer()
    commit(peer, group, topic, 4)
    producer.init(timeout_ms=SHORT_TIMEOUT_MS)
    producer.add_offsets(group)
    answers = [producer.commit_offset(group, topic, 9), producer.settle("CompleteAbort")]
    deadline = time.monotonic() + patient(5)
    while script.offset(group, topic)[0] and time.monotonic() < deadline:
        time.sleep(PAUSE_SECONDS)
    return answers, producer.commit_offset(group, topic, 9), script.state(producer, topics=[topic], group=group)
