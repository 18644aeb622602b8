"""A consumer group over the raw protocol: joining, syncing, committing, leaving."""

import struct
import time
from typing import Any

from tests.interop.cases.peer import Peer, case, comparable
from tests.peers.raw import RawClient
from tests.peers.schemas import encode
from tests.support.patience import patient


def subscription(*topics: str) -> bytes:
    return struct.pack(">h", 0) + encode("ConsumerProtocolSubscription", 0, {"Topics": list(topics)})


def join_request(
    group: str, member: str = "", protocols: tuple[str, ...] = ("range",), **fields: Any
) -> dict[str, Any]:
    return {
        "GroupId": group,
        "SessionTimeoutMs": 10_000,
        "RebalanceTimeoutMs": 5_000,
        "MemberId": member,
        "ProtocolType": "consumer",
        "Protocols": [{"Name": name, "Metadata": subscription("t")} for name in protocols],
        **fields,
    }


def join(peer: Peer, group: str, version: int = 7, **fields: Any) -> dict[str, Any]:
    """Joins as a new member, in the two steps that newer versions take."""
    answer = peer.settled("JoinGroup", version, join_request(group, **fields))
    if answer["ErrorCode"] == 79:  # MEMBER_ID_REQUIRED
        answer = peer.settled("JoinGroup", version, join_request(group, answer["MemberId"], **fields))
    found: dict[str, Any] = answer
    return found


def sync(peer: Peer, group: str, joined: dict[str, Any], assignments: dict[str, bytes], version: int = 5) -> Any:
    request = {
        "GroupId": group,
        "GenerationId": joined["GenerationId"],
        "MemberId": joined["MemberId"],
        "Assignments": [{"MemberId": member, "Assignment": content} for member, content in assignments.items()],
    }
    if version >= 5:
        request |= {"ProtocolType": "consumer", "ProtocolName": joined["ProtocolName"]}
    return peer.call("SyncGroup", version, request)


def stable(peer: Peer, group: str, **fields: Any) -> dict[str, Any]:
    """A group of one member, synced; returns the member's join answer."""
    joined = join(peer, group, **fields)
    assert joined["ErrorCode"] == 0, joined
    synced = sync(peer, group, joined, {joined["MemberId"]: b"mine"})
    assert synced["ErrorCode"] == 0, synced
    return joined


def heartbeat(
    peer: Peer, group: str, generation: int, member: str, instance: str | None = None, version: int = 4
) -> int:
    request = {"GroupId": group, "GenerationId": generation, "MemberId": member, "GroupInstanceId": instance}
    code: int = peer.settled("Heartbeat", version, request)["ErrorCode"]
    return code


def commit_request(group: str, topic: str, offset: int, partition: int = 0, **fields: Any) -> dict[str, Any]:
    wanted = {"PartitionIndex": partition, "CommittedOffset": offset, "CommittedMetadata": fields.pop("metadata", "")}
    return {"GroupId": group, "Topics": [{"Name": topic, "Partitions": [wanted]}], **fields}


def commit(peer: Peer, group: str, topic: str, offset: int, partition: int = 0, version: int = 8, **fields: Any) -> int:
    answer = peer.settled("OffsetCommit", version, commit_request(group, topic, offset, partition, **fields))
    code: int = answer["Topics"][0]["Partitions"][0]["ErrorCode"]
    return code


def fetch_offsets(peer: Peer, group: str, topics: list[Any] | None, version: int = 7, **fields: Any) -> Any:
    return comparable(peer.settled("OffsetFetch", version, {"GroupId": group, "Topics": topics, **fields}))


@case
def a_group_of_one_from_join_to_leave(peer: Peer) -> Any:
    group, topic = peer.name("g"), peer.topic()
    steps: list[Any] = []
    joined = join(peer, group)
    steps.append(comparable(joined))
    steps.append(comparable(sync(peer, group, joined, {joined["MemberId"]: b"mine"})))
    generation, member = joined["GenerationId"], joined["MemberId"]
    steps.append(heartbeat(peer, group, generation, member))
    identity = {"GenerationIdOrMemberEpoch": generation, "MemberId": member}
    steps.append(commit(peer, group, topic, 5, metadata="note", **identity))
    wanted = [{"Name": topic, "PartitionIndexes": [0, 1]}]
    steps.append(fetch_offsets(peer, group, wanted))
    steps.append(comparable(peer.call("LeaveGroup", 4, {"GroupId": group, "Members": [{"MemberId": member}]})))
    steps.append(heartbeat(peer, group, generation, member))
    steps.append(comparable(peer.call("DescribeGroups", 5, {"Groups": [group]})))
    return steps


@case
def the_first_join_with_each_version(peer: Peer) -> Any:
    found = []
    for version in range(10):
        group = peer.name(f"g{version}")
        first = peer.settled("JoinGroup", version, join_request(group))
        shown = comparable(first)
        if first["ErrorCode"] == 79:
            shown = [shown, comparable(peer.settled("JoinGroup", version, join_request(group, first["MemberId"])))]
        found.append(shown)
    return found


@case
def member_ids_begin_with_the_client_id_or_the_instance_id(peer: Peer) -> Any:
    client = RawClient(peer.broker.address, "my-client")
    peer.settled("FindCoordinator", 2, {"Key": peer.name("g"), "KeyType": 0})
    found = []
    identities: tuple[dict[str, Any], ...] = ({}, {"GroupInstanceId": "static"})
    for fields in identities:
        answer = client.call("JoinGroup", 5, join_request(peer.name(f"g{len(fields)}"), **fields))
        prefix, _, _rest = answer["MemberId"].rpartition("-" + answer["MemberId"][-36:])
        found.append((answer["ErrorCode"], prefix, len(answer["MemberId"][-36:].split("-"))))
    client.close()
    return found


def await_rebalance(peer: Peer, group: str, member: dict[str, Any]) -> int:
    """A member learns by its heartbeat that another one has come; returns what the heartbeat was answered."""
    deadline = time.monotonic() + patient(10)
    while not (code := heartbeat(peer, group, member["GenerationId"], member["MemberId"])):
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return code


@case
def two_members_rebalance(peer: Peer) -> Any:
    group = peer.name("g")
    first = stable(peer, group)
    other = peer.connect("other")
    required = other.call("JoinGroup", 7, join_request(group))
    other.send("JoinGroup", 7, join_request(group, required["MemberId"]))
    steps: list[Any] = [comparable(required)]
    steps.append(await_rebalance(peer, group, first))
    steps.append(comparable(peer.call("DescribeGroups", 5, {"Groups": [group]}))["Groups"][0]["GroupState"])
    again = peer.call("JoinGroup", 7, join_request(group, first["MemberId"]))
    joined = other.receive("JoinGroup", 7)
    leader = again if again["Leader"] == again["MemberId"] else joined
    steps += [
        again["GenerationId"],
        joined["GenerationId"],
        again["Leader"] == joined["Leader"],
        again["Leader"] == first["MemberId"],
    ]
    steps += [len(again["Members"]), len(joined["Members"]), again["ProtocolName"], joined["ProtocolName"]]
    # The follower asks before the leader has answered.
    request = {
        "GroupId": group,
        "GenerationId": joined["GenerationId"],
        "MemberId": joined["MemberId"],
        "ProtocolType": "consumer",
        "ProtocolName": "range",
    }
    other.send("SyncGroup", 5, request)
    everyone = {again["MemberId"]: b"for the first", joined["MemberId"]: b"for the second"}
    steps.append(comparable(sync(peer, group, leader, everyone)))
    steps.append(comparable(other.receive("SyncGroup", 5)))
    steps.append(
        peer.call("Heartbeat", 4, {"GroupId": group, "GenerationId": 1, "MemberId": first["MemberId"]})["ErrorCode"]
    )
    described = peer.call("DescribeGroups", 5, {"Groups": [group]})["Groups"][0]
    steps += [described["GroupState"], described["ProtocolType"], described["ProtocolData"]]
    steps += sorted((member["ClientId"], member["MemberAssignment"]) for member in described["Members"])
    return steps


@case
def members_agree_on_the_first_common_protocol(peer: Peer) -> Any:
    group, mine, yours = peer.name("g"), ("sticky", "range", "roundrobin"), ("range", "roundrobin")
    first = stable(peer, group, protocols=mine)
    other = peer.connect("other")
    required = other.call("JoinGroup", 7, join_request(group, protocols=yours))
    other.send("JoinGroup", 7, join_request(group, required["MemberId"], protocols=yours))
    await_rebalance(peer, group, first)
    again = peer.call("JoinGroup", 7, join_request(group, first["MemberId"], protocols=mine))
    joined = other.receive("JoinGroup", 7)
    return first["ProtocolName"], again["ProtocolName"], joined["ProtocolName"]


@case
def a_member_that_joins_again_unchanged_is_answered_at_once(peer: Peer) -> Any:
    group = peer.name("g")
    joined = stable(peer, group)
    again = peer.call("JoinGroup", 7, join_request(group, joined["MemberId"]))
    changed = peer.call("JoinGroup", 7, join_request(group, joined["MemberId"], protocols=("range", "sticky")))
    return comparable(again), comparable(changed)


@case
def sync_before_the_leader_then_late_and_repeated(peer: Peer) -> Any:
    group = peer.name("g")
    joined = join(peer, group)
    found = [heartbeat(peer, group, joined["GenerationId"], joined["MemberId"])]
    found.append(comparable(sync(peer, group, joined, {joined["MemberId"]: b"mine"})))
    found.append(comparable(sync(peer, group, joined, {joined["MemberId"]: b"other"})))
    found.append(comparable(sync(peer, group, joined, {})))
    return found


@case
def a_leader_that_assigns_nothing_and_to_strangers(peer: Peer) -> Any:
    nothing, strangers = peer.name("g1"), peer.name("g2")
    first = join(peer, nothing)
    second = join(peer, strangers)
    return comparable(sync(peer, nothing, first, {})), comparable(sync(peer, strangers, second, {"stranger": b"x"}))


@case
def static_members_are_replaced_and_fenced(peer: Peer) -> Any:
    group = peer.name("g")
    static: dict[str, Any] = {"GroupInstanceId": "one"}
    first = stable(peer, group, **static)
    second = peer.call("JoinGroup", 7, join_request(group, **static))
    third = {
        "GroupId": group,
        "GenerationId": second["GenerationId"],
        "MemberId": first["MemberId"],
        "GroupInstanceId": "one",
    }
    return [
        comparable(second),
        second["MemberId"] != first["MemberId"],
        peer.call("Heartbeat", 4, third)["ErrorCode"],
        peer.call("SyncGroup", 5, {**third, "ProtocolType": "consumer", "ProtocolName": "range"})["ErrorCode"],
        peer.call("JoinGroup", 7, join_request(group, first["MemberId"], **static))["ErrorCode"],
        commit(
            peer, group, peer.topic(), 1, GenerationIdOrMemberEpoch=1, MemberId=first["MemberId"], GroupInstanceId="one"
        ),
        heartbeat(peer, group, second["GenerationId"], second["MemberId"], "one"),
        heartbeat(peer, group, second["GenerationId"], second["MemberId"], "stranger"),
        comparable(sync(peer, group, second, {})),
    ]


@case
def static_members_leave_by_their_instance_id(peer: Peer) -> Any:
    group = peer.name("g")
    stable(peer, group, GroupInstanceId="one")
    members = [
        {"MemberId": "", "GroupInstanceId": "stranger"},
        {"MemberId": "wrong", "GroupInstanceId": "one"},
        {"MemberId": "", "GroupInstanceId": "one"},
    ]
    return [
        comparable(peer.call("LeaveGroup", 4, {"GroupId": group, "Members": [member]})) for member in members
    ], comparable(peer.call("DescribeGroups", 5, {"Groups": [group]}))


def await_state(peer: Peer, group: str, state: str) -> None:
    """Until a group is in a state that time brings about, as when a session has run out."""
    deadline = time.monotonic() + patient(30)
    while (found := peer.call("DescribeGroups", 5, {"Groups": [group]})["Groups"][0]["GroupState"]) != state:
        assert time.monotonic() < deadline, f"{group} is still {found}"
        time.sleep(0.05)


@case
def a_session_that_times_out(peer: Peer) -> Any:
    group = peer.name("g")
    joined = stable(peer, group, SessionTimeoutMs=6000)
    before = heartbeat(peer, group, joined["GenerationId"], joined["MemberId"])
    await_state(peer, group, "Empty")
    after = heartbeat(peer, group, joined["GenerationId"], joined["MemberId"])
    return before, after, peer.call("DescribeGroups", 5, {"Groups": [group]})["Groups"][0]["GroupState"]


@case
def list_groups_with_filters(peer: Peer) -> Any:
    group = peer.name("g")
    stable(peer, group)
    commit(peer, peer.name("offline"), peer.topic(), 1)

    def ask(version: int, **fields: Any) -> Any:
        answer = peer.call("ListGroups", version, fields)
        return answer["ErrorCode"], [
            found for found in answer["Groups"] if found["GroupId"] in (group, peer.name("offline"))
        ]

    return [
        *[sorted(ask(version)[1], key=str) for version in range(6)],
        ask(4, StatesFilter=["Stable"]),
        ask(4, StatesFilter=["stable", "nonsense"]),
        ask(4, StatesFilter=["nonsense"]),
        ask(5, TypesFilter=["Classic"], StatesFilter=["Empty"]),
        ask(5, TypesFilter=["consumer"]),
        ask(5, TypesFilter=["nonsense"]),
    ]
