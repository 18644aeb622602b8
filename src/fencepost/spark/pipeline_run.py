"""A pipeline run by a person or a supervisor: a session, the query, its progress, and a stop between two batches."""

import builtins
import contextlib
import importlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import accumulators
from pyspark.sql import SparkSession

from fencepost.spark import batch_states, worker_daemon
from fencepost.spark.pipeline_declaration import Declaration
from fencepost.spark.pipeline_progress import Progress, progress_of
from fencepost.spark.pipeline_start import StartOptions, start, transaction_timeout_of
from fencepost.spark.requirements import PYSPARK_FOR_SOURCE, require_arrow, require_java, require_pyspark

POLL_SECONDS = 0.1
STOP_POLL_SECONDS = 0.02
LOCAL_MASTER = "local[*,4]"  # a task may fail: a Python worker that dies is no reason to end a query
LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
JVM_END_TIMEOUT_SECONDS = 10
WORKER_DID_NOT_START = "Python worker failed to connect back"
"""Spark gives a Python worker of a streaming source ten seconds, whatever is configured."""
QUIET_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
"""


def session(name: str, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session that fits the machine; `conf` has the last word. Says what is missing before it starts."""
    require_java()
    require_pyspark(PYSPARK_FOR_SOURCE, "a pipeline")
    require_arrow()
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    # Spark asks this Python which data sources there are, and would take another one from the path.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master is None or master.startswith("local"):
        # Executors on this machine, in this process or (local-cluster) in others.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if os.environ["PYSPARK_PYTHON"] == sys.executable and sys.platform == "linux":
            settings["spark.python.daemon.module"] = worker_daemon.__name__
    if master is None or master.startswith("local["):
        # Spark's default of 200 is for clusters; on one machine a batch would spend its time starting tasks.
        settings |= {**LOCAL_SETTINGS, "spark.sql.shuffle.partitions": str(os.cpu_count() or 2)}
    builder = SparkSession.builder.appName(name).master(master or LOCAL_MASTER)
    with tempfile.TemporaryDirectory(prefix="fencepost-logging-") as directory:
        logging = Path(directory, "log4j2.properties")
        logging.write_text(QUIET_LOGGING)
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={logging.as_uri()}"
        for setting, value in {**settings, **(conf or {})}.items():
            builder = builder.config(setting, value)
        _silence_accumulators()
        # While the JVM starts, this process would only wait; its first batch needs these.
        threading.Thread(target=importlib.import_module, args=("fencepost.spark.sink",), daemon=True).start()
        return builder.getOrCreate()


def _silence_accumulators() -> None:
    """Their server prints a traceback when the JVM dies; that it died is told by whoever runs the query."""
    for name in ("AccumulatorTCPServer", "AccumulatorUnixServer"):
        server = getattr(accumulators, name, None)
        if server is not None:
            server.handle_error = lambda self, request, client_address: None


def close(spark: SparkSession) -> None:
    """End the session and its JVM, whatever state they are in."""
    process = _java_process(spark)
    with contextlib.suppress(Exception):
        if process is None or process.poll() is None:
            spark.stop()
    if process is not None:
        assert process.stdin is not None
        process.stdin.close()  # the JVM ends with it
        try:
            process.wait(JVM_END_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def spark_is_lost(spark: SparkSession, error: BaseException) -> str | None:
    """What happened to Spark itself, so that the same query may be started again; None where the query has failed: a
    refusal of the sink, an error of the user's own code."""
    process = _java_process(spark)
    if process is not None:
        if isinstance(error, OSError | EOFError | Py4JError) and not isinstance(error, Py4JJavaError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(JVM_END_TIMEOUT_SECONDS)  # its connections break a moment before it has ended
        if (status := process.poll()) is not None:
            return f"Spark's Java process has died ({_described_end(status)})"
    if WORKER_DID_NOT_START in str(error) or _was_not_asked(str(error)):
        return "Spark could not start a Python worker in time"
    return None


def _was_not_asked(text: str) -> bool:
    """Spark asks a Python for its data sources, and takes it for an answer when that does not start in time."""
    is_this_one = os.environ.get("PYSPARK_DRIVER_PYTHON") == sys.executable
    return is_this_one and "DATA_SOURCE_NOT_FOUND" in text and "fencepost" in text


def _java_process(spark: SparkSession) -> "subprocess.Popen[bytes] | None":
    """The process that PySpark has started; None where it runs inside one that somebody else has started."""
    return getattr(spark.sparkContext._gateway, "proc", None)


def _described_end(status: int) -> str:
    try:
        return signal.Signals(-status).name if status < 0 else f"exit code {status}"
    except ValueError:
        return f"signal {-status}"


class Run:
    """One query of a pipeline in this process."""

    def __init__(self, pipeline: Declaration, spark: SparkSession, options: StartOptions) -> None:
        batch_states.reset(pipeline.name)
        self._name = pipeline.name
        self.is_stopping = False
        self.query = start(pipeline, spark, options)
        self.transaction_timeout = transaction_timeout_of(pipeline, spark, self.query, options)

    def progress(self) -> Iterator[Progress | None]:
        """The progress of each batch as it ends, and None in between so that the caller can look around. Ends with the
        query; raises what ended it."""
        last, seen = -1, ""
        while True:
            is_active = self.query.isActive
            newest = self.query.lastProgress
            if newest is not None and newest.timestamp != seen:
                seen = newest.timestamp
                for reported in self.query.recentProgress:
                    # A trigger without data is reported under the number of the batch to come.
                    if reported.batchId > last and (reported.numInputRows or self._is_done(reported.batchId)):
                        last = reported.batchId
                        yield progress_of(self._name, reported)
            if not is_active:
                break
            yield None
            if not self.is_stopping:
                self.query.awaitTermination(POLL_SECONDS)
        failure = self.query.exception()
        if failure is not None and not self.is_stopping:
            raise failure

    @property
    def state(self) -> batch_states.BatchState:
        """Of the batch under way, or of the last one."""
        return batch_states.state(self._name)

    def _is_done(self, batch: int) -> bool:
        return batch_states.state(self._name).batch >= batch

    def stop(self) -> None:
        """After the batch under way, which is committed to the log and to Spark's checkpoint."""
        self.is_stopping = True
        batch_states.close_gate(self._name)
        while self.query.isActive and not self._is_between_batches():
            time.sleep(STOP_POLL_SECONDS)
        batch_states.end(self._name)
        self.query.stop()

    def _is_between_batches(self) -> bool:
        if batch_states.is_inside(self._name):
            return False
        if batch_states.is_waiting(self._name):
            return True
        # Spark notes a batch in its checkpoint after our part of it: only then has it ended.
        last = self.query.lastProgress
        return not self.query.status["isTriggerActive"] or (last is not None and self._is_reported(last))

    def _is_reported(self, last: Any) -> bool:
        return int(last.batchId) >= batch_states.state(self._name).batch


def cause(error: BaseException) -> str:
    """The line of a failed query that says why: Spark wraps it in tracebacks, and adds its plans."""
    text = str(error).partition("=== Streaming Query ===")[0]
    found = re.findall(r"^(?:: )?((?:[A-Za-z_]\w*\.)*)([A-Z]\w+): (.+)$", text, re.MULTILINE)
    own = [
        said if module else f"{kind}: {said}"
        for module, kind, said in found
        if not kind.startswith(("Py4J", "StreamingQuery", "Spark")) and (module or hasattr(builtins, kind))
    ]
    sparks = [said for module, kind, said in found if module and kind.startswith("Spark")]
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    told = own[-1] if own else sparks[0] if sparks else first
    return re.sub(r"\s*SQLSTATE: \w+", "", told).strip()
