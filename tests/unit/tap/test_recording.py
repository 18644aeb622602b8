"""Recordings as files."""

from pathlib import Path

from fencepost.tap.recording import RecordingFile


def test_a_recording_is_for_its_owner_alone_even_where_a_file_was_before(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("something that everybody may read")
    old.chmod(0o644)
    for file in (old, new):
        with RecordingFile(file) as recording:
            recording.write({"type": "tap"})
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text() == '{"type":"tap"}\n'
