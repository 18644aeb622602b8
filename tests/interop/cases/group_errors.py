"""What a group coordinator refuses, and how."""

from typing import Any

from tests.interop.cases.groups import (
    commit,
    commit_request,
    fetch_offsets,
    heartbeat,
    join,
    join_request,
    stable,
    subscription,
    sync,
)
from tests.interop.cases.peer import Peer, case, comparable


def join_code(peer: Peer, group: str, version: int = 7, **fields: Any) -> Any:
    return comparable(peer.settled("JoinGroup", version, join_request(group, **fields)))


@case
def join_with_an_empty_group_id(peer: Peer) -> Any:
    return [join_code(peer, "", version) for version in (0, 5, 9)]


@case
def join_with_bad_session_timeouts(peer: Peer) -> Any:
    group = peer.name("g")
    return [join_code(peer, group, SessionTimeoutMs=timeout) for timeout in (0, -1, 5999, 1_800_001)]


@case
def join_with_an_unknown_member_id(peer: Peer) -> Any:
    fresh, used = peer.name("fresh"), peer.name("used")
    stable(peer, used)
    return [join_code(peer, group, member="stranger", version=version) for group in (fresh, used) for version in (3, 7)]


@case
def join_with_an_unknown_static_member_id(peer: Peer) -> Any:
    return join_code(peer, peer.name("g"), member="stranger", GroupInstanceId="one")


@case
def join_with_other_protocols(peer: Peer) -> Any:
    group = peer.name("g")
    stable(peer, group)
    return [
        join_code(peer, group, protocols=("other",)),
        join_code(peer, group, ProtocolType="connect"),
        join_code(peer, group, Protocols=[]),
        join_code(peer, group, ProtocolType=""),
    ]


@case
def join_a_new_group_without_protocols(peer: Peer) -> Any:
    return [
        join_code(peer, peer.name("g1"), Protocols=[]),
        join_code(peer, peer.name("g2"), ProtocolType=""),
        join_code(peer, peer.name("g3"), version=3, Protocols=[]),
    ]


@case
def sync_with_wrong_identities(peer: Peer) -> Any:
    group = peer.name("g")
    joined = stable(peer, group)
    return [
        comparable(sync(peer, name, {**joined, **change}, {}))
        for name, change in (
            (group, {"MemberId": "stranger"}),
            (group, {"GenerationId": 99}),
            (group, {"GenerationId": 0}),
            (group, {"ProtocolName": "other"}),
            (peer.name("unknown"), {}),
            ("", {}),
        )
    ]


@case
def sync_with_another_protocol_type(peer: Peer) -> Any:
    group = peer.name("g")
    joined = stable(peer, group)
    request = {"GroupId": group, "GenerationId": joined["GenerationId"], "MemberId": joined["MemberId"]}
    return [
        comparable(peer.call("SyncGroup", 5, {**request, "ProtocolType": kind, "ProtocolName": name}))
        for kind, name in (("connect", "range"), (None, None), ("consumer", None), (None, "range"))
    ]


@case
def heartbeats_with_wrong_identities(peer: Peer) -> Any:
    group = peer.name("g")
    joined = stable(peer, group)
    member, generation = joined["MemberId"], joined["GenerationId"]
    return [
        heartbeat(peer, group, generation, "stranger"),
        heartbeat(peer, group, generation, ""),
        heartbeat(peer, group, generation + 1, member),
        heartbeat(peer, group, generation - 1, member),
        heartbeat(peer, peer.name("unknown"), generation, member),
        heartbeat(peer, "", generation, member),
        heartbeat(peer, group, generation, member, version=0),
        heartbeat(peer, group, generation, member),
    ]


@case
def leaving_with_wrong_identities(peer: Peer) -> Any:
    group = peer.name("g")
    joined = stable(peer, group)

    def leave(name: str, version: int, **fields: Any) -> Any:
        return comparable(peer.settled("LeaveGroup", version, {"GroupId": name, **fields}))

    members = [{"MemberId": "stranger"}, {"MemberId": joined["MemberId"]}, {"MemberId": joined["MemberId"]}]
    return [
        leave(group, 0, MemberId="stranger"),
        leave(group, 2, MemberId="stranger"),
        leave(peer.name("unknown"), 2, MemberId="stranger"),
        leave(peer.name("unknown"), 4, Members=[{"MemberId": "stranger"}]),
        leave("", 2, MemberId="x"),
        leave(group, 4, Members=[]),
        leave(group, 5, Members=members),
    ]


@case
def commits_with_wrong_identities(peer: Peer) -> Any:
    group, topic = peer.name("g"), peer.topic()
    joined = stable(peer, group)
    member, generation = joined["MemberId"], joined["GenerationId"]

    def attempt(name: str, generation: int, member: str, instance: str | None = None, version: int = 8) -> int:
        fields: dict[str, Any] = {"GenerationIdOrMemberEpoch": generation, "MemberId": member}
        if version >= 7:
            fields["GroupInstanceId"] = instance
        return commit(peer, name, topic, 1, version=version, **fields)

    unknown = peer.name("unknown")
    return [
        attempt(group, generation, "stranger"),
        attempt(group, generation + 1, member),
        attempt(group, generation - 1, member),
        attempt(group, -1, ""),  # a commit from outside while the group is in use
        attempt(group, -1, member),
        attempt(group, generation, ""),
        attempt(group, generation, member, "stranger"),
        attempt(unknown, generation, member),
        attempt(unknown, generation, member, version=5),
        attempt(unknown, generation, member, version=9),
        attempt(unknown, -1, ""),
        attempt("", -1, ""),
        attempt(group, generation, member),
    ]


@case
def commits_while_the_group_rebalances(peer: Peer) -> Any:
    group, topic = peer.name("g"), peer.topic()
    joined = join(peer, group)
    fields = {"GenerationIdOrMemberEpoch": joined["GenerationId"], "MemberId": joined["MemberId"]}
    return commit(peer, group, topic, 1, **fields)


@case
def commits_of_unknown_partitions_and_strange_values(peer: Peer) -> Any:
    group, topic = peer.name("g"), peer.topic()
    return [
        commit(peer, group, topic, 1, partition=9),
        commit(peer, group, peer.name("unknown"), 1),
        commit(peer, group, topic, -1),
        commit(peer, group, topic, -5),
        commit(peer, group, topic, 2**62),
        commit(peer, group, topic, 1, metadata="x" * 4097),
        commit(peer, group, topic, 1, metadata="x" * 4096),
        commit(peer, group, topic, 7, metadata=None),
        fetch_offsets(peer, group, [{"Name": topic, "PartitionIndexes": [0, 9]}]),
    ]


@case
def commit_and_fetch_in_every_version(peer: Peer) -> Any:
    topic = peer.topic()
    topic_id = peer.topic_id(topic)
    found = []
    for version in range(2, 11):
        request = commit_request(peer.name(f"g{version}"), topic, version)
        if version >= 10:
            request["Topics"][0] = {"TopicId": topic_id, "Partitions": request["Topics"][0]["Partitions"]}
        found.append(comparable(peer.settled("OffsetCommit", version, request)))
    for version in range(1, 11):
        group = peer.name(f"g{max(version, 2)}")
        for partitions in ([0], [0, 5]):
            wanted: dict[str, Any] = {"Name": topic, "PartitionIndexes": partitions}
            if version < 8:
                found.append(fetch_offsets(peer, group, [wanted], version))
                continue
            if version >= 10:
                wanted = {"TopicId": topic_id, "PartitionIndexes": partitions}
            groups = [{"GroupId": group, "Topics": [wanted]}]
            found.append(comparable(peer.settled("OffsetFetch", version, {"Groups": groups})))
        if version >= 8:
            every = [{"GroupId": group, "Topics": None}, {"GroupId": peer.name("unknown"), "Topics": None}]
            found.append(comparable(peer.settled("OffsetFetch", version, {"Groups": every})))
        elif version >= 2:
            found.append(fetch_offsets(peer, group, None, version))
    return found


@case
def commit_and_fetch_with_unknown_topic_ids(peer: Peer) -> Any:
    group, unknown = peer.name("g"), "00000000-0000-0000-0000-0000000000ff"
    partitions = [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}]
    committed = peer.settled(
        "OffsetCommit", 10, {"GroupId": group, "Topics": [{"TopicId": unknown, "Partitions": partitions}]}
    )
    groups = [{"GroupId": group, "Topics": [{"TopicId": unknown, "PartitionIndexes": [0]}]}]
    return comparable(committed), comparable(peer.settled("OffsetFetch", 10, {"Groups": groups}))


@case
def offset_fetch_of_strange_groups(peer: Peer) -> Any:
    topic = peer.topic()
    wanted = [{"Name": topic, "PartitionIndexes": [0]}]
    member = {"MemberId": "stranger", "MemberEpoch": 3}
    return [
        fetch_offsets(peer, "", wanted),
        fetch_offsets(peer, peer.name("unknown"), wanted),
        fetch_offsets(peer, peer.name("unknown"), []),
        fetch_offsets(peer, peer.name("unknown"), wanted, RequireStable=True),
        comparable(
            peer.settled("OffsetFetch", 9, {"Groups": [{"GroupId": peer.name("unknown"), "Topics": wanted, **member}]})
        ),
        comparable(peer.settled("OffsetFetch", 8, {"Groups": []})),
    ]


@case
def offset_delete(peer: Peer) -> Any:
    group, topic = peer.name("g"), peer.topic()
    commit(peer, group, topic, 3)

    def ask(name: str, subject: str, partition: int) -> Any:
        request = {"GroupId": name, "Topics": [{"Name": subject, "Partitions": [{"PartitionIndex": partition}]}]}
        return comparable(peer.settled("OffsetDelete", 0, request))

    return [
        ask(group, topic, 9),
        ask(group, peer.name("unknown"), 0),
        ask(group, topic, 0),
        ask(group, topic, 0),
        ask(peer.name("unknown"), topic, 0),
        ask("", topic, 0),
        fetch_offsets(peer, group, [{"Name": topic, "PartitionIndexes": [0]}]),
    ]


@case
def offset_delete_of_a_group_in_use(peer: Peer) -> Any:
    group, topic = peer.name("g"), peer.topic()
    stable(peer, group, Protocols=[{"Name": "range", "Metadata": subscription(topic)}])
    other = peer.name("other-type")
    stable_other = join(peer, other, ProtocolType="connect")
    partitions = [{"PartitionIndex": 0}]
    ask = {"Topics": [{"Name": topic, "Partitions": partitions}]}
    return [
        comparable(peer.settled("OffsetDelete", 0, {"GroupId": group, **ask})),
        stable_other["ErrorCode"],
        comparable(peer.settled("OffsetDelete", 0, {"GroupId": other, **ask})),
    ]


@case
def delete_groups(peer: Peer) -> Any:
    used, offline = peer.name("used"), peer.name("offline")
    stable(peer, used)
    commit(peer, offline, peer.topic(), 1)
    names = [used, offline, peer.name("unknown")]
    first = peer.settled("DeleteGroups", 2, {"GroupsNames": names})
    return sorted(comparable(first)["Results"], key=lambda result: result["GroupId"]), comparable(
        peer.settled("DeleteGroups", 2, {"GroupsNames": [offline]})
    )


@case
def describe_groups_of_every_kind_and_version(peer: Peer) -> Any:
    used, offline = peer.name("used"), peer.name("offline")
    stable(peer, used, GroupInstanceId="one")
    commit(peer, offline, peer.topic(), 1)
    asked = [used, offline, peer.name("unknown")]
    found = []
    for version in range(7):
        answer = comparable(peer.settled("DescribeGroups", version, {"Groups": asked}))
        for group in answer["Groups"]:
            for member in group["Members"]:
                member.pop("ClientHost", None)
        found.append(sorted(answer["Groups"], key=lambda group: str(group["GroupId"])))
    wide = peer.settled("DescribeGroups", 5, {"Groups": [used], "IncludeAuthorizedOperations": True})
    return found, wide["Groups"][0]["AuthorizedOperations"], wide["Groups"][0]["Members"][0]["ClientHost"]


@case
def find_coordinator_of_every_kind(peer: Peer) -> Any:
    group = peer.name("g")
    peer.settled("FindCoordinator", 2, {"Key": group, "KeyType": 0})
    return [
        *[comparable(peer.settled("FindCoordinator", version, {"Key": group})) for version in (0, 1, 2, 3)],
        comparable(peer.settled("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [group, "other"]})),
        comparable(peer.settled("FindCoordinator", 6, {"KeyType": 0, "CoordinatorKeys": []})),
        comparable(peer.call("FindCoordinator", 3, {"Key": group, "KeyType": 9})),
        comparable(peer.call("FindCoordinator", 4, {"KeyType": 9, "CoordinatorKeys": [group]})),
        comparable(peer.settled("FindCoordinator", 2, {"Key": "", "KeyType": 0})),
    ]
