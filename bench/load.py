"""The clients that put load on a broker: Kafka's own tools in one warm JVM, and librdkafka from C.

Owns: building the C program, the JVM, the payload files, and turning what clients print into values.
The same client, with the same settings, serves both brokers.
"""

import json
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.peers import java

from bench import machine

BENCH = Path(__file__).resolve().parent
BUILD = BENCH / ".build"
PAYLOADS = 4096
RUN_TIMEOUT_SECONDS = 180.0

# What kafka-run-class.sh gives a tool by default.
TOOL_OPTIONS = (
    "-Xmx512M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


class LoadFailed(Exception):
    """A client ended with an error, so there is no sample."""


@dataclass(frozen=True, slots=True)
class Throughput:
    records: int
    seconds: float
    client_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Latency:
    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    p999_us: float
    client_cpu_seconds: float


def payload_file(size: int) -> Path:
    """Lines of exactly `size` bytes that look like events, so that lz4 has something to do."""
    path = BUILD / f"payloads-{size}.txt"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(_payload(random.Random(number), size) + "\n" for number in range(PAYLOADS)))
    return path


def _payload(source: random.Random, size: int) -> str:
    text = ""
    while len(text) < size:
        text += (
            f'{{"id":{source.randrange(10**9)},"account":"{source.getrandbits(48):x}",'
            f'"amount":{source.randrange(10**6) / 100},"state":"{source.choice(["paid", "open", "void"])}"}}'
        )
    return text[:size]


@cache
def native() -> list[str] | None:
    """The command of the compiled load program; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, program = BENCH / "native" / "load.c", BUILD / "load"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        BUILD.mkdir(exist_ok=True)
        subprocess.run([compiler, "-O2", "-Wall", "-o", str(program), str(source), "-ldl"], check=True)
    return [str(program)]


@cache
def librdkafka() -> Path:
    """The library inside the confluent-kafka wheel: newer than what distributions carry."""
    import confluent_kafka

    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka*.so*"))
    if not found:
        raise LoadFailed("the confluent-kafka wheel carries no librdkafka")
    return found[0]


def _run(arguments: Sequence[str]) -> dict[str, float]:
    command = native() or [sys.executable, "-m", "bench.python_load"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, cwd=BENCH.parent
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise LoadFailed(f"{arguments[0]}: {done.stderr.strip()}")
    result: dict[str, float] = json.loads(done.stdout)
    result["client_cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result


class Librdkafka:
    """A producer and a consumer on librdkafka's defaults, but for what a row names and the queues."""

    name = "librdkafka"

    def produce(self, bootstrap: str, topic: str, records: int, size: int, batch: int, codec: str) -> Throughput:
        settings = {
            "batch.size": batch,
            "message.max.bytes": 1_048_576,
            "batch.num.messages": 100_000,
            "linger.ms": 5,
            "compression.codec": codec,
            "acks": -1,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 131_072,
            "delivery.report.only.error": "true",
        }
        words = [f"{name}={value}" for name, value in settings.items()]
        arguments = [str(librdkafka()), bootstrap, topic, str(records), str(payload_file(size)), *words]
        result = _run(["produce", *arguments])
        return Throughput(int(result["records"]), result["seconds"], result["client_cpu"])

    def consume(self, bootstrap: str, topic: str, partitions: int, records: int) -> Throughput:
        # The queue holds the whole run: at its limit librdkafka would pause for fetch.queue.backoff.ms.
        words = ["queued.min.messages=10000000", "queued.max.messages.kbytes=2097151"]
        arguments = [str(librdkafka()), bootstrap, topic, str(partitions), str(records), *words]
        result = _run(["consume", *arguments])
        return Throughput(int(result["records"]), result["seconds"], result["client_cpu"])


def request(
    address: tuple[str, int],
    requests: Sequence[bytes],
    error_offset: int,
    *,
    connections: int,
    warmup: int,
    count: int,
    seconds: float,
) -> Latency:
    """Cycles through the requests, one in flight per connection, until `count` answers or `seconds`."""
    with tempfile.NamedTemporaryFile(prefix="requests-") as file:
        file.write(b"".join(requests))
        file.flush()
        numbers = (error_offset, connections, warmup, count, seconds)
        words = [address[0], str(address[1]), file.name, *(str(number) for number in numbers)]
        result = _run(["request", *words])
    return Latency(
        int(result["requests"]),
        result["seconds"],
        result["p50_us"],
        result["p99_us"],
        result["p999_us"],
        result["client_cpu"],
    )


class JavaTools:
    """Kafka's ProducerPerformance and ConsumerPerformance, run again and again in one JVM."""

    name = "Java"
    _SENT = re.compile(r"^(\d+) records sent, ([0-9.]+) records/sec", re.MULTILINE)

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._groups = 0

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            options = [*TOOL_OPTIONS, "-Dpeer.log.level=error"]
            # The tools' driver is compiled by the launcher: java runs a single source file as it is.
            command = java.command(str(BENCH / "java" / "Tools.java"), [], options)
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _call(self, tool: str, *arguments: str) -> tuple[str, float]:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = threading.Timer(RUN_TIMEOUT_SECONDS, process.kill)
        alarm.start()
        try:
            before = machine.cpu_seconds(process.pid)
            process.stdin.write("\t".join([f"org.apache.kafka.tools.{tool}", *arguments]) + "\n")
            process.stdin.flush()
            printed = ""
            for line in process.stdout:
                if line.startswith("== "):
                    break
                printed += line
            else:
                self._process = None
                raise LoadFailed(f"{tool} ended, or did not within {RUN_TIMEOUT_SECONDS} s:\n{printed}")
            cpu = machine.cpu_seconds(process.pid) - before
        finally:
            alarm.cancel()
        if line.strip() != "== ok":
            raise LoadFailed(f"{tool}: {line.strip()}\n{printed}")
        return printed, cpu

    def produce(self, bootstrap: str, topic: str, records: int, size: int, batch: int, codec: str) -> Throughput:
        printed, cpu = self._call(
            "ProducerPerformance",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records), "--throughput", "-1"),
            *("--payload-file", str(payload_file(size)), "--command-property"),
            *(f"batch.size={batch}", f"compression.type={codec}"),
        )
        found = self._SENT.findall(printed)
        if not found or int(found[-1][0]) != records or "Exception" in printed:
            raise LoadFailed(f"ProducerPerformance did not send {records} records:\n{printed[-2000:]}")
        return Throughput(records, records / float(found[-1][1]), cpu)

    def consume(self, bootstrap: str, topic: str, partitions: int, records: int) -> Throughput:
        self._groups += 1
        printed, cpu = self._call(
            "ConsumerPerformance",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)),
            *("--group", f"bench-{self._groups}-{random.getrandbits(32):x}", "--hide-header"),
        )
        line = [line for line in printed.splitlines() if line.count(",") >= 9]
        if not line:
            raise LoadFailed(f"ConsumerPerformance printed no result:\n{printed[-2000:]}")
        # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
        fields = [field.strip() for field in line[-1].split(",")]
        got, fetch_ms = int(fields[4]), float(fields[7])
        if got < records:
            raise LoadFailed(f"ConsumerPerformance saw {got} of {records} records:\n{printed[-2000:]}")
        # Its fetch time leaves out joining the group, which is no throughput.
        return Throughput(got, fetch_ms / 1000, cpu)
