"""CreateAcls, DescribeAcls and DeleteAcls: the same calls to both brokers, the same answers or closed connections."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from tests.interop.cases import Peer
from tests.interop.cases.peer import CLOSED
from tests.interop.differences import differences
from tests.security_acls.scene import (
    ANY_ACL,
    SETTLE_TIMEOUT_SECONDS,
    AskingApache,
    AskingFencepost,
    Right,
    acls_of,
    grant,
)
from tests.security_acls.transcript import shown

pytestmark = pytest.mark.timeout(180)

OP, TOPIC, PREFIXED = AclOperation, ResourceType.TOPIC, PatternType.PREFIXED
DENY = AclPermissionType.DENY
VERSIONS = (1, 2, 3)


@pytest.fixture(scope="module")
def roots() -> Iterator[tuple[Peer, Peer]]:
    with (
        AskingApache(["alice"]) as apache,
        AskingFencepost(["alice"]) as fencepost,
        Peer(apache, "acls") as theirs,
        Peer(fencepost, "acls") as ours,
    ):
        yield theirs, ours


def compare(roots: tuple[Peer, Peer], script: Any) -> Any:
    expected, found = (script(root) for root in roots)
    problems = list(differences(expected, found))
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)
    return found


def settled(root: Peer, wanted: set[tuple[Any, ...]], **parts: Any) -> None:
    """Apache Kafka's broker hears of changes from its controller."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
    while acls_of(root, **parts) != wanted:
        assert time.monotonic() < deadline, acls_of(root, **parts) ^ wanted
        time.sleep(0.02)


GOOD = Right(OP.READ, TOPIC, "made").creation("maker")
STRANGE = {
    "empty resource name": {"ResourceName": ""},
    "cluster of another name": {"ResourceType": 4, "ResourceName": "cluster"},
    "unknown resource type": {"ResourceType": 0},
    "any resource type": {"ResourceType": 1},
    "resource type of the future": {"ResourceType": 99},
    "any pattern": {"ResourcePatternType": 1},
    "match as a pattern": {"ResourcePatternType": 2},
    "unknown pattern": {"ResourcePatternType": 0},
    "unknown operation": {"Operation": 0},
    "any operation": {"Operation": 1},
    "operation of the future": {"Operation": 99},
    "unknown permission": {"PermissionType": 0},
    "any permission": {"PermissionType": 1},
    "principal without a kind": {"Principal": "alice"},
    "principal without a name": {"Principal": "User:"},
    "empty principal": {"Principal": ""},
    "principal with a colon in its name": {"Principal": "User:a:b"},
    "principal of another kind": {"Principal": "Group:a"},
    "host that is none": {"Host": "nowhere"},
    "empty host": {"Host": ""},
    "operation that the resource does not have": {"Operation": int(OP.CLUSTER_ACTION)},
}


# Apache Kafka hangs up on zeros, and trips over wildcards where there must be none: INVALID_REQUEST here.
TRIPPED_OVER = {name for name in STRANGE if name.startswith(("unknown", "any", "match"))}
INVALID_REQUEST = 42


@pytest.mark.parametrize("name", STRANGE)
def test_strange_rules_are_taken_or_refused_alike(name: str, roots: tuple[Peer, Peer]) -> None:
    def script(root: Peer) -> Any:
        creations = [{**GOOD, **STRANGE[name]}]
        return [shown(root.call("CreateAcls", version, {"Creations": creations})) for version in VERSIONS]

    if name not in TRIPPED_OVER:
        compare(roots, script)
        return
    tripped = (CLOSED, {"Results": [{"ErrorCode": -1}]})
    expected, found = (script(root) for root in roots)
    assert all(each in tripped for each in expected), f"no longer tripped over: {expected}"
    assert all(each == {"Results": [{"ErrorCode": INVALID_REQUEST}]} for each in found)


@pytest.mark.parametrize(
    "strange",
    [
        {"ResourceTypeFilter": 99},
        {"PrincipalFilter": "nobody"},
        {"ResourceNameFilter": ""},
        {"ResourceNameFilter": "", "PatternTypeFilter": 2},
    ],
    ids=str,
)
def test_strange_filters_are_answered_alike(strange: dict[str, Any], roots: tuple[Peer, Peer]) -> None:
    compare(roots, lambda root: _asked(root, strange))


@pytest.mark.parametrize("part", ["ResourceTypeFilter", "PatternTypeFilter", "Operation", "PermissionType"])
def test_a_filter_with_an_unknown_part_finds_nothing_and_deletes_nothing(part: str, roots: tuple[Peer, Peer]) -> None:
    """Apache Kafka hangs up."""
    assert _asked(roots[0], {part: 0}) == (CLOSED, CLOSED)
    deleted, described = _asked(roots[1], {part: 0})
    assert deleted == {"FilterResults": [{"ErrorCode": INVALID_REQUEST, "MatchingAcls": []}]}
    assert described == {"ErrorCode": 0, "Resources": []}


def _asked(root: Peer, strange: dict[str, Any]) -> tuple[Any, Any]:
    filter_ = {**ANY_ACL, "PrincipalFilter": "User:nobody", **strange}
    deleted = shown(root.call("DeleteAcls", 3, {"Filters": [filter_]}))
    return deleted, shown(root.call("DescribeAcls", 3, filter_))


def test_rules_are_found_by_every_filter_and_deleted_by_it(roots: tuple[Peer, Peer]) -> None:
    rights = [
        Right(OP.READ, TOPIC, "found"),
        Right(OP.WRITE, TOPIC, "found", permission=DENY, host="10.0.0.1"),
        Right(OP.READ, TOPIC, "fou", PREFIXED),
        Right(OP.ALL, TOPIC, "*"),
        Right(OP.READ, ResourceType.GROUP, "found"),
        Right(OP.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, "found"),
        Right(OP.CREATE_TOKENS, ResourceType.USER, "found"),
        Right(OP.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster"),
    ]
    mine = {"PrincipalFilter": "User:finder"}
    parts = [
        {"PatternTypeFilter": pattern, "ResourceNameFilter": name, "ResourceTypeFilter": kind}
        for pattern, name, kind in itertools.product((1, 2, 3, 4), (None, "found", "fou", "*", "foundling"), (1, 2))
    ]
    parts += [{"Operation": OP.READ}, {"PermissionType": DENY}, {"HostFilter": "10.0.0.1"}, {"HostFilter": "*"}]

    def script(root: Peer) -> Any:
        grant(root, [("finder", right) for right in rights])
        # A second time changes nothing.
        grant(root, [("finder", right) for right in rights])
        found = [sorted(acls_of(root, **mine, **part)) for part in parts]
        versions = [shown(root.call("DescribeAcls", version, {**ANY_ACL, **mine})) for version in VERSIONS]
        gone = []
        for version, part in zip(itertools.cycle(VERSIONS), parts[::-1], strict=False):
            before = acls_of(root, **mine)
            answer = root.call("DeleteAcls", version, {"Filters": [{**ANY_ACL, **mine, **part}]})
            gone.append(shown(answer))
            settled(root, before - _deleted(answer), **mine)
        return found, versions, gone

    found, _, _ = compare(roots, script)
    assert len(found[0]) == len(rights)


def _deleted(answer: Any) -> set[tuple[Any, ...]]:
    return {
        (
            acl["ResourceType"],
            acl["ResourceName"],
            acl["PatternType"],
            acl["Principal"],
            acl["Host"],
            acl["Operation"],
            acl["PermissionType"],
        )
        for result in answer["FilterResults"]
        for acl in result["MatchingAcls"]
    }


def test_delegation_tokens_have_no_rules_here(roots: tuple[Peer, Peer]) -> None:
    token = Right(OP.DESCRIBE, ResourceType.DELEGATION_TOKEN, "token").creation("maker")
    answer = roots[1].call("CreateAcls", 3, {"Creations": [token, GOOD]})
    assert [result["ErrorCode"] for result in answer["Results"]] == [42, 0]
    assert "delegation tokens" in answer["Results"][0]["ErrorMessage"]
