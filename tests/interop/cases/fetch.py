"""Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords: reading, and finding where to read."""

import time
from typing import Any

from tests.interop.cases.peer import CLOSED, Peer, case, comparable, fetch_request
from tests.peers.batches import RECENTLY_MS, batch, read_headers

UNKNOWN_ID = "00000000-0000-0000-0000-0000000000ff"


def partition_of(answer: Any) -> Any:
    return answer["Responses"][0]["Partitions"][0]


@case
def fetch_at_good_and_bad_offsets(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 5)
    return {offset: peer.fetch(topic, offset) for offset in (0, 3, 5, 6, 100, -1, -2)}


@case
def fetch_after_records_were_deleted(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 5)
    partitions = [{"PartitionIndex": 0, "Offset": 3}]
    deleted = peer.call("DeleteRecords", 2, {"Topics": [{"Name": topic, "Partitions": partitions}], "TimeoutMs": 5000})
    return comparable(deleted), [peer.fetch(topic, offset) for offset in (0, 2, 3, 5)]


@case
def fetch_of_an_unknown_topic_or_partition(peer: Peer) -> Any:
    topic = peer.topic()
    return [peer.fetch(peer.name("unknown"), 0), peer.fetch(topic, 0, partition=9), peer.fetch(topic, 0, partition=-1)]


@case
def fetch_by_topic_id(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 3)
    found = []
    for topic_id in (peer.topic_id(topic), UNKNOWN_ID):
        for version in (13, 15, 16, 17, 18):
            wanted = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}
            request = {"MinBytes": 1, "SessionEpoch": -1, "Topics": [{"TopicId": topic_id, "Partitions": [wanted]}]}
            found.append(comparable(peer.call("Fetch", version, request)))
    return found


@case
def the_first_batch_comes_whole_even_if_it_is_too_large(peer: Peer) -> Any:
    topic = peer.topic()
    for _ in range(3):
        peer.produce(topic, batch([b"x" * 5000]))
    return [
        peer.fetch(topic, 0, PartitionMaxBytes=1),
        peer.fetch(topic, 0, MaxBytes=1),
        peer.fetch(topic, 0, PartitionMaxBytes=0),
        peer.fetch(topic, 0, PartitionMaxBytes=11_000),
    ]


@case
def max_bytes_is_shared_by_the_partitions(peer: Peer) -> Any:
    topic = peer.topic(partitions=3)
    for partition in range(3):
        peer.produce(topic, batch([b"x" * 5000]), partition=partition)
    wanted = [{"Partition": p, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20} for p in range(3)]
    request = {"MinBytes": 1, "MaxBytes": 6000, "SessionEpoch": -1, "Topics": [{"Topic": topic, "Partitions": wanted}]}
    return comparable(peer.call("Fetch", 12, request))


@case
def an_offset_inside_a_batch_gives_the_whole_batch(peer: Peer) -> Any:
    topic = peer.topic()
    peer.produce(topic, batch([b"1", b"2", b"3"]))
    peer.produce(topic, batch([b"4", b"5"]))
    answer = partition_of(peer.call("Fetch", 12, fetch_request(topic, 1)))
    return [
        (header.base_offset, header.record_count, header.leader_epoch) for header in read_headers(answer["Records"])
    ]


@case
def fetch_waits_for_min_bytes_no_longer_than_max_wait(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 1)
    started = time.monotonic()
    answer = peer.fetch(topic, 1, MaxWaitMs=700)
    waited = time.monotonic() - started
    return answer, 0.6 < waited < 3


@case
def fetch_is_answered_as_soon_as_there_is_enough(peer: Peer) -> Any:
    topic = peer.topic()
    client = peer.connect()
    started = time.monotonic()
    client.send("Fetch", 12, fetch_request(topic, 0, MaxWaitMs=15_000))
    peer.fill(topic, 1)
    answer = client.receive("Fetch", 12)
    return comparable(answer), time.monotonic() - started < 10


@case
def an_error_in_one_partition_is_answered_at_once(peer: Peer) -> Any:
    topic = peer.topic()
    started = time.monotonic()
    answer = peer.fetch(topic, 50, MaxWaitMs=15_000)
    return answer, time.monotonic() - started < 10


@case
def leader_epochs_that_are_old_and_new(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 2)
    return [peer.fetch(topic, 0, CurrentLeaderEpoch=epoch) for epoch in (-1, 0, 5)]


@case
def last_fetched_epochs(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 2)
    return [peer.fetch(topic, 1, LastFetchedEpoch=epoch, CurrentLeaderEpoch=0) for epoch in (-1, 0, 5)]


@case
def a_fetch_session_sends_only_what_changed(peer: Peer) -> Any:
    topic = peer.topic(partitions=2)
    peer.fill(topic, 1, partition=0)
    client = peer.connect()
    wanted = [{"Partition": p, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20} for p in range(2)]
    first = client.call(
        "Fetch", 12, {"MinBytes": 0, "SessionEpoch": 0, "Topics": [{"Topic": topic, "Partitions": wanted}]}
    )
    session = first["SessionId"]

    def step(epoch: int, **fields: Any) -> Any:
        return comparable(
            client.call("Fetch", 12, {"MinBytes": 0, "SessionId": session, "SessionEpoch": epoch, **fields})
        )

    moved = [{"Topic": topic, "Partitions": [{"Partition": 0, "FetchOffset": 1, "PartitionMaxBytes": 1 << 20}]}]
    steps = [step(1, Topics=moved), step(2)]
    peer.fill(topic, 1, partition=1)
    steps += [step(3)]
    steps += [step(4, ForgottenTopicsData=[{"Topic": topic, "Partitions": [1]}])]
    peer.fill(topic, 1, partition=1)
    peer.fill(topic, 1, partition=0)
    steps += [step(5), step(9), step(6), step(-1)]
    return session != 0, comparable(first), steps


@case
def fetch_sessions_that_do_not_exist(peer: Peer) -> Any:
    topic = peer.topic()
    return [
        peer.fetch(topic, 0, SessionId=session, SessionEpoch=epoch)
        for session, epoch in ((12345, 1), (0, 5), (12345, -1), (12345, 0))
    ]


@case
def a_fetch_session_that_is_full_of_errors(peer: Peer) -> Any:
    topic = peer.topic()
    client = peer.connect()
    wanted = [{"Partition": p, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20} for p in (0, 7)]
    first = client.call(
        "Fetch", 12, {"MinBytes": 0, "SessionEpoch": 0, "Topics": [{"Topic": topic, "Partitions": wanted}]}
    )
    second = client.call("Fetch", 12, {"MinBytes": 0, "SessionId": first["SessionId"], "SessionEpoch": 1})
    return comparable(first), comparable(second)


@case
def fetch_read_committed_of_plain_records(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 2)
    return peer.fetch(topic, 0, IsolationLevel=1)


# ---- where to read ---------------------------------------------------------------------------------------------


def list_offsets(peer: Peer, topic: str, timestamp: int, version: int = 8, partition: int = 0, **fields: Any) -> Any:
    wanted = {"PartitionIndex": partition, "Timestamp": timestamp, **fields}
    request = {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": [wanted]}]}
    answer = peer.call("ListOffsets", version, request)
    return answer if answer == CLOSED else comparable(answer)["Topics"][0]["Partitions"][0]


@case
def list_offsets_of_special_timestamps(peer: Peer) -> Any:
    topic, empty = peer.topic(), peer.topic("empty")
    for n in (0, 5, 2, 3):
        peer.fill(topic, 1, timestamp=RECENTLY_MS + n)
    special = {
        (version, timestamp)
        for version, lowest in ((1, -2), (6, -2), (7, -3), (8, -4), (9, -5), (10, -5), (11, -6))
        for timestamp in range(lowest, 0)
    }
    return {
        f"v{version} {timestamp} {name}": list_offsets(peer, which, timestamp, version)
        for version, timestamp in sorted(special)
        for name, which in (("filled", topic), ("empty", empty))
    }


@case
def list_offsets_of_special_timestamps_that_a_version_does_not_know(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 1)
    return {
        f"v{v} {t}": list_offsets(peer, topic, t, v)
        for v, t in ((5, -3), (7, -4), (8, -5), (10, -6), (11, -7), (11, -100))
    }


@case
def list_offsets_by_time(peer: Peer) -> Any:
    topic = peer.topic()
    for n in (0, 50, 20, 30):
        peer.fill(topic, 1, timestamp=RECENTLY_MS + n)
    peer.produce(topic, batch([b"1", b"2", b"3"], timestamp=RECENTLY_MS + 60))
    return {n: list_offsets(peer, topic, RECENTLY_MS + n) for n in (-5, 0, 1, 25, 50, 51, 60, 61)}


@case
def list_offsets_of_what_does_not_exist(peer: Peer) -> Any:
    topic = peer.topic()
    return [
        list_offsets(peer, peer.name("unknown"), -1),
        list_offsets(peer, topic, -1, partition=5),
        list_offsets(peer, topic, -1, CurrentLeaderEpoch=7),
        list_offsets(peer, topic, -1, CurrentLeaderEpoch=0),
    ]


@case
def list_offsets_of_the_same_partition_twice(peer: Peer) -> Any:
    topic = peer.topic()
    wanted = [{"PartitionIndex": 0, "Timestamp": -1}, {"PartitionIndex": 0, "Timestamp": -2}]
    return comparable(peer.call("ListOffsets", 8, {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": wanted}]}))


@case
def offset_for_leader_epoch(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 3)

    def ask(name: str, current: int, wanted: int, partition: int = 0) -> Any:
        partitions = [{"Partition": partition, "CurrentLeaderEpoch": current, "LeaderEpoch": wanted}]
        request = {"ReplicaId": -1, "Topics": [{"Topic": name, "Partitions": partitions}]}
        answer = peer.call("OffsetForLeaderEpoch", 4, request)["Topics"][0]["Partitions"][0]
        return answer["ErrorCode"], answer["LeaderEpoch"], answer["EndOffset"]

    return [
        ask(topic, -1, 0),
        ask(topic, 0, 0),
        ask(topic, 0, 3),
        ask(topic, 0, -1),
        ask(topic, 5, 0),
        ask(topic, 0, 0, partition=4),
        ask(peer.name("unknown"), -1, 0),
    ]


@case
def delete_records(peer: Peer) -> Any:
    topic = peer.topic()
    peer.fill(topic, 5)

    def ask(name: str, offset: int, partition: int = 0) -> Any:
        wanted = [{"PartitionIndex": partition, "Offset": offset}]
        return comparable(
            peer.call("DeleteRecords", 1, {"Topics": [{"Name": name, "Partitions": wanted}], "TimeoutMs": 5000})
        )

    return [
        *[ask(topic, offset) for offset in (2, 1, 6, -2, -1)],
        ask(topic, 0, 9),
        ask(peer.name("unknown"), 1),
    ]


@case
def delete_records_of_an_internal_topic(peer: Peer) -> Any:
    peer.settled("FindCoordinator", 2, {"Key": "any", "KeyType": 0})
    wanted = [{"PartitionIndex": 0, "Offset": 0}]
    return comparable(
        peer.call(
            "DeleteRecords", 1, {"Topics": [{"Name": "__consumer_offsets", "Partitions": wanted}], "TimeoutMs": 5000}
        )
    )
