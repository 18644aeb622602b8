"""Aborting from the page, on both brokers: the plan, the deed, and a plan that is no longer true."""

import asyncio
from collections.abc import Iterator

import pytest

from fencepost.client import AsyncAdmin, AsyncClient, CommittedOffset, NewTopic, TopicPartition
from tests.dashboard.conftest import Shown
from tests.dashboard.running_page import RunningPage
from tests.insight.reading import read_committed
from tests.interop.cases import Peer
from tests.interop.cases.transactional import Script

pytestmark = pytest.mark.timeout(300)
LONG_MS = 600_000


@pytest.fixture(scope="module")
def acting(shown: Shown) -> Iterator[RunningPage]:
    with RunningPage(shown.broker.bootstrap_servers, "--allow-actions") as page:
        assert page.document("/api/session")["actions_allowed"] is True
        yield page


async def leave_open(bootstrap_servers: str, name: str, topic: str) -> None:
    async with AsyncAdmin(bootstrap_servers) as admin:
        if topic not in {each.name for each in await admin.list_topics()}:
            await admin.create_topic(NewTopic(topic, 1))
    async with AsyncClient(bootstrap_servers) as client:
        producer = client.producer(name, transaction_timeout_ms=LONG_MS)
        await producer.init()
        await producer.begin()
        for at in range(3):
            await producer.send(topic, b"open %d" % at)
        await producer.send_offsets({TopicPartition(topic, 0): CommittedOffset(41)}, f"{name}-group")
        await producer.flush()
        async with client.transaction(f"{name}-behind") as transaction:
            await transaction.send(topic, b"behind it")


def test_a_transaction_is_aborted_as_planned(shown: Shown, acting: RunningPage) -> None:
    asyncio.run(leave_open(shown.broker.bootstrap_servers, "act", "act-topic"))
    answer = acting.post("/api/abort/plan", {"transactional_id": "act"})
    assert answer.status == 200, answer.body
    plan = answer.json
    effect = next(each for each in plan["effects"] if each["topic"] == "act-topic")
    assert (effect["vanishing_records"], effect["visible_records"]) == (3, 1)
    text = " ".join(plan["text"])
    assert "act will be aborted, and its producer" in text
    assert "In act-topic-0 3 records of it from offset 0 on will never be visible" in text
    assert "The offset 41 of group act-group for act-topic-0 is discarded." in text
    assert read_committed(shown.broker, "act-topic") == [], "a plan changes nothing"

    for confirm in (None, "", "f" * 32):
        refused = acting.post("/api/abort", {"transactional_id": "act", "confirm": confirm})
        assert refused.status == 409
    assert read_committed(shown.broker, "act-topic") == []
    done = acting.post("/api/abort", {"transactional_id": "act", "confirm": plan["confirm"]})
    assert (done.status, done.json["executed"]) == (200, True)
    assert read_committed(shown.broker, "act-topic") == [b"behind it"], "exactly what the plan said"
    again = acting.post("/api/abort", {"transactional_id": "act", "confirm": plan["confirm"]})
    assert (again.status, "no open transaction" in again.json["error"]) == (409, True)


def test_a_plan_for_another_transaction_is_refused(shown: Shown, acting: RunningPage) -> None:
    servers = shown.broker.bootstrap_servers
    asyncio.run(leave_open(servers, "changing", "changing-topic"))
    plan = acting.post("/api/abort/plan", {"transactional_id": "changing"}).json
    # A second producer of the same id takes over, and leaves a transaction open, too.
    asyncio.run(leave_open(servers, "changing", "changing-topic"))
    refused = acting.post("/api/abort", {"transactional_id": "changing", "confirm": plan["confirm"]})
    assert refused.status == 409
    assert refused.json["next"]
    state = acting.document("/api/transactions/changing")["facts"]["state"]
    assert state == "Ongoing", "nothing was done"
    fresh = acting.post("/api/abort/plan", {"transactional_id": "changing"}).json
    assert acting.post("/api/abort", {"transactional_id": "changing", "confirm": fresh["confirm"]}).status == 200


def test_a_hanging_transaction_is_ended_where_it_hangs(shown: Shown, acting: RunningPage) -> None:
    with Peer(shown.broker, "hanging-on-the-page") as peer:
        script = Script(peer)
        topic = peer.topic()
        hanging = script.producer("hanging")
        hanging.init()
        assert hanging.produce(topic)[0] == 0
        place = {"topic": topic, "partition": 0, "start_offset": 0}
        with acting.events("view=overview") as events:
            # No coordinator knows of it; the partition's leader does.
            held = events.next(
                "overview",
                lambda document: [
                    row for row in document["held"] if row["topic"] == topic and row["producer_id"] is not None
                ],
            )["held"]
        (row,) = (row for row in held if row["topic"] == topic)
        assert (row["producer_id"], row["last_stable_offset"]) == (hanging.producer_id, 0)
        plan = acting.post("/api/abort/plan", place).json
        (effect,) = plan["effects"]
        assert (effect["producer_id"], effect["vanishing_records"]) == (hanging.producer_id, 1)
        assert acting.post("/api/abort", {**place, "confirm": plan["confirm"]}).status == 200
        assert acting.post("/api/abort/plan", place).status == 409


def test_what_cannot_be_aborted_is_said_so(shown: Shown, acting: RunningPage) -> None:
    assert acting.post("/api/abort/plan", {"transactional_id": "nobody"}).status == 404
    assert acting.post("/api/abort/plan", {"transactional_id": "shop-commit"}).status == 409
    for wrong in ({}, {"transactional_id": 7}, {"topic": "orders"}, {"topic": "orders", "partition": "0"}):
        assert acting.post("/api/abort/plan", wrong).status == 400
    assert acting.get("/api/abort").status in (404, 405), "asking changes nothing"
