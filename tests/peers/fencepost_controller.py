"""Our controller as its users start it: `fencepost controller`, in a process of its own."""

import re
from typing import Self

from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import _command

LISTENING = re.compile(r"controller (\d+) of cluster (\S+) listening on ([0-9.]+:\d+)")


class FencepostController(BrokerProcess):
    name = "fencepost-controller"
    cluster_id = ""
    voter = ""
    """ID@HOST:PORT, as brokers are told."""

    def start(self) -> Self:
        listen = self.bootstrap_servers or "127.0.0.1:0"
        arguments = [f"--set={name}={value}" for name, value in self.configs.items()]
        since = self.log_file.stat().st_size if self.log_file.exists() else 0
        data = str(self.data_directory)
        self._launch([*_command(), "controller", "--data", data, "--listen", listen, *arguments])
        found = LISTENING.search(self._await_log("listening on", since))
        assert found is not None
        node_id, self.cluster_id, self.bootstrap_servers = found.groups()
        self.voter = f"{node_id}@{self.bootstrap_servers}"
        return self
