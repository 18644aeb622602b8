"""What the log says of an event, and of which events it says nothing."""

import io
import json
from typing import Any

from fencepost.broker.events import BatchRefused
from fencepost.coordinators.transactions.events import CallRefused, FencingCause, ProducerFenced, RefusalCause
from fencepost.shell.event_log import EventLog
from fencepost.simulation.node import SimulatedNode
from fencepost.wire.batch import build_batch
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import ProduceRequest
from tests.durability.scene import SMALL, Client


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


FENCED = ProducerFenced("tx", 1000, 0, 1000, 1, FencingCause.TAKEOVER, "client", "host", 0)


def lines_of(*events: object) -> list[dict[str, Any]]:
    stream = io.StringIO()
    log = EventLog(stream)
    for event in events:
        log.write(event)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def refused(error: ErrorCode) -> BatchRefused:
    return BatchRefused("orders", 0, error.name, "", 1000, 0, 0, "tx", "host", "client")


def test_a_cause_is_a_word_and_an_error_kafkas_name() -> None:
    call = CallRefused(
        "tx", "EndTxn", ErrorCode.PRODUCER_FENCED, RefusalCause.STALE_EPOCH, 1000, 0, 1000, 1, "Empty",
        FencingCause.TIMEOUT, "client", "host", 0,
    )  # fmt: skip
    fenced, denied = lines_of(FENCED, call)
    assert fenced["cause"] == "takeover"
    assert (denied["error"], denied["cause"], denied["fenced_by"]) == ("PRODUCER_FENCED", "stale_epoch", "timeout")
    terminal = Terminal()
    EventLog(terminal).write(FENCED)
    assert " cause=takeover " in terminal.getvalue()


def test_a_transaction_right_behind_another_is_no_warning() -> None:
    assert lines_of(refused(ErrorCode.CONCURRENT_TRANSACTIONS)) == []
    (line,) = lines_of(refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert line["level"] == "warning"


def test_a_batch_that_was_sent_by_topic_id_is_refused_by_topic_name() -> None:
    machine = SimulatedNode(SMALL).start()
    client = Client(machine)
    assert client.create_topic("orders") == 0
    known = machine.node.metadata.topics["orders"].topic_id
    unknown = bytes(range(16))
    for topic_id in (known, unknown):
        batch = build_batch([(0, None, b"x", ())])
        batch[-1] ^= 1
        data = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=batch)
        topics = [ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])]
        client.socket.call(ApiKey.PRODUCE, 13, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics))
    told = [event for event in machine.node.events.recent if isinstance(event, BatchRefused)]
    assert [(event.topic, event.error) for event in told] == [
        ("orders", "CORRUPT_MESSAGE"),
        ("AAECAwQFBgcICQoLDA0ODw", "UNKNOWN_TOPIC_ID"),
    ]
