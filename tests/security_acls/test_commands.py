"""`fencepost acls` and Apache Kafka's own command: what one makes the other sees, on either broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop_cli.conftest import Command
from tests.peers import java
from tests.security_acls.scene import PASSWORD, Asking, AskingApache, AskingFencepost, acls_of, connect

pytestmark = pytest.mark.timeout(180)

KAFKAS = "org.apache.kafka.tools.AclCommand"
READ, WRITE, CREATE, DESCRIBE, ALL, IDEMPOTENT_WRITE = 3, 4, 5, 8, 2, 12


@pytest.fixture(scope="module")
def served(pytestconfig: pytest.Config) -> Iterator[Asking]:
    kind = AskingApache if pytestconfig.getoption("--against") == "apache" else AskingFencepost
    with kind(["alice"]) as process:
        yield process


@pytest.fixture
def command(served: Asking) -> Command:
    return Command(served.bootstrap_servers)


def rules(served: Asking, user: str) -> set[tuple[Any, ...]]:
    with connect(served) as client:
        found = acls_of(client, PrincipalFilter=f"User:{user}")
    return {
        (kind, name, pattern, host, operation, allow == 3) for kind, name, pattern, _, host, operation, allow in found
    }


def test_producers_and_consumers_get_what_they_need(served: Asking, command: Command) -> None:
    made = command(
        "acls",
        "add",
        "--allow-principal",
        "User:shop",
        "--producer",
        "--topic",
        "orders",
        "--transactional-id",
        "shop",
        "--json",
    ).json
    assert len(made["added"]) == 5
    assert rules(served, "shop") == {
        (2, "orders", 3, "*", WRITE, True),
        (2, "orders", 3, "*", DESCRIBE, True),
        (2, "orders", 3, "*", CREATE, True),
        (5, "shop", 3, "*", WRITE, True),
        (5, "shop", 3, "*", DESCRIBE, True),
    }
    command(
        "acls",
        "add",
        "--allow-principal",
        "User:billing",
        "--consumer",
        "--topic",
        "ord",
        "--group",
        "*",
        "--resource-pattern-type",
        "prefixed",
    )
    assert rules(served, "billing") == {
        (2, "ord", 4, "*", READ, True),
        (2, "ord", 4, "*", DESCRIBE, True),
        (3, "*", 4, "*", READ, True),
    }


def test_rules_are_listed_and_removed(served: Asking, command: Command) -> None:
    command(
        "acls",
        "add",
        "--deny-principal",
        "User:mallory",
        "--deny-host",
        "10.0.0.66",
        "--operation",
        "all",
        "--topic",
        "t",
    )
    command("acls", "add", "--allow-principal", "User:mallory", "--operation", "idempotent-write", "--cluster")
    listed = command("acls", "list", "--principal", "User:mallory", "--json").json["rules"]
    assert {(each["permission_type"], each["host"], each["resource_name"]) for each in listed} == {
        ("DENY", "10.0.0.66", "t"),
        ("ALLOW", "*", "kafka-cluster"),
    }
    shown = command("acls", "list", "--topic", "t", "--resource-pattern-type", "match").output
    assert "User:mallory" in shown
    assert "kafka-cluster" not in shown
    gone = command("acls", "remove", "--deny-principal", "User:mallory", "--topic", "t", "--json").json["removed"]
    assert [each["operation"] for each in gone] == ["ALL"]
    assert rules(served, "mallory") == {(4, "kafka-cluster", 3, "*", IDEMPOTENT_WRITE, True)}
    command("acls", "remove", "--allow-principal", "User:mallory", "--cluster", "--operation", "idempotent_write")
    assert rules(served, "mallory") == set()
    assert command("acls", "list", "--principal", "User:mallory").output == "no rules\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "--topic", "t", "--operation", "read"),
        ("add", "--allow-principal", "User:a", "--operation", "read"),
        ("add", "--allow-principal", "User:a", "--topic", "t", "--operation", "reed"),
        ("add", "--allow-principal", "User:a", "--topic", "t", "--operation", "cluster-action"),
        ("add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"),
        ("add", "--allow-principal", "User:a", "--topic", "t", "--consumer"),
        ("remove", "--allow-principal", "User:a"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_refused(arguments: tuple[str, ...], command: Command) -> None:
    assert command.run(["acls", *arguments]).status == 2


def test_the_command_logs_in_and_is_told_that_it_may_not(served: Asking, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={login} username="alice" password="{PASSWORD}";\n'
    )
    alice = Command("{}:{}".format(*served.asking_address))
    refused = alice.refused("acls", "list", "--command-config", str(file))
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused
    command = Command(served.bootstrap_servers)
    command("acls", "add", "--allow-principal", "User:alice", "--operation", "describe", "--cluster")
    assert json.loads(alice("acls", "list", "--command-config", str(file), "--json").output)["rules"]


def test_kafkas_own_command_adds_lists_and_removes(served: Asking, command: Command) -> None:
    where = ("--bootstrap-server", served.bootstrap_servers)
    about = ("--allow-principal", "User:java", "--topic", "java-", "--resource-pattern-type", "prefixed")
    java.run(KAFKAS, *where, "--add", *about, "--operation", "Read", "--operation", "Write")
    listed = command("acls", "list", "--principal", "User:java", "--json").json["rules"]
    assert {(each["operation"], each["pattern_type"]) for each in listed} == {
        ("READ", "PREFIXED"),
        ("WRITE", "PREFIXED"),
    }
    printed = java.run(KAFKAS, *where, "--list", "--topic", "java-purchases", "--resource-pattern-type", "match")
    assert "principal=User:java, host=*, operation=READ, permissionType=ALLOW" in printed
    java.run(KAFKAS, *where, "--remove", "--force", *about, "--operation", "Read")
    assert rules(served, "java") == {(2, "java-", 4, "*", WRITE, True)}
