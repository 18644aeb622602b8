"""One incident, diagnosed by `fencepost explain` alone, on both brokers.

A producer stops in the midst of a transaction. Readers stall behind it. A second producer takes the id over. Then the
first one wakes up and goes on, and is told that it is fenced.
"""

import asyncio
import json
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fencepost.client import AsyncAdmin, AsyncClient, AsyncProducer, NewTopic, ProducerFenced
from fencepost.coordinators.transactions.events import AbortCause, FencingCause
from fencepost.insight.causes import WORDS
from tests.insight.conftest import CommandHere
from tests.insight.reading import committed_values
from tests.insight.scenes import LONG_MS
from tests.interop.cases import Peer
from tests.interop.cases.transactional import Script
from tests.interop_cli.conftest import Command, Done
from tests.peers.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(300)
Unique = Callable[[str], str]
STUCK = 3
FIRST, SECOND = "spark/app-7/billing/17", "spark/app-8/billing/17"


@dataclass(frozen=True)
class Incident:
    """What `explain` printed at each stage, as text and as JSON."""

    broker: BrokerProcess
    topic: str
    name: str
    stalled: Done
    stalled_json: dict[str, Any]
    stalled_id: Done
    taken_over: Done
    fenced: Done
    fenced_json: dict[str, Any]
    history: Done
    history_json: dict[str, Any]
    producer_id: int

    @property
    def is_fencepost(self) -> bool:
        return self.broker.name == "fencepost"


@pytest.fixture(scope="module")
def incident(broker: BrokerProcess) -> Incident:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "110")
        return asyncio.run(run_incident(broker, "incident", "billing"))


async def run_incident(broker: BrokerProcess, topic: str, name: str) -> Incident:
    command = CommandHere(broker.bootstrap_servers)

    async def explain(*arguments: str) -> Done:
        return await asyncio.to_thread(command.run, ("explain", *arguments))

    async with AsyncAdmin(broker.bootstrap_servers) as admin:
        await admin.create_topic(NewTopic(topic, 1))
    async with (
        AsyncClient(broker.bootstrap_servers, client_id=FIRST) as first,
        AsyncClient(broker.bootstrap_servers, client_id=SECOND) as second,
    ):
        stopped = first.producer(name, transaction_timeout_ms=LONG_MS)
        identity = await stopped.init()
        await stopped.begin()
        for at in range(3):
            await stopped.send(topic, b"of the first %d" % at)
        await stopped.flush()
        async with AsyncProducer(broker.bootstrap_servers) as plain:
            for at in range(2):
                await plain.send(topic, b"behind it %d" % at)
            await plain.flush()
        assert await committed_values(broker.bootstrap_servers, topic) == [], "readers stall"
        stalled = await explain(topic, "--stuck-after", "0")
        stalled_json = await explain(topic, "--stuck-after", "0", "--json")
        stalled_id = await explain(name, "--stuck-after", "0")

        successor = second.producer(name)
        await successor.init()
        assert len(await committed_values(broker.bootstrap_servers, topic)) == 2
        taken_over = await explain(topic, "--stuck-after", "0")
        with pytest.raises(ProducerFenced):
            await stopped.commit()
        return Incident(
            broker,
            topic,
            name,
            stalled,
            stalled_json.json,
            stalled_id,
            taken_over,
            await explain(name),
            (await explain(name, "--json")).json,
            await explain(name, "--history"),
            (await explain(name, "--history", "--json")).json,
            identity.producer_id,
        )


def test_while_readers_stall_it_names_who_holds_them_and_what_to_do(incident: Incident) -> None:
    assert incident.stalled.status == STUCK
    text = incident.stalled.output
    assert f"{incident.topic}-0  STUCK: 2 records wait behind {incident.name}, open for" in text
    assert "first unstable 0, last stable 0, high watermark 5" in text
    assert "2 records; 3 more are in open transactions" in text
    assert f"{incident.name}, producer {incident.producer_id} epoch 0, from offset 0 with 3 records" in text
    assert "Ongoing at coordinator 1, timeout 10 min" in text
    where = f"--bootstrap-server {incident.broker.bootstrap_servers}"
    assert f"next      fencepost explain --id --history {incident.name} {where}" in text
    assert "txn abort" not in text, "its client may be at work until its time-out"
    (part,) = incident.stalled_json["partitions"]
    assert (part["verdict"], part["waiting_records"], part["open_records"]) == ("stuck", 2, 3)
    (holder,) = part["held_by"]
    assert (holder["transactional_id"], holder["state"]) == (incident.name, "Ongoing")
    assert 0 <= holder["age_ms"] < LONG_MS
    assert incident.stalled_id.status == STUCK
    assert f"open in   {incident.topic}-0 from offset 0 with 3 records; 2 records wait" in incident.stalled_id.output
    assert part["next_command"] == f"fencepost explain --id --history {incident.name} {where}"
    lines = [line for line in text.splitlines() if not line.startswith("  next")]
    assert all(len(line) <= 110 for line in lines), "it fits a terminal"


def test_the_client_is_named_where_the_broker_records_it(incident: Incident) -> None:
    for text in (incident.stalled.output, incident.stalled_id.output):
        if incident.is_fencepost:
            assert f"client*   {FIRST} at 127.0.0.1" in text
            assert "* recorded by Fencepost; Apache Kafka keeps no such record" in text
            assert "Spark application app-7, pipeline billing, batch 17" in text
        else:
            assert "client    not recorded by this broker: only Fencepost keeps causes and clients" in text


def test_after_the_takeover_nothing_holds_the_readers(incident: Incident) -> None:
    assert incident.taken_over.status == 0
    assert f"{incident.topic}-0  healthy: nothing holds the readers" in incident.taken_over.output


def test_the_fenced_producer_is_explained_by_cause_and_call(incident: Incident) -> None:
    assert incident.fenced.status == 0
    assert incident.fenced_json["producer_id"] == incident.producer_id
    assert incident.fenced_json["producer_epoch"] == 2, "a takeover of an open transaction costs two epochs"
    text = " ".join(incident.fenced.output.split())
    assert f"id {incident.producer_id}, epoch 2" in text
    if not incident.is_fencepost:
        assert incident.fenced_json["causes"] is None
        return
    causes = incident.fenced_json["causes"]
    fencing = [cause for cause in causes if cause["event"] == "ProducerFenced" and cause["old_epoch"] == 0]
    assert [(cause["cause"], cause["client_id"]) for cause in fencing] == [("TAKEOVER", SECOND)]
    aborted = next(cause for cause in causes if cause["event"] == "TransactionAborted")
    assert aborted["cause"] == "TAKEOVER"
    refused = causes[-1]
    assert (refused["event"], refused["operation"]) == ("CallRefused", "EndTxn"), "the call that was in flight"
    assert (refused["client_id"], refused["producer_epoch"], refused["current_epoch"]) == (FIRST, 0, 2)
    assert f"EndTxn by {FIRST} at 127.0.0.1 (epoch 0) was refused with PRODUCER_FENCED: the id was Empty" in text
    assert "another producer was initialized with the same transactional id" in text


def test_the_history_shows_states_epochs_records_and_outcome(incident: Incident) -> None:
    moments = incident.history_json["history"]
    states = [(each["state"], each["producer_epoch"]) for each in moments if each["kind"] == "state"]
    # Adding partitions may take one record or two.
    assert [states[at] for at in range(len(states)) if at == 0 or states[at] != states[at - 1]] == [
        ("Empty", 0),
        ("Ongoing", 0),
        ("PrepareAbort", 1),
        ("CompleteAbort", 1),
        ("Empty", 2),
    ]
    (written,) = (each for each in moments if each["kind"] == "records")
    assert (written["records"], written["end"], written["topic"]) == (3, "ABORT", incident.topic)
    assert (written["producer_epoch"], written["marker_epoch"]) == (0, 1)
    text = " ".join(incident.history.output.split())
    assert f"3 records in {incident.topic}-0 from 0, epoch 0: ABORT at 5, epoch 1" in text
    if incident.is_fencepost:
        assert "* recorded by Fencepost" in text
        assert next(each["event"] for each in moments if each["kind"] == "cause") == "ProducerInitialised"


def test_a_producer_id_leads_to_the_same_answer(incident: Incident, command: Command) -> None:
    by_producer = command("explain", "--producer-id", str(incident.producer_id), "--json").json
    assert by_producer["transactional_id"] == incident.name


def test_a_copied_directory_tells_the_same(incident: Incident, command: Command, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    # Apache Kafka's open indexes are ten megabytes of nothing each, and not needed.
    unneeded = shutil.ignore_patterns(".lock", "__cluster_metadata*", "*.index", "*.timeindex")
    shutil.copytree(incident.broker.data_directory, copied, ignore=unneeded)
    offline = command.run(("explain", incident.name, "--history", "--json", "--data", str(copied)))
    assert offline.status == 0, offline.errors
    document = offline.json
    assert (document["state"], document["producer_epoch"]) == ("Empty", 2)

    def without_times(moments: list[dict[str, Any]]) -> list[str]:
        return sorted(each["text"] for each in moments)

    assert without_times(document["history"]) == without_times(incident.history_json["history"])
    healthy = command.run(("explain", f"{incident.topic}:0", "--data", str(copied)))
    assert (healthy.status, healthy.errors) == (0, "")
    assert "nothing holds the readers" in healthy.output
    assert "no record of the transactional id 'absent'" in command.refused("explain", "absent", "--data", str(copied))


@pytest.fixture
def hanging(broker: BrokerProcess, unique: Unique) -> Iterator[str]:
    with Peer(broker, unique("peer")) as peer:
        script = Script(peer)
        topic, producer = peer.topic(), script.producer("hanging")
        producer.init()
        assert producer.produce(topic)[0] == 0
        yield topic


def test_a_hanging_transaction_is_stuck_and_its_abort_can_be_pasted(hanging: str, command: Command) -> None:
    done = command.run(("explain", hanging))
    assert done.status == STUCK
    assert "which hangs" in done.output
    (line,) = (line for line in done.output.splitlines() if line.startswith("  next"))
    pasted = shlex.split(line)[2:]
    assert pasted[-2:] == ["--bootstrap-server", command.environment["FENCEPOST_BOOTSTRAP_SERVER"]]
    assert command(*pasted).status == 0
    command(*pasted, "--execute")
    assert command("explain", hanging).status == 0


def test_what_is_pasted_reaches_the_cluster_that_was_asked(hanging: str, command: Command, tmp_path: Path) -> None:
    """Whatever stands in the environment of the shell it is pasted into: the pasted words are all there is."""
    servers = command.environment["FENCEPOST_BOOTSTRAP_SERVER"]
    config = tmp_path / "my client.properties"
    config.write_text("client.id=on-call\n")
    used = ("--bootstrap-server", servers, "--command-config", str(config))
    (part,) = command.run(("explain", hanging, "--json", *used)).json["partitions"]
    assert shlex.split(part["next_command"])[-4:] == list(used)
    (line,) = (
        line for line in command.run(("txn", "find-hanging", "--topic", hanging, *used)).output.splitlines()
        if line.startswith("to abort the oldest: ")
    )  # fmt: skip
    for pasted in (part["next_command"], line.partition(": ")[2]):
        words = shlex.split(pasted)
        environment = {**command.environment, "FENCEPOST_BOOTSTRAP_SERVER": "127.0.0.1:1"}
        done = subprocess.run(
            [command.script, *words[1:]], env=environment, capture_output=True, text=True, timeout=60
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert f"{hanging}-0" in done.stdout


def test_a_decided_transaction_shows_the_markers_it_is_owed(
    broker: BrokerProcess, command: Command, unique: Unique
) -> None:
    with Peer(broker, unique("peer")) as peer:
        topic, producer = peer.topic(), Script(peer).producer("decided")
        producer.init(timeout_ms=LONG_MS)
        producer.add(topic)
        producer.lock_coordinator_out(topic)
        assert producer.produce(topic)[0] == 0
        assert producer.end(True, wait=False)["ErrorCode"] == 0
        assert producer.settle("PrepareCommit") == "PrepareCommit"
        done = command.run(("explain", producer.name, "--stuck-after", "0"))
        assert done.status == STUCK
        assert "state     PrepareCommit at coordinator 1" in done.output
        assert f"owed      a marker in {topic}-0 by broker 1" in done.output
        assert "the coordinator repeats the markers" in done.output
        by_topic = " ".join(command.run(("explain", topic, "--stuck-after", "0")).output.split())
        assert f"which is decided (PrepareCommit) and lacks markers in {topic}-0" in by_topic
        assert "only markers are missing" in command.refused("txn", "abort", producer.name)


def test_bad_input_is_answered_in_one_line(command: Command, incident: Incident, tmp_path: Path) -> None:
    assert "is neither a topic nor a transactional id" in command.refused("explain", "absent")
    assert "no coordinator knows the producer id 999999" in command.refused("explain", "--producer-id", "999999")
    assert "has no partition 9" in command.refused("explain", f"{incident.topic}:9")
    command.refused("explain", status=2)
    command.refused("explain", "x", "--producer-id", "1", status=2)
    assert "is not a data directory" in command.refused("explain", "x", "--data", str(tmp_path))
    assert "is not a directory" in command.refused("explain", "x", "--data", str(tmp_path / "absent"))


def test_every_cause_has_words() -> None:
    assert {each.name for each in (*FencingCause, *AbortCause)} <= set(WORDS)
    assert json.dumps(WORDS)
