"""Topics and settings through the command, the same on both brokers."""

from collections.abc import Callable

from tests.interop_cli.conftest import Command


def test_a_topic_is_made_listed_described_and_deleted(command: Command, unique: Callable[[str], str]) -> None:
    name = unique("life")
    made = command("topics", "create", name, "--partitions", "3", "--config", "retention.ms=86400000")
    assert made.output == f"created topic {name} with 3 partitions\n"
    assert [name, "3", "1"] in command("topics", "list").rows
    described = command("topics", "describe", name).output
    assert "retention.ms=86400000" in described
    assert described.splitlines()[-1].split()[:4] == ["2", "1", "0", "0"]
    assert command("topics", "delete", name).output == f"deleted topic {name}\n"
    assert name not in [row[0] for row in command("topics", "list").rows]


def test_topics_as_json(command: Command, unique: Callable[[str], str]) -> None:
    name = unique("json")
    (made,) = command("topics", "create", name, "--partitions", "2", "--json").json["topics"]
    assert made["created"] is True
    assert (made["partitions"], made["replication_factor"]) == (2, 1)
    listed = {topic["name"]: topic for topic in command("topics", "list", "--json").json["topics"]}
    assert listed[name]["partitions"] == 2
    assert listed[name]["topic_id"] == made["topic_id"]
    (described,) = command("topics", "describe", name, "--json").json["topics"]
    assert [partition["latest_offset"] for partition in described["partitions"]] == [0, 0]
    assert [partition["in_sync_replicas"] for partition in described["partitions"]] == [[1], [1]]
    assert described["configs"] == {}


def test_a_topic_that_exists_is_refused_unless_that_is_fine(command: Command, topic: str) -> None:
    assert "TOPIC_ALREADY_EXISTS" in command.refused("topics", "create", topic)
    again = command("topics", "create", topic, "--if-not-exists", "--json").json
    assert again == {"topics": [{"name": topic, "created": False}]}


def test_what_the_broker_refuses_is_explained(command: Command, unique: Callable[[str], str]) -> None:
    assert "Unknown topic config name: bogus" in command.refused(
        "topics", "create", unique("bad"), "--config", "bogus=1"
    )
    assert "INVALID_REPLICATION_FACTOR" in command.refused(
        "topics", "create", unique("bad"), "--replication-factor", "3"
    )
    assert "INVALID_TOPIC_EXCEPTION" in command.refused("topics", "create", "no spaces")


def test_a_topic_that_does_not_exist_is_named_with_what_to_do(command: Command) -> None:
    for arguments in (
        ("topics", "describe", "absent"),
        ("topics", "delete", "absent"),
        ("topics", "alter", "absent", "--set", "retention.ms=1"),
        ("topics", "add-partitions", "absent", "--partitions", "5"),
        ("configs", "describe", "--topic", "absent"),
        ("consume", "absent"),
    ):
        assert "topic 'absent' does not exist; create it with `fencepost topics create absent`" in command.refused(
            *arguments
        )
    assert command("topics", "delete", "absent", "--if-exists").output == "topic absent does not exist\n"


def test_partitions_are_added_but_never_taken_away(command: Command, topic: str) -> None:
    assert (
        command("topics", "add-partitions", topic, "--partitions", "5").output
        == f"topic {topic} now has 5 partitions\n"
    )
    assert len(command("topics", "describe", topic, "--json").json["topics"][0]["partitions"]) == 5
    assert "INVALID_PARTITIONS" in command.refused("topics", "add-partitions", topic, "--partitions", "4")


def test_settings_of_a_topic_are_changed_and_given_back(command: Command, topic: str) -> None:
    assert "no setting was changed here" in command("configs", "describe", "--topic", topic).output
    command(
        "configs", "alter", "--topic", topic, "--set", "retention.ms=1000", "--set", "cleanup.policy=compact,delete"
    )
    assert command("configs", "describe", "--topic", topic).rows == [
        ["cleanup.policy", "compact,delete", "TOPIC_CONFIG", "yes"],
        ["retention.ms", "1000", "TOPIC_CONFIG", "yes"],
    ]
    changed = command("topics", "alter", topic, "--set", "retention.ms=2000", "--unset", "cleanup.policy", "--json")
    assert changed.json["changed"] == {"retention.ms": "2000", "cleanup.policy": None}
    described = command("configs", "describe", "--topic", topic, "--json").json
    assert [(entry["name"], entry["value"]) for entry in described["configs"]] == [("retention.ms", "2000")]
    everything = command("configs", "describe", "--topic", topic, "--all", "--json").json["configs"]
    by_name = {entry["name"]: entry for entry in everything}
    assert (by_name["cleanup.policy"]["value"], by_name["cleanup.policy"]["source"]) == ("delete", "DEFAULT_CONFIG")
    assert "INVALID_CONFIG" in command.refused("topics", "alter", topic, "--set", "retention.ms=soon")


def test_settings_of_brokers_are_shown_and_changed(command: Command) -> None:
    described = command("configs", "describe", "--broker", "1", "--all", "--json").json["configs"]
    by_name = {entry["name"]: entry for entry in described}
    assert by_name["num.partitions"]["value"] == "1"
    assert by_name["node.id"]["read_only"] is True
    command("configs", "alter", "--broker-defaults", "--set", "log.cleaner.min.cleanable.ratio=0.7")
    shown = command("configs", "describe", "--broker", "1").rows
    assert ["log.cleaner.min.cleanable.ratio", "0.7", "DYNAMIC_DEFAULT_BROKER_CONFIG", "yes"] in shown
    command("configs", "alter", "--broker-defaults", "--unset", "log.cleaner.min.cleanable.ratio")
