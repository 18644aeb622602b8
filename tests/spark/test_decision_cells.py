"""Every row of the table of restarts, with what brokers really answer: Fencepost and Apache Kafka, without Spark.

tests/unit/spark/test_batch_decisions.py has the pure cells; here the group is a group, its transactions are
transactions, and the checkpoint is a directory as Spark writes it. A rule without a story fails.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.extras import require_arrow

require_arrow()

from fencepost.client import Admin, CommittedOffset, NewTopic, TopicPartition  # noqa: E402
from fencepost.client.errors import UnknownTopic  # noqa: E402
from fencepost.spark.batch_decisions import CONTINUE, REFUSE, RULES, Situation, Step  # noqa: E402
from fencepost.spark.commit_records import Marker, Record, newest  # noqa: E402
from fencepost.spark.errors import BatchRefused  # noqa: E402
from fencepost.spark.planned_batches import NOTHING_PLANNED  # noqa: E402
from tests.peers.broker_process import BrokerProcess  # noqa: E402
from tests.peers.fencepost_process import FencepostProcess  # noqa: E402
from tests.peers.kafka import ApacheKafka  # noqa: E402
from tests.spark.driver_without_spark import Driver, Stage  # noqa: E402
from tests.support.patience import patient  # noqa: E402

pytestmark = pytest.mark.timeout(400)

LONG_AGO_MS = 1_000
Play = Callable[[Stage, str], Step]
"""Plays up to the batch in question, and gives back what became of it, or raises; the text is `adopt`."""
STORIES: list[tuple[Situation, Play]] = []


@pytest.fixture(scope="module", params=[FencepostProcess, ApacheKafka], ids=["fencepost", "apache"])
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with request.param() as process:
        yield process


@pytest.fixture
def stage(broker: BrokerProcess, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(broker, tmp_path)
    yield made
    made.close()


def story(situation: Situation) -> Callable[[Play], Play]:
    def told(play: Play) -> Play:
        STORIES.append((situation, play))
        return play

    return told


def written(stage: Stage, count: int = 3) -> Driver:
    """A driver that has written batches of ten, and ended."""
    driver = stage.driver(stage.checkpoint())
    for number in range(count):
        assert driver.batch(number, [10 * number, number]) is Step.WRITE
    return driver


def forget_the_group(stage: Stage) -> None:
    """As when its offsets have expired: nothing is left of it."""
    with Admin(stage.broker.bootstrap_servers) as admin:
        admin.delete_group(stage.name)


def successor(stage: Stage, driver: Driver, adopt: str) -> Driver:
    return stage.driver(driver.checkpoint, adopt=adopt)


# The group holds nothing


@story(Situation.NEW)
def both_are_new(stage: Stage, adopt: str) -> Step:
    return stage.driver(stage.checkpoint(), adopt=adopt).batch(0, [10, 1])


@story(Situation.NEW_BUT_OLD)
def a_first_batch_was_planned_long_ago(stage: Stage, adopt: str) -> Step:
    checkpoint = stage.checkpoint()
    checkpoint.plan(0, [10, 1], at_ms=LONG_AGO_MS)
    return stage.driver(checkpoint, adopt=adopt).batch(0)


@story(Situation.FORGOTTEN)
def the_group_is_gone(stage: Stage, adopt: str) -> Step:
    before = written(stage)
    forget_the_group(stage)
    return successor(stage, before, adopt).batch(3, [30, 3])


@story(Situation.FORGOTTEN)
def the_group_is_gone_and_the_last_batch_is_repeated(stage: Stage, adopt: str) -> Step:
    before = written(stage)
    forget_the_group(stage)
    return successor(stage, before, adopt).batch(2)


@story(Situation.NEXT)
def the_group_is_gone_under_a_run(stage: Stage, adopt: str) -> Step:
    running = written(stage)
    forget_the_group(stage)
    return running.batch(3, [30, 3])


# The group is equal


@story(Situation.NEXT)
def a_successor_goes_on(stage: Stage, adopt: str) -> Step:
    return successor(stage, written(stage), adopt).batch(3, [30, 3])


@story(Situation.NEXT)
def a_copy_in_another_directory_goes_on(stage: Stage, adopt: str) -> Step:
    moved = written(stage).checkpoint.copy(stage.directory / "moved")
    return stage.driver(moved, adopt=adopt).batch(3, [30, 3])


@story(Situation.NEXT_UNCOMPARED)
def a_record_of_the_first_version_and_a_source_that_is_not_kafka(stage: Stage, adopt: str) -> Step:
    with Admin(stage.broker.bootstrap_servers) as admin:
        place = TopicPartition(stage.output, 0)
        admin.commit_offsets(stage.name, {place: CommittedOffset(0, metadata=Marker(1, 2, "query").text())})
    checkpoint = stage.checkpoint()
    checkpoint.plan(2, '{"logOffset":2}')
    return stage.driver(checkpoint, adopt=adopt, output=stage.output).batch(3, '{"logOffset":3}')


@story(Situation.NEXT)
def a_record_of_the_first_version(stage: Stage, adopt: str) -> Step:
    record = Record(Marker(1, 2, "query"), {TopicPartition(stage.topic, n): end for n, end in enumerate([20, 2])})
    with Admin(stage.broker.bootstrap_servers) as admin:
        admin.commit_offsets(stage.name, record.entries())
    checkpoint = stage.checkpoint()
    checkpoint.plan(2, [20, 2])
    return stage.driver(checkpoint, adopt=adopt).batch(3, [30, 3])


@story(Situation.FORKED)
def two_checkpoints_have_parted(stage: Stage, adopt: str) -> Step:
    before = written(stage, 2)
    copy = before.checkpoint.copy(stage.directory / "copy")
    before.batch(2, [20, 2])
    copy.plan(2, [25, 2])
    copy.finish(2)
    return stage.driver(copy, adopt=adopt).batch(3, [30, 3])


@story(Situation.UNREADABLE)
def the_plan_of_the_batch_before_is_torn(stage: Stage, adopt: str) -> Step:
    before = written(stage)
    torn = before.checkpoint.path / "offsets" / "2"
    torn.write_text(torn.read_text()[:1])
    return successor(stage, before, adopt).batch(3, [30, 3])


# The group holds the batch that comes


@story(Situation.REPLAYED)
def a_batch_is_repeated(stage: Stage, adopt: str) -> Step:
    return successor(stage, written(stage), adopt).batch(2)


@story(Situation.REPLAYED_UNCOMPARED)
def a_load_is_run_again(stage: Stage, adopt: str) -> Step:
    def loaded(adopt: str) -> Step:
        driver = stage.driver(stage.checkpoint(), adopt=adopt, output=stage.output)
        attempts = driver.attempts(0)
        object.__setattr__(attempts._batch, "planned", lambda _: NOTHING_PLANNED)
        step = attempts.enter()
        if step is Step.WRITE:
            attempts.write([])
        return step

    assert loaded(REFUSE) is Step.WRITE
    return loaded(adopt)


@story(Situation.REPLANNED)
def a_restored_copy_plans_more(stage: Stage, adopt: str) -> Step:
    before = written(stage)
    before.checkpoint.forget(2)
    return successor(stage, before, adopt).batch(2, [25, 3])


@story(Situation.REPLANNED)
def a_restored_copy_plans_less(stage: Stage, adopt: str) -> Step:
    before = written(stage)
    before.checkpoint.forget(2)
    return successor(stage, before, adopt).batch(2, [15, 1])


# The checkpoint is ahead


@story(Situation.PASSED_BY)
def the_batches_between_have_read_nothing(stage: Stage, adopt: str) -> Step:
    before = written(stage)
    for number in (3, 4):
        before.checkpoint.plan(number, [20, 2])
        before.checkpoint.finish(number)
    return successor(stage, before, adopt).batch(5, [30, 3])


@story(Situation.MISSING)
def the_group_is_behind(stage: Stage, adopt: str) -> Step:
    before = written(stage)
    before.checkpoint.plan(3, [30, 3])
    before.checkpoint.finish(3)
    return successor(stage, before, adopt).batch(4, [40, 4])


# The checkpoint is behind


@story(Situation.BEHIND)
def a_copy_is_two_batches_behind(stage: Stage, adopt: str) -> Step:
    before = written(stage, 1)
    copy = before.checkpoint.copy(stage.directory / "copy")
    before.batch(1, [10, 1])
    before.batch(2, [20, 2])
    return stage.driver(copy, adopt=adopt).batch(1, [10, 1])


@story(Situation.OVERTAKEN)
def another_driver_has_written_the_same_checkpoint(stage: Stage, adopt: str) -> Step:
    return successor(stage, written(stage), adopt).batch(1)


# Others


@story(Situation.OTHER_QUERY)
def another_query_wrote_under_this_name(stage: Stage, adopt: str) -> Step:
    written(stage)
    return stage.driver(stage.checkpoint("other", "another query"), adopt=adopt).batch(0, [10, 1])


@story(Situation.OTHER_DRIVER)
def another_query_writes_between_look_and_epoch(stage: Stage, adopt: str) -> Step:
    """Both are new, and the second is the faster one."""
    late = stage.driver(stage.checkpoint("late", "late query"), adopt=adopt)
    take_an_epoch = late.run.producer.begin

    def begin() -> None:
        written(stage)
        take_an_epoch()

    late.run.producer.begin = begin  # type: ignore[method-assign]
    return late.batch(0, [10, 1])


@story(Situation.TAKEN_OVER)
def an_adopting_query_takes_over_from_one_that_runs(stage: Stage, adopt: str) -> Step:
    written(stage)
    running = stage.driver(stage.checkpoint(), adopt=adopt)
    assert running.batch(3, [30, 3]) is Step.WRITE
    stage.driver(stage.checkpoint("other", "another query"), adopt=CONTINUE).batch(0, [10, 1])
    running.run.producer.take_over_again()  # its epoch alone would fence it, before it looked
    return running.batch(4, [40, 4])


@story(Situation.WRITTEN_TWICE)
def a_function_asks_for_a_second_transaction(stage: Stage, adopt: str) -> Step:
    running = stage.driver(stage.checkpoint(), adopt=adopt)
    running.batch(0, [10, 1])
    return running.batch(0)


# A topic that was deleted and created again


def made_again(stage: Stage) -> Driver:
    before = stage.driver(stage.checkpoint(), output=stage.output)
    before.batch(0, [10, 1])
    with Admin(stage.broker.bootstrap_servers) as admin:
        admin.delete_topic(stage.topic)
        admin.create_topic(NewTopic(stage.topic, 2))
        assert newest(admin.committed_offsets(stage.name)) is None, "the cluster keeps offsets of a deleted topic"
    return before


@story(Situation.MADE_AGAIN)
def a_topic_was_made_again(stage: Stage, adopt: str) -> Step:
    before = made_again(stage)
    return stage.driver(before.checkpoint, adopt=adopt, output=stage.output).batch(1, [5, 5])


@story(Situation.NEXT)
def a_topic_was_made_again_and_data_may_be_lost(stage: Stage, adopt: str) -> Step:
    before = made_again(stage)
    return stage.driver(before.checkpoint, adopt=adopt, output=stage.output, fails_on_data_loss=False).batch(1, [5, 5])


@story(Situation.REPLAYED)
def a_topic_was_made_again_but_the_batch_was_committed(stage: Stage, adopt: str) -> Step:
    before = made_again(stage)
    return stage.driver(before.checkpoint, adopt=adopt, output=stage.output).batch(0)


@pytest.mark.parametrize("is_running", [False, True], ids=["after a restart", "in a run"])
def test_a_planned_batch_of_a_topic_that_is_gone_is_recorded_on_the_output(stage: Stage, is_running: bool) -> None:
    options = {"output": stage.output, "fails_on_data_loss": False}
    first = stage.driver(stage.checkpoint(), **options)
    first.batch(0, [10, 1])
    # A commit for the topic is tried for so long.
    before = stage.driver(first.checkpoint, client={"retry.timeout.ms": round(patient(2_000))}, **options)
    before.batch(1, [12, 1])
    with Admin(stage.broker.bootstrap_servers) as admin:
        admin.delete_topic(stage.topic)
        while has_topic(admin, stage.topic):  # Brokers hear of it a moment later.
            pass
    driver = before if is_running else stage.driver(before.checkpoint, **options)
    assert driver.batch(2, [15, 1]) is Step.WRITE
    record = driver.run.held
    assert record is not None
    assert (record.offsets, record.copy_at) == ({}, TopicPartition(stage.output, 0))
    assert record.positions == {TopicPartition(stage.topic, 0): 15, TopicPartition(stage.topic, 1): 1}
    assert stage.driver(before.checkpoint, **options).batch(2) is Step.SKIP


def has_topic(admin: Admin, topic: str) -> bool:
    try:
        admin.describe_topic(topic)
    except UnknownTopic:
        return False
    return True


def said(situation: Situation) -> str:
    """A pattern of the refusal's words."""
    return re.sub(r"\\\{.*?\\\}", ".*", re.escape(RULES[situation].fact).replace("\\!r", ""))


@pytest.mark.parametrize("adopt", [REFUSE, CONTINUE])
@pytest.mark.parametrize(("situation", "play"), STORIES, ids=[play.__name__ for _, play in STORIES])
def test_cell(stage: Stage, situation: Situation, play: Play, adopt: str) -> None:
    rule = RULES[situation]
    if rule.step is not None:
        assert play(stage, adopt) is rule.step
    elif adopt == CONTINUE and rule.may_adopt:
        assert play(stage, adopt) is Step.WRITE
        record = stage.drivers[-1].run.held
        assert record is not None
        is_forgotten = situation in (Situation.FORGOTTEN, Situation.NEW_BUT_OLD)
        assert record.marker.term == (1 if is_forgotten else 2)
    else:
        with pytest.raises(BatchRefused, match=said(situation)):
            play(stage, adopt)


def test_every_rule_has_a_story() -> None:
    assert {situation for situation, _ in STORIES} == set(RULES)
