"""The commands that make, write and read log in with a client's settings, from a file or a profile."""

from pathlib import Path

import pytest

from tests.interop_cli.conftest import Command
from tests.security.secured import SecuredFencepost, as_properties, own_options

LISTENER = "SASL_SSL"
LINES = "one\ntwo\n"


@pytest.fixture
def command(broker: SecuredFencepost, tmp_path: Path) -> Command:
    """A command whose user has a profile that names the cluster, and nothing else."""
    options = own_options(broker, LISTENER, "SCRAM-SHA-512") | {"bootstrap.servers": broker.address_of(LISTENER)}
    profiles = tmp_path / "fencepost" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "secured.properties").write_text(as_properties(options))
    command = Command("")
    command.environment["XDG_CONFIG_HOME"] = str(tmp_path)
    return command


def test_every_command_that_changes_or_reads_the_cluster_takes_a_profile(command: Command) -> None:
    secured = ("--profile", "secured")
    command("topics", "create", "secret", "--partitions", "1", *secured)
    assert [row[0] for row in command("topics", "list", *secured).rows if row[0] == "secret"] == ["secret"]
    command("topics", "add-partitions", "secret", "--partitions", "2", *secured)
    command("topics", "alter", "secret", "--set", "retention.ms=86400000", *secured)
    described = command("topics", "describe", "secret", "--json", *secured).json["topics"][0]
    assert (len(described["partitions"]), described["configs"]) == (2, {"retention.ms": "86400000"})
    command("configs", "alter", "--topic", "secret", "--unset", "retention.ms", *secured)
    assert command("configs", "describe", "--topic", "secret", "--json", *secured).json["configs"] == []
    command("produce", "secret", "--partition", "0", *secured, standard_input=LINES)
    assert command("consume", "secret", *secured).output == LINES
    to_end = ("reset-offsets", "readers", "--topic", "secret", "--to-latest", "--execute")
    command("groups", *to_end, *secured)
    assert [row[0] for row in command("groups", "list", *secured).rows if row[0] == "readers"] == ["readers"]
    assert "secret" in command("groups", "describe", "readers", *secured).output
    command("groups", "delete", "readers", *secured)
    command("topics", "delete", "secret", *secured)


def test_a_file_of_settings_does_as_well_and_an_address_on_the_command_line_beats_it(
    command: Command, broker: SecuredFencepost, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    options = own_options(broker, LISTENER, "PLAIN") | {"bootstrap.servers": "127.0.0.1:1"}
    file.write_text(as_properties(options))
    command("topics", "list", "--command-config", str(file), "--bootstrap-server", broker.address_of(LISTENER))


def test_whoever_does_not_log_in_is_told_so(command: Command, broker: SecuredFencepost, tmp_path: Path) -> None:
    file = tmp_path / "wrong.properties"
    options = own_options(broker, LISTENER, "PLAIN") | {"sasl.password": "wrong"}
    file.write_text(as_properties(options))
    where = ("--command-config", str(file), "--bootstrap-server", broker.address_of(LISTENER))
    for arguments in (("topics", "list"), ("consume", "secret"), ("produce", "secret"), ("groups", "list")):
        assert "authentication" in command.refused(*arguments, *where).lower()
