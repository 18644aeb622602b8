"""`fencepost ui` as its users start it, in a process of its own."""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.patience import patient

START_TIMEOUT_SECONDS = patient(60.0)
STOP_TIMEOUT_SECONDS = patient(30.0)
PAGE_AT = re.compile(r"page at (http://\S+)\n")


class UiProcess:
    def __init__(self, bootstrap_servers: str, *options: str) -> None:
        script = str(Path(sys.executable).with_name("fencepost"))
        where = ["--bootstrap-server", bootstrap_servers, "--listen", "127.0.0.1:0"]
        self._command = [script, "ui", *where, "--stuck-after", "1", *options]
        self.url = ""

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            found = PAGE_AT.search(self.log_text())
            if found is not None:
                self.url = found[1]
                return self
            time.sleep(0.02)
        text = self.log_text()
        self.__exit__(None, None, None)
        raise AssertionError(f"no page is served; the log is:\n{text}")

    def log_text(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
