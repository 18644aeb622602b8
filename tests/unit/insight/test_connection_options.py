"""A file of client settings and a profile reach the client; what is foreign is passed over aloud."""

from pathlib import Path

import pytest

from fencepost.cli.connection import open_view
from fencepost.cli.output import CommandFailed
from fencepost.client.security import SecurityProtocol


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    directory = tmp_path / "fencepost" / "profiles"
    directory.mkdir(parents=True)
    return directory


def test_options_beat_the_file_and_the_file_beats_the_profile(profiles: Path, tmp_path: Path) -> None:
    (profiles / "production.properties").write_text("bootstrap.servers=one:1\nclient.id=from-profile\n")
    file = tmp_path / "client.properties"
    file.write_text("# ours\nclient.id=from-file\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
                    "sasl.username=me\nsasl.password=secret\n")  # fmt: skip
    view = open_view(None, file, "production")
    assert view.cluster.bootstrap_servers == ("one:1",)
    assert view.cluster._options.client_id == "from-file"
    assert view.cluster._options.security.protocol is SecurityProtocol.SASL_PLAINTEXT
    assert open_view("two:2", None, "production").cluster.bootstrap_servers == ("two:2",)
    assert open_view(None, None, None).cluster.bootstrap_servers == ("127.0.0.1:9092",)


def test_settings_of_producers_are_passed_over_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=all\nclient.id=x\n")
    open_view("one:1", file, None)
    assert capsys.readouterr().err == "ignored settings that this command does not use: acks\n"


def test_a_profile_that_is_not_there_is_told_with_those_that_are(profiles: Path) -> None:
    (profiles / "staging.properties").write_text("")
    with pytest.raises(CommandFailed, match="no profile 'production'") as failed:
        open_view(None, None, "production")
    assert failed.value.advice == "the profiles are: staging"
    with pytest.raises(CommandFailed):
        open_view(None, None, "../production")
