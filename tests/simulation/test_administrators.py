"""Administrators in simulated worlds: what they do, and that each kind of harm to their topics would be noticed."""

import pytest

from fencepost.history import read_events
from fencepost.simulation.administered_clients import FinalSurvey
from fencepost.simulation.administered_topics import ANY_OFFSET, AdministeredTopics
from fencepost.simulation.client_journal import ClientJournal, partition_name
from fencepost.simulation.disk import PowerCut
from fencepost.simulation.fault_actions import carry_out
from fencepost.simulation.faults import Fault
from fencepost.simulation.fragile_disk import FragileDisk
from fencepost.simulation.thinning_check import check_thinning
from fencepost.simulation.world import World
from fencepost.topic_partition import TopicPartition


@pytest.mark.parametrize(
    ("seed", "is_group_commit", "has_access_rules"), [(0, True, False), (1, True, True), (4, False, True)]
)
def test_a_world_at_peace_has_everything_that_administrators_do(
    seed: int, is_group_commit: bool, has_access_rules: bool
) -> None:
    world = World(seed, 30, frozenset(), carry_out)
    assert (world.is_group_commit, world.has_access_rules) == (is_group_commit, has_access_rules)
    assert world.run() == []
    done = world.topics.done
    for deed in ("create", "delete", "widen", "configure", "delete-records", "compaction", "internal-compaction"):
        assert done[deed] > 0, deed
    assert (done["access"] > 0) == has_access_rules
    labels = [label for label in world.topics.ids if label.startswith("fleeting@")]
    assert len(labels) > 1, "no topic was created again under its name"


# What may be missing, told by hand


class Scene:
    """One compacted topic with one partition, and what clients were told of it."""

    NAME = "keyed"

    def __init__(self) -> None:
        world = World(0, 1, frozenset(), carry_out)
        self.topics = AdministeredTopics()
        self.journal: ClientJournal = world.journal
        self.label = self.topics.seen(self.NAME, bytes(16), 1)
        self.key = TopicPartition(self.label, 0)
        self.survey = FinalSurvey("survey", *world.surroundings, topics=self.topics, journal=self.journal)
        self.survey.starts[self.key] = 0
        self.survey.ends[self.key] = 10
        self.survey.committed[self.key] = []

    def sent(self, value: str, offset: int | None) -> None:
        operation = self.journal.recorder.send("producer", [(partition_name(self.key), value)])
        if offset is None:
            operation.info()
        else:
            operation.sent(0, offset)
            operation.ok()

    def left(self, *records: tuple[int, str]) -> None:
        self.survey.committed[self.key] = list(records)

    def problems(self) -> list[str]:
        return [problem.partition(":")[0] for problem in check_thinning(
            self.topics, self.survey, read_events(self.journal.events)
        )]  # fmt: skip


def test_the_newest_value_of_a_key_may_not_be_compacted() -> None:
    scene = Scene()
    scene.sent("k1=a", 0)
    scene.sent("k1=b", 1)
    scene.sent("k2=c", 2)
    scene.left((1, "k1=b"), (2, "k2=c"))
    assert scene.problems() == []
    scene.left((0, "k1=a"), (2, "k2=c"))
    assert scene.problems() == ["compacted-too-much"]


def test_a_tombstone_takes_its_key_with_it() -> None:
    scene = Scene()
    scene.sent("k1=a", 0)
    scene.sent("k1=b!", 1)
    scene.sent("k2=c", 2)
    scene.sent("k2=d!", None)
    assert scene.problems() == []


def test_records_that_nobody_asked_to_delete_stay() -> None:
    scene = Scene()
    scene.survey.starts[scene.key] = 4
    scene.topics.trim_asked[scene.NAME, 0] = 4
    assert scene.problems() == []
    scene.topics.trim_asked[scene.NAME, 0] = 3
    assert scene.problems() == ["deleted-too-much"]
    scene.topics.trim_asked[scene.NAME, 0] = ANY_OFFSET
    scene.topics.trim_done[scene.key] = 5
    assert scene.problems() == ["deleted-records-back"]


def test_topics_stay_until_somebody_deletes_them_and_stay_deleted() -> None:
    scene = Scene()
    scene.topics.missing(scene.NAME)
    scene.survey.starts.clear()
    assert scene.problems() == ["topic-lost"]
    scene.topics.deletion_asked.add(scene.label)
    assert scene.problems() == []
    scene.topics.deletion_done.add(scene.label)
    scene.topics.seen(scene.NAME, bytes(16), 1)
    assert scene.problems() == ["topic-back"]


# What the disk tells


def test_a_disk_knows_what_would_survive() -> None:
    disk = FragileDisk()
    disk.make_directory("/data")
    disk.sync_directory("/")
    file = disk.open("/data/log", create=True)
    file.write(0, b"synced")
    file.sync()
    assert disk.durable_bytes("/data/log") == 0, "its name is not on the disk"
    disk.sync_directory("/data")
    assert disk.durable_bytes("/data/log") == 6
    file.write(6, b" and not")
    assert disk.durable_bytes("/data/log") == 6
    file.write(2, b"nced")
    assert disk.durable_bytes("/data/log") == 6
    file.write(2, b"NCED")
    assert disk.durable_bytes("/data/log") == 2
    disk.rename("/data/log", "/data/log.deleted")
    assert disk.durable_bytes("/data/log.deleted") == 0


def test_files_that_were_taken_away_stay_away_until_they_are_put_back() -> None:
    disk = FragileDisk()
    disk.make_directory("/data/t-0")
    disk.write_atomically("/data/t-0/log", b"records")
    disk.sync_directory("/data")
    disk.sync_directory("/")
    put_back = disk.take_away("/data/t-0")
    disk.power_cut(PowerCut.LOSE_NOTHING)
    assert not disk.exists("/data/t-0")
    put_back()
    disk.power_cut(PowerCut.LOSE_ALL)
    assert disk.read_bytes("/data/t-0/log") == b"records"


def test_a_log_whose_files_are_missing_is_out_of_service_until_they_are_back() -> None:
    world = World(3, 40, frozenset({Fault.FILES_LOST}), carry_out)
    assert world.run() == []
    assert world.hits[Fault.FILES_LOST] > 0
