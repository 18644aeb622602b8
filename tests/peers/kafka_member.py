"""A real broker of Apache Kafka that is no controller: a member of somebody else's cluster."""

import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.peers import java
from tests.peers.broker_process import BrokerFailed, BrokerProcess
from tests.peers.kafka import DEFAULTS, QUICK_START, SERVER


class ApacheMember(BrokerProcess):
    name = "member"
    clean_exit_codes = (0, 143)

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        controller: str,
        configs: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        """`controller` is ID@HOST:PORT."""
        super().__init__(configs, directory)
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._controller = controller

    def start(self) -> Self:
        return self._start_on_free_ports(self._start_once, b"Address already in use")

    def _start_once(self) -> None:
        if not self.bootstrap_servers:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.bootstrap_servers = f"127.0.0.1:{free.getsockname()[1]}"
        settings = {
            "node.id": str(self._node_id),
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": self._controller,
            "log.dirs": str(self.data_directory),
            **DEFAULTS,
            **self.configs,
        }
        properties = self.directory / "broker.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if not (self.data_directory / "meta.properties").exists():
            arguments = ["format", "--config", str(properties), f"--cluster-id={self._cluster_id}"]
            done = subprocess.run(java.command("kafka.tools.StorageTool", arguments), capture_output=True, text=True)
            if done.returncode != 0:
                raise BrokerFailed(f"formatting failed:\n{done.stdout}{done.stderr}")
        since = self.log_file.stat().st_size if self.log_file.exists() else 0
        self._launch(java.command("kafka.Kafka", [str(properties)], [*SERVER, *QUICK_START]))
        self._await_log("Kafka Server started", since)
