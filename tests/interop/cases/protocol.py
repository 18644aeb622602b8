"""Frames, headers and versions."""

import struct
from typing import Any

from tests.interop.cases.peer import CLOSED, Peer, case, comparable
from tests.peers import schemas
from tests.peers.raw import ConnectionClosed, RawClient


def outcome(client: RawClient) -> Any:
    """The next frame after its correlation id, or that the broker hung up."""
    try:
        return client.receive_frame(5)[4:].hex()
    except ConnectionClosed:
        return CLOSED
    except TimeoutError:
        return "silence"


def survives(peer: Peer) -> bool:
    """Whether the broker still serves others."""
    with peer.connect() as client:
        return bool(client.call("ApiVersions", 0)["ErrorCode"] == 0)


@case
def api_versions_in_an_unknown_version_is_answered_in_version_0(peer: Peer) -> Any:
    client = peer.connect()
    client.send_raw(18, 99, b"", flexible_header=True)
    frame = client.receive_frame()
    code, count = struct.unpack_from(">hi", frame, 4)
    return (
        code,
        count,
        [struct.unpack_from(">hhh", frame, 10 + 6 * n) for n in range(count)],
        len(frame) - 10 - 6 * count,
    )


@case
def a_connection_works_on_after_an_unknown_api_versions(peer: Peer) -> Any:
    client = peer.connect()
    client.send_raw(18, 99, b"", flexible_header=True)
    client.receive_frame()
    return client.call("ApiVersions", 3, {"ClientSoftwareName": "raw", "ClientSoftwareVersion": "1"})["ErrorCode"]


@case
def api_versions_with_an_invalid_client_name(peer: Peer) -> Any:
    return peer.call("ApiVersions", 3, {"ClientSoftwareName": "no good!", "ClientSoftwareVersion": "1"})["ErrorCode"]


@case
def api_versions_with_an_empty_client_name(peer: Peer) -> Any:
    return peer.call("ApiVersions", 3, {"ClientSoftwareName": "", "ClientSoftwareVersion": ""})["ErrorCode"]


@case
def api_versions_with_a_body_that_ends_early(peer: Peer) -> Any:
    client = peer.connect()
    client.send_raw(18, 3, b"\x05ab", flexible_header=True)
    return outcome(client), survives(peer)


@case
def a_version_that_is_too_high(peer: Peer) -> Any:
    found = {}
    for api, key in (("Metadata", 3), ("Produce", 0), ("Fetch", 1), ("JoinGroup", 11), ("CreateTopics", 19)):
        client = peer.connect()
        client.send_raw(key, 99, b"\0" * 8, flexible_header=True)
        found[api] = outcome(client)
    return found, survives(peer)


@case
def a_version_that_is_too_low(peer: Peer) -> Any:
    found = {}
    for api, key, version in (
        ("Produce", 0, 2),
        ("Fetch", 1, 3),
        ("ListOffsets", 2, 0),
        ("CreateTopics", 19, 1),
        ("OffsetCommit", 8, 1),
    ):
        client = peer.connect()
        client.send_raw(key, version, b"\0" * 8, flexible_header=False)
        found[api] = outcome(client)
    return found, survives(peer)


@case
def a_negative_version(peer: Peer) -> Any:
    client = peer.connect()
    client.send_raw(3, -1, b"\0" * 8, flexible_header=False)
    return outcome(client), survives(peer)


@case
def an_unknown_api_key(peer: Peer) -> Any:
    found = []
    for key in (999, -1):
        client = peer.connect()
        client.send_raw(key, 0, b"", flexible_header=False)
        found.append(outcome(client))
    return found, survives(peer)


@case
def an_api_of_controllers_only(peer: Peer) -> Any:
    client = peer.connect()
    client.send_raw(52, 0, b"\0" * 8, flexible_header=False)  # Vote
    return outcome(client), survives(peer)


@case
def a_negative_frame_length(peer: Peer) -> Any:
    client = peer.connect()
    client.send_bytes(struct.pack(">i", -5) + b"abcdef")
    return outcome(client), survives(peer)


@case
def a_frame_length_beyond_every_limit(peer: Peer) -> Any:
    client = peer.connect()
    client.send_bytes(struct.pack(">i", 2**31 - 1) + b"abcdef")
    return outcome(client), survives(peer)


@case
def a_frame_too_short_for_a_header(peer: Peer) -> Any:
    client = peer.connect()
    client.send_frame(b"\0\x03\0")
    return outcome(client), survives(peer)


@case
def an_empty_frame(peer: Peer) -> Any:
    client = peer.connect()
    client.send_bytes(struct.pack(">i", 0))
    return outcome(client), survives(peer)


@case
def a_body_that_ends_early(peer: Peer) -> Any:
    client = peer.connect()
    client.send_raw(3, 4, b"\0\0\0\5\0\1a", flexible_header=False)
    return outcome(client), survives(peer)


@case
def an_array_longer_than_its_frame(peer: Peer) -> Any:
    client = peer.connect()
    client.send_raw(3, 12, b"\xff\xff\xff\xff\x0f", flexible_header=True)
    return outcome(client), survives(peer)


@case
def unknown_tagged_fields_are_skipped(peer: Peer) -> Any:
    client = peer.connect()
    # Metadata v12 of no topic: an empty array, three booleans less one, then one unknown tag of three bytes.
    body = b"\x01" + b"\0\0" + b"\x01" + b"\x77" + b"\x03abc"
    client.send_raw(3, 12, body, flexible_header=True)
    return comparable(client.receive("Metadata", 12))["Topics"]


@case
def unknown_tagged_fields_in_the_header_are_skipped(peer: Peer) -> Any:
    client = peer.connect()
    header = struct.pack(">hhih", 18, 3, 77, -1) + b"\x01\x55\x02hi"
    client.send_frame(header + b"\x04raw" + b"\x021" + b"\0")
    frame = client.receive_frame()
    return struct.unpack_from(">ih", frame)


@case
def a_null_client_id(peer: Peer) -> Any:
    client = peer.connect()
    client.send_frame(struct.pack(">hhih", 18, 0, 5, -1))
    return struct.unpack_from(">ih", client.receive_frame())


@case
def pipelined_requests_are_answered_in_order(peer: Peer) -> Any:
    client = peer.connect()
    sent = [client.send("Metadata", 12, {"Topics": []}) if n % 2 else client.send("ApiVersions", 0) for n in range(40)]
    answered = [struct.unpack_from(">i", client.receive_frame())[0] for _ in sent]
    return answered == sent


@case
def trailing_bytes_after_a_body(peer: Peer) -> Any:
    client = peer.connect()
    client.send_raw(3, 1, b"\0\0\0\0" + b"extra", flexible_header=False)
    return outcome(client) != CLOSED, survives(peer)


_ANY_ACL = {"ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1}


@case
def trailing_bytes_after_requests_of_many_kinds(peer: Peer) -> Any:
    found = {}
    for api, version in (
        ("ApiVersions", 4),
        ("Metadata", 12),
        ("Produce", 9),
        ("Fetch", 12),
        ("ListOffsets", 7),
        ("FindCoordinator", 4),
        ("ListGroups", 5),
        ("DescribeGroups", 5),
        ("Heartbeat", 4),
        ("DescribeAcls", 3),
        ("DescribeConfigs", 4),
        ("DescribeUserScramCredentials", 0),
        ("AlterUserScramCredentials", 0),
        ("CreateTopics", 7),
    ):
        body = schemas.encode(f"{api}Request", version, _ANY_ACL if api == "DescribeAcls" else {})
        found[api] = [_is_answered(peer, api, version, body + trailing) for trailing in (b"", b"\0", b"\xff\xff\xff")]
    return found, survives(peer)


def _is_answered(peer: Peer, api: str, version: int, body: bytes) -> bool:
    with peer.connect() as client:
        client.send(api, version, body=body)
        return bool(outcome(client) != CLOSED)


@case
def finalized_features_tell_the_transaction_version(peer: Peer) -> Any:
    answer = peer.call("ApiVersions", 4, {"ClientSoftwareName": "raw", "ClientSoftwareVersion": "1"})
    wanted = "transaction.version"
    return (
        [f for f in answer["SupportedFeatures"] if f["Name"] == wanted],
        [f for f in answer["FinalizedFeatures"] if f["Name"] == wanted],
        answer["FinalizedFeaturesEpoch"] >= 0,
        answer["ZkMigrationReady"],
    )
