"""Incremental fetch sessions (KIP-227): what a client need not say again, and what it is told when that fails."""

from typing import Any

from fencepost.simulation.node import SimulatedNode
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import FetchRequest
from tests.durability.scene import SMALL, Client, values_in

TOPIC = "purchases"


class Scene:
    def __init__(self, **settings: str) -> None:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        self.machine = SimulatedNode({**SMALL, **names}).start()
        self.client = Client(self.machine)
        assert self.client.create_topic(TOPIC, 3) == 0

    def open_session(self, *partitions: int) -> int:
        answer = self.client.fetch(TOPIC, dict.fromkeys(partitions, 0), session_id=0, session_epoch=0)
        assert answer.error_code == 0
        assert answer.session_id > 0
        return int(answer.session_id)

    def go_on(self, session_id: int, epoch: int, offsets: dict[int, int] | None = None, **fields: Any) -> Any:
        return self.client.fetch(TOPIC, offsets or {}, session_id=session_id, session_epoch=epoch, **fields)


def mentioned(answer: Any) -> list[int]:
    return [one.partition_index for topic in answer.responses for one in topic.partitions]


def test_a_full_fetch_opens_a_session_and_mentions_every_partition() -> None:
    scene = Scene()
    answer = scene.client.fetch(TOPIC, {0: 0, 1: 0}, session_id=0, session_epoch=0)
    assert answer.session_id > 0
    assert mentioned(answer) == [0, 1]


def test_a_fetch_without_a_session_opens_none() -> None:
    scene = Scene()
    answer = scene.client.fetch(TOPIC, {0: 0}, session_id=0, session_epoch=-1)
    assert answer.session_id == 0
    assert len(scene.machine.node.fetch_sessions) == 0


def test_an_incremental_fetch_asks_for_all_it_asked_before_and_is_told_only_news() -> None:
    scene = Scene()
    session = scene.open_session(0, 1, 2)
    answer = scene.go_on(session, 1)
    assert (answer.error_code, answer.session_id, mentioned(answer)) == (0, session, [])
    scene.client.produce(TOPIC, b"x", partition=1)
    answer = scene.go_on(session, 2)
    assert mentioned(answer) == [1]
    assert values_in(answer.responses[0].partitions[0].records) == [(0, b"x")]


def test_a_partition_is_mentioned_until_the_reader_has_moved_on() -> None:
    scene = Scene()
    session = scene.open_session(0, 1)
    scene.client.produce(TOPIC, b"x", partition=1)
    assert mentioned(scene.go_on(session, 1)) == [1]
    assert mentioned(scene.go_on(session, 2)) == [1]
    assert mentioned(scene.go_on(session, 3, {1: 1})) == []


def test_a_session_waits_for_the_partitions_it_remembers() -> None:
    scene = Scene()
    session = scene.open_session(0, 1)
    reader = Client(scene.machine)
    fetch = reader.start_fetch(TOPIC, {}, session_id=session, session_epoch=1, max_wait_ms=500)
    scene.machine.scheduler.run_for(100)
    assert fetch not in reader.socket.answers
    scene.client.produce(TOPIC, b"x", partition=1)
    scene.machine.scheduler.run_for(1)
    assert mentioned(reader.socket.answers[fetch]) == [1]


def test_partitions_join_and_leave_a_session() -> None:
    scene = Scene()
    session = scene.open_session(0, 1)
    scene.client.produce(TOPIC, b"x", partition=1)
    scene.client.produce(TOPIC, b"x", partition=2)
    forgotten = [FetchRequest.ForgottenTopic(topic=TOPIC, partitions=[1])]
    answer = scene.go_on(session, 1, {2: 0}, forgotten_topics_data=forgotten)
    assert mentioned(answer) == [2]


def test_an_unknown_session_is_told_so() -> None:
    scene = Scene()
    session = scene.open_session(0)
    assert scene.go_on(session + 1, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_epoch_out_of_turn_is_told_so_and_the_session_goes_on() -> None:
    scene = Scene()
    session = scene.open_session(0)
    for epoch in (2, 7):
        assert scene.go_on(session, epoch).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert scene.go_on(session, 1).error_code == 0
    assert scene.go_on(session, 1).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert scene.go_on(session, 2).error_code == 0


def test_a_final_fetch_ends_the_session() -> None:
    scene = Scene()
    session = scene.open_session(0)
    answer = scene.go_on(session, -1, {0: 0})
    assert (answer.error_code, answer.session_id, mentioned(answer)) == (0, 0, [0])
    assert scene.go_on(session, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_fetch_with_an_old_session_replaces_it() -> None:
    scene = Scene()
    session = scene.open_session(0)
    answer = scene.go_on(session, 0, {1: 0})
    assert answer.session_id not in (0, session)
    assert scene.go_on(session, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert scene.go_on(answer.session_id, 1).error_code == 0


def test_a_session_that_has_lost_its_last_partition_ends() -> None:
    scene = Scene()
    session = scene.open_session(0)
    answer = scene.go_on(session, 1, forgotten_topics_data=[FetchRequest.ForgottenTopic(topic=TOPIC, partitions=[0])])
    assert (answer.error_code, answer.session_id, mentioned(answer)) == (0, 0, [])
    assert scene.go_on(session, 2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_session_not_used_for_longest_gives_way_when_there_are_too_many() -> None:
    scene = Scene(max_incremental_fetch_session_cache_slots="2")
    first, second = scene.open_session(0), scene.open_session(0)
    assert scene.go_on(first, 1).error_code == 0
    third = scene.open_session(0)
    assert len(scene.machine.node.fetch_sessions) == 2
    assert scene.go_on(second, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert scene.go_on(first, 2).error_code == 0
    assert scene.go_on(third, 1).error_code == 0


def test_a_partition_that_brought_data_comes_last_the_next_time() -> None:
    """So that one busy partition does not use up the bytes of every answer."""
    scene = Scene()
    session = scene.open_session(0, 1, 2)
    for partition in range(3):
        for _ in range(3):
            scene.client.produce(TOPIC, b"x" * 1_000, partition=partition)
    order = []
    for epoch in range(1, 4):
        answer = scene.go_on(session, epoch, max_bytes=1)
        order.append([one.partition_index for one in answer.responses[0].partitions if one.records])
    assert order == [[0], [1], [2]]


def test_a_deleted_topic_is_mentioned_with_its_error_each_time_and_other_partitions_go_on() -> None:
    scene = Scene()
    assert scene.client.create_topic("other") == 0
    session = scene.open_session(0)
    assert scene.client.delete_topic(TOPIC) == 0
    answer = scene.go_on(session, 1)
    assert [one.error_code for one in answer.responses[0].partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    answer = scene.go_on(session, 2)
    assert [one.error_code for one in answer.responses[0].partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
