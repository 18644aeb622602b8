"""The clients that make transactions: raw calls and librdkafka from C, and Kafka's own producer in one warm JVM.

Owns: building the C program, its script files, the JVM, and turning what clients print into values.
"""

import json
import resource
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.peers import java

from bench import machine
from bench.load import BENCH, BUILD, RUN_TIMEOUT_SECONDS, TOOL_OPTIONS, LoadFailed, librdkafka
from bench.transaction_frames import (
    Producer,
    Step,
    TransactionalConnection,
    scripts_file,
    sequences_file,
    spread,
    transaction_steps,
)

RAW_PASSES_ANY = 0
# Of every row that counts transactions.
VALUE_BYTES = 100
RATE_PAIRS_MAX = 3


@dataclass(frozen=True, slots=True)
class Transactions:
    transactions: int
    seconds: float
    # From the call that commits to its answer; from the beginning of the transaction to the same answer.
    commit_p50_us: float
    commit_p99_us: float
    whole_p50_us: float
    whole_p99_us: float
    # Calls that were told to come back later. Only raw calls can tell.
    backed_off: int
    client_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Interval:
    records_per_second: float
    latency_p50_us: float
    latency_p99_us: float
    seconds: float
    client_cpu_seconds: float


@cache
def program() -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LoadFailed("transaction rows need a C compiler")
    source, program = BENCH / "native" / "transactions.c", BUILD / "transactions"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        BUILD.mkdir(exist_ok=True)
        libraries = ["-ldl", "-lpthread"]
        subprocess.run([compiler, "-O2", "-Wall", "-o", str(program), str(source), *libraries], check=True)
    return str(program)


def _run(arguments: Sequence[str]) -> dict[str, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [program(), *arguments], capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, cwd=BENCH.parent
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise LoadFailed(f"{arguments[0]}: {done.stderr.strip()}")
    result: dict[str, float] = json.loads(done.stdout)
    result["client_cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result


def _transactions(result: dict[str, float]) -> Transactions:
    if not result["transactions"]:
        raise LoadFailed("no transaction ended within the sample")
    return Transactions(
        int(result["transactions"]),
        result["seconds"],
        result["commit_p50_us"],
        result["commit_p99_us"],
        result["whole_p50_us"],
        result["whole_p99_us"],
        int(result["backed_off"]),
        result["client_cpu"],
    )


class RawCalls:
    """Scripts of raw calls to one broker, one connection per script; sequence numbers go on from run to run."""

    def __init__(self, address: tuple[str, int], scripts: Sequence[Sequence[Step]], sequences: int) -> None:
        self._address = address
        self._directory = tempfile.TemporaryDirectory(prefix="transactions-")
        self._scripts = Path(self._directory.name) / "scripts"
        self._sequences = Path(self._directory.name) / "sequences"
        self._scripts.write_bytes(scripts_file(scripts))
        self._sequences.write_bytes(sequences_file(sequences))

    def _call(self, passes: int, warmup: int, count: int, seconds: float, rate: float = 0) -> dict[str, float]:
        files = (str(self._scripts), str(self._sequences))
        numbers = (passes, warmup, count, seconds, rate)
        return _run(["raw", self._address[0], str(self._address[1]), *files, *(str(number) for number in numbers)])

    def run(self, *, warmup: int, count: int = 0, seconds: float, rate: float = 0) -> Transactions:
        """Until `count` transactions (0: any number) have ended, or for `seconds`; at most `rate` in a second."""
        return _transactions(self._call(RAW_PASSES_ANY, warmup, count, seconds, rate))

    def run_once(self) -> None:
        """Every script once, whatever it is and however long it takes."""
        self._call(passes=1, warmup=0, count=0, seconds=RUN_TIMEOUT_SECONDS)

    def close(self) -> None:
        self._directory.cleanup()


def init_producers(address: tuple[str, int], prefix: str, count: int) -> list[Producer]:
    with TransactionalConnection(address) as connection:
        return connection.producers([f"{prefix}-{number}" for number in range(count)])


def raw_transactions(
    address: tuple[str, int],
    producers: Sequence[Producer],
    topic: str,
    partitions: int,
    *,
    records: int,
    size: int,
    connections: int | None = None,
    committed: bool = True,
) -> RawCalls:
    """Each producer goes round the partitions; with fewer connections than producers these take turns."""
    wanted = connections or len(producers)
    scripts: list[list[Step]] = [[] for _ in range(wanted)]
    turns = partitions if records < partitions else 1
    for turn in range(turns):
        for number, producer in enumerate(producers):
            batches = spread(records, partitions, (number + turn) % partitions, size)
            steps = transaction_steps(producer, topic, batches, number * partitions, committed)
            scripts[number % wanted] += steps
    return RawCalls(address, scripts, len(producers) * partitions)


class LibrdkafkaTransactions:
    """One producer and one thread per transactional id, on librdkafka's defaults."""

    def run(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        ids: int,
        records: int,
        size: int,
        seconds: float,
        settings: Sequence[str] = (),
    ) -> Transactions:
        numbers = (partitions, ids, records, size, seconds)
        words = [str(librdkafka()), bootstrap, topic, *(str(number) for number in numbers), f"{topic}-rd", *settings]
        return _transactions(_run(["librdkafka", *words]))

    def interval(
        self, bootstrap: str, topic: str, interval_ms: int, *, seconds: float, rate: int, size: int
    ) -> Interval:
        """One producer that commits by the clock; with a rate also from produce to a read_committed consumer."""
        settings = ["batch.num.messages=100000", "queue.buffering.max.messages=1000000", "compression.codec=none"]
        words = [str(librdkafka()), bootstrap, topic, str(interval_ms), str(seconds), str(rate), str(size)]
        result = _run(["interval", *words, f"{topic}-interval", *settings])
        return Interval(
            result["records"] / result["seconds"],
            result.get("latency_p50_us", 0.0),
            result.get("latency_p99_us", 0.0),
            result["seconds"],
            result["client_cpu"],
        )


class JavaTransactions:
    """Kafka's Java producers in one JVM, which stays warm from row to row."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            options = [*TOOL_OPTIONS, "-Dpeer.log.level=error"]
            command = java.command(str(BENCH / "java" / "Transactions.java"), [], options)
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        return self._process

    def _call(self, *words: str) -> dict[str, float]:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = threading.Timer(RUN_TIMEOUT_SECONDS, process.kill)
        alarm.start()
        try:
            before = machine.cpu_seconds(process.pid)
            process.stdin.write("\t".join(words) + "\n")
            process.stdin.flush()
            # Whatever else is printed is no answer.
            line = next((each for each in process.stdout if each.startswith(("{", "failed"))), "")
            if not line.startswith("{"):
                if not line:
                    self.close()
                raise LoadFailed(f"Java transactions: {line.strip() or 'the JVM ended'}")
            result: dict[str, float] = json.loads(line)
            result["client_cpu"] = machine.cpu_seconds(process.pid) - before
        finally:
            alarm.cancel()
        return result

    def run(
        self, bootstrap: str, topic: str, partitions: int, *, ids: int, records: int, size: int, seconds: float
    ) -> Transactions:
        numbers = (partitions, ids, records, size, seconds)
        return _transactions(self._call(bootstrap, topic, *(str(number) for number in numbers), "java"))

    def forget(self) -> None:
        """Closes the producers: those of a broker that is gone would go on looking for it."""
        if self._process is not None:
            self._call("close")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
