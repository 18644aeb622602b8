"""A real Apache Kafka: one node that is broker and controller, in a directory of its own."""

import base64
import socket
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.peers import java
from tests.peers.broker_process import BrokerFailed, BrokerProcess

# What one node needs and what makes tests quick. Everything else is Kafka's default.
DEFAULTS = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
SERVER = ("-Xms128m", "-Xmx512m", "-Dpeer.log.level=info")
# Tests start it often and load it little; the benchmark passes its own options.
QUICK_START = (*java.QUICK, *java.archived(java.KAFKA_ARCHIVE))


class ApacheKafka(BrokerProcess):
    name = "apache"
    clean_exit_codes = (0, 143)  # a JVM that ran its shutdown hooks reports the signal

    def __init__(
        self,
        configs: Mapping[str, str] | None = None,
        directory: Path | None = None,
        java_options: Sequence[str] = QUICK_START,
    ) -> None:
        super().__init__(configs, directory)
        self._java_options = java_options
        self._ports: tuple[int, int] | None = None

    def start(self) -> Self:
        return self._start_on_free_ports(self._start_once, b"Address already in use")

    def _forget_ports(self) -> None:
        super()._forget_ports()
        self._ports = None

    def _start_once(self) -> None:
        properties = self._write_properties()
        if not (self.data_directory / "meta.properties").exists():
            self._format(properties)
        since = self.log_file.stat().st_size if self.log_file.exists() else 0
        self._launch(java.command("kafka.Kafka", [str(properties)], [*SERVER, *self._java_options]))
        self._await_log("Kafka Server started", since)

    def _write_properties(self) -> Path:
        if self._ports is None:
            self._ports = _free_ports()
        broker, controller = self._ports
        self.bootstrap_servers = f"127.0.0.1:{broker}"
        settings = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.data_directory),
            **DEFAULTS,
            **self.configs,
        }
        path = self.directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def _format(self, properties: Path) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # With `=`, because an id may begin with a dash.
        arguments = ["format", "--config", str(properties), f"--cluster-id={cluster_id}"]
        done = subprocess.run(java.command("kafka.tools.StorageTool", arguments), capture_output=True, text=True)
        if done.returncode != 0:
            raise BrokerFailed(f"formatting failed:\n{done.stdout}{done.stderr}")


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
