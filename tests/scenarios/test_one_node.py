"""Fault scenarios of one node that no other suite has: races with the clock, slow syncs, answers with errors."""

from fencepost.simulation.node import SimulatedNode
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import EndTxnRequest
from tests.durability.scene import LATEST, SMALL, Client
from tests.durability.transactional import TransactionalClient, find_coordinators, is_decided, read_committed

SETTINGS = {**SMALL, "transaction.state.log.num.partitions": "1"}
TIMEOUT_MS = 30_000
RACERS = 1_000
BATCH = 50


def test_a_thousand_commits_that_race_their_time_out_have_one_outcome_each() -> None:
    """They come at every moment around the sweep that aborts what is too old, and each is told what has happened."""
    machine = SimulatedNode(SETTINGS, seed=1).start()
    client = Client(machine)
    assert client.create_topic("purchases", 1) == 0
    find_coordinators(client, [], ["racer 0"])
    outcomes: dict[bytes, int] = {}
    for first in range(0, RACERS, BATCH):
        _race(machine, [f"racer {number}" for number in range(first, first + BATCH)], outcomes)
    machine.scheduler.run_for(2 * TIMEOUT_MS)
    client = Client(machine)
    assert is_decided(client, "purchases")
    visible = [value for _, value in read_committed(client, "purchases")]
    assert len(visible) == len(set(visible))
    committed = {value for value, code in outcomes.items() if code == 0}
    assert set(visible) == committed, "told one thing, did another"
    refused = set(outcomes.values()) - {0}
    assert refused <= {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS}
    assert 0 < len(committed) < RACERS, "nobody won, or nobody lost: that was no race"
    machine.stop()


def _race(machine: SimulatedNode, names: list[str], outcomes: dict[bytes, int]) -> None:
    racers = []
    for name in names:
        racer = TransactionalClient(Client(machine), name, is_new=False, timeout_ms=TIMEOUT_MS)
        racer.init()
        racer.produce("purchases", 0, name.encode())
        racers.append(racer)
    # The sweep comes every ten seconds, so the abort within ten seconds after the time-out.
    machine.scheduler.run_for(TIMEOUT_MS - 500)
    sent = []
    for at, racer in enumerate(racers):
        identity = {"producer_id": racer.producer_id, "producer_epoch": racer.producer_epoch}
        request = EndTxnRequest(transactional_id=racer.transactional_id, committed=True, **identity)
        sent.append(racer.client.socket.send(ApiKey.END_TXN, 3, request))
        machine.scheduler.run_for(230 if at % 2 else 231)
    for racer, correlation_id in zip(racers, sent, strict=True):
        racer.client.socket.wait(correlation_id)
        outcomes[racer.transactional_id.encode()] = racer.client.socket.answers[correlation_id].error_code
        racer.client.socket.hang_up("done")


def test_an_answer_with_an_error_names_no_offset() -> None:
    machine = SimulatedNode(SETTINGS, seed=2).start()
    client = Client(machine)
    assert client.create_topic("purchases", 1) == 0
    producer = {"producer_id": client.producer_id(), "producer_epoch": 0}
    assert client.produce("purchases", b"first", base_sequence=0, **producer).base_offset == 0
    refused = client.produce("purchases", b"gap", base_sequence=7, **producer)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    unknown = client.produce("purchases", b"lost", partition=9)
    assert (unknown.error_code, unknown.base_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    # The offset is assigned, the write is done, and then the sync fails.
    machine.disk.fail_sync(".log")
    lost = client.produce("purchases", b"second", base_sequence=1, **producer)
    assert (lost.error_code, lost.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    machine.crash()


def test_a_disk_that_takes_five_seconds_to_sync_holds_up_writers_only() -> None:
    machine = SimulatedNode(SETTINGS, seed=3).start()
    client = Client(machine)
    assert client.create_topic("purchases", 1) == 0
    assert client.produce("purchases", b"before").error_code == 0
    machine.flusher.sync_ms = 5_000
    writer, other = Client(machine), Client(machine)
    started_ms = machine.clock.monotonic_ms()
    waiting = writer.send("purchases", {0: writer.batch(b"slow")})
    # Everything that needs no sync is answered while the sync runs.
    assert other.topics() == {"purchases": 1}
    assert other.read_all("purchases") == [(0, b"before")]
    assert other.offset("purchases", 0, LATEST) == 1
    assert machine.clock.monotonic_ms() - started_ms < 5_000
    assert waiting not in writer.socket.answers
    assert writer.produced(waiting).error_code == 0
    assert machine.clock.monotonic_ms() - started_ms >= 5_000
    machine.stop()
