"""Requests by chance, of every API and version, from somebody without rights, with some, and with all."""

import random

import pytest

from fencepost.broker.events import HandlerFailed
from fencepost.broker.security.principal import Principal
from fencepost.ports import Buffer
from fencepost.simulation.disk import PowerCut
from fencepost.simulation.node import LISTENER, SimulatedNode
from fencepost.wire.acls import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from fencepost.wire.batch import build_batch
from fencepost.wire.catalog import ApiKey, response_class
from fencepost.wire.errors import ErrorCode
from fencepost.wire.framing import read_response, request_frame
from fencepost.wire.messages import MetadataRequest, ProduceRequest
from tests.hostile.frames import CASES, CORRELATION_ID, RequestMaker, valid_frame
from tests.security_acls.scene import AUTHORIZER

SEED = 20_260_301
ROUNDS = 12
SECRET = b"a record that is nobody's business"
SETTINGS = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:root",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
TOPIC, LITERAL, ALLOW = ResourceType.TOPIC, PatternType.LITERAL, AclPermissionType.ALLOW


class Client:
    """One connection to a node without sockets, with a principal as if it had logged in."""

    def __init__(self, machine: SimulatedNode, user: str) -> None:
        self._machine = machine
        self.written = b""
        self.close_reason: str | None = None
        self.connection = machine.node.connect("10.0.0.1", LISTENER, self._write, self._close)
        self.connection.principal = Principal("User", user)

    def send(self, frame: bytes) -> bytes:
        self._machine.node.handle(self.connection, memoryview(bytearray(frame)))
        if self.close_reason is None:
            self.connection.flush()
        self._machine.scheduler.run_for(10)
        return self.written

    def _write(self, parts: list[Buffer]) -> None:
        self.written += b"".join(parts)

    def _close(self, reason: str) -> None:
        if self.close_reason is None:
            self.close_reason = reason
            self.connection.closed()


def machine_with_a_secret() -> tuple[SimulatedNode, list[HandlerFailed]]:
    machine = SimulatedNode(SETTINGS, seed=SEED).start()
    failures: list[HandlerFailed] = []
    machine.node.events.subscribe(lambda event: failures.append(event) if isinstance(event, HandlerFailed) else None)
    machine.node.create_topic("orders", 2, {})
    for name in ("__consumer_offsets", "__transaction_state"):
        machine.node.create_internal_topic(name)
    data = ProduceRequest.TopicProduceData
    records = build_batch([(1_700_000_000_000, None, SECRET, ())])
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[data(name="orders", partition_data=[data.PartitionProduceData(index=0, records=records)])],
    )
    Client(machine, "root").send(b"".join(request_frame(ApiKey.PRODUCE, 9, 1, "root", request))[4:])
    assert machine.node.partition("orders", 0).log.high_watermark == 1
    return machine, failures


def state(machine: SimulatedNode) -> tuple[object, ...]:
    """Everything that a call could change for good."""
    node = machine.node
    ends = [
        (each.topic, each.index, each.log.log_start_offset, each.log.log_end_offset) for each in node.all_partitions()
    ]
    return node.metadata.features_epoch, ends, node.config


def test_who_has_no_rights_changes_nothing_and_learns_nothing() -> None:
    machine, failures = machine_with_a_secret()
    orders = machine.node.metadata.topics["orders"]
    maker = RequestMaker(random.Random(SEED))
    maker.topic_ids = (bytes(16), orders.topic_id)
    before = state(machine)
    for key, version in CASES:
        for _ in range(ROUNDS):
            client = Client(machine, "nobody")
            frame = valid_frame(key, version, maker)
            answer = client.send(frame)
            assert not failures, failures[0].traceback
            assert SECRET not in answer
            # Whoever names a topic by its id has the id; nobody is told it for the name.
            assert orders.topic_id not in answer or orders.topic_id in frame
            if answer:
                read_response(response_class(key), key, version, answer[4:])
            client.connection.closed()
        assert state(machine) == before, f"{key.camel_name} v{version}"
    machine.stop()


def rule(resource_type: ResourceType, name: str, operation: AclOperation = AclOperation.ALL) -> AclBinding:
    pattern = ResourcePattern(resource_type, name, LITERAL)
    return AclBinding(pattern, "User:some", "*", operation, ALLOW)


@pytest.mark.parametrize("user", ["some", "root"])
def test_who_has_rights_is_answered_or_refused_and_nothing_fails(user: str) -> None:
    machine, failures = machine_with_a_secret()
    machine.node.create_acls(
        [
            rule(TOPIC, "orders"),
            rule(ResourceType.GROUP, "group", AclOperation.READ),
            rule(ResourceType.TRANSACTIONAL_ID, "orders"),
            rule(ResourceType.CLUSTER, "kafka-cluster", AclOperation.CLUSTER_ACTION),
        ],
        Principal("User", "root"),
    )
    maker = RequestMaker(random.Random(SEED))
    for key, version in CASES:
        for _ in range(ROUNDS // 3):
            if "orders" not in machine.node.metadata.topics:
                machine.node.create_topic("orders", 2, {})
            maker.topic_ids = (bytes(16), machine.node.metadata.topics["orders"].topic_id)
            client = Client(machine, user)
            answer = client.send(valid_frame(key, version, maker))
            assert not failures, failures[0].traceback
            if answer:
                correlation_id, message = read_response(response_class(key), key, version, answer[4:])
                assert correlation_id == CORRELATION_ID
                maker.listen(message)
            client.connection.closed()
    machine.stop()


def test_rules_outlast_power_cuts_and_the_rewriting_of_the_journal() -> None:
    machine, _ = machine_with_a_secret()
    rules = [rule(TOPIC, f"topic-{n}") for n in range(2_500)]
    machine.node.create_acls(rules, Principal("User", "root"))
    machine.node.delete_acls(rules[::2], Principal("User", "root"))
    machine.cut_power(PowerCut.LOSE_ALL)
    for _ in range(2):
        # What a suspect directory held is written anew.
        machine.start()
        assert list(machine.node.metadata.acls) == rules[1::2]
        authorizer = machine.node.authorizer
        assert authorizer is not None
        some = Principal("User", "some")
        assert authorizer.authorize(some, "10.0.0.1", AclOperation.READ, TOPIC, "topic-1")
        assert not authorizer.authorize(some, "10.0.0.1", AclOperation.READ, TOPIC, "topic-2")
        machine.crash()


def test_metadata_of_the_oldest_version_answers_for_an_empty_name_beside_a_refusal() -> None:
    machine, _ = machine_with_a_secret()
    denied = ResourcePattern(TOPIC, "orders", LITERAL)
    machine.node.create_acls(
        [
            rule(TOPIC, "*"),
            AclBinding(denied, "User:some", "*", AclOperation.ALL, AclPermissionType.DENY),
        ],
        Principal("User", "root"),
    )
    topic = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(topics=[topic(name="orders"), topic(name="")])
    frame = b"".join(request_frame(ApiKey.METADATA, 0, CORRELATION_ID, "some", request))[4:]
    answer = Client(machine, "some").send(frame)
    _, message = read_response(response_class(ApiKey.METADATA), ApiKey.METADATA, 0, answer[4:])
    assert [(one.name, one.error_code) for one in message.topics] == [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("orders", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    machine.stop()
