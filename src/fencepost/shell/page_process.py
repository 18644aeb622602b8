"""Runs the page of a broker in a child process, because the interpreter is the broker's bottleneck.

It connects to the broker as any client does. It ends when the broker ends, for whatever reason, because the pipe
between them closes. If the page ends, the broker continues.
"""

import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from fencepost.shell.running_broker import ANY_ADDRESS

STOP_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PageOptions:
    listen: str
    are_actions_allowed: bool = False
    command_config: Path | None = None
    """Client settings for the broker's first listener, if it is secured."""


class PageProcess:
    def __init__(self, options: PageOptions, bound: socket.socket, broker: tuple[str, int]) -> None:
        """Passes the socket to the child process and closes it here."""
        host, port = broker
        reachable = "127.0.0.1" if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
        theirs, self._ours = os.pipe()
        command = [
            *(sys.executable, "-m", "fencepost.cli.main", "ui", "--listen", options.listen),
            *("--bootstrap-server", f"{reachable}:{port}"),
            *("--listen-fd", str(bound.fileno()), "--parent-fd", str(theirs)),
            *(("--allow-actions",) if options.are_actions_allowed else ()),
            *(("--command-config", str(options.command_config)) if options.command_config is not None else ()),
        ]
        self._is_stopping = False
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sys.stderr, pass_fds=(bound.fileno(), theirs)
            )
        finally:
            os.close(theirs)
            bound.close()
        self._waiting = threading.Thread(target=self._wait, name="fencepost-page", daemon=True)
        self._waiting.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _wait(self) -> None:
        status = self._process.wait()
        if not self._is_stopping:
            print(f"the page ended with status {status}; the broker continues without it", file=sys.stderr, flush=True)

    def stop(self) -> None:
        self._is_stopping = True
        os.close(self._ours)
        self._waiting.join(STOP_TIMEOUT_SECONDS)
        if self._waiting.is_alive():
            self._process.kill()
