"""`fencepost ui` as its users start it, and a browser's part of HTTP: documents, posts and streams of events."""

import http.client
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tests.support.patience import patient

PATIENCE_SECONDS = patient(60.0)
POLL_SECONDS = 0.05
PAGE_AT = re.compile(r"page at (http://\S+?:(\d+)/\S*)")
ACTING = {"X-Fencepost": "1"}
COMMAND = str(Path(sys.executable).with_name("fencepost"))


def eventually(holds: Callable[[], Any], what: str = "it") -> Any:
    """The first true answer; fails only after a time that no healthy machine needs."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not come about; the last answer was {found!r}"
        time.sleep(POLL_SECONDS)


class Answer:
    def __init__(self, status: int, headers: http.client.HTTPMessage, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Events:
    """A stream of server-sent events."""

    def __init__(self, port: int, path: str, headers: Mapping[str, str], client: str = "127.0.0.1") -> None:
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", port, timeout=PATIENCE_SECONDS, source_address=(client, 0)
        )
        self._connection.request("GET", path, headers=dict(headers))
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.lines: list[str] = []

    def next(self, name: str, holds: Callable[[Any], Any] = lambda document: True) -> Any:
        """The next event of a name that satisfies; others are passed over."""
        event = ""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            line = self._response.readline().decode().rstrip("\n")
            self.lines.append(line)
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: ") and event == name:
                document = json.loads(line.removeprefix("data: "))
                if holds(document):
                    return document
        raise AssertionError(f"no such event; the stream ended with {[line[:300] for line in self.lines[-6:]]}")

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RunningPage:
    def __init__(self, bootstrap_servers: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it stays open as long as the page runs
        words = ["ui", "--bootstrap-server", bootstrap_servers, "--stuck-after", "1"]
        if "--listen" not in arguments:
            words += ["--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [COMMAND, *words, *arguments], stdin=subprocess.DEVNULL, stderr=self._log, stdout=self._log, env=environment
        )
        try:
            self.url, port = eventually(lambda: self._address(), "the line with the address")
        except BaseException:
            self.close()
            raise
        self.port = int(port)

    def _address(self) -> tuple[str, str] | None:
        found = PAGE_AT.search(self.output)
        assert found or self.process.poll() is None, self.output
        return (found[1], found[2]) if found else None

    @property
    def output(self) -> str:
        self._log.seek(0)
        return self._log.read().decode()

    def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.call("GET", path, None, headers)

    def document(self, path: str) -> Any:
        answer = self.get(path)
        assert answer.status == 200, (path, answer.status, answer.body)
        return answer.json

    def post(self, path: str, body: Any) -> Answer:
        return self.call("POST", path, body, ACTING)

    def events(self, query: str, headers: Mapping[str, str] | None = None, client: str = "127.0.0.1") -> Events:
        """`client` is the address that asks: every 127.x.y.z is one of this machine."""
        return Events(self.port, f"/api/events?{query}", headers or {}, client)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
