"""Scenario 43: what a connection may do before it has proved who it is. The whole node, in virtual time."""

import pytest

from fencepost.broker.events import AuthenticationFailed
from fencepost.broker.security.principal import ANONYMOUS, Principal
from fencepost.simulation.node import SimulatedNode
from fencepost.wire.catalog import API_VERSIONS, ApiKey, response_class
from fencepost.wire.errors import ErrorCode
from fencepost.wire.framing import read_response, request_frame
from fencepost.wire.messages import (
    ApiVersionsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    message_class,
)

LISTENER = "SASL_PLAINTEXT"
PRE_AUTHENTICATION = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="bobs";'
    ),
    "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "60000",
}


class Client:
    def __init__(self, machine: SimulatedNode) -> None:
        self._machine = machine
        self.written = b""
        self.closed = ""
        self.connection = machine.node.connect("peer", LISTENER, self._write, self._close)

    def _write(self, parts: list) -> None:
        self.written += b"".join(parts)

    def _close(self, reason: str) -> None:
        self.connection.flush()
        self.closed = reason
        self.connection.closed()

    def send(self, key: ApiKey, version: int, message: object) -> None:
        frame = b"".join(request_frame(key, version, 7, "test", message))[4:]
        self._machine.node.handle(self.connection, memoryview(bytearray(frame)))
        if not self.closed:
            self.connection.flush()
        self._machine.scheduler.run_ready()

    def call(self, key: ApiKey, version: int, message: object):
        self.written = b""
        self.send(key, version, message)
        return None if not self.written else read_response(response_class(key), key, version, self.written[4:])[1]

    def log_in(self, name: str = "alice", password: str = "secret"):
        self.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        content = f"\0{name}\0{password}".encode()
        return self.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=content))


@pytest.fixture
def machine() -> SimulatedNode:
    made = SimulatedNode(SETTINGS, seed=1).start()
    made.node.secure(LISTENER)
    made.node.set_endpoint(LISTENER, "localhost", 9093)
    return made


def failures(machine: SimulatedNode) -> list[AuthenticationFailed]:
    return [event for event in machine.node.events.recent if isinstance(event, AuthenticationFailed)]


@pytest.mark.parametrize("key", [key for key in API_VERSIONS if key not in PRE_AUTHENTICATION])
def test_no_other_call_is_even_read_before_authentication(machine: SimulatedNode, key: ApiKey) -> None:
    client = Client(machine)
    client.send(key, API_VERSIONS[key][1], message_class(f"{key.camel_name}Request")())
    assert client.closed
    assert client.written == b""
    assert machine.node.calls[key] == 0
    assert failures(machine)[-1].listener == LISTENER


def test_the_way_in_and_the_limits_before_and_after(machine: SimulatedNode) -> None:
    client = Client(machine)
    assert (client.connection.request_max_bytes, client.connection.pipelined_requests_max) == (524_288, 1)
    assert client.connection.principal == ANONYMOUS
    software = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    assert client.call(ApiKey.API_VERSIONS, 4, software).error_code == 0
    answer = client.log_in()
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
    assert client.connection.principal == Principal("User", "alice")
    config = machine.node.config
    assert client.connection.request_max_bytes == config.socket_request_max_bytes
    assert client.connection.pipelined_requests_max == config.pipelined_requests_max
    assert client.call(ApiKey.METADATA, 12, MetadataRequest(topics=[])).brokers[0].port == 9093


def test_who_says_nothing_is_hung_up_on_after_ten_seconds(machine: SimulatedNode) -> None:
    silent, known = Client(machine), Client(machine)
    known.log_in()
    machine.scheduler.run_for(9_900)
    assert not silent.closed
    machine.scheduler.run_for(200)
    assert "authentication.timeout.ms" in silent.closed
    assert not known.closed


def test_a_failure_is_answered_late_and_ends_the_connection(machine: SimulatedNode) -> None:
    client = Client(machine)
    assert client.log_in(password="wrong") is None
    assert not client.closed
    machine.scheduler.run_for(99)
    assert client.written == b""
    machine.scheduler.run_for(2)
    answer = read_response(response_class(ApiKey.SASL_AUTHENTICATE), 36, 2, client.written[4:])[1]
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "wrong" not in answer.error_message
    assert client.closed
    assert client.connection.principal == ANONYMOUS


def test_reauthentication_to_a_different_principal_is_refused(machine: SimulatedNode) -> None:
    client = Client(machine)
    client.log_in()
    machine.scheduler.run_for(2_000)
    assert client.log_in("bob", "bobs") is None
    machine.scheduler.run_for(200)
    assert client.closed
    assert "User:alice reauthenticates as User:bob" in failures(machine)[-1].reason


def test_a_session_that_is_over_ends_at_the_next_request_and_a_renewed_one_does_not(machine: SimulatedNode) -> None:
    late, renewed = Client(machine), Client(machine)
    late.log_in()
    renewed.log_in()
    machine.scheduler.run_for(50_000)
    assert renewed.log_in().error_code == 0
    machine.scheduler.run_for(11_000)
    late.send(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
    renewed.send(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
    assert "session" in late.closed
    assert not renewed.closed


def test_a_session_with_an_end_may_ask_for_as_much_as_one_without(machine: SimulatedNode) -> None:
    client = Client(machine)
    client.log_in()
    asked = [MetadataRequest.MetadataRequestTopic(name=f"topic-{number}") for number in range(1_500)]
    client.send(ApiKey.METADATA, 12, MetadataRequest(topics=asked, allow_auto_topic_creation=False))
    machine.scheduler.run_for(1_000)
    assert not client.closed
