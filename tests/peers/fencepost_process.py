"""Fencepost as its users start it: `fencepost serve`, in a process of its own."""

import re
import shutil
import sys
from pathlib import Path
from typing import Self

from tests.peers.broker_process import BrokerProcess

LISTENING = re.compile(r"listening on ([0-9.]+:\d+)")


class FencepostProcess(BrokerProcess):
    name = "fencepost"

    def start(self) -> Self:
        # The port found by the first start is kept, so that clients find a restarted broker again.
        listen = self.bootstrap_servers or "127.0.0.1:0"
        settings = {"group.initial.rebalance.delay.ms": "0", **self.configs}
        arguments = [f"--set={name}={value}" for name, value in settings.items()]
        since = self.log_file.stat().st_size if self.log_file.exists() else 0
        self._launch([*_command(), "serve", "--data", str(self.data_directory), "--listen", listen, *arguments])
        found = LISTENING.search(self._await_log("listening on", since))
        assert found is not None
        self.bootstrap_servers = found[1]
        return self


def _command() -> list[str]:
    """The installed script beside this Python, else the one on the path."""
    script = Path(sys.executable).with_name("fencepost")
    found = str(script) if script.exists() else shutil.which("fencepost")
    assert found is not None, "the command fencepost is not installed (make setup)"
    return [found]
