"""Recordings as files: JSON lines, each written immediately, so that unanswered calls are included."""

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost.tap.frames import Plain

FORMAT = 1
PRIVATE_MODE = 0o600


class InvalidRecording(Exception):
    """The file is not a recording."""


class RecordingFile:
    def __init__(self, file: Path) -> None:
        """Makes the file readable by its owner only, even if it existed before: it contains records and names."""
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_MODE)
        self._file = open(descriptor, "w", encoding="utf-8", buffering=1)  # noqa: SIM115 - open as long as this is
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            with contextlib.suppress(PermissionError):  # a file of another owner
                os.fchmod(descriptor, PRIVATE_MODE)

    def write(self, line: Plain) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def read_recording(file: Path) -> Iterator[Plain]:
    with file.open(encoding="utf-8") as lines:
        try:
            head = json.loads(next(lines, ""))
        except ValueError:
            head = None
        if not isinstance(head, dict) or head.get("type") != "tap":
            raise InvalidRecording(f"{file} is not a recording of `fencepost tap`")
        if head["format"] != FORMAT:
            raise InvalidRecording(f"{file} has format {head['format']}; this version reads format {FORMAT}")
        yield head
        for text in lines:
            try:
                yield json.loads(text)
            except ValueError:
                # The last line of a truncated recording.
                return
