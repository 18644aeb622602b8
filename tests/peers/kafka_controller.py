"""A real controller of Apache Kafka: a process that is a controller and nothing else, the only voter of its quorum."""

import base64
import socket
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.peers import java
from tests.peers.broker_process import BrokerFailed, BrokerProcess
from tests.peers.kafka import QUICK_START, SERVER

NODE_ID = 1


class ApacheController(BrokerProcess):
    name = "controller"
    clean_exit_codes = (0, 143)

    def __init__(
        self,
        configs: Mapping[str, str] | None = None,
        directory: Path | None = None,
        java_options: Sequence[str] = QUICK_START,
    ) -> None:
        super().__init__(configs, directory)
        self._java_options = java_options
        self.cluster_id = base64.urlsafe_b64encode(uuid.UUID(int=uuid.uuid4().int >> 4).bytes).decode().rstrip("=")

    def start(self) -> Self:
        return self._start_on_free_ports(self._start_once, b"Address already in use")

    def _start_once(self) -> None:
        if not self.bootstrap_servers:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.bootstrap_servers = f"127.0.0.1:{free.getsockname()[1]}"
        settings = {
            "node.id": str(NODE_ID),
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{self.bootstrap_servers}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{NODE_ID}@{self.bootstrap_servers}",
            "log.dirs": str(self.data_directory),
            **self.configs,
        }
        properties = self.directory / "controller.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if not (self.data_directory / "meta.properties").exists():
            arguments = ["format", "--config", str(properties), f"--cluster-id={self.cluster_id}"]
            done = subprocess.run(java.command("kafka.tools.StorageTool", arguments), capture_output=True, text=True)
            if done.returncode != 0:
                raise BrokerFailed(f"formatting failed:\n{done.stdout}{done.stderr}")
        since = self.log_file.stat().st_size if self.log_file.exists() else 0
        self._launch(java.command("kafka.Kafka", [str(properties)], [*SERVER, *self._java_options]))
        self._await_log("Kafka Server started", since)
