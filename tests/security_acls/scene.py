"""Two brokers that look at ACLs, and raw connections to them under any name.

Both have a listener without questions, whose clients are the super user ANONYMOUS, and one that asks for a name and a
password. A name may be anything that the brokers were started with.
"""

import re
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from fencepost.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from tests.interop.cases.peer import SETTLING, error_codes
from tests.peers.fencepost_process import FencepostProcess, _command
from tests.peers.kafka import ApacheKafka
from tests.peers.raw import RawClient
from tests.support.patience import patient

PASSWORD = "secret"
ASKING = "SASL_PLAINTEXT"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTLE_TIMEOUT_SECONDS = patient(30.0)
LISTENING = re.compile(r"listening on ([0-9.]+:\d+)")


def settings(users: Iterable[str]) -> dict[str, str]:
    names = " ".join(f'user_{user}="{PASSWORD}"' for user in users)
    return {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{ASKING.lower()}.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {names};"
        ),
    }


class AskingApache(ApacheKafka):
    def __init__(self, users: Iterable[str], configs: dict[str, str] | None = None) -> None:
        super().__init__({**settings(users), **(configs or {})})
        self.asking_port = 0

    @property
    def asking_address(self) -> tuple[str, int]:
        return "127.0.0.1", self.asking_port

    def _write_properties(self) -> Path:
        path = super()._write_properties()
        assert self._ports is not None
        broker, controller = self._ports
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.asking_port = free.getsockname()[1]
        ports = {"PLAINTEXT": broker, ASKING: self.asking_port}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        with path.open("a") as file:
            file.write(f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}\n")
            file.write(f"advertised.listeners={listeners}\n")
            file.write(f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{ASKING}:{ASKING}\n")
            file.write("inter.broker.listener.name=PLAINTEXT\n")
        return path


class AskingFencepost(FencepostProcess):
    def __init__(self, users: Iterable[str], configs: dict[str, str] | None = None) -> None:
        super().__init__({**settings(users), **(configs or {})})
        self._asking = "127.0.0.1:0"

    @property
    def asking_address(self) -> tuple[str, int]:
        host, _, port = self._asking.rpartition(":")
        return host, int(port)

    def start(self) -> Self:
        plain = self.bootstrap_servers or "127.0.0.1:0"
        arguments = [f"--set={name}={value}" for name, value in self.configs.items()]
        since = self.log_file.stat().st_size if self.log_file.exists() else 0
        listen = ["--listen", f"PLAINTEXT://{plain}", "--listen", f"{ASKING}://{self._asking}"]
        self._launch([*_command(), "serve", "--data", str(self.data_directory), *listen, *arguments])
        # One line for each listener, in their order and in one write.
        self._await_log("listening on", since)
        found: list[str] = []
        deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
        while len(found) < 2 and time.monotonic() < deadline:
            found = LISTENING.findall(self.log_file.read_bytes()[since:].decode(errors="replace"))
            time.sleep(0.01)
        self.bootstrap_servers, self._asking = found
        return self


Asking = AskingApache | AskingFencepost


class Caller(Protocol):
    def call(self, api: str, version: int, message: dict[str, Any] | None = None) -> Any: ...


class Right(NamedTuple):
    operation: AclOperation
    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL
    permission: AclPermissionType = AclPermissionType.ALLOW
    host: str = "*"

    def creation(self, user: str) -> dict[str, Any]:
        return {
            "ResourceType": self.resource_type,
            "ResourceName": self.name,
            "ResourcePatternType": self.pattern_type,
            "Principal": f"User:{user}",
            "Host": self.host,
            "Operation": self.operation,
            "PermissionType": self.permission,
        }


ANY_ACL = {
    "ResourceTypeFilter": 1,
    "ResourceNameFilter": None,
    "PatternTypeFilter": 1,
    "PrincipalFilter": None,
    "HostFilter": None,
    "Operation": 1,
    "PermissionType": 1,
}


def connect(broker: Asking, user: str | None = None) -> RawClient:
    """As a user, or as the super user."""
    if user is None:
        return RawClient(broker.address)
    client = RawClient(broker.asking_address)
    assert client.call("SaslHandshake", 1, {"Mechanism": "PLAIN"})["ErrorCode"] == 0
    proof = client.call("SaslAuthenticate", 2, {"AuthBytes": f"\0{user}\0{PASSWORD}".encode()})
    assert proof["ErrorCode"] == 0, proof
    return client


def settled(client: RawClient, api: str, version: int, message: dict[str, Any]) -> Any:
    """The answer once coordinators have loaded."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
    while True:
        answer = client.call(api, version, message)
        if not SETTLING & set(error_codes(answer)) or time.monotonic() > deadline:
            return answer
        time.sleep(0.02)


def acls_of(client: Caller, **parts: Any) -> set[tuple[Any, ...]]:
    answer = client.call("DescribeAcls", 3, {**ANY_ACL, **parts})
    assert answer["ErrorCode"] == 0, answer
    return {
        (
            resource["ResourceType"],
            resource["ResourceName"],
            resource["PatternType"],
            acl["Principal"],
            acl["Host"],
            acl["Operation"],
            acl["PermissionType"],
        )
        for resource in answer["Resources"]
        for acl in resource["Acls"]
    }


def grant(client: Caller, rights: Sequence[tuple[str, Right]]) -> None:
    """Gives users rights and waits until the broker knows: in Apache Kafka the controller learns of them first."""
    creations = [right.creation(user) for user, right in rights]
    if not creations:
        return
    answer = client.call("CreateAcls", 3, {"Creations": creations})
    assert not any(result["ErrorCode"] for result in answer["Results"]), answer
    wanted = {tuple(creation.values()) for creation in creations}
    deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
    while not wanted <= acls_of(client):
        assert time.monotonic() < deadline, f"never heard of: {wanted - acls_of(client)}"
        time.sleep(0.02)


def revoke(client: Caller, user: str) -> None:
    """Takes every right of a user away, and waits for it."""
    mine = {"PrincipalFilter": f"User:{user}"}
    answer = client.call("DeleteAcls", 3, {"Filters": [{**ANY_ACL, **mine}]})
    assert not any(result["ErrorCode"] for result in answer["FilterResults"]), answer
    deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
    while acls_of(client, **mine):
        assert time.monotonic() < deadline
        time.sleep(0.02)
